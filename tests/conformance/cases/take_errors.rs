//! Bad arguments, mismatches and absent PEs in the operations that take: every PE learns whose fault it is.

use symm::{
    AllToAllNd, DType, Error, Fault, Field, MultiRootTileReduce, Options, Pe, ReduceOp, ReduceScatterOffset,
    Result, Span, Tile, TileReduce,
};

use super::takes::{Job, Op, refused};
use super::timeouts::{LIMIT, without_the_last};
use crate::harness::{Case, Ctx, Outcome, ensure_eq, ensure_err, expected};

pub(super) const CASES: &[Case] = &[
    Case::new("take_errors::outputs", outputs).limit(60),
    Case::new("take_errors::shapes_of_nd", shapes_of_nd),
    Case::new("take_errors::blocks", blocks),
    Case::new("take_errors::tiles", tiles),
    Case::new("take_errors::divisibility", divisibility),
    Case::new("take_errors::dtypes", dtypes),
    Case::new("take_errors::another_place", another_place).pes(2),
    Case::new("take_errors::another_team", another_team).pes(2),
    Case::new("take_errors::members_differ", members_differ).pes(2),
    Case::new("take_errors::another_form", another_form).pes(2),
    Case::new("take_errors::absent", absent).pes(2).limit(60),
];

const O: Options = Options { timeout: None, max_blocks: None };

fn invalid(op: Op, pe: usize, what: Fault) -> Error {
    Error::PeerInvalid { op: op.name(), pe: Pe::from(pe), what }
}

fn job(ctx: &Ctx, op: Op) -> Outcome<Job> {
    Job::new(ctx, op, DType::F32, (6 * ctx.n(), 12 * ctx.n()), 1, ctx.seed)
}

/// One PE's call is refused for `argument`; the others call what is right.
fn one_bad(ctx: &Ctx, job: &Job, argument: &'static str, call: impl FnOnce() -> Result<()>) -> Outcome {
    let bad = ctx.n() - 1;
    job.fill(ctx, &ctx.stream, 0)?;
    if ctx.me() == bad {
        let got = call();
        ensure_err!(got, Error::InvalidArgument { op, argument: a, .. } if *a == argument && *op == job.op.name());
    } else {
        job.enqueue(ctx.team.context(), &ctx.stream)?;
    }
    refused(ctx, job, &invalid(job.op, bad, expected::refused(argument)))
}

/// Another type, one element more or less, memory of the input, an odd address.
fn outputs(ctx: &Ctx) -> Outcome {
    for op in Op::each(ctx.n()) {
        let job = job(ctx, op)?;
        let name = match op {
            Op::Nd(_) | Op::Scatter(_) | Op::Blocks(..) => "out",
            _ => "output",
        };
        let first = job.outs[0].span.len();
        let call = |span: &Span| {
            let mut outs: Vec<&Span> = job.outs.iter().map(|out| &out.span).collect();
            outs[0] = span;
            job.enqueue_to(ctx.team.context(), &ctx.stream, &outs)
        };
        let other = ctx.local(DType::U8, 8 * first + 64, ctx.seed)?;
        let at = other.span.addr();
        let whole = (at.0.next_multiple_of(8) - at.0) as usize;
        // SAFETY: inside `other`, which lives longer; nothing uses it, since it is refused.
        let raw = |skip: usize, dtype, len| unsafe { Span::from_raw(at.offset(whole + skip), dtype, len) };
        one_bad(ctx, &job, name, || call(&raw(0, DType::I32, first)))?;
        let tile = matches!(op, Op::Tile(_) | Op::Tiles(_));
        // Tiles fit larger outputs, and smaller ones are a matter of the tile.
        if !tile {
            one_bad(ctx, &job, name, || call(&raw(0, DType::F32, first + 1)))?;
            one_bad(ctx, &job, name, || call(&raw(0, DType::F32, first - 1)))?;
        } else {
            one_bad(ctx, &job, "out_tile", || call(&raw(0, DType::F32, first - 4)))?;
        }
        if op.sums() {
            one_bad(ctx, &job, name, || call(&raw(2, DType::F32, first)))?;
        }
        if first <= job.len {
            let own = job.tensor.view(job.len - first, &[first])?.span();
            one_bad(ctx, &job, name, || call(&own))?;
        }
        if let Op::Blocks(..) = op {
            let twice = job.outs[1].span.slice(0, first)?;
            one_bad(ctx, &job, name, || call(&twice))?;
            one_bad(ctx, &job, name, || job.enqueue_to(ctx.team.context(), &ctx.stream, &[]))?;
        }
    }
    Ok(())
}

