//! An operation that takes blocks of everybody's buffer, prepared, run, and compared with the oracle byte for byte: what
//! the cases of these operations share.

use symm::oracle::{self, Matrix};
use symm::{
    AllToAllNd, Context, DType, Error, Handle, MultiRootTileReduce, Options, ReduceOp, ReduceScatterOffset,
    Result, Span, Stream, Tensor, Tile, TileReduce,
};

use super::sums::{check_sums, elements};
use crate::harness::{Ctx, Guarded, Outcome, Symmetric, ensure_eq, expected};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    /// all_to_all_nd, scattering this dimension.
    Nd(usize),
    /// reduce_scatter_offset of this dimension, W equal blocks.
    Scatter(usize),
    /// Of this dimension, with so many blocks for each rank, of several sizes and in an order of their own.
    Blocks(usize, usize),
    /// tile_reduce to this rank.
    Tile(usize),
    /// multi_root_tile_reduce to so many ranks, from the last one down.
    Tiles(usize),
    Gather,
    AllToAll,
    Reduce(ReduceOp),
}

impl Op {
    /// The name that statuses carry.
    pub(super) fn name(self) -> &'static str {
        match self {
            Op::Nd(_) => "all_to_all_nd",
            Op::Scatter(_) | Op::Blocks(..) => "reduce_scatter_offset",
            Op::Tile(_) => "tile_reduce",
            Op::Tiles(_) => "multi_root_tile_reduce",
            Op::Gather => "low_contention_all_gather",
            Op::AllToAll => "low_contention_all_to_all",
            Op::Reduce(_) => "low_contention_reduce_scatter",
        }
    }

    pub(super) fn sums(self) -> bool {
        !matches!(self, Op::Nd(_) | Op::Gather | Op::AllToAll)
    }

    /// Whether buffers must lie in the same place on all members.
    pub(super) fn same_place(self) -> bool {
        matches!(self, Op::Gather | Op::AllToAll | Op::Reduce(_))
    }

    /// One of each, for W members.
    pub(super) fn each(w: usize) -> Vec<Op> {
        vec![
            Op::Nd(1),
            Op::Nd(0),
            Op::Scatter(0),
            Op::Scatter(1),
            Op::Blocks(0, 2),
            Op::Blocks(1, 3),
            Op::Tile(w - 1),
            Op::Tiles(w.div_ceil(2)),
            Op::Gather,
            Op::AllToAll,
            Op::Reduce(ReduceOp::Sum),
        ]
    }
}

/// Elements between rows of matrices that need not be dense.
const GAP: usize = 3;

/// An operation on a matrix of `rows` × `cols` elements, which begins `skip` elements into the allocation.
pub(super) struct Job {
    pub(super) op: Op,
    pub(super) dtype: DType,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) stride: usize,
    /// Elements of the buffer.
    pub(super) len: usize,
    skip: usize,
    seed: u64,
    sym: Symmetric,
    pub(super) tensor: Tensor,
    pub(super) handle: Handle,
    pub(super) outs: Vec<Guarded>,
    pub(super) options: Options,
}

fn tile(m: Matrix) -> Tile {
    Tile { start: m.start, rows: m.rows, cols: m.cols, stride: m.stride }
}

impl Job {
    pub(super) fn new(
        ctx: &Ctx,
        op: Op,
        dtype: DType,
        (rows, cols): (usize, usize),
        skip: usize,
        seed: u64,
    ) -> Outcome<Self> {
        let dense = matches!(op, Op::Nd(_)) || op.same_place();
        let stride = if dense { cols } else { cols + GAP };
        let len = rows * stride;
        let sym = ctx.symmetric(dtype, len + skip + 16, seed)?;
        let tensor = sym.tensor.view(skip, &[len])?;
        let handle = tensor.rendezvous(&ctx.team)?;
        let options = Options::default();
        let mut job = Job {
            op,
            dtype,
            rows,
            cols,
            stride,
            len,
            skip,
            seed,
            sym,
            tensor,
            handle,
            outs: Vec::new(),
            options,
        };
        let sizes = job.out_sizes(ctx);
        let make = |(i, n): (usize, usize)| ctx.local(dtype, n, seed + 1 + i as u64);
        job.outs = sizes.into_iter().enumerate().map(make).collect::<Result<_>>()?;
        Ok(job)
    }

