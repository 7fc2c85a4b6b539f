//! all_to_all_nd, reduce_scatter_offset, tiles and the low-contention forms: bit for bit what the oracle says.

use symm::{Capabilities, DType, Options, ReduceOp, ReduceScatterOffset, Span, Tile, TileReduce};

use super::sums::DTYPES;
use super::takes::{Job, Op};
use crate::harness::{Case, Ctx, Outcome, ensure_eq};
use crate::pattern::{Random, f32s};

pub(super) const CASES: &[Case] = &[
    Case::new("take::nd_sizes", nd_sizes),
    Case::new("take::scatter_blocks_of_experts", scatter_blocks_of_experts),
    Case::new("take::scatter_many_blocks", scatter_many_blocks),
    Case::new("take::tile_of_ranks", tile_of_ranks).limit(60),
    Case::new("take::tiles_of_many_roots", tiles_of_many_roots).limit(60),
    Case::new("take::low_contention_sizes", low_contention_sizes).limit(60),
    Case::new("take::averages", averages),
    Case::new("take::every_dtype", every_dtype),
    Case::new("take::no_elements", no_elements),
    Case::new("take::another_offset_on_each_pe", another_offset_on_each_pe),
    Case::new("take::many_in_a_row", many_in_a_row).limit(60),
    Case::new("take::inputs_free_when_passed", inputs_free_when_passed),
    Case::new("take::two_streams_on_one_context", two_streams_on_one_context),
    Case::new("take::sub_teams", sub_teams).pes(2),
    Case::new("take::random_rounds", random_rounds),
    Case::new("take::one_block", one_block),
    Case::new("take::in_a_graph", in_a_graph).needs(Capabilities::GRAPH),
    Case::new("take::large", large).limit(120),
    Case::new("take::large_blocks", large_blocks).needs(Capabilities::DEVICE_INITIATED).limit(120),
    Case::new("take::large_blocks_in_a_graph", large_blocks_in_a_graph).needs(Capabilities::GRAPH).limit(120),
];

fn run(ctx: &Ctx, op: Op, dtype: DType, size: (usize, usize), skip: usize, seed: u64) -> Outcome {
    Job::new(ctx, op, dtype, size, skip, seed)?.run(ctx, 0)
}

/// Upstream: 8 rows of 4 columns a rank, 4 rows a rank of 4 columns.
fn nd_sizes(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    run(ctx, Op::Nd(1), DType::F32, (8, 4 * w), 0, ctx.seed)?;
    run(ctx, Op::Nd(0), DType::F32, (4 * w, 4), 0, ctx.seed + 1)?;
    for (i, (rows, cols)) in [(1, 1), (3, 5), (17, 9), (64, 128), (5, 1031)].into_iter().enumerate() {
        let seed = ctx.seed + 10 * i as u64;
        for (k, dtype) in [DType::U8, DType::BF16, DType::F64].into_iter().enumerate() {
            run(ctx, Op::Nd(1), dtype, (rows, cols * w), k, seed + 2)?;
            run(ctx, Op::Nd(0), dtype, (rows * w, cols), k, seed + 3)?;
        }
    }
    Ok(())
}

/// Upstream: 64 × 32, 1 and 2 experts a rank, both dimensions, also blocks of 16 and 48; block i of rank r is (r+1)(i+1), so
/// sum i is (i+1)·W(W+1)/2.
fn scatter_blocks_of_experts(ctx: &Ctx) -> Outcome {
    let (w, me) = (ctx.n(), ctx.me());
    let total = (w * (w + 1) / 2) as f32;
    for dim in [0, 1] {
        for (experts, sizes) in [(1, vec![64]), (2, vec![64, 64]), (2, vec![16, 48])] {
            let ends: Vec<usize> = (0..experts * w)
                .scan(0, |end, i| {
                    *end += sizes[i / w];
                    Some(*end)
                })
                .collect();
            let (long, across) = (*ends.last().unwrap_or(&0), 32);
            let (rows, cols) = if dim == 0 { (long, across) } else { (across, long) };
            let block = |i: usize| ends.iter().position(|end| i < *end).unwrap_or(0);
            let value = |i: usize| ((me + 1) * (block(i) + 1)) as f32;
            let elements = (0..rows).flat_map(|i| (0..cols).map(move |j| if dim == 0 { i } else { j }));
            let mine: Vec<u8> = elements.flat_map(|i| value(i).to_le_bytes()).collect();
            let x = ctx.symmetric(DType::F32, rows * cols, ctx.seed)?;
            x.mem.set(&ctx.stream, &mine)?;
            let outs =
                sizes.iter().map(|n| ctx.local(DType::F32, n * across, 3)).collect::<Result<Vec<_>, _>>()?;
            let spans: Vec<&Span> = outs.iter().map(|out| &out.span).collect();
            let args = ReduceScatterOffset {
                input: &x.handle,
                rows,
                cols,
                row_stride: cols,
                dim,
                offsets: Some(&ends),
                dst_ranks: None,
                out: &spans,
                options: Options::default(),
            };
            ctx.team.reduce_scatter_offset(&ctx.stream, &args)?;
            for (j, out) in outs.iter().enumerate() {
                let want = f32s((me + j * w + 1) as f32 * total, sizes[j] * across);
                out.check(&ctx.stream, &format!("dim {dim}, block {j} of {sizes:?}"), &want)?;
            }
            x.mem.check(&ctx.stream, "source", &mine)?;
            ctx.stream.synchronize()?;
        }
    }
    Ok(())
}