fn shapes_of_nd(ctx: &Ctx) -> Outcome {
    let job = job(ctx, Op::Nd(1))?;
    let (rows, cols) = (job.rows, job.cols);
    let call = |rows, cols, scatter_dim, gather_dim| {
        let (input, out) = (&job.handle, &job.outs[0].span);
        let args = AllToAllNd { input, out, rows, cols, scatter_dim, gather_dim, options: O };
        ctx.team.all_to_all_nd(&ctx.stream, &args)
    };
    for (rows, cols) in [(rows + 1, cols), (usize::MAX, 2), (0, cols)] {
        one_bad(ctx, &job, "rows", || call(rows, cols, 1, 0))?;
    }
    for (scatter, gather) in [(0, 0), (1, 1), (2, 0), (1, usize::MAX)] {
        one_bad(ctx, &job, "scatter_dim", || call(rows, cols, scatter, gather))?;
    }
    if ctx.n() > 1 {
        // The same elements as another matrix.
        one_bad(ctx, &job, "cols", || call(rows * cols, 1, 1, 0))?;
        one_bad(ctx, &job, "rows", || call(1, rows * cols, 0, 1))?;
    }
    Ok(())
}

fn blocks(ctx: &Ctx) -> Outcome {
    let (w, job) = (ctx.n(), job(ctx, Op::Blocks(0, 2))?);
    let (ends, owners) = job.blocks(w);
    let outs: Vec<&Span> = job.outs.iter().map(|out| &out.span).collect();
    let right = ReduceScatterOffset {
        input: &job.handle,
        rows: job.rows,
        cols: job.cols,
        row_stride: job.stride,
        dim: 0,
        offsets: Some(&ends),
        dst_ranks: Some(&owners),
        out: &outs,
        options: O,
    };
    let call = |args: ReduceScatterOffset<'_>| ctx.team.reduce_scatter_offset(&ctx.stream, &args);
    one_bad(ctx, &job, "dim", || call(ReduceScatterOffset { dim: 2, ..right }))?;
    one_bad(ctx, &job, "row_stride", || call(ReduceScatterOffset { row_stride: job.cols - 1, ..right }))?;
    for rows in [job.rows + 1, usize::MAX] {
        one_bad(ctx, &job, "rows", || call(ReduceScatterOffset { rows, ..right }))?;
    }
    let changed = |list: &[usize], at: usize, value: usize| {
        let mut list = list.to_vec();
        list[at] = value;
        list
    };
    let last = ends.len() - 1;
    let beyond = changed(&ends, last, job.rows + 1);
    let descending = changed(&ends, last, 0);
    let uneven = changed(&ends, last, ends[last] - 1);
    let mut wrong = vec![&beyond[..], &descending[..]];
    if w > 1 {
        wrong.extend([&uneven[..], &ends[..last]]);
    }
    for offsets in wrong {
        one_bad(ctx, &job, "offsets", || call(ReduceScatterOffset { offsets: Some(offsets), ..right }))?;
    }
    let stranger = changed(&owners, 0, w);
    let unfair = changed(&owners, 0, owners[1]);
    let mut wrong = vec![&stranger[..], &owners[..last]];
    if w > 1 {
        wrong.push(&unfair);
    }
    for ranks in wrong {
        one_bad(ctx, &job, "dst_ranks", || call(ReduceScatterOffset { dst_ranks: Some(ranks), ..right }))?;
    }
    Ok(())
}

