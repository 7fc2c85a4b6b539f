//! One operation of one size: how it is run, what it is compared with, and how its result is checked.

use std::cell::RefCell;

use symm::{Backend, ExchangePlan, Graph, Handle, Options, Reach, Result, Span};

use super::buffers::Buffers;
use super::data::{self, Value};
use super::op::Op;
use super::splits::Splits;

/// Operations that are enqueued at most before they are waited for: queues hold what they are given.
const QUEUE: u64 = 1000;

/// What memory holds that nothing was written to.
pub(super) const POISON: u8 = 0xff;

/// One operation of one size.
pub(crate) struct Case<'a, T: Value> {
    pub(super) b: &'a Buffers<T>,
    pub(crate) op: Op,
    /// Elements that the size counts.
    pub(crate) count: usize,
    pub(super) shape: Shape,
    pub(super) splits: Splits,
    pub(super) handle: Handle,
    /// Where rows come back to.
    pub(super) back: Option<Handle>,
    pub(super) plan: RefCell<Option<ExchangePlan<'a>>>,
}

/// Elements of a row, rows, and columns of a block, in the forms that have them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
}

impl<T: Value> Case<'_, T> {
    /// Bytes that the size counts.
    pub(crate) fn size(&self) -> usize {
        self.count * size_of::<T>()
    }

    pub(super) fn pes(&self) -> usize {
        self.handle.world_size()
    }

    pub(super) fn right(&self) -> usize {
        (self.handle.rank() + 1) % self.pes()
    }

    pub(super) fn left(&self) -> usize {
        (self.handle.rank() + self.pes() - 1) % self.pes()
    }

    pub(super) fn options(&self) -> Options {
        Options { max_blocks: self.b.limits.max_blocks, ..Options::default() }
    }

    /// Gives this PE's buffers what the operation starts from.
    pub(crate) fn reset(&self) -> Result<()> {
        let (b, me) = (self.b, self.handle.rank());
        if self.op == Op::Combine {
            // What a dispatch leaves, in memory of this PE.
            let row = self.shape.row;
            for p in self.splits.received(me) {
                let piece = b.input.span().slice(p.to * row, p.rows * row)?;
                self.write(&piece, |first, out| data::fill(p.source, p.from * row + first, out))?;
            }
        } else {
            let input = b.input.span().slice(0, self.count)?;
            self.write(&input, |first, out| data::fill(me, first, out))?;
        }
        b.stream.fill(&b.result.span().slice(0, self.count)?, POISON)?;
        if let Some(back) = &self.back {
            b.stream.fill(&back.span(), POISON)?;
        }
        let shared = self.handle.span();
        let root = self.op == Op::Broadcast && me == b.limits.root;
        if self.op.starts_from_shared() || root {
            self.write(&shared, |first, out| data::fill(me, first, out))?;
        } else {
            b.stream.fill(&shared, POISON)?;
        }
        self.meet()
    }

    /// Gives buffers that the operation adds up in place zeros, so that repetition does not make them grow.
    pub(crate) fn calm(&self) -> Result<()> {
        if self.op == Op::TwoShotAllReduce {
            self.b.stream.fill(&self.handle.span(), 0)?;
        }
        self.meet()
    }

    /// All PEs have come here, and what they enqueued is done.
    pub(crate) fn meet(&self) -> Result<()> {
        self.b.context.barrier(&self.b.stream, Options::default())?;
        self.b.stream.synchronize()
    }

    /// Runs the operation so many times, and returns when all is delivered.
    ///
    /// # Collective
    /// Over the world.
    pub(crate) fn run(&self, iterations: u64) -> Result<()> {
        for done in 1..=iterations {
            self.enqueue()?;
            if done % QUEUE == 0 {
                self.b.stream.synchronize()?;
            }
        }
        if self.op == Op::Put {
            self.b.stream.quiet(self.b.world.team(), None)?;
        }
        self.b.stream.synchronize()
    }

    /// The operation so many times, as a graph.
    ///
    /// # Collective
    /// Over the world.
    pub(crate) fn capture(&self, operations: u64) -> Result<Graph> {
        self.b.stream.begin_capture()?;
        let enqueued = (0..operations).try_for_each(|_| self.enqueue()).and_then(|()| match self.op {
            Op::Put => self.b.stream.quiet(self.b.world.team(), None),
            _ => Ok(()),
        });
        // Ended in any case, so that the stream can be used again.
        let graph = self.b.stream.end_capture();
        enqueued.and(graph)
    }

    /// Replays a graph of this case so many times, and returns when all is delivered.
    ///
    /// # Collective
    /// Over the world.
    pub(crate) fn replay(&self, graph: &Graph, launches: u64) -> Result<()> {
        for _ in 0..launches {
            // SAFETY: the graph has no spans but of this case's buffers, which keep themselves valid; all launches are on
            // one stream, so they do not overlap; every PE replays the same graphs in the same order.
            unsafe { self.b.stream.launch(graph) }?;
        }
        self.b.stream.synchronize()
    }

    /// Copies as many bytes as the operation moves, so many times: what the machine can do at best. On a host to memory of
    /// this PE, on GPUs by the copy engine to the right neighbour where that is direct.
    pub(crate) fn copy(&self, iterations: u64) -> Result<()> {
        let (b, right) = (self.b, self.right());
        let traffic = self.op.traffic(self.pes(), self.size());
        let on_host = b.world.backend().name() == "host";
        let bytes = if on_host || traffic.wire == 0.0 { traffic.wire + traffic.local } else { traffic.wire };
        let elements = (bytes / size_of::<T>() as f64) as usize;
        let remote = !on_host && b.world.reach(b.world.team().members()[right]) == Reach::Direct;
        for _ in 0..iterations {
            // More than the buffers hold is copied in several rounds.
            let mut left = elements;
            while left > 0 {
                let n = left.min(self.count).min(if remote { self.handle.len() } else { usize::MAX });
                let to = if remote {
                    self.handle.get_remote_tensor(right, &[n], T::DTYPE)?
                } else {
                    b.result.span().slice(0, n)?
                };
                b.stream.copy(&to, &b.input.span().slice(0, n)?)?;
                left -= n;
            }
        }
        b.stream.synchronize()
    }

    /// Writes all elements of a span, a piece at a time.
    fn write(&self, span: &Span, make: impl Fn(usize, &mut [T])) -> Result<()> {
        let mut piece = self.b.piece.borrow_mut();
        for first in (0..span.len()).step_by(piece.len()) {
            let n = piece.len().min(span.len() - first);
            make(first, &mut piece[..n]);
            self.b.stream.write(&span.slice(first, n)?, &piece[..n])?;
        }
        Ok(())
    }
}
