//! What a PE takes out of the members' symmetric buffers, in the forms that take.

use super::Addr;

/// Blocks that one operation takes at most.
pub const MAX_TAKES: usize = 16;

/// A block of every member's symmetric buffer: `rows` runs of `cols` elements. The forms that
/// [sum](super::Form::sums_takes) add up the block of all members, in rank order; the others copy every member's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Take {
    /// First element in a buffer, the same on every member.
    pub src: u64,
    /// Elements from one run's first to the next one's, in a buffer.
    pub src_stride: u64,
    /// Runs.
    pub rows: u64,
    /// Elements of a run.
    pub cols: u64,
    /// Where the first run goes: memory of this PE, aligned to an element where blocks are summed.
    pub dst: Addr,
    /// Elements from one run's first to the next one's, at the destination.
    pub dst_stride: u64,
    /// Elements from where one rank's block goes to where the next rank's goes; 0 where blocks are summed.
    pub dst_step: u64,
}

impl Take {
    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.cols == 0
    }

    /// Elements of a buffer up to the end of the block; 0 for an empty one. Saturates.
    pub fn src_end(&self) -> u64 {
        self.end_of(self.src, self.src_stride)
    }

    /// Elements at the destination up to the end of the last of `ranks` blocks; 0 for an empty one. Saturates.
    pub fn dst_end(&self, ranks: usize) -> u64 {
        let last = self.dst_step.saturating_mul((ranks as u64).saturating_sub(1));
        self.end_of(last, self.dst_stride)
    }

    fn end_of(&self, first: u64, stride: u64) -> u64 {
        if self.is_empty() {
            return 0;
        }
        (self.rows - 1).saturating_mul(stride).saturating_add(self.cols).saturating_add(first)
    }

    /// The same block as one run where its runs follow one another on both sides.
    #[must_use]
    pub fn joined(self) -> Take {
        if self.rows > 1 && self.src_stride == self.cols && self.dst_stride == self.cols {
            let cols = self.rows.saturating_mul(self.cols);
            return Take { rows: 1, cols, src_stride: cols, dst_stride: cols, ..self };
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_joined_runs() {
        let t = Take { src: 5, src_stride: 10, rows: 3, cols: 4, dst: Addr(64), dst_stride: 4, dst_step: 12 };
        assert_eq!((t.src_end(), t.dst_end(1), t.dst_end(2)), (29, 12, 24));
        assert_eq!(t.joined(), t);
        let dense = Take { src_stride: 4, ..t };
        assert_eq!(dense.joined(), Take { rows: 1, cols: 12, src_stride: 12, dst_stride: 12, ..dense });
        assert_eq!((dense.joined().src_end(), dense.joined().dst_end(2)), (17, 24));
        let none = Take { cols: 0, ..t };
        assert_eq!((none.src_end(), none.dst_end(2), none.is_empty()), (0, 0, true));
        assert_eq!(Take { src: u64::MAX, ..t }.src_end(), u64::MAX);
    }
}
