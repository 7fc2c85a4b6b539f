//! MoE dispatch and combine.

use symm::DType;

use super::vdev::{Job, ROWS, splits};
use crate::harness::{Case, Ctx, Outcome, ensure_eq};
use crate::pattern::Random;

pub(super) const CASES: &[Case] = &[
    Case::new("vdev_2d::upstream_align_1_8_16", upstream_align_1_8_16),
    Case::new("vdev_2d::upstream_offset", upstream_offset),
    Case::new("vdev_2d::worked_example", worked_example).pes(2),
    Case::new("vdev_2d::zero_experts", zero_experts),
    Case::new("vdev_2d::one_expert_takes_all", one_expert_takes_all),
    Case::new("vdev_2d::no_rows_anywhere", no_rows_anywhere),
    Case::new("vdev_2d::row_bytes", row_bytes),
    Case::new("vdev_2d::experts_1_8_33_256", experts_1_8_33_256),
    Case::new("vdev_2d::exact_output", exact_output),
    Case::new("vdev_2d::offsets_anywhere", offsets_anywhere),
    Case::new("vdev_2d::dispatch_then_combine", dispatch_then_combine),
    Case::new("vdev_2d::dispatch_then_combine_in_halves", dispatch_then_combine_in_halves).pes(4),
    Case::new("vdev_2d::random_dispatches", random_dispatches),
    Case::new("vdev_2d::random_combines", random_combines),
    Case::new("vdev_2d::random_round_trips", random_round_trips),
];

/// Upstream: ne 8, k 10, seed 42 + rank.
fn upstream_align_1_8_16(ctx: &Ctx) -> Outcome {
    for align in [1, 8, 16] {
        let splits = splits(ctx.n(), 8 * ctx.n(), 10);
        Job::dispatch((DType::F32, 1), (8, align), splits, ctx.seed + align as u64 * 10).run(ctx)?;
    }
    Ok(())
}

/// Upstream: ne 8, k 10, input offsets 0, k, 2k, ...: gaps between the splits.
fn upstream_offset(ctx: &Ctx) -> Outcome {
    let (ne, k, w) = (8, 10, ctx.n());
    let offsets: Vec<i64> = (0..(ne * w) as i64).map(|i| i * k as i64).collect();
    let all = splits(w, ne * w, k).into_iter().map(|s| [s, offsets.clone()].concat()).collect();
    Job::combine((DType::F32, 1), ne, all, vec![ne * w * k; w], ctx.seed).run(ctx).map(drop)
}

/// The example of the reference, over the first two ranks' numbers, in a team of two.
fn worked_example(ctx: &Ctx) -> Outcome {
    if ctx.me() < 2 {
        let pair = ctx.with(ctx.team_of(&[0, 1])?)?;
        let table = [
            (1, [[5, 7, 1, 2, 0, 5, 12, 13], [0, 4, 3, 0, 0, 0, 4, 7]]),
            (8, [[5, 7, 1, 2, 0, 5, 16, 17], [0, 4, 3, 0, 0, 0, 8, 11]]),
            (16, [[5, 7, 1, 2, 0, 5, 16, 17], [0, 4, 3, 0, 0, 0, 16, 19]]),
        ];
        for (align, want) in table {
            let splits = vec![vec![5, 1, 0, 3], vec![7, 2, 4, 0]];
            let job = Job::dispatch((DType::I32, 3), (2, align), splits, ctx.seed + align as u64);
            let run = job.run(&pair)?;
            ensure_eq!(run.result.get_i64(&pair.stream)?, want[ctx.me()], "align {align}");
        }
        // An empty first expert takes `align` rows.
        for (align, starts) in [(1, [0, 0, 1, 4]), (8, [0, 0, 8, 11])] {
            let splits = vec![vec![0, 3, 0, 0], vec![0, 2, 0, 0]];
            let job = Job::dispatch((DType::I32, 3), (2, align), splits, ctx.seed + 100 + align as u64);
            let run = job.run(&pair)?;
            if ctx.me() == 0 {
                let want = [[0, 0, 3, 2], starts].concat();
                ensure_eq!(run.result.get_i64(&pair.stream)?, want, "empty first expert, align {align}");
            }
        }
    }
    ctx.meet()?;
    Ok(())
}

