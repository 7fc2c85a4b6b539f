//! broadcast: the root's buffer becomes everybody's.

use symm::{DType, Options};

use crate::harness::{Case, Ctx, Outcome};
use crate::pattern::{bytes, i64s};

pub(super) const CASES: &[Case] = &[
    Case::new("broadcast::four_i64", four_i64),
    Case::new("broadcast::every_dtype", every_dtype),
    Case::new("broadcast::sizes_and_roots", sizes_and_roots),
    Case::new("broadcast::part_of_an_allocation", part_of_an_allocation),
    Case::new("broadcast::another_offset_on_each_pe", another_offset_on_each_pe),
    Case::new("broadcast::many_in_a_row", many_in_a_row),
    Case::new("broadcast::large", large),
    Case::new("broadcast::sub_teams", sub_teams).pes(2),
];

/// Upstream: 4 int64, 100 + i from the root.
fn four_i64(ctx: &Ctx) -> Outcome {
    for root in 0..ctx.n() {
        let x = ctx.symmetric(DType::I64, 4, ctx.seed)?;
        if ctx.me() == root {
            x.mem.set(&ctx.stream, &i64s(&[100, 101, 102, 103]))?;
        }
        ctx.team.broadcast(&ctx.stream, &x.handle, root, Options::default())?;
        x.mem.check(&ctx.stream, &format!("from {root}"), &i64s(&[100, 101, 102, 103]))?;
        ctx.stream.synchronize()?;
    }
    Ok(())
}

fn run(ctx: &Ctx, dtype: DType, n: usize, root: usize, seed: u64) -> Outcome {
    let x = ctx.symmetric(dtype, n, seed)?;
    ctx.team.broadcast(&ctx.stream, &x.handle, root, Options::default())?;
    let mut all: Vec<_> = (0..ctx.n()).map(|rank| x.poison_of(seed, ctx.pe(rank))).collect();
    symm::oracle::broadcast(root, &mut all);
    x.mem.check(&ctx.stream, &format!("{n} {dtype} from {root}"), &all[ctx.me()])?;
    ctx.stream.synchronize()?;
    ctx.meet()?;
    x.mem.check(&ctx.stream, "once all are through", &all[ctx.me()])
}

fn every_dtype(ctx: &Ctx) -> Outcome {
    DType::ALL
        .into_iter()
        .enumerate()
        .try_for_each(|(i, d)| run(ctx, d, 133, i % ctx.n(), ctx.seed + i as u64))
}

fn sizes_and_roots(ctx: &Ctx) -> Outcome {
    for (i, n) in [0, 1, 2, 3, 15, 16, 17, 63, 65, 4095, 4096, 4097, 1 << 20].into_iter().enumerate() {
        run(ctx, DType::U8, n, (3 * i) % ctx.n(), ctx.seed + i as u64)?;
    }
    Ok(())
}

fn part_of_an_allocation(ctx: &Ctx) -> Outcome {
    let root = ctx.n() - 1;
    let x = ctx.symmetric(DType::U16, 1000, ctx.seed)?;
    let view = x.tensor.view(301, &[555])?.rendezvous(&ctx.team)?;
    ctx.team.broadcast(&ctx.stream, &view, root, Options::default())?;
    let mut want = x.mem.poison().to_vec();
    want[602..1712].copy_from_slice(&x.poison_of(ctx.seed, root)[602..1712]);
    x.mem.check(&ctx.stream, "part", &want)?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn another_offset_on_each_pe(ctx: &Ctx) -> Outcome {
    let n = 3000;
    for root in 0..ctx.n() {
        let seed = ctx.seed + root as u64;
        let x = ctx.symmetric(DType::U8, n + 7 * ctx.n(), seed)?;
        let start = |rank: usize| (7 * rank) % 19;
        let view = x.tensor.view(start(ctx.me()), &[n])?.rendezvous(&ctx.team)?;
        ctx.team.broadcast(&ctx.stream, &view, root, Options::default())?;
        let mut want = x.mem.poison().to_vec();
        let theirs = x.poison_of(seed, root);
        want[start(ctx.me())..start(ctx.me()) + n].copy_from_slice(&theirs[start(root)..start(root) + n]);
        x.mem.check(&ctx.stream, &format!("from {root}"), &want)?;
        ctx.stream.synchronize()?;
    }
    Ok(())
}

/// Refilled the moment that it is passed; the root changes each round and PEs pause at different rounds.
fn many_in_a_row(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U32, 250, ctx.seed)?;
    for round in 0..150u64 {
        let root = round as usize % ctx.n();
        if ctx.me() == root {
            x.mem.set(&ctx.stream, &bytes(round, root, 1000))?;
        }
        ctx.team.broadcast(&ctx.stream, &x.handle, root, Options::default())?;
        if round % 23 == 3 * ctx.me() as u64 {
            ctx.pause(300);
        }
        x.mem.check(&ctx.stream, &format!("round {round}"), &bytes(round, root, 1000))?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn large(ctx: &Ctx) -> Outcome {
    run(ctx, DType::F32, (9 << 18) + 1, ctx.n() / 2, ctx.seed)
}

/// Ranks are not PEs.
fn sub_teams(ctx: &Ctx) -> Outcome {
    let n = ctx.n();
    let (low, high): (Vec<usize>, Vec<usize>) = ((0..n / 2).collect(), (n / 2..n).rev().collect());
    let sub = ctx.with(ctx.team_of(if ctx.me() < n / 2 { &low } else { &high })?)?;
    for root in 0..sub.n() {
        let x = sub.symmetric(DType::U8, 77, ctx.seed + root as u64)?;
        sub.team.broadcast(&sub.stream, &x.handle, root, Options::default())?;
        let want = x.poison_of(ctx.seed + root as u64, sub.pe(root));
        x.mem.check(&sub.stream, &format!("from {root}"), &want)?;
        sub.stream.synchronize()?;
    }
    Ok(())
}
