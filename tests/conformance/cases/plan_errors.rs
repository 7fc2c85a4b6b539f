//! What members bring into a plan that makes it invalid, or a call of one: everybody learns whose fault it is.

use std::time::{Duration, Instant};

use symm::{DType, Error, Fault, Field, Pe, Planned};

use super::plans::{Job, OP, calls, rounds};
use crate::harness::{Case, Ctx, Outcome, ensure, ensure_eq, ensure_err, expected};
use crate::pattern::i64s;

pub(super) const CASES: &[Case] = &[
    Case::new("plan_errors::bad_splits", bad_splits),
    Case::new("plan_errors::members_differ", members_differ).pes(2),
    Case::new("plan_errors::buffers_too_small", buffers_too_small),
    Case::new("plan_errors::another_team_or_stream", another_team_or_stream),
    Case::new("plan_errors::a_late_member", a_late_member).pes(2),
    Case::new("plan_errors::a_member_that_failed", a_member_that_failed).pes(2),
];

fn invalid(op: &'static str, pe: usize, what: Fault) -> Error {
    Error::PeerInvalid { op, pe: Pe::from(pe), what }
}

/// A plan that one PE asks for wrongly is nobody's; nothing stays set on the team.
pub(super) fn bad_splits(ctx: &Ctx) -> Outcome {
    let (w, bad) = (ctx.n(), ctx.n() - 1);
    let job = Job::new(ctx, (2, 4), 8, ctx.seed)?;
    let long = ctx.local(DType::I64, 2 * w + 1, ctx.seed)?;
    let ints = ctx.local(DType::I32, 2 * w, ctx.seed)?;
    let huge = ctx.local(DType::I64, 2 * w, ctx.seed)?;
    let mut most = vec![0; 2 * w];
    most[0] = i64::MAX;
    huge.set(&ctx.stream, &i64s(&most))?;
    for (span, align, argument, value) in [
        (&long.span, 4, "in_splits", None),
        (&ints.span, 4, "in_splits", None),
        (&huge.span, 4, "in_splits", Some(i64::MAX as usize)),
        (&job.in_splits.span, 0, "major_align", Some(0)),
        (&job.in_splits.span, usize::MAX, "major_align", Some(usize::MAX)),
    ] {
        let mut buffers = ctx.team.context().plan_buffers(2)?;
        if ctx.me() == bad {
            let got = buffers.all_to_all_vdev_2d(&ctx.stream, span, align);
            ensure_err!(got, Error::InvalidArgument { op: OP, argument: a, .. } if *a == argument);
        } else {
            let got = buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, 4);
            let what =
                value.map_or(expected::refused(argument), |got| expected::refused_value(argument, got));
            ensure_eq!(got.err(), Some(invalid(OP, bad, what)), "{argument} of another PE");
        }
    }
    let mut buffers = ctx.team.context().plan_buffers(2)?;
    let got = buffers.all_to_all_vdev(&ctx.stream, &job.in_splits.span);
    ensure_err!(got, Error::InvalidArgument { argument: "ne", .. });
    ensure_err!(ctx.team.context().plan_buffers(0), Error::InvalidArgument { argument: "ne", .. });
    ensure_err!(ctx.team.context().plan_buffers(usize::MAX), Error::InvalidArgument { argument: "ne", .. });

    let negative = ctx.local(DType::I64, 2 * w, ctx.seed)?;
    negative.set(&ctx.stream, &i64s(&vec![-3; 2 * w]))?;
    let span = if ctx.me() == bad { &negative.span } else { &job.in_splits.span };
    let got = buffers.all_to_all_vdev_2d(&ctx.stream, span, 4);
    let what = Fault::NegativeSplit { index: 0, value: -3 };
    ensure_eq!(got.err(), Some(invalid(OP, bad, what)), "a negative split");
    ensure_eq!(ctx.team.status(), Ok(()), "status");
    rounds(ctx, &job, 1)
}

