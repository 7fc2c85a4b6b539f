//! A PE dies; the rest go on in `Team::without`.

use std::time::{Duration, Instant};

use symm::{Capabilities, DType, Error, Options, Pe, Tensor};

use super::lifetime::settle;
use super::vdev::{Job, splits};
use crate::harness::{Case, Ctx, Outcome, ensure, ensure_eq, ensure_err};

const W: Capabilities = Capabilities::WITHOUT;

pub(super) const CASES: &[Case] = &[
    Case::new("survivors::nobody_left_out", nobody_left_out).needs(W),
    Case::new("survivors::arguments", arguments).needs(W),
    Case::new("survivors::who_lives_is_waited_for", who_lives_is_waited_for)
        .pes(2)
        .needs(W)
        .own(&[("SYMM_INIT_TIMEOUT_MS", "700")]),
    Case::new("survivors::go_on", go_on).needs(W).pes(2).dies(),
    Case::new("survivors::memory_of_the_dead_is_free", memory_of_the_dead_is_free).needs(W).pes(2).dies(),
    Case::new("survivors::the_world_ends_without_the_dead", the_world_ends_without_the_dead)
        .needs(W)
        .pes(2)
        .dies(),
];

/// The PE that ends after its case.
fn dead(ctx: &Ctx) -> Pe {
    Pe::from(ctx.n() - 1)
}

/// All meet. One that dies right after it may fail it on a PE that has yet to hear of its success.
fn meet_a_last_time(ctx: &Ctx) {
    drop(ctx.meet());
}

/// Puts this PE's number into the right neighbour's tensor and checks what the left one put here.
fn ring(ctx: &Ctx, tensor: &Tensor, team: &symm::Team) -> Outcome {
    let handle = tensor.rendezvous(team)?;
    let src = ctx.world.local(DType::U32, 1)?;
    ctx.stream.write(&src.span(), &[100 + team.rank() as u32])?;
    handle.put(&ctx.stream, (team.rank() + 1) % team.world_size(), 0, &src.span())?;
    handle.barrier(&ctx.stream, 0, None)?;
    let got: Vec<u32> = ctx.stream.read(&tensor.span().slice(0, 1)?)?;
    ctx.stream.synchronize()?;
    let left = (team.rank() + team.world_size() - 1) % team.world_size();
    ensure_eq!(got, [100 + left as u32], "what the left neighbour put");
    Ok(())
}

/// Without a death it is the same team once more, with a number of its own.
fn nobody_left_out(ctx: &Ctx) -> Outcome {
    let tensor = ctx.team.empty(&[4], DType::U32)?;
    ensure_eq!(ctx.team.view(), 0, "the view of a team as it was made");
    let mut team = ctx.team.clone();
    for view in 1..4 {
        team = team.without(&[])?;
        ensure_eq!((team.view(), team.members()), (view, ctx.team.members()), "view and members");
        ring(ctx, &tensor, &team)?;
    }
    ring(ctx, &tensor, &ctx.team)
}

fn arguments(ctx: &Ctx) -> Outcome {
    let me = ctx.world.pe();
    ensure_err!(
        ctx.team.without(&[me]).map(drop),
        Error::InvalidArgument { op: "without", argument: "gone", .. }
    );
    let outside = Pe::from(ctx.n());
    ensure_err!(ctx.team.without(&[outside]).map(drop), Error::InvalidArgument { argument: "gone", .. });
    // Nobody was waited for, and nothing is left behind.
    ensure_eq!(ctx.team.without(&[])?.members(), ctx.team.members(), "members");
    Ok(())
}

/// Silence is no proof of death: the PE is named, and the team is what it was.
fn who_lives_is_waited_for(ctx: &Ctx) -> Outcome {
    let silent = dead(ctx);
    if ctx.world.pe() != silent {
        // Asked to leave it out, or not: who decides names it; the others were waiting for the one that decides.
        let gone = [silent];
        let gone = if ctx.world.pe().index().is_multiple_of(2) { &gone[..] } else { &[] };
        let named = if gone.is_empty() { Pe(0) } else { silent };
        let got = ctx.team.without(gone).map(drop);
        ensure_err!(got, Error::Timeout { op: "without", late, .. } if late[..] == [named]);
    }
    ctx.meet()?;
    let again = ctx.team.without(&[])?;
    ensure_eq!(again.members(), ctx.team.members(), "members of the call after that");
    ring(ctx, &ctx.team.empty(&[1], DType::U32)?, &again)
}