fn tiles(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    let job = job(ctx, Op::Tile(0))?;
    let (from, to) = job.tiles(w);
    let [in_tile, out_tile] =
        [from[0].0, to].map(|m| Tile { start: m.start, rows: m.rows, cols: m.cols, stride: m.stride });
    let output = &job.outs[0].span;
    let one = |in_tile, out_tile, root| {
        let args = TileReduce { input: &job.handle, in_tile, output, out_tile, root, options: O };
        ctx.team.tile_reduce(&ctx.stream, &args)
    };
    for root in [w, usize::MAX] {
        one_bad(ctx, &job, "root", || one(in_tile, out_tile, root))?;
    }
    let larger = Tile { rows: in_tile.rows + 1, ..in_tile };
    for wrong in [
        Tile { start: job.len, ..in_tile },
        Tile { start: usize::MAX, ..in_tile },
        Tile { stride: in_tile.cols - 1, ..in_tile },
        Tile { rows: usize::MAX, ..in_tile },
    ] {
        one_bad(ctx, &job, "in_tile", || one(wrong, out_tile, 0))?;
    }
    one_bad(ctx, &job, "out_tile", || one(larger, out_tile, 0))?;
    one_bad(ctx, &job, "out_tile", || one(in_tile, Tile { stride: 0, ..out_tile }, 0))?;
    one_bad(ctx, &job, "out_tile", || one(in_tile, Tile { start: usize::MAX, ..out_tile }, 0))?;

    let job = self::job(ctx, Op::Tiles(w))?;
    let (from, to) = job.tiles(w);
    let tile =
        |m: symm::oracle::Matrix| Tile { start: m.start, rows: m.rows, cols: m.cols, stride: m.stride };
    let tiles: Vec<Tile> = from.iter().map(|(m, _)| tile(*m)).collect();
    let roots: Vec<usize> = from.iter().map(|(_, root)| *root).collect();
    let many = |in_tiles: &[Tile], roots: &[usize]| {
        let (output, out_tile) = (&job.outs[0].span, tile(to));
        let args = MultiRootTileReduce { input: &job.handle, in_tiles, output, out_tile, roots, options: O };
        ctx.team.multi_root_tile_reduce(&ctx.stream, &args)
    };
    one_bad(ctx, &job, "roots", || many(&tiles, &roots[1..]))?;
    one_bad(ctx, &job, "roots", || many(&[tiles[0], tiles[0]], &[0, 0]))?;
    one_bad(ctx, &job, "roots", || many(&tiles, &vec![w; tiles.len()]))?;
    let apart = Tile { start: job.len, ..tiles[0] };
    one_bad(ctx, &job, "in_tiles", || many(&[apart], &[0]))
}

fn divisibility(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    if w == 1 {
        return Ok(());
    }
    for op in [Op::AllToAll, Op::Reduce(ReduceOp::Sum)] {
        let job = job(ctx, op)?;
        let uneven = job.tensor.view(0, &[job.len - 1])?.rendezvous(&ctx.team)?;
        let out = &job.outs[0].span;
        one_bad(ctx, &job, "input", || match op {
            Op::AllToAll => ctx.team.low_contention_all_to_all(&ctx.stream, &uneven, out, O),
            _ => ctx.team.low_contention_reduce_scatter(&ctx.stream, &uneven, out, ReduceOp::Sum, O),
        })?;
    }
    for (dim, argument) in [(0, "rows"), (1, "cols")] {
        let job = job(ctx, Op::Scatter(dim))?;
        let out = [&job.outs[0].span];
        let args = ReduceScatterOffset {
            input: &job.handle,
            rows: if dim == 0 { job.rows - 1 } else { job.rows },
            cols: if dim == 1 { job.cols - 1 } else { job.cols },
            row_stride: job.stride,
            dim,
            offsets: None,
            dst_ranks: None,
            out: &out,
            options: O,
        };
        one_bad(ctx, &job, argument, || ctx.team.reduce_scatter_offset(&ctx.stream, &args))?;
    }
    Ok(())
}

/// Types that do not add up, and integers, which have no average: refused on all.
fn dtypes(ctx: &Ctx) -> Outcome {
    let size = (6 * ctx.n(), 12 * ctx.n());
    for op in Op::each(ctx.n()).into_iter().filter(|op| op.sums()) {
        for dtype in [DType::U8, DType::F8E4M3, DType::U32, DType::Bool] {
            let job = Job::new(ctx, op, dtype, size, 0, ctx.seed)?;
            let got = job.enqueue(ctx.team.context(), &ctx.stream);
            ensure_err!(got, Error::InvalidArgument { argument: "input", got, .. } if *got == dtype.to_string());
            ensure_eq!(
                ctx.stream.synchronize(),
                Err(invalid(op, 0, expected::refused("input"))),
                "{op:?} of {dtype}"
            );
            ctx.team.recover()?;
        }
    }
    for dtype in [DType::I32, DType::I64] {
        let op = Op::Reduce(ReduceOp::Avg);
        let job = Job::new(ctx, op, dtype, size, 0, ctx.seed)?;
        let got = job.enqueue(ctx.team.context(), &ctx.stream);
        ensure_err!(got, Error::InvalidArgument { argument: "op", .. });
        ensure_eq!(
            ctx.stream.synchronize(),
            Err(invalid(op, 0, expected::refused("op"))),
            "average of {dtype}"
        );
        ctx.team.recover()?;
    }
    Ok(())
}

/// Copy engines are given their addresses beforehand.
fn another_place(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    for op in Op::each(ctx.n()).into_iter().filter(|op| op.same_place()) {
        let mut job = job(ctx, op)?;
        if ctx.me() == bad {
            job.shift(ctx, 2)?;
        }
        job.fill(ctx, &ctx.stream, 0)?;
        job.enqueue(ctx.team.context(), &ctx.stream)?;
        ensure_eq!(ctx.stream.synchronize(), Err(invalid(op, bad, Fault::Output)), "{op:?} elsewhere");
        ctx.meet()?;
        ctx.team.recover()?;
        job.shift(ctx, 1)?;
        job.run(ctx, 0)?;
    }
    Ok(())
}

