//! Every wait ends, and says who was late.

use std::time::{Duration, Instant};

use symm::{Capabilities, Cmp, DType, Error, Options, Pe, Result, SignalOp, SignalUpdate};

use super::vdev::{Job, splits};
use crate::harness::{Case, Ctx, Outcome, Stop, ensure, ensure_eq, ensure_err, expected};

pub(super) const CASES: &[Case] = &[
    Case::new("timeouts::barrier_put_wait_1s", barrier_put_wait_1s).pes(2),
    Case::new("timeouts::wait_until_says_what_it_saw", wait_until_says_what_it_saw),
    Case::new("timeouts::collective", collective).pes(2),
    Case::new("timeouts::team_default", team_default).pes(2),
    Case::new("timeouts::counted_from_the_stream", counted_from_the_stream),
    Case::new("timeouts::one_team_only", one_team_only).pes(2),
    Case::new("timeouts::rendezvous_and_team", rendezvous_and_team)
        .pes(2)
        .own(&[("SYMM_INIT_TIMEOUT_MS", "1500")]),
    Case::new("timeouts::recover", recover).pes(2).own(&[("SYMM_INIT_TIMEOUT_MS", "1500")]),
    Case::new("timeouts::a_member_that_failed", a_member_that_failed).pes(2),
    Case::new("timeouts::a_member_that_gives_up", a_member_that_gives_up).pes(2),
];

/// The PE that never comes.
fn absent(ctx: &Ctx) -> usize {
    ctx.n() - 1
}

/// When this PE was ready, before all met: no wait that follows begins earlier.
fn ready(ctx: &Ctx) -> Outcome<Instant> {
    let now = Instant::now();
    ctx.meet()?;
    Ok(now)
}

/// The absent PE is named, and no sooner than `limit` after all were ready.
fn check(ctx: &Ctx, what: &str, got: &Result<()>, op: &str, limit: Duration, ready: Instant) -> Outcome {
    match got {
        Err(Error::Timeout { op: o, late: l, waited, .. }) => {
            let late = [Pe::from(absent(ctx))];
            ensure_eq!((*o, l.as_slice()), (op, &late[..]), "{what}: operation and late PEs");
            let passed = ready.elapsed();
            let soonest = limit - limit / 10;
            // Of several PEs that wait, the one whose wait ends first tells the others, which may have begun much later.
            let told = ctx.n() > 2;
            ensure!(
                passed >= soonest && (told || *waited >= soonest) && *waited < limit + Duration::from_secs(5),
                "{what}: waited {waited:?}, {passed:?} after all were ready"
            );
            Ok(())
        }
        other => Err(Stop::fail(format!("{what}: got {other:?}, expected Timeout"))),
    }
}

/// Upstream's three, 1000 ms each and no partner; three teams, so that each failure is its own.
fn barrier_put_wait_1s(ctx: &Ctx) -> Outcome {
    let second = Duration::from_secs(1);
    let teams = ["barrier", "put_signal", "wait_signal"].map(|op| ctx.another_team().map(|t| (op, t)));
    let mut all = Vec::new();
    for made in teams {
        let (op, team) = made?;
        let sub = ctx.with(team)?;
        let x = sub.symmetric(DType::U8, 8, ctx.seed)?;
        all.push((op, sub, x));
    }
    let ready = ready(ctx)?;
    if ctx.me() != absent(ctx) {
        let began = Instant::now();
        for (op, sub, x) in &all {
            match *op {
                "barrier" => x.handle.barrier(&sub.stream, 1, Some(second))?,
                "put_signal" => {
                    x.handle.put_signal(&sub.stream, absent(ctx), 1, Some(second))?;
                    x.handle.put_signal(&sub.stream, absent(ctx), 1, Some(second))?;
                }
                _ => x.handle.wait_signal(&sub.stream, absent(ctx), 1, Some(second))?,
            }
        }
        ensure!(began.elapsed() < Duration::from_millis(800), "enqueuing blocked for {:?}", began.elapsed());
        for (op, sub, x) in &all {
            check(ctx, op, &sub.stream.synchronize(), op, second, ready)?;
            check(ctx, op, &sub.team.status(), op, second, ready)?;
            check(ctx, op, &x.handle.barrier(&sub.stream, 0, None), op, second, ready)?;
        }
        ensure!(began.elapsed() < Duration::from_secs(4), "three at once took {:?}", began.elapsed());
    }
    ctx.meet()?;
    for (op, sub, x) in &all {
        sub.team.recover()?;
        let slots: Vec<u32> = sub.stream.read(&x.handle.get_signal_pad(sub.me(), &[], DType::U32, 0)?)?;
        ensure!(slots.iter().all(|s| *s == 0), "{op}: the pad is not zero after recover");
        for _ in 0..3 {
            x.handle.barrier(&sub.stream, 1, None)?;
            x.handle.put_signal(&sub.stream, sub.right(), 1, None)?;
            x.handle.wait_signal(&sub.stream, sub.left(), 1, None)?;
        }
        sub.stream.synchronize()?;
    }
    Ok(())
}

