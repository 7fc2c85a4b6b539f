//! Bad arguments, mismatches and absent PEs in the broadcast and the reductions: every PE learns whose fault it is.

use symm::{DType, Error, Fault, Field, Options, Pe, Result, Span};

use super::sums::{Job, Op, refused};
use super::timeouts::{LIMIT, without_the_last};
use crate::harness::{Case, Ctx, Outcome, ensure_eq, ensure_err, expected};

pub(super) const CASES: &[Case] = &[
    Case::new("reduce_errors::roots", roots),
    Case::new("reduce_errors::another_root", another_root).pes(2),
    Case::new("reduce_errors::dtypes_that_do_not_add_up", dtypes_that_do_not_add_up),
    Case::new("reduce_errors::outputs", outputs),
    Case::new("reduce_errors::overlaps_and_alignment", overlaps_and_alignment),
    Case::new("reduce_errors::local_inputs", local_inputs),
    Case::new("reduce_errors::divisibility", divisibility),
    Case::new("reduce_errors::another_team", another_team).pes(2),
    Case::new("reduce_errors::members_differ", members_differ).pes(2),
    Case::new("reduce_errors::another_form", another_form).pes(2),
    Case::new("reduce_errors::absent", absent).pes(2).limit(60),
];

const O: Options = Options { timeout: None, max_blocks: None };

fn invalid(op: &'static str, pe: usize, what: Fault) -> Error {
    Error::PeerInvalid { op, pe: Pe::from(pe), what }
}

/// One PE's call is refused for `argument`; the others call what is right. `op` is the name that statuses carry.
fn one_bad(ctx: &Ctx, job: &Job, argument: &'static str, call: impl FnOnce() -> Result<()>) -> Outcome {
    let bad = ctx.n() - 1;
    job.fill(ctx, &ctx.stream, 0)?;
    if ctx.me() == bad {
        let got = call();
        ensure_err!(got, Error::InvalidArgument { argument: a, .. } if *a == argument);
    } else {
        job.enqueue(ctx.team.context(), &ctx.stream)?;
    }
    refused(ctx, job, &invalid(job.op.name(), bad, expected::refused(argument)))
}