    /// Begins at another element of this PE's allocation.
    pub(super) fn shift(&mut self, ctx: &Ctx, skip: usize) -> Outcome {
        self.skip = skip;
        self.tensor = self.sym.tensor.view(skip, &[self.len])?;
        self.handle = self.tensor.rendezvous(&ctx.team)?;
        Ok(())
    }

    /// Ends and owners of the blocks of reduce_scatter_offset.
    pub(super) fn blocks(&self, w: usize) -> (Vec<usize>, Vec<usize>) {
        match self.op {
            Op::Scatter(dim) => {
                let size = if dim == 0 { self.rows } else { self.cols };
                ((1..=w).map(|b| b * (size / w)).collect(), (0..w).collect())
            }
            Op::Blocks(dim, each) => {
                let size = if dim == 0 { self.rows } else { self.cols };
                // The j-th block of everybody has j + 1 units; the last ones may be nobody's.
                let unit = size / (w * each * (each + 1) / 2);
                let (mut ends, mut owners, mut end) = (Vec::new(), Vec::new(), 0);
                for b in 0..each * w {
                    end += (b / w + 1) * unit;
                    ends.push(end);
                    owners.push((b + b / w) % w);
                }
                (ends, owners)
            }
            _ => (Vec::new(), Vec::new()),
        }
    }

    fn matrix(&self) -> Matrix {
        Matrix { start: 0, rows: self.rows, cols: self.cols, stride: self.stride }
    }

    /// Tiles in the input with their roots, and the one in the output.
    pub(super) fn tiles(&self, w: usize) -> (Vec<(Matrix, usize)>, Matrix) {
        let (stride, rows) = (self.stride, self.rows);
        let from = match self.op {
            Op::Tile(root) => {
                let cut = |n: usize| n.saturating_sub(2);
                let at =
                    Matrix { start: stride.min(self.len) + 1, rows: cut(rows), cols: cut(self.cols), stride };
                vec![(at, root)]
            }
            Op::Tiles(n) => {
                let cols = self.cols / n;
                let at = |i: usize| (Matrix { start: i * cols, rows, cols, stride }, w - 1 - i);
                (0..n).map(at).collect()
            }
            _ => Vec::new(),
        };
        let first = from.first().map_or(self.matrix(), |(m, _)| *m);
        (from, Matrix { start: 5, stride: first.cols + 2, ..first })
    }

    fn out_sizes(&self, ctx: &Ctx) -> Vec<usize> {
        let w = ctx.n();
        match self.op {
            Op::Nd(_) | Op::AllToAll => vec![self.len],
            Op::Gather => vec![self.len * w],
            Op::Reduce(_) => vec![self.len / w],
            Op::Tile(_) | Op::Tiles(_) => {
                let (_, to) = self.tiles(w);
                vec![to.start + to.rows * to.stride]
            }
            Op::Scatter(dim) | Op::Blocks(dim, _) => {
                let (ends, owners) = self.blocks(w);
                let begins = std::iter::once(0).chain(ends.iter().copied());
                let blocks = begins.zip(&ends).zip(owners).filter(|(_, owner)| *owner == ctx.me());
                let across = if dim == 0 { self.cols } else { self.rows };
                blocks.map(|((begin, end), _)| (end - begin) * across).collect()
            }
        }
    }

    fn elements_of(&self, ctx: &Ctx, rank: usize, round: u64) -> Vec<u8> {
        elements(self.dtype, self.seed + 1000 * round, ctx.pe(rank), self.len)
    }