fn wait_until_says_what_it_saw(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 8, ctx.seed)?;
    let none = x.mem.span.slice(0, 0)?;
    let update = SignalUpdate { index: 2, op: SignalOp::Set, value: 41 };
    x.handle.put_with_signal(&ctx.stream, ctx.right(), 0, &none, update)?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    ctx.stream.synchronize()?;
    let ready = ready(ctx)?;
    // All of them at once, each on its own signal; the first tells the others.
    x.handle.wait_until(&ctx.stream, 2, Cmp::Ge, 42, Some(Duration::from_millis(200)))?;
    let got = ctx.stream.synchronize();
    let soonest = Duration::from_millis(180);
    ensure_err!(got, Error::Timeout { op: "wait_until", expected: 42, got: 41, waited, .. } if *waited >= soonest || ctx.n() > 1);
    ensure!(ready.elapsed() >= soonest, "noticed {:?} after all were ready", ready.elapsed());
    ctx.meet()?;
    ctx.team.recover()?;
    // Pads are zeroed by recover, signals too.
    x.handle.wait_until(&ctx.stream, 2, Cmp::Eq, 0, None)?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// A collective that one PE never calls; it fails there too, should it come later.
fn collective(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    let limit = Duration::from_millis(300);
    let job = Job::vdev(DType::F32, 3, splits(w, w, 7), ctx.seed);
    let run = job.prepare(ctx)?;
    let out = ctx.symmetric(DType::U32, w, ctx.seed)?;
    let input = ctx.local(DType::U32, w, ctx.seed)?;
    let options = Options { timeout: Some(limit), ..Options::default() };
    if ctx.me() != absent(ctx) {
        ctx.team.all_to_all(&ctx.stream, &input.span, &out.handle, options)?;
        let got = ctx.stream.synchronize();
        // The first to give up tells the others, who then need not wait for their own deadline.
        ensure_err!(got, Error::Timeout { op: "all_to_all", phase: "arrival" | "given up", .. });
        ensure_eq!(got.err().and_then(|e| e.pe()), Some(Pe::from(absent(ctx))), "the late PE");
    }
    ctx.meet()?;
    if ctx.me() == absent(ctx) {
        // Too late: the epoch was given up.
        let began = Instant::now();
        let called = ctx.team.all_to_all(&ctx.stream, &input.span, &out.handle, Options::default());
        ensure!(
            called.is_err() || ctx.stream.synchronize().is_err(),
            "an operation that was given up passed"
        );
        ensure!(began.elapsed() < Duration::from_secs(2), "noticed after {:?}", began.elapsed());
    }
    ctx.meet()?;
    // Over a network the word that the others gave up can come later than this call, which then pushes, as it may until `recover`.
    if !ctx.has(Capabilities::NETWORK) {
        out.mem.check(&ctx.stream, "output", out.mem.poison())?;
    }
    ctx.team.recover()?;
    job.enqueue(ctx, ctx.team.context(), &run)?;
    job.check(ctx, &run)?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn team_default(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 8, ctx.seed)?;
    let limit = Duration::from_millis(250);
    ctx.team.set_timeout(limit);
    let ready = ready(ctx)?;
    if ctx.me() != absent(ctx) {
        x.handle.wait_signal(&ctx.stream, absent(ctx), 0, None)?;
        check(ctx, "wait_signal", &ctx.stream.synchronize(), "wait_signal", limit, ready)?;
    }
    ctx.meet()?;
    Ok(())
}