fn zero_experts(ctx: &Ctx) -> Outcome {
    let (ne, w) = (5, ctx.n());
    for align in [1, 16] {
        // Experts 0 and 3 of every rank get nothing; on odd ranks nobody gets anything.
        let split = |s: usize, i: usize| {
            let (d, e) = (i / ne, i % ne);
            if e.is_multiple_of(3) || d % 2 == 1 { 0 } else { (1 + (s + i) % 6) as i64 }
        };
        let splits = (0..w).map(|s| (0..w * ne).map(|i| split(s, i)).collect()).collect();
        Job::dispatch((DType::BF16, 8), (ne, align), splits, ctx.seed + align as u64).run(ctx)?;
    }
    Ok(())
}

fn one_expert_takes_all(ctx: &Ctx) -> Outcome {
    let (ne, w) = (4, ctx.n());
    for hot in [0, w * ne / 2, w * ne - 1] {
        let split = |i: usize| if i == hot { 50 } else { 0 };
        let splits = vec![(0..w * ne).map(split).collect(); w];
        Job::dispatch((DType::U8, 100), (ne, 8), splits, ctx.seed + hot as u64 * 10).run(ctx)?;
    }
    Ok(())
}

fn no_rows_anywhere(ctx: &Ctx) -> Outcome {
    let (ne, w) = (3, ctx.n());
    let mut job = Job::dispatch((DType::F32, 4), (ne, 8), vec![vec![0; ne * w]; w], ctx.seed);
    // Padding behind the last row needs no memory, as it is never written.
    job.out_rows.fill(0);
    job.run(ctx)?;
    let combine = vec![vec![0; 2 * ne * w]; w];
    let mut job = Job::combine((DType::F32, 4), ne, combine, vec![0; w], ctx.seed + 10);
    job.out_rows.fill(0);
    job.run(ctx).map(drop)
}

fn row_bytes(ctx: &Ctx) -> Outcome {
    for (i, row) in ROWS.iter().enumerate() {
        let k = if row.1 > 1000 { 3 } else { 8 };
        Job::dispatch(*row, (2, 8), splits(ctx.n(), 2 * ctx.n(), k), ctx.seed + 10 * i as u64).run(ctx)?;
    }
    Ok(())
}

/// Above 1024 splits a context made for them is needed.
fn experts_1_8_33_256(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    for (i, ne) in [1, 8, 33, 256].into_iter().enumerate() {
        let job = Job::dispatch((DType::U16, 3), (ne, 4), splits(w, ne * w, 3), ctx.seed + 100 * i as u64);
        let context = if ne * w > ctx.team.context().max_splits() {
            ctx.team.new_context(ne * w)?
        } else {
            ctx.team.context().clone()
        };
        let run = job.run_in(ctx, &context)?;
        let in_rows = job.out_rows.iter().copied().max().unwrap_or(0);
        let back =
            Job::combine((DType::U16, 3), ne, run.results, vec![in_rows; w], ctx.seed + 100 * i as u64 + 10);
        back.run_in(ctx, &context)?;
    }
    Ok(())
}

/// The output reaches to the last row that is written, not to the end of its padding.
fn exact_output(ctx: &Ctx) -> Outcome {
    let (ne, w) = (3, ctx.n());
    let mut job = Job::dispatch((DType::F32, 2), (ne, 16), splits(w, ne * w, 6), ctx.seed);
    let results = job.prepare(ctx)?.results;
    for (rows, result) in job.out_rows.iter_mut().zip(&results) {
        let pieces = result[..ne * w].iter().zip(&result[ne * w..]);
        *rows = pieces.filter(|(n, _)| **n > 0).map(|(n, start)| (n + start) as usize).max().unwrap_or(0);
    }
    job.run(ctx).map(drop)
}

/// Splits in any order, overlapping, and offsets of empty splits that mean nothing.
fn offsets_anywhere(ctx: &Ctx) -> Outcome {
    let (ne, w, rows) = (3, ctx.n(), 64);
    let of = |rank: usize| {
        let mut r = Random::new(&[ctx.seed, rank as u64]);
        let splits: Vec<i64> = (0..ne * w).map(|_| r.of(&[0, 0, 1, 5, 20])).collect();
        let mut offset = |split: &i64| match split {
            0 => r.of(&[i64::MAX - 7, -5, 0]),
            n => r.below(rows + 1 - *n as usize) as i64,
        };
        let offsets: Vec<i64> = splits.iter().map(&mut offset).collect();
        [splits, offsets].concat()
    };
    let all: Vec<Vec<i64>> = (0..w).map(of).collect();
    Job::combine((DType::I16, 5), ne, all, vec![rows; w], ctx.seed).run(ctx).map(drop)
}