fn roots(ctx: &Ctx) -> Outcome {
    let (w, bad) = (ctx.n(), ctx.n() - 1);
    let x = ctx.symmetric(DType::U8, 100, ctx.seed)?;
    for wrong in [w, usize::MAX] {
        let root = if ctx.me() == bad { wrong } else { 0 };
        let called = ctx.team.broadcast(&ctx.stream, &x.handle, root, O);
        if ctx.me() == bad {
            ensure_err!(called, Error::InvalidArgument { op: "broadcast", argument: "root", .. });
        } else {
            called?;
        }
        let want = Err(invalid("broadcast", bad, expected::refused_value("root", wrong)));
        ensure_eq!(ctx.stream.synchronize(), want, "root {wrong} on one PE");
        ctx.meet()?;
        x.mem.check(&ctx.stream, "after a bad root", x.mem.poison())?;
        ctx.team.recover()?;
    }
    ctx.team.broadcast(&ctx.stream, &x.handle, bad, O)?;
    x.mem.check(&ctx.stream, "after recover", &x.poison_of(ctx.seed, bad))?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn another_root(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    let x = ctx.symmetric(DType::U8, 100, ctx.seed)?;
    ctx.team.broadcast(&ctx.stream, &x.handle, usize::from(ctx.me() == bad), O)?;
    let root = expected::differs(Field::Root, 0, 1);
    ensure_eq!(ctx.stream.synchronize(), Err(invalid("broadcast", bad, root)), "another root");
    ctx.meet()?;
    x.mem.check(&ctx.stream, "after another root", x.mem.poison())?;
    ctx.team.recover()?;
    // Another length is as wrong.
    let view = x.tensor.view(0, &[if ctx.me() == bad { 50 } else { 100 }])?.rendezvous(&ctx.team)?;
    ctx.team.broadcast(&ctx.stream, &view, 0, O)?;
    let length = expected::differs(Field::Length, 100, 50);
    ensure_eq!(ctx.stream.synchronize(), Err(invalid("broadcast", bad, length)), "another length");
    ctx.meet()?;
    x.mem.check(&ctx.stream, "after another length", x.mem.poison())?;
    ctx.team.recover()?;
    Ok(())
}

fn dtypes_that_do_not_add_up(ctx: &Ctx) -> Outcome {
    for dtype in DType::ALL.into_iter().filter(|d| !d.reduces()) {
        let x = ctx.symmetric(dtype, 8 * ctx.n(), ctx.seed)?;
        let out = ctx.local(dtype, 8 * ctx.n(), ctx.seed)?;
        let block = out.span.slice(0, 8)?;
        let (s, h) = (&ctx.stream, &x.handle);
        let calls: [(&str, &dyn Fn() -> Result<()>); 5] = [
            ("reduce_scatter", &|| ctx.team.reduce_scatter(s, h, &block, O)),
            ("one_shot_all_reduce", &|| ctx.team.one_shot_all_reduce(s, h, O).map(drop)),
            ("one_shot_all_reduce", &|| ctx.team.one_shot_all_reduce_out(s, h, &out.span, O)),
            ("two_shot_all_reduce", &|| ctx.team.two_shot_all_reduce(s, h, O)),
            ("two_shot_all_reduce_out", &|| ctx.team.two_shot_all_reduce_out(s, h, &out.span, O)),
        ];
        for (op, call) in calls {
            ensure_err!(call(), Error::InvalidArgument { got, .. } if *got == dtype.to_string());
            let name = if op == "two_shot_all_reduce" { "buffer" } else { "input" };
            let want = Err(invalid(op, 0, expected::refused(name)));
            ensure_eq!(ctx.stream.synchronize(), want, "{op} of {dtype} on all PEs");
            ctx.team.recover()?;
        }
        out.check(&ctx.stream, "output", out.poison())?;
    }
    Ok(())
}

fn outputs(ctx: &Ctx) -> Outcome {
    let n = 12 * ctx.n();
    let other = ctx.local(DType::F64, n, ctx.seed)?;
    let long = ctx.local(DType::F32, n + 1, ctx.seed)?;
    for op in [Op::OneShotOut, Op::OneShotCopyOut, Op::TwoShotOut, Op::Scatter, Op::ScatterLast(3)] {
        let job = Job::new(ctx, op, DType::F32, n, 0, ctx.seed)?;
        let name = if matches!(op, Op::OneShotOut | Op::OneShotCopyOut) { "out" } else { "output" };
        let len = job.out.span.len();
        for span in [other.span.slice(0, len)?, long.span.slice(0, len + 1)?, long.span.slice(0, len - 1)?] {
            one_bad(ctx, &job, name, || job.enqueue_to(ctx, &span))?;
        }
    }
    Ok(())
}

fn overlaps_and_alignment(ctx: &Ctx) -> Outcome {
    let n = 12 * ctx.n();
    for op in [Op::OneShotOut, Op::OneShotCopyOut, Op::TwoShotOut, Op::Scatter] {
        let job = Job::new(ctx, op, DType::F32, n, 4, ctx.seed)?;
        let name = if matches!(op, Op::OneShotOut | Op::OneShotCopyOut) { "out" } else { "output" };
        let len = job.out.span.len();
        // The buffer's first element is the fifth of the allocation.
        let same = job.sym.tensor.view(4, &[len])?.span();
        let partly = job.sym.tensor.view(0, &[len.max(5)])?.span().slice(0, len)?;
        one_bad(ctx, &job, name, || job.enqueue_to(ctx, &same))?;
        if len > 4 {
            one_bad(ctx, &job, name, || job.enqueue_to(ctx, &partly))?;
        }
        let bytes = ctx.local(DType::U8, 4 * len + 8, ctx.seed)?;
        let odd = bytes.span.addr().0.next_multiple_of(4) - bytes.span.addr().0 + 1;
        // SAFETY: inside `bytes`, which lives longer; nothing uses it, since it is refused.
        let odd = unsafe { Span::from_raw(bytes.span.addr().offset(odd as usize), DType::F32, len) };
        one_bad(ctx, &job, name, || job.enqueue_to(ctx, &odd))?;
    }
    Ok(())
}

fn local_inputs(ctx: &Ctx) -> Outcome {
    let n = 40;
    let job = Job::new(ctx, Op::OneShotCopyOut, DType::F32, n, 0, ctx.seed)?;
    let room = job.handle.len();
    let long = ctx.local(DType::F32, room + 1, ctx.seed)?;
    let ints = ctx.local(DType::I32, n, ctx.seed)?;
    let (s, h) = (&ctx.stream, &job.handle);
    for span in [&long.span, &ints.span, &job.sym.tensor.view(0, &[n])?.span()] {
        let to = long.span.slice(0, n)?;
        one_bad(ctx, &job, "local_input", || ctx.team.one_shot_all_reduce_copy_out(s, h, span, &to, O))?;
        one_bad(ctx, &job, "local_input", || ctx.team.one_shot_all_reduce_copy(s, h, span, O).map(drop))?;
    }
    Ok(())
}

/// Upstream's "divisible": any W, but whole blocks.
fn divisibility(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    let job = Job::new(ctx, Op::ScatterLast(2), DType::F32, 6 * w, 0, ctx.seed)?;
    let (s, out) = (&ctx.stream, &job.out.span);
    let last = |h, last| ctx.team.reduce_scatter_last_dim(s, h, last, out, O);
    one_bad(ctx, &job, "last_dim", || last(&job.handle, 0))?;
    one_bad(ctx, &job, "last_dim", || last(&job.handle, 6 * w + 1))?;
    if w > 1 {
        let uneven = job.sym.tensor.view(0, &[6 * w - 1])?.rendezvous(&ctx.team)?;
        let plain = Job::new(ctx, Op::Scatter, DType::F32, 6 * w, 0, ctx.seed)?;
        one_bad(ctx, &plain, "input", || ctx.team.reduce_scatter(s, &uneven, out, O))?;
        one_bad(ctx, &job, "last_dim", || last(&job.handle, if w == 2 { 3 } else { 2 }))
    } else {
        Ok(())
    }
}

fn another_team(ctx: &Ctx) -> Outcome {
    let team = ctx.another_team()?;
    for op in [Op::OneShotOut, Op::TwoShot, Op::TwoShotOut, Op::Scatter] {
        let mut job = Job::new(ctx, op, DType::F32, 8 * ctx.n(), 0, ctx.seed)?;
        let right = job.handle.clone();
        let wrong = job.tensor.rendezvous(&team)?;
        let name = if op == Op::TwoShot { "buffer" } else { "input" };
        job.fill(ctx, &ctx.stream, 0)?;
        job.handle = wrong;
        let bad = ctx.n() - 1;
        if ctx.me() == bad {
            let got = job.enqueue(ctx.team.context(), &ctx.stream);
            ensure_err!(got, Error::InvalidArgument { argument, .. } if *argument == name);
            job.handle = right;
        } else {
            job.handle = right;
            job.enqueue(ctx.team.context(), &ctx.stream)?;
        }
        refused(ctx, &job, &invalid(op.name(), bad, expected::refused(name)))?;
    }
    Ok(())
}

/// Length, type, shape and allocation must be everybody's.
fn members_differ(ctx: &Ctx) -> Outcome {
    let (w, bad) = (ctx.n(), ctx.n() - 1);
    for op in
        [Op::OneShotOut, Op::OneShotCopyOut, Op::TwoShot, Op::TwoShotOut, Op::Scatter, Op::ScatterLast(2)]
    {
        let job = Job::new(ctx, op, DType::F32, 8 * w, 0, ctx.seed)?;
        let shorter = Job::new(ctx, op, DType::F32, 6 * w, 0, ctx.seed)?;
        let ints = Job::new(ctx, op, DType::I32, 8 * w, 0, ctx.seed)?;
        let other = Job::new(ctx, op, DType::F32, 8 * w, 0, ctx.seed)?;
        let length = expected::differs(Field::Length, 8 * w, 6 * w);
        let dtype = expected::another_dtype(DType::F32, DType::I32);
        for (theirs, what) in [(&shorter, length), (&ints, dtype), (&other, Fault::Output)] {
            job.fill(ctx, &ctx.stream, 0)?;
            theirs.fill(ctx, &ctx.stream, 0)?;
            let mine = if ctx.me() == bad { theirs } else { &job };
            mine.enqueue(ctx.team.context(), &ctx.stream)?;
            refused(ctx, &job, &invalid(op.name(), bad, what))?;
        }
    }
    // Another number of leading rows.
    let job = Job::new(ctx, Op::ScatterLast(2), DType::F32, 8 * w, 0, ctx.seed)?;
    job.fill(ctx, &ctx.stream, 0)?;
    let last = if ctx.me() == bad { 2 * w } else { 4 * w };
    ctx.team.reduce_scatter_last_dim(&ctx.stream, &job.handle, last, &job.out.span, O)?;
    let rows = expected::differs(Field::LeadingRows, 2, 4);
    refused(ctx, &job, &invalid("reduce_scatter", bad, rows))
}

/// Form codes: reduce_scatter 23, one_shot 24, two_shot 25 and 26.
fn another_form(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    let ops = [(Op::Scatter, 23), (Op::OneShotOut, 24), (Op::TwoShot, 25), (Op::TwoShotOut, 26)];
    for (i, (op, expected)) in ops.into_iter().enumerate() {
        let (theirs, got) = ops[(i + 1) % 4];
        let job = Job::new(ctx, op, DType::F32, 8 * ctx.n(), 0, ctx.seed)?;
        let other = Job::new(ctx, theirs, DType::F32, 8 * ctx.n(), 0, ctx.seed)?;
        job.fill(ctx, &ctx.stream, 0)?;
        other.fill(ctx, &ctx.stream, 0)?;
        let mine = if ctx.me() == bad { &other } else { &job };
        mine.enqueue(ctx.team.context(), &ctx.stream)?;
        refused(ctx, &job, &invalid(mine.op.name(), bad, Fault::Operation { expected, got }))?;
    }
    Ok(())
}

/// One PE never comes, and after `recover` all is well.
fn absent(ctx: &Ctx) -> Outcome {
    for op in [Op::OneShotOut, Op::OneShotCopyOut, Op::TwoShot, Op::TwoShotOut, Op::Scatter] {
        let mut job = Job::new(ctx, op, DType::F32, 8 * ctx.n(), 0, ctx.seed)?;
        job.fill(ctx, &ctx.stream, 0)?;
        job.options.timeout = Some(LIMIT);
        without_the_last(
            ctx,
            op.name(),
            || job.enqueue(ctx.team.context(), &ctx.stream).map(drop),
            || job.check_untouched(ctx, 0),
        )?;
        job.options.timeout = None;
        job.run(ctx, 0)?;
        ctx.meet()?;
    }
    Ok(())
}