/// Time spent in the queue behind another operation does not count.
fn counted_from_the_stream(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 8, ctx.seed)?;
    let none = x.mem.span.slice(0, 0)?;
    x.handle.wait_until(&ctx.stream, 0, Cmp::Eq, 1, None)?;
    x.handle.put_signal(&ctx.stream, ctx.me(), 0, Some(Duration::from_millis(150)))?;
    x.handle.wait_signal(&ctx.stream, ctx.me(), 0, Some(Duration::from_millis(150)))?;
    ctx.pause(250_000);
    let other = ctx.world.stream()?;
    let update = SignalUpdate { index: 0, op: SignalOp::Set, value: 1 };
    x.handle.put_with_signal(&other, ctx.me(), 0, &none, update)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// A failure is the team's: other teams of the same PEs, and the stream, go on.
fn one_team_only(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 8, ctx.seed)?;
    let other = ctx.another_team()?;
    let y = ctx.symmetric_over(&other, DType::U8, 8, ctx.seed)?;
    if ctx.me() != absent(ctx) {
        x.handle.wait_signal(&ctx.stream, absent(ctx), 0, Some(Duration::from_millis(100)))?;
    }
    // Behind the failing operation in the same stream.
    y.handle.barrier(&ctx.stream, 0, None)?;
    other.barrier(&ctx.stream, Options::default())?;
    let got = ctx.stream.synchronize();
    ensure_eq!(got.is_err(), ctx.me() != absent(ctx), "the failing team's error in synchronize");
    other.status()?;
    let next = ctx.world.stream()?;
    y.handle.barrier(&next, 0, None)?;
    next.synchronize()?;
    Ok(())
}

