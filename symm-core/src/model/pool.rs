//! Placement of allocations in segments.
//!
//! Small allocations share a segment; a large one gets its own. A block is handed out zero or more times one after
//! the other, never twice at once. First fit over address-ordered free ranges, which keeps the ends of segments free.

use std::collections::BTreeMap;

use crate::backend::Backend;
use crate::error::Result;
use crate::layout::ALIGN;

/// Free ranges of one segment: offset → bytes, never adjacent to each other.
#[derive(Debug)]
struct FreeRanges {
    ranges: BTreeMap<usize, usize>,
}

impl FreeRanges {
    fn new(bytes: usize) -> Self {
        FreeRanges { ranges: BTreeMap::from([(0, bytes)]) }
    }

    fn take(&mut self, bytes: usize) -> Option<usize> {
        let (&offset, &have) = self.ranges.iter().find(|(_, have)| **have >= bytes)?;
        self.ranges.remove(&offset);
        if have > bytes {
            self.ranges.insert(offset + bytes, have - bytes);
        }
        Some(offset)
    }

    fn give(&mut self, mut offset: usize, mut bytes: usize) {
        if let Some((&before, &have)) = self.ranges.range(..offset).next_back()
            && before + have == offset
        {
            self.ranges.remove(&before);
            (offset, bytes) = (before, have + bytes);
        }
        if let Some(have) = self.ranges.remove(&(offset + bytes)) {
            bytes += have;
        }
        self.ranges.insert(offset, bytes);
    }
}

/// Bytes that an allocation of `bytes` bytes takes. Saturates to a size that nothing can allocate.
fn block_bytes(bytes: usize) -> usize {
    bytes.max(1).checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX & !(ALIGN - 1))
}

/// Whether a block has a segment of its own.
fn is_dedicated(bytes: usize, segment_bytes: usize) -> bool {
    bytes > segment_bytes / 8
}

/// Bytes of the segments that a pool asks its backend for to serve these allocations, none of which is freed.
pub(crate) fn segments(segment_bytes: usize, allocations: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let (mut segments, mut shared) = (Vec::new(), Vec::new());
    for bytes in allocations.into_iter().map(block_bytes) {
        if is_dedicated(bytes, segment_bytes) {
            segments.push(bytes);
        } else if let Some(free) = shared.iter_mut().find(|free| **free >= bytes) {
            *free -= bytes;
        } else {
            segments.push(segment_bytes);
            shared.push(segment_bytes - bytes);
        }
    }
    segments
}

/// Bytes of a segment in use by one allocation.
#[derive(Debug)]
pub(crate) struct Block<B: Backend> {
    pub(crate) segment: B::Segment,
    /// Number of the segment, unique on this PE, never used again.
    pub(crate) segment_id: u64,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    /// The segment holds nothing else and goes with the block.
    pub(crate) dedicated: bool,
}

#[derive(Debug)]
struct PoolSegment<B: Backend> {
    segment: B::Segment,
    free: FreeRanges,
}

/// Segments of one use: data, internal words, or memory that is never shared.
#[derive(Debug)]
pub(crate) struct Pool<B: Backend> {
    segments: BTreeMap<u64, PoolSegment<B>>,
    segment_bytes: usize,
}

impl<B: Backend> Pool<B> {
    /// A pool whose shared segments have `segment_bytes` bytes.
    pub(crate) fn new(segment_bytes: usize) -> Self {
        Pool { segments: BTreeMap::new(), segment_bytes }
    }

    /// Takes a block of at least `bytes` bytes; `next_id` numbers a segment if one has to be made.
    pub(crate) fn take(&mut self, backend: &B, bytes: usize, next_id: &mut u64) -> Result<Block<B>> {
        let bytes = block_bytes(bytes);
        if is_dedicated(bytes, self.segment_bytes) {
            let segment = backend.allocate(bytes)?;
            *next_id += 1;
            return Ok(Block { segment, segment_id: *next_id, offset: 0, bytes, dedicated: true });
        }
        for (&segment_id, s) in &mut self.segments {
            if let Some(offset) = s.free.take(bytes) {
                return Ok(Block { segment: s.segment.clone(), segment_id, offset, bytes, dedicated: false });
            }
        }
        let segment = backend.allocate(self.segment_bytes)?;
        *next_id += 1;
        let mut free = FreeRanges::new(self.segment_bytes);
        let offset = free.take(bytes).unwrap_or(0);
        self.segments.insert(*next_id, PoolSegment { segment: segment.clone(), free });
        Ok(Block { segment, segment_id: *next_id, offset, bytes, dedicated: false })
    }

    /// Gives a block back. A dedicated segment is freed with it.
    pub(crate) fn give(&mut self, block: Block<B>) {
        if !block.dedicated
            && let Some(s) = self.segments.get_mut(&block.segment_id)
        {
            s.free.give(block.offset, block.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FreeRanges, segments};

    #[test]
    fn ranges_join_again_in_any_order() {
        let mut f = FreeRanges::new(1000);
        let a = f.take(100).expect("room");
        let b = f.take(200).expect("room");
        let c = f.take(300).expect("room");
        assert_eq!((a, b, c), (0, 100, 300));
        assert_eq!(f.take(500), None);
        f.give(b, 200);
        f.give(a, 100);
        assert_eq!(f.take(300), Some(0));
        f.give(0, 300);
        f.give(c, 300);
        assert_eq!(f.take(1000), Some(0));
        assert!(f.ranges.is_empty());
    }

    #[test]
    fn small_allocations_share_a_segment_and_large_ones_do_not() {
        assert_eq!(segments(4096, [1, 512, 513, 0]), [4096, 768]);
        assert_eq!(segments(4096, [512; 9]), [4096, 4096]);
        assert_eq!(segments(4096, []), [0usize; 0]);
        assert!(segments(4096, [usize::MAX])[0] > isize::MAX as usize);
    }
}