    /// The whole allocation with `elements` where the buffer is.
    fn with(&self, elements: &[u8]) -> Vec<u8> {
        let mut all = self.sym.mem.poison().to_vec();
        let at = self.skip * self.dtype.size();
        all[at..at + elements.len()].copy_from_slice(elements);
        all
    }

    /// Puts this PE's elements of a round into its buffer, and poison everywhere else.
    pub(super) fn fill(&self, ctx: &Ctx, stream: &Stream, round: u64) -> Outcome {
        for out in &self.outs {
            out.set(stream, out.poison())?;
        }
        self.sym.mem.set(stream, &self.with(&self.elements_of(ctx, ctx.me(), round)))?;
        Ok(())
    }

    pub(super) fn enqueue(&self, context: &Context, stream: &Stream) -> Result<()> {
        let outs: Vec<&Span> = self.outs.iter().map(|out| &out.span).collect();
        self.enqueue_to(context, stream, &outs)
    }

    /// With other outputs.
    pub(super) fn enqueue_to(&self, context: &Context, stream: &Stream, outs: &[&Span]) -> Result<()> {
        let (input, rows, cols, row_stride, options) =
            (&self.handle, self.rows, self.cols, self.stride, self.options);
        let w = input.world_size();
        match self.op {
            Op::Nd(scatter_dim) => {
                let (out, gather_dim) = (outs[0], 1 - scatter_dim);
                let args = AllToAllNd { input, out, rows, cols, scatter_dim, gather_dim, options };
                context.all_to_all_nd(stream, &args)
            }
            Op::Scatter(dim) | Op::Blocks(dim, _) => {
                let (ends, owners) = self.blocks(w);
                let own = matches!(self.op, Op::Blocks(..));
                let (offsets, dst_ranks) = (own.then_some(&*ends), own.then_some(&*owners));
                let args = ReduceScatterOffset {
                    input,
                    rows,
                    cols,
                    row_stride,
                    dim,
                    offsets,
                    dst_ranks,
                    out: outs,
                    options,
                };
                context.reduce_scatter_offset(stream, &args)
            }
            Op::Tile(root) => {
                let (from, to) = self.tiles(w);
                let (in_tile, output, out_tile) = (tile(from[0].0), outs[0], tile(to));
                context.tile_reduce(stream, &TileReduce { input, in_tile, output, out_tile, root, options })
            }
            Op::Tiles(_) => {
                let (from, to) = self.tiles(w);
                let (tiles, roots): (Vec<_>, Vec<_>) =
                    from.into_iter().map(|(m, root)| (tile(m), root)).unzip();
                let (output, out_tile) = (outs[0], tile(to));
                let args =
                    MultiRootTileReduce { input, in_tiles: &tiles, output, out_tile, roots: &roots, options };
                context.multi_root_tile_reduce(stream, &args)
            }
            Op::Gather => context.low_contention_all_gather(stream, input, outs[0], options),
            Op::AllToAll => context.low_contention_all_to_all(stream, input, outs[0], options),
            Op::Reduce(op) => context.low_contention_reduce_scatter(stream, input, outs[0], op, options),
        }
    }

