//! Memory that the cases of a run share, and the cases that are made of it.

use std::cell::{Cell, RefCell};

use symm::{Context, DType, Local, PlanBuffers, Result, Stream, Tensor, World};

use super::case::{Case, Shape};
use super::data::Value;
use super::op::Op;
use super::splits::Splits;

/// Elements are made and compared in pieces of about this many bytes.
const PIECE: usize = 1 << 20;

/// What buffers are made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of the largest case.
    pub(crate) bytes: usize,
    /// Bytes of a row, in the forms that have rows.
    pub(crate) row: usize,
    /// Experts a PE.
    pub(crate) experts: usize,
    /// Root of broadcasts and of single tiles, a rank.
    pub(crate) root: usize,
    /// Blocks that an operation may occupy on a GPU.
    pub(crate) max_blocks: Option<u32>,
}

/// Elements of the buffers that `ops` need.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Needs {
    input: usize,
    result: usize,
    symmetric: usize,
}

impl Needs {
    fn of<T: Value>(ops: &[Op], limits: &Limits, pes: usize) -> Self {
        let all = (limits.bytes / size_of::<T>()).max(1).next_multiple_of(pes);
        let row = (limits.row / size_of::<T>()).max(1);
        // What a dispatch leaves may have gaps, and more rows than were sent.
        let dispatched = all.saturating_add(Splits::rows_bound(pes, limits.experts).saturating_mul(row));
        let any = |of: fn(Op) -> bool| ops.iter().any(|op| of(*op));
        let symmetric = match () {
            () if any(|op| op == Op::PlanRound) => dispatched.saturating_add(all),
            () if any(Op::has_splits) => dispatched.max(2 * all),
            () => 2 * all,
        };
        let twice = any(Op::has_splits) || any(|op| op == Op::TileReduce);
        Needs {
            input: if any(|op| op == Op::Combine) { dispatched } else { all },
            result: all,
            symmetric: if twice { symmetric } else { all },
        }
    }
}

/// Memory that all cases of a run share.
pub(crate) struct Buffers<T: Value> {
    pub(super) world: World,
    pub(crate) stream: Stream,
    pub(super) limits: Limits,
    pub(super) context: Context,
    /// What this PE sends.
    pub(super) input: Local,
    /// Where results of its own go, and copies.
    pub(super) result: Local,
    /// What peers reach.
    pub(super) symmetric: Tensor,
    pub(super) in_splits: Local,
    pub(super) out_splits_offsets: Local,
    pub(super) rounds: Cell<u64>,
    pub(super) piece: RefCell<Vec<T>>,
}

impl<T: Value> Buffers<T> {
    /// Bytes that all buffers of one PE take, about.
    pub(crate) fn bytes(ops: &[Op], limits: &Limits, pes: usize) -> u64 {
        let Needs { input, result, symmetric } = Needs::of::<T>(ops, limits, pes);
        let elements = [input, result, symmetric].into_iter().fold(0, usize::saturating_add);
        (elements as u64).saturating_mul(size_of::<T>() as u64).saturating_add(PIECE as u64)
    }

    /// Allocates what `ops` need.
    ///
    /// # Collective
    /// Over the world, with the same arguments.
    pub(crate) fn new(world: &World, ops: &[Op], limits: Limits) -> Result<Self> {
        let team = world.team();
        let pes = team.world_size();
        let needs = Needs::of::<T>(ops, &limits, pes);
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
            input: world.local(T::DTYPE, needs.input)?,
            result: world.local(T::DTYPE, needs.result)?,
            symmetric: team.empty(&[needs.symmetric], T::DTYPE)?,
            in_splits: world.local(DType::I64, 2 * splits)?,
            out_splits_offsets: world.local(DType::I64, 2 * splits)?,
            rounds: Cell::new(0),
            piece: RefCell::new(vec![T::zeroed(); PIECE / size_of::<T>()]),
        })
    }

    /// Memory for the plan of a case, where the operation has one.
    pub(crate) fn plan_buffers(&self, op: Op) -> Result<Option<PlanBuffers>> {
        op.has_plan().then(|| self.context.plan_buffers(self.limits.experts)).transpose()
    }

    /// A case of about `bytes` bytes: as many as make equal parts or whole rows. `plan`: memory for its plan.
    ///
    /// # Collective
    /// Over the world, with the same arguments.
    pub(crate) fn case<'a>(
        &'a self,
        op: Op,
        bytes: usize,
        plan: Option<&'a mut PlanBuffers>,
    ) -> Result<Case<'a, T>> {
        let pes = self.world.n_pes();
        let elements = (bytes.min(self.limits.bytes) / size_of::<T>()).max(1);
        let row = (self.limits.row / size_of::<T>()).clamp(1, elements);
        let part = (elements / pes).max(1);
        // Blocks of W PEs lie side by side, a single one has as much beside it.
        let blocks = if op == Op::TileReduce { 1 } else { pes };
        let cols = row.min(elements / blocks).max(1);
        let (count, rows) = match op {
            Op::Barrier => (0, 0),
            op if op.has_parts() => (part * pes, 0),
            op if op.has_splits() => (elements / row * row, elements / row),
            op if op.has_blocks() => {
                let rows = (elements / (cols * blocks)).max(1);
                (rows * cols * blocks, rows)
            }
            _ => (elements, 0),
        };
        let splits = match op {
            Op::Vdev => Splits::new(pes, 1, rows, false),
            _ => Splits::new(pes, self.limits.experts, rows, true),
        };
        // Forms with splits may leave gaps, so their output is all there is; of a round trip, but for what comes back.
        let reached = match op {
            Op::Combine => count,
            Op::PlanRound => self.symmetric.len() - count,
            Op::LowContentionAllGather => part,
            Op::TileReduce => 2 * count,
            op if op.has_splits() => self.symmetric.len(),
            _ => count.max(1),
        };
        let team = self.world.team();
        let handle = self.symmetric.view(0, &[reached])?.rendezvous(team)?;
        let back = match op {
            Op::PlanRound => Some(self.symmetric.view(reached, &[count])?.rendezvous(team)?),
            _ => None,
        };
        let n = pes * splits.experts();
        let of_op = self.in_splits.span().slice(0, if op == Op::Combine { 2 * n } else { n })?;
        if op == Op::Combine {
            let pieces = splits.received(handle.rank());
            let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
            let rows_then_starts =
                pieces.iter().map(|p| number(p.rows)).chain(pieces.iter().map(|p| number(p.to)));
            self.stream.write(&of_op, &rows_then_starts.collect::<Vec<i64>>())?;
        } else if op.has_splits() {
            self.stream.write(&of_op, &splits.of(handle.rank()))?;
        }
        let plan = match plan {
            Some(buffers) if op.has_plan() => Some(buffers.all_to_all_vdev_2d(&self.stream, &of_op, 1)?),
            _ => None,
        };
        let plan = RefCell::new(plan);
        Ok(Case { b: self, op, count, shape: Shape { row, rows, cols }, splits, handle, back, plan })
    }
}