/// Waits in an operation until the death ends it.
fn notice(ctx: &Ctx, handle: &symm::Handle) -> Outcome {
    let rank = ctx.n() - 1;
    let waits = handle.wait_signal(&ctx.stream, rank, 0, None).and_then(|()| ctx.stream.synchronize());
    ensure_err!(waits, Error::PeerFailed { pe, .. } if *pe == dead(ctx));
    Ok(())
}

fn go_on(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U32, 4, ctx.seed)?;
    let fresh = ctx.team.empty(&[4], DType::U32)?;
    meet_a_last_time(ctx);
    if ctx.world.pe() == dead(ctx) {
        return Ok(());
    }
    notice(ctx, &x.handle)?;
    let began = Instant::now();
    let rest = ctx.team.without(&[dead(ctx)])?;
    ensure!(began.elapsed() < Duration::from_secs(5), "agreed after {:?}", began.elapsed());
    let living: Vec<Pe> = (0..ctx.n() - 1).map(Pe::from).collect();
    ensure_eq!((rest.members(), rest.view()), (&living[..], 1), "members and view");
    rest.status()?;
    // What the failed team allocated keeps its contents, and can be met over those who are left.
    x.mem.check(&ctx.stream, "a tensor of the failed team", x.mem.poison())?;
    // Streams have done with it too.
    ctx.stream.synchronize()?;
    ring(ctx, &fresh, &rest)?;
    let on = ctx.with(rest.clone())?;
    for round in 0..3 {
        Job::vdev(DType::I16, 3, splits(on.n(), on.n(), 5), ctx.seed + round).run(&on)?;
    }
    // The failed team stays failed, and so does what is made of it.
    ensure_err!(ctx.team.barrier(&ctx.stream, Options::default()), Error::PeerFailed { pe, .. } if *pe == dead(ctx));
    ensure_err!(fresh.rendezvous(&ctx.team).map(drop), Error::PeerFailed { pe, .. } if *pe == dead(ctx));
    // Again, on either of the two: there is one sequence of views.
    ensure_eq!(ctx.team.without(&[])?.view(), 2, "the next view");
    ensure_eq!(rest.without(&[])?.members(), &living[..], "members of the view after that");
    rest.recover()?;
    Ok(())
}

/// What only the dead PE had not given back is reused, and is not before its end is proven.
fn memory_of_the_dead_is_free(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U32, 4, ctx.seed)?;
    let tensor = ctx.team.empty(&[1 << 20], DType::U8)?;
    let handle = tensor.rendezvous(&ctx.team)?;
    meet_a_last_time(ctx);
    let began = Instant::now();
    if ctx.world.pe() == dead(ctx) {
        // It lives, and may write, while the others retire theirs.
        ctx.pause(300_000);
        ensure_eq!(handle.world_size(), ctx.n(), "ranks");
        return Ok(());
    }
    drop((tensor, handle));
    let held = ctx.world.retired();
    ensure!(held > 0 || began.elapsed() > Duration::from_millis(250), "free under a PE that may write it");
    notice(ctx, &x.handle)?;
    drop(x);
    let rest = ctx.team.without(&[])?;
    // The last of the survivors may retire its own only now, and on the network reach a proxy may still deliver.
    ensure_eq!(settle(ctx, &rest, 0)?, 0, "allocations that are still held");
    Ok(())
}

fn the_world_ends_without_the_dead(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U32, 4, ctx.seed)?;
    meet_a_last_time(ctx);
    if ctx.world.pe() == dead(ctx) {
        return Ok(());
    }
    notice(ctx, &x.handle)?;
    let rest = ctx.world.team().without(&[dead(ctx)])?;
    let stream = ctx.world.stream()?;
    rest.barrier(&stream, Options::default())?;
    stream.synchronize()?;
    ctx.world.finalize()?;
    Ok(())
}
