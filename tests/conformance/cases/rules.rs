//! Rules that every collective has: whose handle and whose stream it is given. One PE breaks them, every PE is told.

use std::time::{Duration, Instant};

use symm::{
    AllToAllNd, AllToAllVdev, Builder, Config, Context, DType, Error, Fault, Handle, MultiRootTileReduce,
    Options, Pe, Planned, ReduceOp, ReduceScatterOffset, Result, Stream, Tile, TileReduce,
};

use crate::harness::{Case, Ctx, Guarded, Outcome, ensure_eq, ensure_err, expected};
use crate::pattern::i64s;

pub(super) const CASES: &[Case] = &[
    Case::new("rules::a_handle_of_another_team", a_handle_of_another_team),
    Case::new("rules::a_stream_of_another_world", a_stream_of_another_world),
];

const O: Options = Options { timeout: None, max_blocks: None };

/// Elements of a block; the symmetric buffer has one for each member.
const BLOCK: usize = 4;

/// Every collective with a handle, by the name that its errors have on the PE that breaks a rule, and that of its status; then
/// what it calls the handle.
const TABLE: [(&str, &str, &str); 22] = [
    ("all_gather", "all_gather", "output"),
    ("all_to_all", "all_to_all", "output"),
    ("all_to_all_vdev", "all_to_all_vdev", "output"),
    ("all_to_all_vdev_2d", "all_to_all_vdev_2d", "output"),
    ("all_to_all_vdev_2d_offset", "all_to_all_vdev_2d_offset", "output"),
    ("broadcast", "broadcast", "buffer"),
    ("reduce_scatter", "reduce_scatter", "input"),
    ("reduce_scatter_last_dim", "reduce_scatter", "input"),
    ("one_shot_all_reduce", "one_shot_all_reduce", "input"),
    ("one_shot_all_reduce_out", "one_shot_all_reduce", "input"),
    ("one_shot_all_reduce_copy", "one_shot_all_reduce", "symm_buffer"),
    ("one_shot_all_reduce_copy_out", "one_shot_all_reduce", "symm_buffer"),
    ("two_shot_all_reduce", "two_shot_all_reduce", "buffer"),
    ("two_shot_all_reduce_out", "two_shot_all_reduce_out", "input"),
    ("all_to_all_nd", "all_to_all_nd", "input"),
    ("reduce_scatter_offset", "reduce_scatter_offset", "input"),
    ("tile_reduce", "tile_reduce", "input"),
    ("multi_root_tile_reduce", "multi_root_tile_reduce", "input"),
    ("low_contention_all_gather", "low_contention_all_gather", "input"),
    ("low_contention_all_to_all", "low_contention_all_to_all", "input"),
    ("low_contention_reduce_scatter", "low_contention_reduce_scatter", "input"),
    ("planned_all_to_all_vdev", "planned_all_to_all_vdev", "output"),
];

/// What calls are made of, beside the handle and the stream.
struct Given<'a> {
    ctx: &'a Ctx,
    input: Guarded,
    out: Guarded,
    splits: Guarded,
    received: Guarded,
}

impl<'a> Given<'a> {
    fn new(ctx: &'a Ctx) -> Outcome<Self> {
        let w = ctx.n();
        let given = Given {
            ctx,
            input: ctx.local(DType::F32, BLOCK * w, ctx.seed)?,
            out: ctx.local(DType::F32, BLOCK * w * w, ctx.seed)?,
            splits: ctx.local(DType::I64, 2 * w, ctx.seed)?,
            received: ctx.local(DType::I64, 2 * w, ctx.seed)?,
        };
        // A row to everybody, all of them the first one where there are offsets.
        let splits = [vec![1; w], vec![0; w]].concat();
        given.splits.set(&ctx.stream, &i64s(&splits))?;
        Ok(given)
    }