fn rendezvous_and_team(ctx: &Ctx) -> Outcome {
    let late = absent(ctx);
    let tensor = ctx.team.empty(&[8], DType::U8)?;
    let ready = ready(ctx)?;
    if ctx.me() != late {
        let limit = expected::init_timeout()?;
        // Both at once: exchanges of two teams never mix.
        let (bound, made) = std::thread::scope(|s| {
            let bound = s.spawn(|| tensor.rendezvous(&ctx.team).map(drop));
            let made = ctx.another_team().map(drop);
            (bound.join(), made)
        });
        let bound = bound.map_err(|_| Stop::fail("rendezvous panicked"))?;
        check(ctx, "rendezvous", &bound, "rendezvous", limit, ready)?;
        check(ctx, "team_of", &made, "team_of", limit, ready)?;
    }
    ctx.meet()?;
    // No operation failed; `recover` also brings members together that counted another number of rendezvous.
    ctx.team.status()?;
    ctx.team.recover()?;
    let handle = tensor.rendezvous(&ctx.team)?;
    handle.barrier(&ctx.stream, 0, None)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// A silent PE is never left out: `recover` names it, and may be called again.
fn recover(ctx: &Ctx) -> Outcome {
    let late = absent(ctx);
    let x = ctx.symmetric(DType::U8, 8, ctx.seed)?;
    let ready = ready(ctx)?;
    if ctx.me() != late {
        let limit = Duration::from_millis(100);
        x.handle.wait_signal(&ctx.stream, late, 0, Some(limit))?;
        check(ctx, "wait_signal", &ctx.stream.synchronize(), "wait_signal", limit, ready)?;
        check(ctx, "recover", &ctx.team.recover(), "recover", expected::init_timeout()?, ready)?;
        ensure!(ctx.team.status().is_err(), "a recover that failed cleared the failure");
    }
    ctx.meet()?;
    ctx.team.recover()?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// Deadline of operations that [`without_the_last`] lets pass.
pub(super) const LIMIT: Duration = Duration::from_millis(300);

/// The last PE does not come to the operation `op`, which `enqueue` gives this case's stream with [`LIMIT`]: the others say so,
/// it learns that it is too late, and then what `untouched` looks at is as it was. The team is recovered.
pub(super) fn without_the_last(
    ctx: &Ctx,
    op: &'static str,
    enqueue: impl Fn() -> symm::Result<()>,
    untouched: impl FnOnce() -> Outcome,
) -> Outcome {
    let gone = absent(ctx);
    if ctx.me() != gone {
        let began = Instant::now();
        enqueue()?;
        let got = ctx.stream.synchronize();
        ensure_err!(got, Error::Timeout { op: o, phase: "arrival" | "given up", .. } if *o == op);
        ensure_eq!(got.err().and_then(|e| e.pe()), Some(Pe::from(gone)), "the late PE");
        ensure!(began.elapsed() < Duration::from_secs(5), "noticed after {:?}", began.elapsed());
    }
    ctx.meet()?;
    if ctx.me() == gone {
        let called = enqueue();
        ensure!(called.is_err() || ctx.stream.synchronize().is_err(), "a given-up operation passed");
    }
    ctx.meet()?;
    untouched()?;
    ctx.meet()?;
    Ok(ctx.team.recover()?)
}

/// A wait of a member's own that ends by its deadline takes the team along: the others are told who gave it up, not that they had
/// waited too long themselves.
fn a_member_that_gives_up(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 8, ctx.seed)?;
    let (bad, limit) = (absent(ctx), Duration::from_secs(8));
    ctx.meet()?;
    let began = Instant::now();
    if ctx.me() == bad {
        // Nobody signals.
        x.handle.wait_until(&ctx.stream, 0, Cmp::Eq, 1, Some(Duration::from_millis(50)))?;
    }
    ctx.team.barrier(&ctx.stream, Options { timeout: Some(limit), ..Options::default() })?;
    let got = ctx.stream.synchronize();
    if ctx.me() == bad {
        ensure_err!(got, Error::Timeout { op: "wait_until", phase: "signal", late, .. } if late[..] == [Pe::from(bad)]);
    } else {
        ensure_err!(got, Error::Timeout { op: "barrier", phase: "given up", late, .. } if late[..] == [Pe::from(bad)]);
        let said = got.err().map(|e| e.to_string()).unwrap_or_default();
        ensure!(
            said.contains(&format!("another member's deadline passed: PE {bad} gave up a wait")),
            "{said}"
        );
    }
    ensure!(began.elapsed() < limit / 2, "told after {:?}", began.elapsed());
    ctx.meet()?;
    ctx.team.recover()?;
    ctx.team.barrier(&ctx.stream, Options::default())?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// A member on which the team has failed says so in every set-up, rather than let the others wait until their deadline.
fn a_member_that_failed(ctx: &Ctx) -> Outcome {
    let sub = ctx.with(ctx.another_team()?)?;
    let (known, bad) = (sub.symmetric(DType::U8, 8, ctx.seed)?, absent(ctx));
    let fail = || -> Outcome {
        if ctx.me() == bad {
            // Nobody signals.
            known.handle.wait_signal(&sub.stream, 0, 0, Some(Duration::from_millis(20)))?;
            ensure_err!(sub.stream.synchronize(), Error::Timeout { .. });
        }
        Ok(())
    };
    let told = |op: &str, call: &dyn Fn() -> Result<()>| -> Outcome {
        let began = Instant::now();
        let got = call();
        let right = match &got {
            Err(Error::Timeout { .. }) => ctx.me() == bad,
            Err(Error::Setup { op: o, pe, stage, .. }) => {
                ctx.me() != bad && (*o, *pe, stage.as_str()) == (op, Pe::from(bad), "team")
            }
            _ => false,
        };
        ensure!(right, "{op}: {got:?}");
        ensure!(began.elapsed() < ctx.world.config().init_timeout / 2, "{op}: {:?}", began.elapsed());
        Ok(())
    };
    let fresh = sub.team.empty(&[8], DType::U8)?;
    let setups: [(&str, &dyn Fn() -> Result<()>); 4] = [
        ("rendezvous", &|| fresh.rendezvous(&sub.team).map(drop)),
        ("context", &|| sub.team.new_context(40).map(drop)),
        ("split", &|| sub.team.split(Some(0), 0).map(drop)),
        ("reclaim", &|| sub.team.reclaim()),
    ];
    fail()?;
    for (op, call) in setups {
        told(op, call)?;
    }
    // Nothing is exchanged for a handle that everybody has.
    let again = known.tensor.rendezvous(&sub.team);
    ensure_eq!(again.is_err(), ctx.me() == bad, "a handle that is known: {:?}", again.err());
    if ctx.me() != bad {
        ensure_eq!(sub.team.status(), Ok(()), "status");
    }
    ctx.meet()?;
    sub.team.recover()?;
    for (op, call) in setups {
        call().map_err(|e| Stop::fail(format!("{op} after recover: {e}")))?;
    }
    // Where its log differs, too, nobody waits for it to show that.
    if ctx.me() == bad {
        sub.team.empty(&[16], DType::U8)?;
    }
    let other = sub.team.empty(&[8], DType::U8)?;
    fail()?;
    told("rendezvous", &|| other.rendezvous(&sub.team).map(drop))?;
    ctx.meet()?;
    sub.team.recover()?;
    ensure_err!(other.rendezvous(&sub.team), Error::NotSymmetric { .. });
    Ok(())
}
