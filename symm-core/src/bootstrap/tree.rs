//! The binomial tree over a team's ranks, along which large teams exchange.
//!
//! Rank r's parent is r without its lowest set bit, so a subtree is a run of ranks and what it gathered is in rank order
//! as it comes. A gather takes ⌈log2 W⌉ messages on the critical path, as does the way back.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::pe::Pe;

/// One rank's place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    rank: usize,
    size: usize,
}

impl Place {
    pub(super) fn new(rank: usize, size: usize) -> Self {
        Place { rank, size }
    }

    /// `None` for rank 0, the root.
    pub(super) fn parent(self) -> Option<usize> {
        (self.rank > 0).then(|| self.rank & (self.rank - 1))
    }

    /// Ranks below this one and itself.
    pub(super) fn subtree(self) -> Range<usize> {
        let span = match self.rank {
            0 => self.size,
            r => 1 << r.trailing_zeros(),
        };
        self.rank..self.size.min(self.rank.saturating_add(span))
    }

    /// Children in ascending order, the smallest subtree first.
    pub(super) fn children(self) -> impl DoubleEndedIterator<Item = usize> {
        let end = self.subtree().end;
        let levels = if end - self.rank > 1 { (end - self.rank - 1).ilog2() + 1 } else { 0 };
        (0..levels).map(move |k| self.rank + (1 << k))
    }
}

/// Appends one rank's part.
pub(super) fn pack(packed: &mut Vec<u8>, part: &[u8]) {
    packed.extend_from_slice(&(part.len() as u32).to_le_bytes());
    packed.extend_from_slice(part);
}

/// The parts of all ranks, as they travel: a large world keeps what it knows of its PEs in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    /// Where each rank's part ends.
    ends: Vec<u32>,
}

impl Packed {
    /// The parts of `n` ranks that `from` sent.
    pub(super) fn read(op: &'static str, from: Pe, bytes: Vec<u8>, n: usize) -> Result<Self> {
        let wrong = || Error::Bootstrap {
            call: op,
            why: format!("PE {from} sent what is not the parts of {n} ranks"),
        };
        let mut ends = Vec::with_capacity(n);
        let mut rest = bytes.as_slice();
        for _ in 0..n {
            let (len, after) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
            let (_, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(wrong)?;
            rest = after;
            ends.push(u32::try_from(bytes.len() - rest.len()).map_err(|_| wrong())?);
        }
        if rest.is_empty() { Ok(Packed { bytes, ends }) } else { Err(wrong()) }
    }

    /// As it travels.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// One rank's part.
    pub(super) fn part(&self, rank: usize) -> Option<&[u8]> {
        let end = *self.ends.get(rank)? as usize;
        let start = rank.checked_sub(1).map_or(0, |r| self.ends[r] as usize) + 4;
        self.bytes.get(start..end)
    }

    /// Every rank's part, in rank order.
    pub(super) fn parts(&self) -> Vec<Vec<u8>> {
        (0..self.ends.len()).filter_map(|rank| self.part(rank)).map(<[u8]>::to_vec).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_but_the_root_is_the_child_of_its_parent_and_subtrees_are_runs() {
        for size in (1..70).chain([1000, 1024]) {
            let mut depth = 0;
            for rank in 0..size {
                let place = Place::new(rank, size);
                let mut covered = place.rank + 1;
                for child in place.children() {
                    let below = Place::new(child, size);
                    assert_eq!((below.parent(), below.subtree().start), (Some(rank), covered));
                    covered = below.subtree().end;
                }
                assert_eq!(place.subtree(), rank..covered);
                depth = depth
                    .max(std::iter::successors(Some(rank), |r| Place::new(*r, size).parent()).count() - 1);
            }
            assert_eq!(Place::new(0, size).subtree(), 0..size);
            assert!(1 << depth <= size.next_power_of_two(), "{size}: {depth}");
        }
    }

    #[test]
    fn parts_come_back_and_anything_else_is_refused() {
        let mut packed = Vec::new();
        for part in [&b"abc"[..], b"", b"d"] {
            pack(&mut packed, part);
        }
        let parts = |bytes: &[u8], n| Packed::read("test", Pe(1), bytes.to_vec(), n).map(|p| p.parts());
        assert_eq!(parts(&packed, 3), Ok(vec![b"abc".to_vec(), vec![], b"d".to_vec()]));
        assert!(parts(&packed, 2).is_err() && parts(&packed, 4).is_err());
        for end in 0..packed.len() {
            assert!(parts(&packed[..end], 3).is_err());
        }
        packed[0] = 0xff;
        assert!(parts(&packed, 3).is_err());
    }
}