    fn call(&self, op: &str, s: &Stream, h: &Handle) -> Result<()> {
        let (team, w) = (&self.ctx.team, self.ctx.n());
        let c: &Context = team.context();
        let (input, all) = (&self.input.span, &self.out.span);
        let (block, same) = (&all.slice(0, BLOCK)?, &all.slice(0, BLOCK * w)?);
        let vdev = |entries| {
            let in_splits = self.splits.span.slice(0, entries)?;
            let args = AllToAllVdev {
                input,
                output: h,
                in_splits: &in_splits,
                out_splits_offsets: &self.received.span,
                row: 1,
                options: O,
            };
            match op {
                "all_to_all_vdev" => c.all_to_all_vdev(s, &args),
                "all_to_all_vdev_2d" => c.all_to_all_vdev_2d(s, &args, 1),
                _ => c.all_to_all_vdev_2d_offset(s, &args),
            }
        };
        let tile = |start| Tile { start, rows: 1, cols: BLOCK, stride: BLOCK };
        match op {
            "barrier" => c.barrier(s, O),
            "all_gather" => c.all_gather(s, &input.slice(0, BLOCK)?, h, O),
            "all_to_all" => c.all_to_all(s, input, h, O),
            "all_to_all_vdev" | "all_to_all_vdev_2d" => vdev(w),
            "all_to_all_vdev_2d_offset" => vdev(2 * w),
            "broadcast" => c.broadcast(s, h, 0, O),
            "reduce_scatter" => c.reduce_scatter(s, h, block, O),
            "reduce_scatter_last_dim" => c.reduce_scatter_last_dim(s, h, w, block, O),
            "one_shot_all_reduce" => c.one_shot_all_reduce(s, h, O).map(drop),
            "one_shot_all_reduce_out" => c.one_shot_all_reduce_out(s, h, same, O),
            "one_shot_all_reduce_copy" => c.one_shot_all_reduce_copy(s, h, input, O).map(drop),
            "one_shot_all_reduce_copy_out" => c.one_shot_all_reduce_copy_out(s, h, input, same, O),
            "two_shot_all_reduce" => c.two_shot_all_reduce(s, h, O),
            "two_shot_all_reduce_out" => c.two_shot_all_reduce_out(s, h, same, O),
            "all_to_all_nd" => {
                let (input, out, rows, cols) = (h, same, BLOCK, w);
                c.all_to_all_nd(
                    s,
                    &AllToAllNd { input, out, rows, cols, scatter_dim: 1, gather_dim: 0, options: O },
                )
            }
            "reduce_scatter_offset" => {
                let args = ReduceScatterOffset {
                    input: h,
                    rows: w,
                    cols: BLOCK,
                    row_stride: BLOCK,
                    dim: 0,
                    offsets: None,
                    dst_ranks: None,
                    out: &[block],
                    options: O,
                };
                c.reduce_scatter_offset(s, &args)
            }
            "tile_reduce" => {
                let (input, output) = (h, block);
                let args = TileReduce {
                    input,
                    in_tile: tile(0),
                    output,
                    out_tile: tile(0),
                    root: w - 1,
                    options: O,
                };
                c.tile_reduce(s, &args)
            }
            "multi_root_tile_reduce" => {
                let roots: Vec<usize> = (0..w).collect();
                let in_tiles: Vec<Tile> = roots.iter().map(|root| tile(root * BLOCK)).collect();
                let args = MultiRootTileReduce {
                    input: h,
                    in_tiles: &in_tiles,
                    output: block,
                    out_tile: tile(0),
                    roots: &roots,
                    options: O,
                };
                c.multi_root_tile_reduce(s, &args)
            }
            "low_contention_all_gather" => c.low_contention_all_gather(s, h, all, O),
            "low_contention_all_to_all" => c.low_contention_all_to_all(s, h, same, O),
            "low_contention_reduce_scatter" => c.low_contention_reduce_scatter(s, h, block, ReduceOp::Sum, O),
            _ => {
                // The plan is made as it should be: on the PE's own stream.
                let mut buffers = c.plan_buffers(1)?;
                let mut plan = buffers.all_to_all_vdev(&self.ctx.stream, &self.splits.span.slice(0, w)?)?;
                plan.dispatch(s, &Planned { input, output: h, row: 1, options: O }).map(drop)
            }
        }
    }
}

/// The last PE calls with what it should not, and is told which argument; all are told who it was, and go on after `recover`.
fn refused(
    given: &Given<'_>,
    (op, status, argument): (&str, &str, &'static str),
    good: (&Stream, &Handle),
    bad: (&Stream, &Handle),
) -> Outcome {
    let (ctx, last) = (given.ctx, given.ctx.n() - 1);
    let planned = status == "planned_all_to_all_vdev" && expected::publishes_splits(ctx);
    let status = if planned { "all_to_all_vdev" } else { status };
    if ctx.me() == last {
        let got = given.call(op, bad.0, bad.1);
        ensure_err!(got, Error::InvalidArgument { argument: a, got, expected, .. }
            if *a == argument && !got.is_empty() && !expected.is_empty());
    } else {
        given.call(op, good.0, good.1)?;
    }
    // No stream of this PE's ran what one of another world was given: what is set on the team counts.
    let deadline = Instant::now() + Duration::from_secs(5);
    while ctx.team.status().is_ok() && Instant::now() < deadline {
        ctx.pause(50);
    }
    let told = ctx.team.status();
    ensure_err!(told, Error::PeerInvalid { op: o, pe, what: Fault::Argument { name, .. } }
        if *o == status && *pe == Pe::from(last) && *name == argument);
    ctx.meet()?;
    ctx.team.recover()?;
    given.call(op, good.0, good.1)?;
    ctx.stream.synchronize()?;
    ctx.meet()?;
    Ok(())
}

fn a_handle_of_another_team(ctx: &Ctx) -> Outcome {
    let (given, other) = (Given::new(ctx)?, ctx.another_team()?);
    let x = ctx.symmetric(DType::F32, BLOCK * ctx.n(), ctx.seed)?;
    let foreign = x.tensor.rendezvous(&other)?;
    for line in TABLE {
        refused(&given, line, (&ctx.stream, &x.handle), (&ctx.stream, &foreign))?;
    }
    Ok(())
}

fn a_stream_of_another_world(ctx: &Ctx) -> Outcome {
    let given = Given::new(ctx)?;
    let x = ctx.symmetric(DType::F32, BLOCK * ctx.n(), ctx.seed)?;
    let boot = symm::bootstrap::local(1).remove(0);
    let alone = Builder::from_config(Config::default()).backend("host").init_over(boot)?;
    let theirs = alone.stream()?;
    for (op, status, _) in TABLE.into_iter().chain([("barrier", "barrier", "")]) {
        refused(&given, (op, status, "stream"), (&ctx.stream, &x.handle), (&theirs, &x.handle))?;
    }
    ensure_eq!(alone.finalize(), Ok(()), "the end of the other world");
    Ok(())
}