/// More blocks than one operation takes.
fn scatter_many_blocks(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    run(ctx, Op::Blocks(0, 17), DType::F32, (17 * 9 * w, 5), 1, ctx.seed)?;
    run(ctx, Op::Blocks(1, 33), DType::I32, (3, 33 * 17 * w), 0, ctx.seed + 1)?;
    run(ctx, Op::Blocks(0, 16), DType::BF16, (16 * 17 * w, 7), 0, ctx.seed + 2)
}

/// Upstream: a tile of 32, 128 or 512 in 1024 × 1024 at root 0, filled with ranks: W(W-1)/2 inside, 0 elsewhere.
fn tile_of_ranks(ctx: &Ctx) -> Outcome {
    let (w, side) = (ctx.n(), 1024);
    let sum = (w * (w - 1) / 2) as f32;
    let [input, output] = [0, 1].map(|i| ctx.symmetric(DType::F32, side * side, ctx.seed + i));
    let (input, output) = (input?, output?);
    input.mem.set(&ctx.stream, &f32s(ctx.me() as f32, side * side))?;
    for tile in [32, 128, 512] {
        output.mem.set(&ctx.stream, &f32s(0.0, side * side))?;
        let at = Tile { start: (side + 1) * (side - tile), rows: tile, cols: tile, stride: side };
        let args = TileReduce {
            input: &input.handle,
            in_tile: at,
            output: &output.mem.span,
            out_tile: at,
            root: 0,
            options: Options::default(),
        };
        ctx.team.tile_reduce(&ctx.stream, &args)?;
        let mut want = f32s(0.0, side * side);
        if ctx.me() == 0 {
            for row in 0..tile {
                let first = 4 * (at.start + row * side);
                want[first..first + 4 * tile].copy_from_slice(&f32s(sum, tile));
            }
        }
        output.mem.check(&ctx.stream, &format!("tile of {tile}"), &want)?;
        ctx.stream.synchronize()?;
    }
    for (i, dtype) in [DType::F16, DType::BF16, DType::F32].into_iter().enumerate() {
        for (k, tile) in [34, 130].into_iter().enumerate() {
            run(ctx, Op::Tile(k % w), dtype, (tile, tile), i, ctx.seed + (10 * i + k) as u64)?;
        }
    }
    Ok(())
}

/// Upstream: slices of matrices 2048 long, as many tiles as roots.
fn tiles_of_many_roots(ctx: &Ctx) -> Outcome {
    for roots in [1, ctx.n().div_ceil(2), ctx.n()] {
        run(ctx, Op::Tiles(roots), DType::BF16, (32, 2048), 0, ctx.seed + roots as u64)?;
    }
    run(ctx, Op::Tiles(ctx.n()), DType::F32, (2048, 8 * ctx.n()), 1, ctx.seed)
}

/// Upstream: 64 × 64; also the sizes and alignments of the other reductions.
fn low_contention_sizes(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    let ops = [Op::Gather, Op::AllToAll, Op::Reduce(ReduceOp::Sum), Op::Reduce(ReduceOp::Avg)];
    for (i, op) in ops.into_iter().enumerate() {
        let seed = ctx.seed + 100 * i as u64;
        run(ctx, op, DType::F32, (64 * w, 64), 0, seed)?;
        for (k, bytes) in [4, 8192, 8196].into_iter().enumerate() {
            // Guards put the first element at an odd multiple of its size: 1, 2 and 4 further are all alignments.
            for skip in [0, 1, 3] {
                run(ctx, op, DType::F32, (w, bytes / 4), skip, seed + k as u64)?;
                run(ctx, op, DType::BF16, (w, bytes / 2), skip, seed + k as u64)?;
            }
        }
        for n in [128, 8192] {
            run(ctx, op, DType::F32, (w, n / w), 0, seed + 9)?;
        }
    }
    run(ctx, Op::Reduce(ReduceOp::Sum), DType::F32, (w, 589_824 / w), 1, ctx.seed)
}