fn another_team(ctx: &Ctx) -> Outcome {
    let (team, bad) = (ctx.another_team()?, ctx.n() - 1);
    for op in Op::each(ctx.n()) {
        let mut job = job(ctx, op)?;
        let right = job.handle.clone();
        let wrong = job.tensor.rendezvous(&team)?;
        job.fill(ctx, &ctx.stream, 0)?;
        if ctx.me() == bad {
            job.handle = wrong;
            let got = job.enqueue(ctx.team.context(), &ctx.stream);
            ensure_err!(got, Error::InvalidArgument { argument: "input", .. });
            job.handle = right;
        } else {
            job.enqueue(ctx.team.context(), &ctx.stream)?;
        }
        refused(ctx, &job, &invalid(op, bad, expected::refused("input")))?;
    }
    Ok(())
}

/// Shape, type and allocation must be everybody's.
fn members_differ(ctx: &Ctx) -> Outcome {
    let (w, bad) = (ctx.n(), ctx.n() - 1);
    for op in Op::each(w) {
        let mine = job(ctx, op)?;
        let other = job(ctx, op)?;
        let longer = Job::new(ctx, op, DType::F32, (12 * w, 12 * w), 1, ctx.seed)?;
        let ints = Job::new(ctx, op, DType::I32, (6 * w, 12 * w), 1, ctx.seed)?;
        let another = expected::another_dtype(DType::F32, DType::I32);
        for (theirs, what) in [(&other, Some(Fault::Output)), (&longer, None), (&ints, Some(another))] {
            mine.fill(ctx, &ctx.stream, 0)?;
            theirs.fill(ctx, &ctx.stream, 0)?;
            let job = if ctx.me() == bad { theirs } else { &mine };
            job.enqueue(ctx.team.context(), &ctx.stream)?;
            let what = what.unwrap_or_else(|| expected::another_length(ctx));
            refused(ctx, &mine, &invalid(op, bad, what))?;
        }
    }
    // The same buffer cut in another way.
    for (op, other) in [
        (Op::Nd(1), Op::Nd(0)),
        (Op::Blocks(0, 2), Op::Blocks(0, 1)),
        (Op::Scatter(0), Op::Scatter(1)),
        (Op::Tile(0), Op::Tile(1)),
        (Op::Reduce(ReduceOp::Sum), Op::Reduce(ReduceOp::Avg)),
    ] {
        let mine = job(ctx, op)?;
        let mut theirs = job(ctx, other)?;
        theirs.handle = mine.handle.clone();
        mine.fill(ctx, &ctx.stream, 0)?;
        let job = if ctx.me() == bad { &theirs } else { &mine };
        job.enqueue(ctx.team.context(), &ctx.stream)?;
        refused(ctx, &mine, &invalid(op, bad, expected::differs(Field::Shape, 0, 0)))?;
    }
    Ok(())
}

/// Form codes 27 to 33.
fn another_form(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    let ops = [
        Op::Nd(1),
        Op::Scatter(0),
        Op::Tile(0),
        Op::Tiles(1),
        Op::Gather,
        Op::AllToAll,
        Op::Reduce(ReduceOp::Sum),
    ];
    for (i, op) in ops.into_iter().enumerate() {
        let k = (i + 1) % ops.len();
        let (mine, theirs) = (job(ctx, op)?, job(ctx, ops[k])?);
        mine.fill(ctx, &ctx.stream, 0)?;
        theirs.fill(ctx, &ctx.stream, 0)?;
        let called = if ctx.me() == bad { &theirs } else { &mine };
        called.enqueue(ctx.team.context(), &ctx.stream)?;
        let what = Fault::Operation { expected: 27 + i as u32, got: 27 + k as u32 };
        refused(ctx, &mine, &invalid(called.op, bad, what))?;
    }
    Ok(())
}

/// One PE never comes, and after `recover` all is well.
fn absent(ctx: &Ctx) -> Outcome {
    for op in [Op::Nd(1), Op::Blocks(0, 2), Op::Reduce(ReduceOp::Avg)] {
        let mut job = job(ctx, op)?;
        job.fill(ctx, &ctx.stream, 0)?;
        job.options.timeout = Some(LIMIT);
        without_the_last(ctx, op.name(), || job.enqueue(ctx.team.context(), &ctx.stream), || Ok(()))?;
        job.options.timeout = None;
        job.run(ctx, 0)?;
        ctx.meet()?;
    }
    Ok(())
}
