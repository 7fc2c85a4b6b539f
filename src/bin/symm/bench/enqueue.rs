//! How each operation is called.

use symm::{
    AllToAllNd, AllToAllVdev, Cmp, Error, MultiRootTileReduce, Planned, ReduceOp, ReduceScatterOffset,
    Result, SignalOp, SignalUpdate, Tile, TileReduce,
};

use super::case::{Case, Shape};
use super::data::Value;
use super::op::Op;

impl<T: Value> Case<'_, T> {
    /// Gives the stream the operation once.
    pub(super) fn enqueue(&self) -> Result<()> {
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
            Op::Barrier | Op::AllReduce | Op::Plan => context.barrier(stream, options),
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
            Op::Vdev | Op::Vdev2d | Op::Combine => {
                let splits = self.pes() * self.splits.experts();
                let (sent, published) =
                    if self.op == Op::Combine { (b.input.len(), 2 * splits) } else { (self.count, splits) };
                let args = AllToAllVdev {
                    input: &b.input.span().slice(0, sent / self.shape.row * self.shape.row)?,
                    output: &self.handle,
                    in_splits: &b.in_splits.span().slice(0, published)?,
                    out_splits_offsets: &b.out_splits_offsets.span().slice(0, 2 * splits)?,
                    row: self.shape.row,
                    options,
                };
                match self.op {
                    Op::Vdev => context.all_to_all_vdev(stream, &args),
                    Op::Vdev2d => context.all_to_all_vdev_2d(stream, &args, 1),
                    _ => context.all_to_all_vdev_2d_offset(stream, &args),
                }
            }
            Op::PlanDispatch | Op::PlanRound => self.enqueue_planned(),
            Op::LowContentionAllGather => {
                context.low_contention_all_gather(stream, &self.handle, &result(self.count)?, options)
            }
            Op::LowContentionAllToAll => {
                context.low_contention_all_to_all(stream, &self.handle, &result(self.count)?, options)
            }
            Op::LowContentionReduceScatter => {
                let out = result(self.count / self.pes())?;
                context.low_contention_reduce_scatter(stream, &self.handle, &out, ReduceOp::Sum, options)
            }
            Op::AllToAllNd => {
                let out = &result(self.count)?;
                let Shape { rows, cols, .. } = self.shape;
                let cols = cols * self.pes();
                let args = AllToAllNd {
                    input: &self.handle,
                    out,
                    rows,
                    cols,
                    scatter_dim: 1,
                    gather_dim: 0,
                    options,
                };
                context.all_to_all_nd(stream, &args)
            }
            Op::ReduceScatterOffset => {
                let out = &result(self.count / self.pes())?;
                let Shape { rows, cols, .. } = self.shape;
                let cols = cols * self.pes();
                let args = ReduceScatterOffset {
                    input: &self.handle,
                    rows,
                    cols,
                    row_stride: cols,
                    dim: 1,
                    offsets: None,
                    dst_ranks: None,
                    out: &[out],
                    options,
                };
                context.reduce_scatter_offset(stream, &args)
            }
            Op::TileReduce => {
                let Shape { rows, cols, .. } = self.shape;
                let args = TileReduce {
                    input: &self.handle,
                    in_tile: Tile { start: 0, rows, cols, stride: 2 * cols },
                    output: &result(self.count)?,
                    out_tile: Tile { start: 0, rows, cols, stride: cols },
                    root: b.limits.root,
                    options,
                };
                context.tile_reduce(stream, &args)
            }
            Op::MultiRootTileReduce => {
                let (pes, Shape { rows, cols, .. }) = (self.pes(), self.shape);
                let roots: Vec<usize> = (0..pes).collect();
                let tile = |root: usize| Tile { start: root * cols, rows, cols, stride: pes * cols };
                let args = MultiRootTileReduce {
                    input: &self.handle,
                    in_tiles: &roots.iter().map(|root| tile(*root)).collect::<Vec<_>>(),
                    output: &result(self.count / pes)?,
                    out_tile: Tile { start: 0, rows, cols, stride: cols },
                    roots: &roots,
                    options,
                };
                context.multi_root_tile_reduce(stream, &args)
            }
        }
    }

    fn enqueue_planned(&self) -> Result<()> {
        let (b, stream, options) = (self.b, &self.b.stream, self.options());
        let mut plan = self.plan.borrow_mut();
        let Some(plan) = plan.as_mut() else {
            return Err(Error::argument("bench", "plan", "none", "memory for the plan of this case"));
        };
        let row = self.shape.row;
        let input = b.input.span().slice(0, self.count)?;
        let there = Planned { input: &input, output: &self.handle, row, options };
        let there = plan.dispatch(stream, &there)?;
        let Some(output) = &self.back else { return Ok(()) };
        let rows = self.handle.span();
        let results = rows.slice(0, rows.len() / row * row)?;
        there.combine(stream, &Planned { input: &results, output, row, options })
    }
}