/// Another alignment, and plans of other splits.
pub(super) fn members_differ(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    let job = Job::new(ctx, (2, 4), 8, ctx.seed)?;
    let mut buffers = ctx.team.context().plan_buffers(2)?;
    let align = if ctx.me() == bad { 8 } else { 4 };
    let got = buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, align);
    let what = Fault::Differs { what: Field::MajorAlign, expected: 4, got: 8 };
    ensure_eq!(got.err(), Some(invalid(OP, bad, what)), "another alignment");
    let mut narrow = ctx.team.context().plan_buffers(1)?;
    let one = job.in_splits.span.slice(0, ctx.n())?;
    let got = if ctx.me() == bad {
        narrow.all_to_all_vdev_2d(&ctx.stream, &one, 4)
    } else {
        buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, 4)
    };
    let what = Fault::Differs { what: Field::Experts, expected: 2, got: 1 };
    ensure_eq!(got.err(), Some(invalid(OP, bad, what)), "other experts");
    let got = if ctx.me() == bad {
        narrow.all_to_all_vdev(&ctx.stream, &one)
    } else {
        buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, 4)
    };
    let what = Fault::Operation { expected: 20, got: 19 };
    ensure_eq!(got.err(), Some(invalid(OP, bad, what)), "a plan of one dimension");

    let mut plan = buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, 4)?;
    let ones = ctx.local(DType::I64, 2 * ctx.n(), ctx.seed)?;
    ones.set(&ctx.stream, &i64s(&vec![0; 2 * ctx.n()]))?;
    let mut others = ctx.team.context().plan_buffers(2)?;
    let mut other = others.all_to_all_vdev_2d(&ctx.stream, &ones.span, 4)?;
    job.fill(ctx, 0)?;
    drop(if ctx.me() == bad { &mut other } else { &mut plan }.dispatch(&ctx.stream, &job.there())?);
    let another = expected::differs(Field::Shape, 0, 0);
    ensure_eq!(ctx.stream.synchronize(), Err(invalid(calls(ctx)[0], bad, another)), "another plan");
    ctx.meet()?;
    job.middle.mem.check(&ctx.stream, "output", job.middle.mem.poison())?;
    ctx.meet()?;
    ctx.team.recover()?;
    // A plan lives on.
    drop(plan.dispatch(&ctx.stream, &job.there())?);
    job.middle.mem.check(&ctx.stream, "after recover", &job.want(ctx, 0).0)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// One PE's call is refused for `argument`, on every PE.
fn one_bad(ctx: &Ctx, job: &Job, argument: &'static str, wrong: &Planned<'_>) -> Outcome {
    let bad = ctx.n() - 1;
    let mut buffers = ctx.team.context().plan_buffers(job.ne)?;
    let mut plan = buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, job.align)?;
    job.fill(ctx, 0)?;
    if ctx.me() == bad {
        let got = plan.dispatch(&ctx.stream, wrong);
        ensure_err!(got, Error::InvalidArgument { op: OP, argument: a, .. } if *a == argument);
    } else {
        drop(plan.dispatch(&ctx.stream, &job.there())?);
    }
    let want = invalid(calls(ctx)[0], bad, expected::refused(argument));
    let told = expected::as_told(ctx.stream.synchronize(), &want);
    ensure_eq!(told, Err(want), "{argument} of PE {bad}");
    ctx.meet()?;
    job.middle.mem.check(&ctx.stream, "output of a refused dispatch", job.middle.mem.poison())?;
    ctx.meet()?;
    ctx.team.recover()?;
    drop(plan.dispatch(&ctx.stream, &job.there())?);
    job.middle.mem.check(&ctx.stream, "after recover", &job.want(ctx, 0).0)?;
    ctx.stream.synchronize()?;
    ctx.meet()?;
    Ok(())
}