/// Upstream: every rank's elements are its number: the sum of rank r's is r·W where all hold r, the average r.
fn averages(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    let x = ctx.symmetric(DType::F32, 8 * w, ctx.seed)?;
    let out = ctx.local(DType::F32, 8, ctx.seed)?;
    let all: Vec<u8> = (0..w).flat_map(|r| f32s(r as f32, 8)).collect();
    for (op, factor) in [(ReduceOp::Sum, w), (ReduceOp::Avg, 1)] {
        x.mem.set(&ctx.stream, &all)?;
        ctx.team.low_contention_reduce_scatter(&ctx.stream, &x.handle, &out.span, op, Options::default())?;
        out.check(&ctx.stream, &format!("{op:?}"), &f32s((ctx.me() * factor) as f32, 8))?;
    }
    for (i, dtype) in [DType::F16, DType::BF16, DType::F32, DType::F64].into_iter().enumerate() {
        run(ctx, Op::Reduce(ReduceOp::Avg), dtype, (w, 1000), i % 2, ctx.seed + i as u64)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn every_dtype(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    for (k, op) in Op::each(w).into_iter().enumerate() {
        let dtypes = if op.sums() { &DTYPES[..] } else { &DType::ALL[..] };
        for (i, dtype) in dtypes.iter().enumerate() {
            run(ctx, op, *dtype, (6 * w, 12 * w), i % 3, ctx.seed + (20 * k + i) as u64)?;
        }
    }
    Ok(())
}

fn no_elements(ctx: &Ctx) -> Outcome {
    for op in Op::each(ctx.n()) {
        run(ctx, op, DType::F32, (0, 6 * ctx.n()), 3, ctx.seed)?;
        run(ctx, op, DType::F32, (6 * ctx.n(), 0), 0, ctx.seed + 1)?;
    }
    Ok(())
}

/// Buffers whose alignments have nothing in common, for the forms that ask for no common place.
fn another_offset_on_each_pe(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    for (i, op) in Op::each(w).into_iter().filter(|op| !op.same_place()).enumerate() {
        let dtype = DTYPES[i % 6];
        let mut job = Job::new(ctx, op, dtype, (6 * w, 12 * w), 0, ctx.seed + i as u64)?;
        job.shift(ctx, ctx.me() % 5)?;
        job.run(ctx, 1)?;
    }
    Ok(())
}

/// The same buffers again and again, refilled the moment that an operation is passed here; PEs pause at different rounds.
fn many_in_a_row(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    for (i, op) in Op::each(w).into_iter().enumerate() {
        let job = Job::new(ctx, op, DType::F32, (6 * w, 12 * w), 1, ctx.seed + i as u64)?;
        for round in 0..12 {
            job.fill(ctx, &ctx.stream, round)?;
            job.enqueue(ctx.team.context(), &ctx.stream)?;
            if (round as usize + i) % 9 == 2 * ctx.me() {
                ctx.pause(300);
            }
            job.check(ctx, &ctx.stream, round)?;
        }
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// Overwritten in stream order right behind the operation, without a look at the result first.
fn inputs_free_when_passed(ctx: &Ctx) -> Outcome {
    for (i, op) in Op::each(ctx.n()).into_iter().enumerate() {
        let job = Job::new(ctx, op, DType::I32, (12 * ctx.n(), 60 * ctx.n()), 0, ctx.seed + i as u64)?;
        job.fill(ctx, &ctx.stream, 0)?;
        job.enqueue(ctx.team.context(), &ctx.stream)?;
        ctx.stream.fill(&job.handle.span(), 0xff)?;
        job.check_outs(ctx, &ctx.stream, 0)?;
        ctx.stream.synchronize()?;
    }
    Ok(())
}

fn two_streams_on_one_context(ctx: &Ctx) -> Outcome {
    let (w, streams) = (ctx.n(), [ctx.world.stream()?, ctx.world.stream()?]);
    let ops = [Op::Nd(1), Op::Gather, Op::Blocks(0, 2), Op::Reduce(ReduceOp::Sum)];
    let jobs = ops.map(|op| Job::new(ctx, op, DType::F64, (6 * w, 4 * w), 0, ctx.seed));
    let jobs = jobs.into_iter().collect::<Result<Vec<_>, _>>()?;
    for round in 0..12 {
        for (i, job) in jobs.iter().enumerate() {
            job.fill(ctx, &streams[i % 2], round)?;
        }
        for (i, job) in jobs.iter().enumerate() {
            job.enqueue(ctx.team.context(), &streams[i % 2])?;
        }
        for (i, job) in jobs.iter().enumerate().rev() {
            job.check(ctx, &streams[i % 2], round)?;
        }
    }
    for stream in streams {
        stream.synchronize()?;
    }
    Ok(())
}

/// Two halves at once; ranks are not PEs.
fn sub_teams(ctx: &Ctx) -> Outcome {
    let n = ctx.n();
    let (low, high): (Vec<usize>, Vec<usize>) = ((0..n / 2).collect(), (n / 2..n).rev().collect());
    let sub = ctx.with(ctx.team_of(if ctx.me() < n / 2 { &low } else { &high })?)?;
    for op in Op::each(sub.n()) {
        run(&sub, op, DType::F32, (6 * sub.n(), 12 * sub.n()), 1, ctx.seed)?;
    }
    sub.stream.synchronize()?;
    Ok(())
}

fn random_rounds(ctx: &Ctx) -> Outcome {
    let (mut r, w) = (Random::new(&[ctx.seed]), ctx.n());
    for round in 0..25 {
        let op = match r.below(4) {
            0 => Op::Blocks(r.below(2), 1 + r.below(4)),
            1 => Op::Tile(r.below(w)),
            _ => r.of(&Op::each(w)),
        };
        let most = r.of(&[3, 20, 70]);
        let (rows, cols) = (r.below(most) * w, r.below(most) * w);
        run(ctx, op, r.of(&DTYPES), (rows, cols), r.below(4), ctx.seed + 100 + round)?;
    }
    ensure_eq!(ctx.team.status(), Ok(()), "status");
    Ok(())
}

/// One block on a GPU, and as many as there are: the same bits.
fn one_block(ctx: &Ctx) -> Outcome {
    for (i, op) in Op::each(ctx.n()).into_iter().enumerate() {
        let mut job = Job::new(ctx, op, DTYPES[i % 6], (12 * ctx.n(), 36 * ctx.n()), 1, ctx.seed)?;
        for max_blocks in [1, 3, 0] {
            job.options.max_blocks = Some(max_blocks);
            job.run(ctx, u64::from(max_blocks))?;
        }
    }
    Ok(())
}

/// Captured once, replayed with inputs that change, beside calls that are not captured.
fn in_a_graph(ctx: &Ctx) -> Outcome {
    for (i, op) in Op::each(ctx.n()).into_iter().enumerate() {
        let job = Job::new(ctx, op, DTYPES[i % 6], (6 * ctx.n(), 12 * ctx.n()), 1, ctx.seed + i as u64)?;
        replay(ctx, &job, 4)?;
    }
    Ok(())
}

fn replay(ctx: &Ctx, job: &Job, rounds: u64) -> Outcome {
    ctx.stream.begin_capture()?;
    let captured = job.enqueue(ctx.team.context(), &ctx.stream);
    let graph = ctx.stream.end_capture()?;
    captured?;
    for round in 0..rounds {
        job.fill(ctx, &ctx.stream, round)?;
        // SAFETY: the job outlives the synchronisation below; members replay one graph only.
        unsafe { ctx.stream.launch(&graph)? };
        job.check(ctx, &ctx.stream, round)?;
        job.run(ctx, 10 + round)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// Beyond what caches hold.
fn large(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    for (i, op) in [Op::Nd(1), Op::Tiles(1)].into_iter().enumerate() {
        run(ctx, op, DType::F64, ((1 << 19) / w + 9, w), 1, ctx.seed + i as u64)?;
    }
    Ok(())
}

/// Blocks of which a PE's own one is worth a copy engine of its own: for backends that have some.
fn of_large_blocks(ctx: &Ctx) -> Outcome<Vec<Job>> {
    let (w, block) = (ctx.n(), (2 << 20) / 4 + 5);
    let ops = [(Op::Gather, 1), (Op::AllToAll, w), (Op::Reduce(ReduceOp::Avg), w)];
    ops.into_iter().map(|(op, rows)| Job::new(ctx, op, DType::F32, (rows, block), 1, ctx.seed)).collect()
}

/// Filled again the moment that a call is passed here, by work of the same stream.
fn large_blocks(ctx: &Ctx) -> Outcome {
    for job in of_large_blocks(ctx)? {
        for round in 0..3 {
            job.fill(ctx, &ctx.stream, round)?;
            job.enqueue(ctx.team.context(), &ctx.stream)?;
            ctx.stream.fill(&job.handle.span(), 0xff)?;
            job.check_outs(ctx, &ctx.stream, round)?;
        }
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn large_blocks_in_a_graph(ctx: &Ctx) -> Outcome {
    of_large_blocks(ctx)?.iter().try_for_each(|job| replay(ctx, job, 2))
}