/// Dispatch, then combine what it left: the input again, and its splits.
fn round_trip(
    ctx: &Ctx,
    (dtype, row): (DType, usize),
    (ne, align): (usize, usize),
    seed: u64,
    k: usize,
) -> Outcome {
    let w = ctx.n();
    let of = |rank: u64| {
        let mut r = Random::new(&[42 + rank, seed]);
        (0..ne * w).map(|_| r.below(k) as i64).collect()
    };
    let there = Job::dispatch((dtype, row), (ne, align), (0..w as u64).map(of).collect(), seed);
    let run = there.run(ctx)?;
    // The combine takes the dispatch's output and result as they lie in memory.
    let in_rows = there.out_rows.iter().copied().max().unwrap_or(0);
    let mut back = Job::combine((dtype, row), ne, run.results.clone(), vec![in_rows; w], seed + 10);
    back.out_rows = there.in_rows.clone();
    let mut second = back.prepare(ctx)?;
    second.input = run.output.mem;
    second.in_splits = run.result;
    second.inputs = run.outputs;
    second.outputs = (0..w).map(|rank| second.output.poison_of(back.seed + 2, ctx.pe(rank))).collect();
    let row_bytes = back.row_bytes();
    second.results = symm::oracle::all_to_all_vdev_2d_offset(
        &second.inputs,
        &back.splits,
        row_bytes,
        ne,
        &mut second.outputs,
    );
    back.enqueue(ctx, ctx.team.context(), &second)?;
    back.check(ctx, &second)?;
    let me = ctx.me();
    ensure_eq!(second.results[me][..ne * w], there.splits[me][..], "the splits of the dispatch again");
    let n = run.inputs[me].len();
    let got = second.output.mem.get(&ctx.stream)?;
    crate::harness::same("the rows of the dispatch again", &got[..n], &run.inputs[me])?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn dispatch_then_combine(ctx: &Ctx) -> Outcome {
    [1, 8, 16]
        .into_iter()
        .try_for_each(|align| round_trip(ctx, (DType::F32, 4), (8, align), ctx.seed + align as u64 * 100, 10))
}

/// Upstream: two groups of W/2, align 8.
fn dispatch_then_combine_in_halves(ctx: &Ctx) -> Outcome {
    let half = ctx.n() / 2;
    let members: Vec<usize> = if ctx.me() < half { (0..half).collect() } else { (half..ctx.n()).collect() };
    let sub = ctx.with(ctx.team_of(&members)?)?;
    round_trip(&sub, (DType::F32, 4), (8, 8), ctx.seed, 10)?;
    ctx.meet()?;
    Ok(())
}

fn random_dispatches(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    let mut r = Random::new(&[ctx.seed, w as u64]);
    for round in 0..60 {
        let (dtype, row) = (r.of(&DType::ALL), 1 + r.below(r.clone().of(&[1, 5, 60])));
        let (ne, align, k) = (1 + r.below(9), r.of(&[1, 2, 3, 8, 16, 128]), 1 + r.below(7));
        let splits = (0..w).map(|_| (0..ne * w).map(|_| r.below(k) as i64).collect()).collect();
        Job::dispatch((dtype, row), (ne, align), splits, ctx.seed + 1000 + 10 * round).run(ctx)?;
    }
    Ok(())
}

fn random_combines(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    let mut r = Random::new(&[ctx.seed, w as u64]);
    for round in 0..40 {
        let (dtype, row) = (r.of(&DType::ALL), 1 + r.below(r.clone().of(&[1, 5, 60])));
        let (ne, rows) = (1 + r.below(6), 1 + r.below(50));
        let one = |r: &mut Random| {
            let splits: Vec<i64> = (0..ne * w).map(|_| r.below(rows.min(9) + 1) as i64).collect();
            let offsets: Vec<i64> = splits.iter().map(|n| r.below(rows + 1 - *n as usize) as i64).collect();
            [splits, offsets].concat()
        };
        let all = (0..w).map(|_| one(&mut r)).collect();
        Job::combine((dtype, row), ne, all, vec![rows; w], ctx.seed + 1000 + 10 * round).run(ctx)?;
    }
    Ok(())
}

fn random_round_trips(ctx: &Ctx) -> Outcome {
    let mut r = Random::new(&[ctx.seed]);
    for round in 0..30 {
        let (dtype, row) = (r.of(&DType::ALL), 1 + r.below(40));
        let (ne, align, k) = (1 + r.below(6), r.of(&[1, 4, 8, 16]), 1 + r.below(8));
        round_trip(ctx, (dtype, row), (ne, align), ctx.seed + 1000 + 100 * round, k)?;
    }
    Ok(())
}
