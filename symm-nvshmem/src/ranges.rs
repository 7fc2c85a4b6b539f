//! Which bytes of the heap are free: offsets and lengths only.

use std::collections::BTreeMap;

/// Every range begins at a multiple of this: no two of them share a line that the network or a peer's GPU writes whole.
pub(crate) const ALIGN: usize = 512;

/// Free ranges of `0..bytes`: offset → length, never adjacent to each other.
#[derive(Debug)]
pub(crate) struct Ranges {
    free: BTreeMap<usize, usize>,
}

impl Ranges {
    pub(crate) fn new(bytes: usize) -> Self {
        let bytes = bytes / ALIGN * ALIGN;
        let free = if bytes == 0 { BTreeMap::new() } else { BTreeMap::from([(0, bytes)]) };
        Ranges { free }
    }

    /// Bytes that a request takes.
    pub(crate) fn rounded(bytes: usize) -> Option<usize> {
        bytes.max(1).checked_next_multiple_of(ALIGN)
    }

    /// Takes the smallest range that holds `bytes` bytes, a [rounded](Self::rounded) number, from its beginning: large ranges
    /// stay whole for large requests.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<usize> {
        let fits = self.free.iter().filter(|(_, have)| **have >= bytes);
        let (&offset, &have) = fits.min_by_key(|(offset, have)| (**have, **offset))?;
        self.free.remove(&offset);
        if have > bytes {
            self.free.insert(offset + bytes, have - bytes);
        }
        Some(offset)
    }

    /// Gives back what `take` gave, in any order.
    pub(crate) fn give(&mut self, mut offset: usize, mut bytes: usize) {
        if let Some((&before, &have)) = self.free.range(..offset).next_back()
            && before + have == offset
        {
            self.free.remove(&before);
            (offset, bytes) = (before, have + bytes);
        }
        if let Some(have) = self.free.remove(&(offset + bytes)) {
            bytes += have;
        }
        self.free.insert(offset, bytes);
    }

    /// Length of the longest free range.
    pub(crate) fn longest(&self) -> usize {
        self.free.values().copied().max().unwrap_or(0)
    }

    /// Free bytes.
    pub(crate) fn left(&self) -> usize {
        self.free.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_again_in_any_order() {
        let mut r = Ranges::new(10 * ALIGN + 5);
        let taken: Vec<_> = (1..=4).map(|n| (r.take(n * ALIGN).expect("room"), n * ALIGN)).collect();
        assert_eq!(r.take(1), None, "all ten are taken");
        for k in [2, 0, 3, 1] {
            let (offset, bytes) = taken[k];
            r.give(offset, bytes);
        }
        assert_eq!((r.longest(), r.left(), r.free.len()), (10 * ALIGN, 10 * ALIGN, 1));
    }

    #[test]
    fn taken_ranges_never_overlap() {
        let mut r = Ranges::new(64 * ALIGN);
        let mut held: Vec<(usize, usize)> = Vec::new();
        let mut seed = 1u64;
        for _ in 0..5000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pick = (seed >> 33) as usize;
            if pick.is_multiple_of(3) && !held.is_empty() {
                let (offset, bytes) = held.swap_remove(pick / 3 % held.len());
                r.give(offset, bytes);
                continue;
            }
            let bytes = (pick % 9 + 1) * ALIGN;
            if let Some(offset) = r.take(bytes) {
                assert!(held.iter().all(|(o, b)| offset + bytes <= *o || o + b <= offset));
                assert!(offset % ALIGN == 0 && offset + bytes <= 64 * ALIGN);
                held.push((offset, bytes));
            } else {
                assert!(r.longest() < bytes);
            }
            assert_eq!(r.left() + held.iter().map(|h| h.1).sum::<usize>(), 64 * ALIGN);
        }
    }

    #[test]
    fn the_smallest_fit_keeps_large_ranges_whole() {
        let mut r = Ranges::new(20 * ALIGN);
        let a = r.take(2 * ALIGN).expect("room");
        let _b = r.take(ALIGN).expect("room");
        r.give(a, 2 * ALIGN);
        assert_eq!(r.take(ALIGN), Some(a));
        assert_eq!(r.longest(), 17 * ALIGN);
    }

    #[test]
    fn requests_are_rounded_or_refused() {
        assert_eq!(Ranges::rounded(0), Some(ALIGN));
        assert_eq!(Ranges::rounded(ALIGN + 1), Some(2 * ALIGN));
        assert_eq!(Ranges::rounded(usize::MAX), None);
        assert_eq!(Ranges::new(ALIGN - 1).take(ALIGN), None);
    }
}