pub(super) fn buffers_too_small(ctx: &Ctx) -> Outcome {
    let mut job = Job::new(ctx, (2, 4), 8, ctx.seed)?;
    // Every split has a row, so that every PE sends and receives some.
    job.splits.iter_mut().for_each(|s| s.fill(1));
    job.in_splits.set(&ctx.stream, &i64s(&job.splits[ctx.me()]))?;
    let sent = 2 * ctx.n();
    let short = job.input.span.slice(0, (sent - 1) * 8)?;
    one_bad(ctx, &job, "input", &Planned { input: &short, ..job.there() })?;
    for row in [0, 7] {
        let input = job.input.span.slice(0, 8 * (job.input.span.len() / 8))?;
        if row == 0 || !input.len().is_multiple_of(row) {
            one_bad(ctx, &job, "row", &Planned { row, ..job.there() })?;
        }
    }
    // Two experts that each take 4 rows at least: the last row lies behind those of the first.
    let small = job.middle.tensor.view(0, &[4 * 8])?.rendezvous(&ctx.team)?;
    one_bad(ctx, &job, "output", &Planned { output: &small, ..job.there() })?;
    let ints = ctx.local(DType::I64, 100, ctx.seed)?;
    one_bad(ctx, &job, expected::DTYPES, &Planned { input: &ints.span, row: 1, ..job.there() })
}

pub(super) fn another_team_or_stream(ctx: &Ctx) -> Outcome {
    let job = Job::new(ctx, (2, 4), 8, ctx.seed)?;
    let team = ctx.another_team()?;
    let wrong = job.middle.tensor.rendezvous(&team)?;
    one_bad(ctx, &job, "output", &Planned { output: &wrong, ..job.there() })?;

    let mut buffers = ctx.team.context().plan_buffers(job.ne)?;
    let mut plan = buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, job.align)?;
    job.fill(ctx, 0)?;
    let (other, rows) = (ctx.world.stream()?, job.middle.handle.span());
    let got = plan.dispatch(&ctx.stream, &job.there())?.combine(&other, &job.back(&rows));
    ensure_err!(got, Error::InvalidArgument { op: OP, argument: "stream", .. });
    let first = ctx.stream.synchronize().and_then(|()| other.synchronize());
    ensure_eq!(
        first,
        Err(invalid(calls(ctx)[1], 0, expected::refused("stream"))),
        "a combine on another stream"
    );
    ctx.meet()?;
    ctx.team.recover()?;
    Ok(())
}

/// A plan waits for all members, as a rendezvous does.
fn a_late_member(ctx: &Ctx) -> Outcome {
    let job = Job::new(ctx, (1, 1), 8, ctx.seed)?;
    if ctx.me() + 1 == ctx.n() {
        ctx.pause(200_000);
    }
    let began = Instant::now();
    let mut buffers = ctx.team.context().plan_buffers(1)?;
    let plan = buffers.all_to_all_vdev(&ctx.stream, &job.in_splits.span)?;
    ensure_eq!(plan.in_rows(), job.splits[ctx.me()].iter().sum::<i64>() as usize, "rows to send");
    ensure!(ctx.me() + 1 == ctx.n() || began.elapsed() >= Duration::from_millis(50), "nobody waited");
    Ok(())
}

/// A member on which the team has failed says so, rather than let the others wait until their deadline.
fn a_member_that_failed(ctx: &Ctx) -> Outcome {
    let (job, bad) = (Job::new(ctx, (1, 1), 8, ctx.seed)?, ctx.n() - 1);
    if ctx.me() == bad {
        // Nobody signals.
        job.middle.handle.wait_signal(&ctx.stream, 0, 0, Some(Duration::from_millis(20)))?;
        ensure_err!(ctx.stream.synchronize(), Error::Timeout { .. });
    }
    let began = Instant::now();
    let mut buffers = ctx.team.context().plan_buffers(1)?;
    let got = buffers.all_to_all_vdev(&ctx.stream, &job.in_splits.span).err();
    if ctx.me() == bad {
        ensure!(matches!(got, Some(Error::Timeout { .. })), "{got:?}");
    } else {
        let told = matches!(&got, Some(Error::Setup { op: OP, pe, stage, .. }) if *pe == Pe::from(bad) && stage == "team");
        ensure!(told, "{got:?}");
        ensure_eq!(ctx.team.status(), Ok(()), "status");
    }
    ensure!(began.elapsed() < ctx.world.config().init_timeout / 2, "{:?}", began.elapsed());
    ctx.meet()?;
    ctx.team.recover()?;
    rounds(ctx, &job, 1)
}
