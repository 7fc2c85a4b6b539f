//! One operation of one size: how it is run, what it is compared with, and how its result is checked.

use symm::{
    AllToAllVdev, Backend, Cmp, Context, DType, Graph, Handle, Local, Options, Reach, Result, SignalOp,
    SignalUpdate, Span, Stream, Tensor, World,
};

use super::data::{self, Value};
use super::op::Op;
use super::splits::Splits;

/// Elements are made and compared in pieces of about this many bytes.
const PIECE: usize = 1 << 20;

/// Operations that are enqueued at most before they are waited for: queues hold what they are given.
const QUEUE: u64 = 1000;

/// What buffers are made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of the largest case.
    pub(crate) bytes: usize,
    /// Bytes of a row, in the forms that have rows.
    pub(crate) row: usize,
    /// Experts a PE.
    pub(crate) experts: usize,
    /// Root of broadcasts, a rank.
    pub(crate) root: usize,
    /// Blocks that an operation may occupy on a GPU.
    pub(crate) max_blocks: Option<u32>,
}

/// Memory that all cases of a run share.
pub(crate) struct Buffers<T: Value> {
    world: World,
    pub(crate) stream: Stream,
    limits: Limits,
    context: Context,
    /// What this PE sends.
    input: Local,
    /// Where results of its own go, and copies.
    result: Local,
    /// What peers reach.
    symmetric: Tensor,
    in_splits: Local,
    out_splits_offsets: Local,
    rounds: std::cell::Cell<u64>,
    piece: std::cell::RefCell<Vec<T>>,
}

impl<T: Value> Buffers<T> {
    /// Bytes that all buffers of one PE take, about.
    pub(crate) fn bytes(limits: &Limits, pes: usize) -> u64 {
        let splits = Splits::rows_bound(pes, limits.experts) as u64;
        3 * limits.bytes as u64 + splits * limits.row as u64 + PIECE as u64
    }

    /// Allocates.
    ///
    /// # Collective
    /// Over the world.
    pub(crate) fn new(world: &World, limits: Limits) -> Result<Self> {
        let team = world.team();
        let pes = team.world_size();
        let elements = (limits.bytes / size_of::<T>()).max(1).next_multiple_of(pes);
        let row = (limits.row / size_of::<T>()).max(1);
        let splits = pes * limits.experts;
        let context = match team.context() {
            own if own.max_splits() >= splits => own.clone(),
            _ => team.new_context(splits)?,
        };
        Ok(Buffers {
            world: world.clone(),
            stream: world.stream()?,
            limits,
            context,
            input: world.local(T::DTYPE, elements)?,
            result: world.local(T::DTYPE, elements)?,
            symmetric: team.empty(&[elements + Splits::rows_bound(pes, limits.experts) * row], T::DTYPE)?,
            in_splits: world.local(DType::I64, splits)?,
            out_splits_offsets: world.local(DType::I64, 2 * splits)?,
            rounds: std::cell::Cell::new(0),
            piece: std::cell::RefCell::new(vec![T::zeroed(); PIECE / size_of::<T>()]),
        })
    }

    /// A case of about `bytes` bytes: as many as make equal parts or whole rows.
    ///
    /// # Collective
    /// Over the world, with the same arguments.
    pub(crate) fn case(&self, op: Op, bytes: usize) -> Result<Case<'_, T>> {
        let pes = self.world.n_pes();
        let elements = bytes.min(self.limits.bytes) / size_of::<T>();
        let row = (self.limits.row / size_of::<T>()).clamp(1, elements.max(1));
        let count = match op {
            Op::Barrier => 0,
            op if op.has_parts() => (elements / pes).max(1) * pes,
            op if op.has_splits() => (elements / row).max(1) * row,
            _ => elements.max(1),
        };
        let splits = match op {
            Op::Vdev => Splits::new(pes, 1, count / row, false),
            _ => Splits::new(pes, self.limits.experts, count / row, true),
        };
        // Forms with splits may leave gaps, so their output is all there is.
        let reached = if op.has_splits() { self.symmetric.len() } else { count.max(1) };
        let handle = self.symmetric.view(0, &[reached])?.rendezvous(self.world.team())?;
        let ne = splits.experts();
        if op.has_splits() {
            let of_op = self.in_splits.span().slice(0, pes * ne)?;
            self.stream.write(&of_op, &splits.of(handle.rank()))?;
        }
        Ok(Case { b: self, op, count, row, splits, handle })
    }
}

/// One operation of one size.
pub(crate) struct Case<'a, T: Value> {
    b: &'a Buffers<T>,
    pub(crate) op: Op,
    /// Elements that the size counts.
    pub(crate) count: usize,
    row: usize,
    splits: Splits,
    handle: Handle,
}

