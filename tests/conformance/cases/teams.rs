//! Teams: any PEs in any order, made by their members only.

use symm::{DType, Error, Options, Pe, Team};

use super::vdev::{Job, splits};
use crate::harness::{Case, Ctx, Outcome, ensure, ensure_eq, ensure_err};

pub(super) const CASES: &[Case] = &[
    Case::new("teams::the_world", the_world),
    Case::new("teams::alone", alone),
    Case::new("teams::reversed", reversed),
    Case::new("teams::halves_at_once", halves_at_once).pes(2),
    Case::new("teams::overlapping_pairs", overlapping_pairs).pes(3),
    Case::new("teams::subset_then_world", subset_then_world).pes(2),
    Case::new("teams::translate", translate).pes(2),
    Case::new("teams::split_by_parity", split_by_parity),
    Case::new("teams::split_of_a_split", split_of_a_split).pes(4),
    Case::new("teams::many", many),
    Case::new("teams::pads_of_teams_apart", pads_of_teams_apart),
    Case::new("teams::wrong_members", wrong_members),
    Case::new("teams::orders_that_differ", orders_that_differ).pes(2),
    Case::new("teams::not_a_subset", not_a_subset).pes(2),
];

/// Every operation once in a team; `ctx` has it as its team.
fn works(ctx: &Ctx) -> Outcome {
    let (n, me) = (ctx.n(), ctx.me());
    let x = ctx.symmetric(DType::U32, n, ctx.seed)?;
    let src = ctx.local(DType::U32, 1, ctx.seed)?;
    src.set(&ctx.stream, &(1000 + ctx.world.pe().0).to_le_bytes())?;
    for rank in 0..n {
        x.handle.put(&ctx.stream, rank, me, &src.span)?;
    }
    x.handle.barrier(&ctx.stream, 0, None)?;
    let got: Vec<u32> = ctx.stream.read(&x.mem.span)?;
    let want: Vec<u32> = ctx.team.members().iter().map(|pe| 1000 + pe.0).collect();
    ensure_eq!(got, want, "what each rank put");
    x.handle.put_signal(&ctx.stream, ctx.right(), 0, None)?;
    x.handle.wait_signal(&ctx.stream, ctx.left(), 0, None)?;
    ctx.team.barrier(&ctx.stream, Options::default())?;
    let gathered = ctx.symmetric(DType::U32, n, ctx.seed)?;
    ctx.team.all_gather(&ctx.stream, &src.span, &gathered.handle, Options::default())?;
    let got: Vec<u32> = ctx.stream.read(&gathered.mem.span)?;
    ensure_eq!(got, want, "all_gather");
    Job::vdev(DType::U8, 7, splits(n, n, 6), ctx.seed + 5).run(ctx)?;
    Job::dispatch((DType::F32, 2), (2, 4), splits(n, 2 * n, 5), ctx.seed + 15).run(ctx)?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn the_world(ctx: &Ctx) -> Outcome {
    let team = ctx.world.team();
    ensure_eq!((team.rank(), team.world_size()), (ctx.world.pe().index(), ctx.world.n_pes()), "rank = PE");
    ensure_eq!(team.context().max_splits(), 1024.max(32 * ctx.n()), "max_splits");
    works(&ctx.with(team.clone())?)
}

fn alone(ctx: &Ctx) -> Outcome {
    let me = ctx.me();
    let team = ctx.team_of(&[me])?;
    ensure_eq!((team.rank(), team.world_size()), (0, 1), "rank and size");
    works(&ctx.with(team)?)?;
    ctx.meet()?;
    Ok(())
}

fn reversed(ctx: &Ctx) -> Outcome {
    let order: Vec<usize> = (0..ctx.n()).rev().collect();
    let team = ctx.team_of(&order)?;
    ensure_eq!(team.rank(), ctx.n() - 1 - ctx.me(), "my rank");
    works(&ctx.with(team)?)
}

fn half(ctx: &Ctx) -> Vec<usize> {
    let middle = ctx.n() / 2;
    if ctx.me() < middle { (0..middle).collect() } else { (middle..ctx.n()).rev().collect() }
}

fn halves_at_once(ctx: &Ctx) -> Outcome {
    works(&ctx.with(ctx.team_of(&half(ctx))?)?)?;
    ctx.meet()?;
    Ok(())
}

/// Upstream: [0,1] and [1,2]; PE 1 is in both, PE 0 never hears of the second.
fn overlapping_pairs(ctx: &Ctx) -> Outcome {
    let me = ctx.me();
    let pair = |a: usize, b: usize| -> Outcome<Option<Team>> {
        Ok(if me == a || me == b { Some(ctx.team_of(&[a, b])?) } else { None })
    };
    let teams = [pair(0, 1)?, pair(1, 2)?];
    for team in teams.iter().flatten() {
        works(&ctx.with(team.clone())?)?;
    }
    // Operations of both in flight at once on PE 1.
    let both: Vec<Ctx> = teams.iter().flatten().map(|t| ctx.with(t.clone())).collect::<symm::Result<_>>()?;
    for _ in 0..10 {
        for sub in &both {
            sub.team.barrier(&sub.stream, Options::default())?;
        }
    }
    both.iter().try_for_each(|sub| sub.stream.synchronize())?;
    ctx.meet()?;
    Ok(())
}

/// Upstream #196082: a rendezvous of a strict subset moves no counter of the world's.
fn subset_then_world(ctx: &Ctx) -> Outcome {
    let tensor = ctx.team.empty(&[8], DType::U32)?;
    let inside = ctx.me() < ctx.n() - 1;
    let sub = if inside { Some(ctx.team_of(&(0..ctx.n() - 1).collect::<Vec<_>>())?) } else { None };
    for _ in 0..3 {
        if let Some(sub) = &sub {
            let h = tensor.rendezvous(sub)?;
            ensure_eq!(h.world_size(), ctx.n() - 1, "members of the subset's handle");
            h.barrier(&ctx.stream, 0, None)?;
            // Allocations of the subset never enter the log of the world's team.
            sub.empty(&[3], DType::U8)?.rendezvous(sub)?;
        }
        let h = tensor.rendezvous(&ctx.team)?;
        h.barrier(&ctx.stream, 0, None)?;
        ctx.team.empty(&[5], DType::U8)?.rendezvous(&ctx.team)?;
        ctx.world.team().empty(&[5], DType::U8)?.rendezvous(ctx.world.team())?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn translate(ctx: &Ctx) -> Outcome {
    let n = ctx.n();
    let order: Vec<usize> = (0..n).rev().collect();
    let other = ctx.team_of(&order)?;
    for rank in 0..n {
        ensure_eq!(ctx.team.translate(rank, &other), Some(n - 1 - rank), "rank {rank} in the reversed team");
        ensure_eq!(other.pe(rank), Some(Pe::from(n - 1 - rank)), "PE of rank {rank}");
        ensure_eq!(other.rank_of(Pe::from(rank)), Some(n - 1 - rank), "rank of PE {rank}");
    }
    ensure_eq!(
        (ctx.team.translate(n, &other), other.pe(n), other.rank_of(Pe::from(n))),
        (None, None, None),
        "outside"
    );
    let alone = ctx.team_of(&[ctx.me()])?;
    let mine: Vec<Option<usize>> = (0..n).map(|rank| ctx.team.translate(rank, &alone)).collect();
    let want: Vec<Option<usize>> = (0..n).map(|rank| (rank == ctx.me()).then_some(0)).collect();
    ensure_eq!(mine, want, "ranks in a team of this PE alone");
    Ok(())
}

/// Even PEs in reversed order; of the odd ones, the first joins none.
fn split_by_parity(ctx: &Ctx) -> Outcome {
    let me = ctx.me();
    let color = if me == 1 { None } else { Some(7 + me as u64 % 2) };
    let team = ctx.team.split(color, if me.is_multiple_of(2) { -(me as i64) } else { 0 })?;
    ensure_eq!(team.is_some(), color.is_some(), "a team for PE {me}");
    if let Some(team) = team {
        let members: Vec<usize> = team.members().iter().map(|pe| pe.index()).collect();
        let even: Vec<usize> = (0..ctx.n()).rev().filter(|pe| pe % 2 == 0).collect();
        let odd: Vec<usize> = (2..ctx.n()).filter(|pe| pe % 2 == 1).collect();
        ensure_eq!(members, if me.is_multiple_of(2) { even } else { odd }, "members");
        works(&ctx.with(team)?)?;
    }
    ctx.meet()?;
    Ok(())
}

fn split_of_a_split(ctx: &Ctx) -> Outcome {
    let me = ctx.me();
    let Some(half) = ctx.team.split(Some(me as u64 % 2), 0)? else {
        return Err(crate::harness::Stop::fail("no team"));
    };
    let Some(quarter) = half.split(Some(half.rank() as u64 % 2), 0)? else {
        return Err(crate::harness::Stop::fail("no team"));
    };
    ensure!(quarter.members().iter().all(|pe| pe.index() % 4 == me % 4), "members {:?}", quarter.members());
    works(&ctx.with(quarter)?)?;
    works(&ctx.with(half)?)?;
    ctx.meet()?;
    Ok(())
}

/// Upstream: a recycled group. Teams of the same members are different teams.
fn many(ctx: &Ctx) -> Outcome {
    let everybody: Vec<usize> = (0..ctx.n()).collect();
    let mut kept = Vec::new();
    for i in 0..12 {
        let team = ctx.team_of(&everybody)?;
        let h = team.empty(&[i + 1], DType::U8)?.rendezvous(&team)?;
        h.barrier(&ctx.stream, 0, None)?;
        team.barrier(&ctx.stream, Options::default())?;
        if i % 3 == 0 {
            kept.push((team, h));
        }
    }
    for (team, h) in kept.iter().rev() {
        team.barrier(&ctx.stream, Options::default())?;
        h.barrier(&ctx.stream, 0, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// Upstream #192581: one allocation, two groups, pads apart.
fn pads_of_teams_apart(ctx: &Ctx) -> Outcome {
    let other = ctx.another_team()?;
    let tensor = ctx.team.empty(&[8], DType::U32)?;
    let (a, b) = (tensor.rendezvous(&ctx.team)?, tensor.rendezvous(&other)?);
    ensure!(a.signal_pad_ptrs()[ctx.me()] != b.signal_pad_ptrs()[ctx.me()], "one pad for two teams");
    ensure_eq!(a.buffer_ptrs(), b.buffer_ptrs(), "data of both");
    a.put_signal(&ctx.stream, ctx.right(), 0, None)?;
    b.put_signal(&ctx.stream, ctx.right(), 0, None)?;
    b.wait_signal(&ctx.stream, ctx.left(), 0, None)?;
    a.wait_signal(&ctx.stream, ctx.left(), 0, None)?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn wrong_members(ctx: &Ctx) -> Outcome {
    let (me, n) = (ctx.me(), ctx.n());
    ensure_err!(
        ctx.team_of(&[me, me]).map(drop),
        Error::InvalidArgument { op: "team_of", argument: "members", .. }
    );
    ensure_err!(
        ctx.team_of(&[me, n]).map(drop),
        Error::InvalidArgument { op: "team_of", argument: "members", .. }
    );
    ensure_err!(
        ctx.team_of(&[]).map(drop),
        Error::InvalidArgument { op: "team_of", argument: "members", .. }
    );
    if n > 1 {
        ensure_err!(
            ctx.team_of(&[ctx.right()]).map(drop),
            Error::InvalidArgument { op: "team_of", argument: "members", .. }
        );
    }
    // Refused before anything was exchanged: teams can still be made.
    works(&ctx.with(ctx.another_team()?)?)
}

/// The same PEs, which one of them orders otherwise: all are told at once.
fn orders_that_differ(ctx: &Ctx) -> Outcome {
    let mut order: Vec<usize> = (0..ctx.n()).collect();
    if ctx.me() + 1 == ctx.n() {
        order.reverse();
    }
    let began = std::time::Instant::now();
    let got = ctx.team_of(&order).map(drop);
    ensure_err!(got, Error::InvalidArgument { op: "team_of", argument: "members", expected, .. } if expected.contains("order"));
    ensure!(began.elapsed() < ctx.world.config().init_timeout / 2, "told after {:?}", began.elapsed());
    works(&ctx.with(ctx.another_team()?)?)
}

fn not_a_subset(ctx: &Ctx) -> Outcome {
    let sub = ctx.team_of(&half(ctx))?;
    let tensor = sub.empty(&[8], DType::U32)?;
    ensure_err!(
        tensor.rendezvous(&ctx.team).map(drop),
        Error::InvalidArgument { op: "rendezvous", argument: "team", .. }
    );
    tensor.rendezvous(&sub)?;
    ctx.meet()?;
    Ok(())
}
