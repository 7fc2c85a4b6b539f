//! What a case must leave, and how many values are not that.

use symm::{Result, Span};

use super::case::{Case, POISON};
use super::data::{self, Value};
use super::op::Op;

impl<T: Value> Case<'_, T> {
    /// Runs the operation once from a fresh start and counts the values of this PE that are wrong; `corrupt` changes one
    /// before they are looked at.
    ///
    /// # Collective
    /// Over the world.
    pub(crate) fn check(&self, corrupt: bool) -> Result<u64> {
        self.reset()?;
        self.run(1)?;
        self.meet()?;
        if corrupt && self.count > 0 {
            let at = if self.op.ends_in_own_memory() { self.b.result.span() } else { self.handle.span() };
            self.b.stream.write(&at.slice(0, 1)?, &[T::of(127)])?;
        }
        let wrong = self.wrong()?;
        // Peers write these buffers again only when all have looked.
        self.meet()?;
        Ok(wrong)
    }

    fn wrong(&self) -> Result<u64> {
        let (b, me, pes) = (self.b, self.handle.rank(), self.pes());
        let (shared, result) = (self.handle.span(), b.result.span());
        let part = self.count / pes;
        let by_rank = |span: &Span, first: usize| {
            let each = (0..pes).map(|rank| self.differ(span, rank * part, part, rank, first));
            each.sum::<Result<u64>>()
        };
        // Block r of a matrix of W blocks side by side, and element i of it.
        let (cols, wide) = (self.shape.cols.max(1), self.shape.cols * pes);
        let in_block = |r: usize, i: usize| i / cols * wide + r * cols + i % cols;
        match self.op {
            Op::Barrier | Op::AllReduce | Op::Plan => Ok(0),
            Op::Put | Op::Signal => self.differ(&shared, 0, self.count, self.left(), 0),
            Op::Get => self.differ(&result, 0, self.count, self.right(), 0),
            Op::Broadcast => self.differ(&shared, 0, self.count, b.limits.root, 0),
            Op::OneShotAllReduce => self.differ_from_sum(&result, self.count, 0),
            Op::TwoShotAllReduce => self.differ_from_sum(&shared, self.count, 0),
            Op::ReduceScatter | Op::LowContentionReduceScatter => {
                self.differ_from_sum(&result, part, me * part)
            }
            Op::AllGather => by_rank(&shared, 0),
            Op::LowContentionAllGather => by_rank(&result, 0),
            Op::AllToAll => by_rank(&shared, me * part),
            Op::LowContentionAllToAll => by_rank(&result, me * part),
            Op::AllToAllNd => self.look(&result, 0, self.count, |first, got| {
                data::differ_from(got, |i| ((first + i) / part, in_block(me, (first + i) % part)))
            }),
            Op::ReduceScatterOffset | Op::MultiRootTileReduce => self.look(&result, 0, part, |first, got| {
                data::differ_from_sums(pes, got, |i| in_block(me, first + i))
            }),
            // A tile beside another one, as wide.
            Op::TileReduce if me == b.limits.root => self.look(&result, 0, self.count, |first, got| {
                data::differ_from_sums(pes, got, |i| (first + i) / cols * 2 * cols + (first + i) % cols)
            }),
            Op::TileReduce => self
                .look(&result, 0, self.count, |_, got| data::differ_from_byte(POISON, got))
                .map(|n| n.min(1)),
            Op::Vdev | Op::Vdev2d | Op::PlanDispatch => self.differ_from_dispatched(&shared),
            Op::Combine => self.differ(&shared, 0, self.count, me, 0),
            Op::PlanRound => {
                let back = self
                    .back
                    .as_ref()
                    .map_or(Ok(0), |back| self.differ(&back.span(), 0, self.count, me, 0))?;
                Ok(back + self.differ_from_dispatched(&shared)?)
            }
        }
    }

    /// Rows of a dispatch's output that are not where and what they should be.
    fn differ_from_dispatched(&self, output: &Span) -> Result<u64> {
        let row = self.shape.row;
        let pieces = self.splits.received(self.handle.rank());
        let of =
            |p: &super::splits::Piece| self.differ(output, p.to * row, p.rows * row, p.source, p.from * row);
        pieces.iter().map(of).sum()
    }

    /// Elements `at..at + n` of a span that are not those of `rank`'s buffer from `first` on.
    fn differ(&self, span: &Span, at: usize, n: usize, rank: usize, first: usize) -> Result<u64> {
        self.look(span, at, n, |i, got| data::differ(rank, first + i, got))
    }

    fn differ_from_sum(&self, span: &Span, n: usize, first: usize) -> Result<u64> {
        self.look(span, 0, n, |i, got| data::differ_from_sum(self.pes(), first + i, got))
    }

    fn look(&self, span: &Span, at: usize, n: usize, wrong: impl Fn(usize, &[T]) -> u64) -> Result<u64> {
        let mut piece = self.b.piece.borrow_mut();
        let mut all = 0;
        for first in (0..n).step_by(piece.len()) {
            let m = piece.len().min(n - first);
            self.b.stream.read_into(&span.slice(at + first, m)?, &mut piece[..m])?;
            all += wrong(first, &piece[..m]);
        }
        Ok(all)
    }
}