    /// What this PE's outputs must hold.
    fn want(&self, ctx: &Ctx, round: u64) -> Vec<Vec<u8>> {
        let (w, me) = (ctx.n(), ctx.me());
        let inputs: Vec<Vec<u8>> = (0..w).map(|rank| self.elements_of(ctx, rank, round)).collect();
        match self.op {
            Op::Nd(dim) => {
                let size = self.dtype.size();
                vec![oracle::all_to_all_nd(&inputs, (self.rows, self.cols), size, dim).swap_remove(me)]
            }
            Op::Scatter(dim) | Op::Blocks(dim, _) => {
                let (ends, owners) = self.blocks(w);
                let blocks = (ends.as_slice(), owners.as_slice());
                let all = oracle::reduce_scatter_offset(self.dtype, &inputs, self.matrix(), dim, blocks);
                all.into_iter().nth(me).unwrap_or_default()
            }
            Op::Tile(_) | Op::Tiles(_) => {
                let (from, to) = self.tiles(w);
                let mut out = self.outs[0].poison().to_vec();
                if let Some((from, _)) = from.iter().find(|(_, root)| *root == me) {
                    oracle::tile_reduce(self.dtype, &inputs, *from, &mut out, to);
                }
                vec![out]
            }
            Op::Gather | Op::AllToAll => {
                let mut outs = vec![self.outs[0].poison().to_vec(); w];
                if self.op == Op::Gather {
                    oracle::all_gather(&inputs, &mut outs);
                } else {
                    oracle::all_to_all(&inputs, &mut outs);
                }
                vec![outs.swap_remove(me)]
            }
            Op::Reduce(ReduceOp::Avg) => {
                let all = oracle::average(self.dtype, &inputs);
                let block = all.len() / w;
                vec![all[me * block..(me + 1) * block].to_vec()]
            }
            Op::Reduce(_) => vec![oracle::reduce_scatter(self.dtype, 1, &inputs).swap_remove(me)],
        }
    }

    /// Compares all memory of this PE, in stream order.
    pub(super) fn check(&self, ctx: &Ctx, stream: &Stream, round: u64) -> Outcome {
        self.check_outs(ctx, stream, round)?;
        self.check_input(ctx, stream, round)
    }

    fn what(&self, round: u64) -> String {
        let Job { op, rows, cols, dtype, skip, .. } = self;
        format!("{op:?} of {rows} x {cols} {dtype} from {skip}, round {round}")
    }

    pub(super) fn check_outs(&self, ctx: &Ctx, stream: &Stream, round: u64) -> Outcome {
        let want = self.want(ctx, round);
        ensure_eq!(want.len(), self.outs.len(), "{}: outputs", self.what(round));
        for (i, (out, want)) in self.outs.iter().zip(&want).enumerate() {
            let what = format!("{}: output {i}", self.what(round));
            if self.op.sums() {
                check_sums(out, stream, &what, self.dtype, want)?;
            } else {
                out.check(stream, &what, want)?;
            }
        }
        Ok(())
    }

    fn check_input(&self, ctx: &Ctx, stream: &Stream, round: u64) -> Outcome {
        let mine = self.elements_of(ctx, ctx.me(), round);
        self.sym.mem.check(stream, &format!("{}: input", self.what(round)), &self.with(&mine))
    }

    pub(super) fn run(&self, ctx: &Ctx, round: u64) -> Outcome {
        self.fill(ctx, &ctx.stream, round)?;
        self.enqueue(ctx.team.context(), &ctx.stream)?;
        self.check(ctx, &ctx.stream, round)?;
        ctx.stream.synchronize()?;
        Ok(())
    }
}

/// After a failure that every PE sees as `want`: nothing was written where that is promised, then `recover` and the right
/// operation.
pub(super) fn refused(ctx: &Ctx, job: &Job, want: &Error) -> Outcome {
    let got = expected::as_told(ctx.stream.synchronize(), want);
    ensure_eq!(got, Err(want.clone()), "{:?}: synchronize", job.op);
    ensure_eq!(expected::as_told(ctx.team.status(), want), Err(want.clone()), "{:?}: status", job.op);
    ctx.meet()?;
    for out in &job.outs {
        let got = out.get(&ctx.stream)?;
        // The low-contention forms leave their output open; what is around it is nobody's to write.
        let want = if job.op.same_place() { &got } else { out.poison() };
        out.check(&ctx.stream, "output of a refused operation", want)?;
    }
    job.check_input(ctx, &ctx.stream, 0)?;
    ctx.meet()?;
    ctx.team.recover()?;
    job.run(ctx, 0)?;
    ctx.meet()?;
    Ok(())
}