impl<T: Value> Case<'_, T> {
    /// Bytes that the size counts.
    pub(crate) fn size(&self) -> usize {
        self.count * size_of::<T>()
    }

    fn pes(&self) -> usize {
        self.handle.world_size()
    }

    fn right(&self) -> usize {
        (self.handle.rank() + 1) % self.pes()
    }

    fn left(&self) -> usize {
        (self.handle.rank() + self.pes() - 1) % self.pes()
    }

    fn options(&self) -> Options {
        Options { max_blocks: self.b.limits.max_blocks, ..Options::default() }
    }

    /// Gives this PE's buffers what the operation starts from.
    pub(crate) fn reset(&self) -> Result<()> {
        let (b, me) = (self.b, self.handle.rank());
        let input = b.input.span().slice(0, self.count)?;
        self.write(&input, |first, out| data::fill(me, first, out))?;
        b.stream.fill(&b.result.span().slice(0, self.count)?, 0xff)?;
        let shared = self.handle.span();
        let starts_there =
            self.op.reduces() || self.op == Op::Get || (self.op == Op::Broadcast && me == self.b.limits.root);
        if starts_there {
            self.write(&shared, |first, out| data::fill(me, first, out))?;
        } else {
            b.stream.fill(&shared, 0xff)?;
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

    fn enqueue(&self) -> Result<()> {
        let (b, context, stream, options) = (self.b, &self.b.context, &self.b.stream, self.options());
        let input = || b.input.span().slice(0, self.count);
        let result = |n: usize| b.result.span().slice(0, n);
        match self.op {
            Op::Put => self.handle.put(stream, self.right(), 0, &input()?),
            Op::Get => self.handle.get(stream, self.right(), 0, &result(self.count)?),
            Op::Signal => {
                let value = b.rounds.get() + 1;
                b.rounds.set(value);
                let signal = SignalUpdate { index: 0, op: SignalOp::Set, value };
                self.handle.put_with_signal(stream, self.right(), 0, &input()?, signal)?;
                self.handle.wait_until(stream, 0, Cmp::Ge, value, None)
            }
            Op::Barrier | Op::AllReduce => context.barrier(stream, options),
            Op::AllGather => {
                let part = b.input.span().slice(0, self.count / self.pes())?;
                context.all_gather(stream, &part, &self.handle, options)
            }
            Op::OneShotAllReduce => {
                context.one_shot_all_reduce_out(stream, &self.handle, &result(self.count)?, options)
            }
            Op::TwoShotAllReduce => context.two_shot_all_reduce(stream, &self.handle, options),
            Op::ReduceScatter => {
                let out = result(self.count / self.pes())?;
                context.reduce_scatter(stream, &self.handle, &out, options)
            }
            Op::Broadcast => context.broadcast(stream, &self.handle, b.limits.root, options),
            Op::AllToAll => context.all_to_all(stream, &input()?, &self.handle, options),
            Op::Vdev | Op::Vdev2d => {
                let splits = self.pes() * self.splits.experts();
                let args = AllToAllVdev {
                    input: &input()?,
                    output: &self.handle,
                    in_splits: &b.in_splits.span().slice(0, splits)?,
                    out_splits_offsets: &b.out_splits_offsets.span().slice(0, 2 * splits)?,
                    row: self.row,
                    options,
                };
                match self.op {
                    Op::Vdev => context.all_to_all_vdev(stream, &args),
                    _ => context.all_to_all_vdev_2d(stream, &args, 1),
                }
            }
        }
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
                let n = left.min(self.count);
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

    /// Runs the operation once from a fresh start and counts the values of this PE that are wrong; `corrupt` changes one
    /// before they are looked at.
    ///
    /// # Collective
    /// Over the world.
    pub(crate) fn check(&self, corrupt: bool) -> Result<u64> {
        self.reset()?;
        self.run(1)?;
        self.meet()?;
        let b = self.b;
        let (me, pes) = (self.handle.rank(), self.pes());
        let shared = self.handle.span();
        let result = b.result.span();
        if corrupt && self.count > 0 {
            let at = if matches!(self.op, Op::Get | Op::OneShotAllReduce | Op::ReduceScatter) {
                &result
            } else {
                &shared
            };
            b.stream.write(&at.slice(0, 1)?, &[T::of(127)])?;
        }
        let part = self.count / pes;
        let wrong = match self.op {
            Op::Barrier | Op::AllReduce => 0,
            Op::Put | Op::Signal => self.differ(&shared, 0, self.count, self.left(), 0)?,
            Op::Get => self.differ(&result, 0, self.count, self.right(), 0)?,
            Op::Broadcast => self.differ(&shared, 0, self.count, b.limits.root, 0)?,
            Op::OneShotAllReduce => self.differ_from_sum(&result, self.count, 0)?,
            Op::TwoShotAllReduce => self.differ_from_sum(&shared, self.count, 0)?,
            Op::ReduceScatter => self.differ_from_sum(&result, part, me * part)?,
            Op::AllGather => {
                let each = (0..pes).map(|rank| self.differ(&shared, rank * part, part, rank, 0));
                each.sum::<Result<u64>>()?
            }
            Op::AllToAll => {
                let each = (0..pes).map(|rank| self.differ(&shared, rank * part, part, rank, me * part));
                each.sum::<Result<u64>>()?
            }
            Op::Vdev | Op::Vdev2d => {
                let row = self.row;
                let of = |p: &super::splits::Piece| {
                    self.differ(&shared, p.to * row, p.rows * row, p.source, p.from * row)
                };
                self.splits.received(me).iter().map(of).sum::<Result<u64>>()?
            }
        };
        // Peers write these buffers again only when all have looked.
        self.meet()?;
        Ok(wrong)
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
