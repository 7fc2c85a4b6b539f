//! A failure stays set on its team until `recover`, and on no other.

use symm::{DType, Error, Options, Pe};

use super::vdev::{Job, splits};
use crate::harness::{Case, Ctx, Outcome, ensure, ensure_eq, ensure_err, expected};

pub(super) const CASES: &[Case] = &[
    Case::new("recover::failure_stays_until_then", failure_stays_until_then),
    Case::new("recover::other_teams_go_on", other_teams_go_on),
    Case::new("recover::again_and_again", again_and_again),
    Case::new("recover::without_failure", without_failure),
    Case::new("recover::a_pe_dies", a_pe_dies).pes(2).dies(),
];

/// A barrier that one PE turns into a failure of the team.
fn spoil(ctx: &Ctx, bad: usize) -> Outcome<Error> {
    let out = ctx.symmetric(DType::U32, ctx.n(), ctx.seed)?;
    let input = ctx.local(DType::F32, ctx.n(), ctx.seed)?;
    let words = ctx.local(DType::U32, ctx.n(), ctx.seed)?;
    let span = if ctx.me() == bad { &input.span } else { &words.span };
    let mine = ctx.team.all_to_all(&ctx.stream, span, &out.handle, Options::default());
    ensure_eq!(mine.is_err(), ctx.me() == bad, "the call on PE {}", ctx.me());
    let want =
        Error::PeerInvalid { op: "all_to_all", pe: Pe::from(bad), what: expected::refused(expected::DTYPES) };
    ensure_eq!(ctx.stream.synchronize(), Err(want.clone()), "synchronize");
    Ok(want)
}

fn failure_stays_until_then(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U32, 4, ctx.seed)?;
    let fresh = ctx.team.empty(&[4], DType::U32)?;
    let src = ctx.local(DType::U32, 4, ctx.seed)?;
    let error = spoil(ctx, 0)?;
    let (t, s, h, want) = (&ctx.team, &ctx.stream, &x.handle, Err(error));
    for _ in 0..2 {
        ensure_eq!(t.barrier(s, Options::default()), want, "a collective");
        ensure_eq!(h.put(s, 0, 0, &src.span), want, "put");
        ensure_eq!(h.get(s, 0, 0, &src.span), want, "get");
        ensure_eq!(h.barrier(s, 0, None), want, "a handle's barrier");
        ensure_eq!(h.put_signal(s, 0, 0, None), want, "put_signal");
        ensure_eq!(s.quiet(t, None), want, "quiet");
        ensure_eq!(s.synchronize(), want, "synchronize");
        ensure_eq!(t.status(), want, "status");
        ensure_eq!(fresh.rendezvous(t).map(drop), want, "rendezvous");
        ensure_eq!(t.new_context(8).map(drop), want, "a new context");
        ensure_eq!(t.split(Some(0), 0).map(drop), want, "split");
        ensure_eq!(t.reclaim(), want, "reclaim");
    }
    ctx.meet()?;
    x.mem.check(s, "x", x.mem.poison())?;
    t.recover()?;
    fresh.rendezvous(t)?;
    h.barrier(s, 0, None)?;
    s.synchronize()?;
    Ok(())
}

fn other_teams_go_on(ctx: &Ctx) -> Outcome {
    let other = ctx.with(ctx.another_team()?)?;
    let x = other.symmetric(DType::U32, 4, ctx.seed)?;
    spoil(ctx, ctx.n() - 1)?;
    for _ in 0..5 {
        x.handle.barrier(&other.stream, 0, None)?;
        other.team.barrier(&other.stream, Options::default())?;
    }
    other.stream.synchronize()?;
    other.team.status()?;
    ensure!(ctx.team.status().is_err(), "the failure is gone");
    Ok(())
}

fn again_and_again(ctx: &Ctx) -> Outcome {
    for round in 0..6 {
        spoil(ctx, round % ctx.n())?;
        ctx.team.recover()?;
        Job::vdev(DType::I16, 2, splits(ctx.n(), ctx.n(), 7), ctx.seed + 10 * round as u64).run(ctx)?;
    }
    Ok(())
}

fn without_failure(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U32, 4, ctx.seed)?;
    x.handle.put_signal(&ctx.stream, ctx.right(), 0, None)?;
    ctx.stream.synchronize()?;
    ctx.team.recover()?;
    // Pads are zero: the signal above is gone, a new one finds its slot free.
    let slots: Vec<u32> = ctx.stream.read(&x.handle.get_signal_pad(ctx.me(), &[], DType::U32, 0)?)?;
    ensure!(slots.iter().all(|s| *s == 0), "a pad is not zero after recover");
    ctx.meet()?;
    x.handle.put_signal(&ctx.stream, ctx.right(), 0, None)?;
    x.handle.wait_signal(&ctx.stream, ctx.left(), 0, None)?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// A closed connection is noticed within a second, by waits that are under way too.
fn a_pe_dies(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U32, 4, ctx.seed)?;
    let dead = Pe::from(ctx.n() - 1);
    if ctx.world.pe() == dead {
        return Ok(());
    }
    let began = std::time::Instant::now();
    // The call itself already fails where the death was noticed before it.
    let waits =
        x.handle.wait_signal(&ctx.stream, ctx.n() - 1, 0, None).and_then(|()| ctx.stream.synchronize());
    ensure_err!(waits, Error::PeerFailed { pe, .. } if *pe == dead);
    ensure_err!(ctx.team.status(), Error::PeerFailed { pe, .. } if *pe == dead);
    // A peer that noticed first may have ended the wait; this PE's own notice reaches all of its teams.
    while ctx.world.team().status().is_ok() && began.elapsed().as_secs() < 3 {
        ctx.pause(1000);
    }
    ensure_err!(ctx.world.team().status(), Error::PeerFailed { pe, .. } if *pe == dead);
    ensure_err!(ctx.team.barrier(&ctx.stream, Options::default()), Error::PeerFailed { pe, .. } if *pe == dead);
    ensure_err!(ctx.team.recover(), Error::PeerFailed { pe, .. } if *pe == dead);
    // Those who live go on.
    if ctx.n() > 2 {
        let living = ctx.with(ctx.team_of(&(0..ctx.n() - 1).collect::<Vec<_>>())?)?;
        Job::vdev(DType::U8, 3, splits(living.n(), living.n(), 5), ctx.seed).run(&living)?;
    }
    Ok(())
}
