//! What a PE brings into a collective that makes it invalid: every PE learns whose fault it is, nothing is written, and
//! after `recover` the team works.

use symm::{AllToAllVdev, Builder, Config, DType, Error, Fault, Field, Options, Pe, Span};

use super::vdev::{Job, Run, splits};
use crate::harness::{Case, Ctx, Outcome, Stop, ensure, ensure_eq, ensure_err, expected};
use crate::pattern::i64s;

pub(super) const CASES: &[Case] = &[
    Case::new("errors::negative_split", negative_split),
    Case::new("errors::splits_exceed_the_input", splits_exceed_the_input),
    Case::new("errors::offsets_leave_the_input", offsets_leave_the_input),
    Case::new("errors::rows_do_not_fit_an_output", rows_do_not_fit_an_output),
    Case::new("errors::huge_splits", huge_splits),
    Case::new("errors::argument_on_one_pe", argument_on_one_pe),
    Case::new("errors::every_argument", every_argument),
    Case::new("errors::max_splits_exceeded", max_splits_exceeded),
    Case::new("errors::equal_blocks_arguments", equal_blocks_arguments),
    Case::new("errors::another_operation", another_operation).pes(2),
    Case::new("errors::another_form", another_form).pes(2),
    Case::new("errors::another_output", another_output).pes(2),
    Case::new("errors::settings_differ", settings_differ),
    Case::new("errors::the_lowest_is_named", the_lowest_is_named).pes(3),
];

/// All three operations with good arguments.
fn jobs(ctx: &Ctx) -> Vec<Job> {
    let (w, ne) = (ctx.n(), 3);
    let combine = splits(w, ne * w, 6).into_iter().map(|s| {
        let offsets = (0..ne * w).map(|i| 6 * i as i64).collect();
        [s, offsets].concat()
    });
    vec![
        Job::vdev(DType::F32, 5, splits(w, w, 9), ctx.seed),
        Job::dispatch((DType::F32, 5), (ne, 4), splits(w, ne * w, 6), ctx.seed + 100),
        Job::combine((DType::F32, 5), ne, combine.collect(), vec![6 * ne * w; w], ctx.seed + 200),
    ]
}

/// After a refused operation of `run` on all PEs: the error, on this stream and in the status; outputs untouched, row 0
/// zero; then `recover` and the right operation.
fn refused(ctx: &Ctx, job: &Job, run: &Run, want: &Error) -> Outcome {
    let got = expected::as_told(ctx.stream.synchronize(), want);
    ensure_eq!(got, Err(want.clone()), "{:?}: synchronize", job.form);
    ensure_eq!(expected::as_told(ctx.team.status(), want), Err(want.clone()), "{:?}: status", job.form);
    ctx.meet()?;
    run.output.mem.check(
        &ctx.stream,
        "an output of a refused operation",
        &run.poisons(ctx, job)[ctx.me()],
    )?;
    let result = run.result.get_i64(&ctx.stream)?;
    ensure!(result[..result.len() / 2].iter().all(|n| *n == 0), "row 0 is not zero: {result:?}");
    run.result.check(&ctx.stream, "result", &i64s(&result))?;
    run.input.check(&ctx.stream, "input", &run.inputs[ctx.me()])?;
    ctx.meet()?;
    ctx.team.recover()?;
    ctx.team.status()?;
    run.in_splits.set(&ctx.stream, &i64s(&job.splits[ctx.me()]))?;
    job.enqueue(ctx, ctx.team.context(), run)?;
    job.check(ctx, run)?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn invalid(job: &Job, pe: usize, what: Fault) -> Error {
    Error::PeerInvalid { op: job.op(), pe: Pe::from(pe), what }
}

/// Each operation with `bad`'s splits changed by `change`, which also says what is wrong.
fn with_splits(ctx: &Ctx, change: impl Fn(&Job, &mut Vec<i64>) -> Option<Fault>) -> Outcome {
    let bad = ctx.n() - 1;
    for job in jobs(ctx) {
        let run = job.prepare(ctx)?;
        let mut wrong = job.splits[bad].clone();
        let Some(fault) = change(&job, &mut wrong) else { continue };
        if ctx.me() == bad {
            run.in_splits.set(&ctx.stream, &i64s(&wrong))?;
        }
        job.enqueue(ctx, ctx.team.context(), &run)?;
        refused(ctx, &job, &run, &invalid(&job, bad, fault))?;
    }
    Ok(())
}

fn negative_split(ctx: &Ctx) -> Outcome {
    with_splits(ctx, |_, splits| {
        let index = 0;
        splits[index] = -4;
        Some(Fault::NegativeSplit { index: index as u64, value: -4 })
    })
}

fn splits_exceed_the_input(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    with_splits(ctx, |job, splits| {
        let rows = job.in_rows[bad] as u64;
        if job.has_offsets() {
            return None;
        }
        splits[0] += 1;
        Some(Fault::InputRows { needed: rows + 1, rows })
    })
}

fn offsets_leave_the_input(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    for (offset, needed) in [(-1, u64::MAX), (i64::MAX, i64::MAX as u64 + 2)] {
        with_splits(ctx, |job, splits| {
            let n = splits.len() / 2;
            splits[0] = 2;
            let rows = job.in_rows[bad] as u64;
            splits[n] = offset;
            job.has_offsets().then_some(Fault::InputRows { needed, rows })
        })?;
    }
    Ok(())
}

/// The receiver is named, with what it needed.
fn rows_do_not_fit_an_output(ctx: &Ctx) -> Outcome {
    let small = ctx.n() - 1;
    for job in jobs(ctx) {
        let run = job.prepare(ctx)?;
        let result = &run.results[small];
        let half = result.len() / 2;
        let ends = result[..half]
            .iter()
            .zip(&result[half..])
            .filter(|(n, _)| **n > 0)
            .map(|(n, at)| (n + at) as usize);
        let needed = ends.max().unwrap_or(0);
        ensure!(needed > 0, "nobody sends to PE {small}");
        let mut tight = job.clone();
        tight.out_rows[small] = needed - 1;
        tight.enqueue(ctx, ctx.team.context(), &run)?;
        let fault = Fault::OutputRows { needed: needed as u64, capacity: needed as u64 - 1 };
        refused(ctx, &job, &run, &invalid(&job, small, fault))?;
    }
    Ok(())
}

/// Sums that do not fit 64 bits are refused like any other.
fn huge_splits(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    with_splits(ctx, |job, splits| {
        if job.has_offsets() {
            return None;
        }
        splits.fill(i64::MAX);
        let sum = splits.iter().fold(0u64, |sum, n| sum.saturating_add(n.unsigned_abs()));
        Some(Fault::InputRows { needed: sum, rows: job.in_rows[bad] as u64 })
    })
}

/// The PE that passes it gets the details; the others learn who it was.
fn argument_on_one_pe(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    for job in jobs(ctx) {
        let run = job.prepare(ctx)?;
        run.result.set(&ctx.stream, &vec![0; run.result.bytes()])?;
        if ctx.me() == bad {
            let mut wrong = job.clone();
            wrong.row = 0;
            wrong.out_rows.fill(0);
            let refusal = wrong.enqueue(ctx, ctx.team.context(), &run);
            ensure_err!(refusal, Error::InvalidArgument { op, argument: "row", .. } if *op == job.op());
        } else {
            job.enqueue(ctx, ctx.team.context(), &run)?;
        }
        refused(ctx, &job, &run, &invalid(&job, bad, expected::refused_value("row", 0)))?;
    }
    Ok(())
}

/// Each rule of the arguments, broken on all PEs.
fn every_argument(ctx: &Ctx) -> Outcome {
    let (w, ne) = (ctx.n(), 2);
    let m = |dtype, len| ctx.local(dtype, len, ctx.seed);
    let (input, splits, result) = (m(DType::F32, 12)?, m(DType::I64, w * ne)?, m(DType::I64, 2 * w * ne)?);
    let (other, short) = (m(DType::I32, 2 * w * ne)?, m(DType::I64, 2 * w * ne + 1)?);
    let out = ctx.symmetric(DType::F32, 12, ctx.seed)?;
    let bytes = ctx.symmetric(DType::U8, 12, ctx.seed)?;
    let others = ctx.another_team()?;
    let foreign = ctx.symmetric_over(&others, DType::F32, 12, ctx.seed)?;
    let good = AllToAllVdev {
        input: &input.span,
        output: &out.handle,
        in_splits: &splits.span,
        out_splits_offsets: &result.span,
        row: 3,
        options: Options::default(),
    };
    let odd = short.span.slice(0, w * ne + 1)?;
    let none = short.span.slice(0, w * ne - 1)?;
    // SAFETY: inside `short`, which lives longer; nothing uses them, since they are refused.
    let askew = |len| unsafe { Span::from_raw(short.span.addr().offset(4), DType::I64, len) };
    let (askew_in, askew_out) = (askew(w * ne), askew(2 * w * ne));
    let table = [
        ("row", AllToAllVdev { row: 0, ..good_copy(&good) }, 1),
        ("row", AllToAllVdev { row: 5, ..good_copy(&good) }, 1),
        ("major_align", good_copy(&good), 0),
        ("major_align", good_copy(&good), 1 << 31),
        (expected::DTYPES, AllToAllVdev { output: &bytes.handle, ..good_copy(&good) }, 1),
        ("output", AllToAllVdev { output: &foreign.handle, ..good_copy(&good) }, 1),
        ("in_splits", AllToAllVdev { in_splits: &other.span, ..good_copy(&good) }, 1),
        ("in_splits", AllToAllVdev { in_splits: &askew_in, ..good_copy(&good) }, 1),
        (
            if w == 1 { "out_splits_offsets" } else { "in_splits" },
            AllToAllVdev { in_splits: &none, ..good_copy(&good) },
            1,
        ),
        ("out_splits_offsets", AllToAllVdev { out_splits_offsets: &askew_out, ..good_copy(&good) }, 1),
        ("out_splits_offsets", AllToAllVdev { out_splits_offsets: &other.span, ..good_copy(&good) }, 1),
        ("out_splits_offsets", AllToAllVdev { out_splits_offsets: &odd, ..good_copy(&good) }, 1),
    ];
    for (i, (argument, args, align)) in table.iter().enumerate() {
        let refusal = ctx.team.all_to_all_vdev_2d(&ctx.stream, args, *align);
        ensure_err!(refusal, Error::InvalidArgument { op: "all_to_all_vdev_2d", argument: a, .. } if a == argument);
        let want =
            Error::PeerInvalid { op: "all_to_all_vdev_2d", pe: Pe(0), what: expected::refused(argument) };
        let set = expected::as_told(ctx.stream.synchronize(), &want);
        ensure_eq!(set, Err(want), "line {i} ({argument})");
        ctx.team.recover()?;
    }
    out.mem.check(&ctx.stream, "output", out.mem.poison())
}

fn good_copy<'a>(a: &AllToAllVdev<'a>) -> AllToAllVdev<'a> {
    AllToAllVdev {
        input: a.input,
        output: a.output,
        in_splits: a.in_splits,
        out_splits_offsets: a.out_splits_offsets,
        row: a.row,
        options: a.options,
    }
}

fn max_splits_exceeded(ctx: &Ctx) -> Outcome {
    let (w, bad) = (ctx.n(), ctx.n() - 1);
    let small = ctx.team.new_context(2 * w)?;
    let fits = Job::dispatch((DType::U8, 4), (2, 1), splits(w, 2 * w, 4), ctx.seed);
    let exceeds = Job::dispatch((DType::U8, 4), (3, 1), splits(w, 3 * w, 4), ctx.seed + 50);
    // Only one PE asks for too much.
    let runs = (fits.prepare(ctx)?, exceeds.prepare(ctx)?);
    let mine = if ctx.me() == bad {
        exceeds.enqueue(ctx, &small, &runs.1)
    } else {
        fits.enqueue(ctx, &small, &runs.0)
    };
    if ctx.me() == bad {
        ensure_err!(mine, Error::InvalidArgument { op: "all_to_all_vdev_2d", argument: "in_splits", .. });
    } else {
        mine?;
    }
    let want = Err(invalid(&fits, bad, expected::refused("in_splits")));
    ensure_eq!(ctx.stream.synchronize(), want, "after PE {bad} asked for too many splits");
    ctx.meet()?;
    ctx.team.recover()?;
    fits.run_in(ctx, &small)?;
    // The team's own context takes it.
    exceeds.run(ctx)?;
    Ok(())
}

fn equal_blocks_arguments(ctx: &Ctx) -> Outcome {
    let (w, bad) = (ctx.n(), ctx.n() - 1);
    let out = ctx.symmetric(DType::U32, 4 * w, ctx.seed)?;
    let input = ctx.local(DType::U32, 4 * w + 1, ctx.seed)?;
    let o = Options::default();
    let good = input.span.slice(0, 4 * w)?;
    let short = out.tensor.view(0, &[w - 1])?.rendezvous(&ctx.team)?;
    let named = |op, pe: usize, what| Err(Error::PeerInvalid { op, pe: Pe::from(pe), what });
    let unchanged = |what: &str| out.mem.check(&ctx.stream, what, out.mem.poison());
    if w > 1 {
        // Not a multiple of W, on one PE.
        let span = if ctx.me() == bad { &input.span } else { &good };
        let mine = ctx.team.all_to_all(&ctx.stream, span, &out.handle, o);
        if ctx.me() == bad {
            ensure_err!(mine, Error::InvalidArgument { op: "all_to_all", argument: "input", .. });
        } else {
            mine?;
        }
        ensure_eq!(
            ctx.stream.synchronize(),
            named("all_to_all", bad, expected::refused_value("input", 4 * w + 1)),
            "one block too uneven"
        );
        ctx.team.recover()?;
        // Another length on one PE.
        let span = good.slice(0, if ctx.me() == bad { 2 } else { 4 })?;
        ctx.team.all_gather(&ctx.stream, &span, &out.handle, o)?;
        ensure_eq!(
            ctx.stream.synchronize(),
            named("all_gather", bad, expected::differs(Field::Length, 4, 2)),
            "another length"
        );
        ctx.team.recover()?;
    }
    // An output that is too small, on one PE.
    let output = if ctx.me() == bad { &short } else { &out.handle };
    ctx.team.all_gather(&ctx.stream, &good.slice(0, 4)?, output, o)?;
    let fault = Fault::OutputRows { needed: 4 * w as u64, capacity: w as u64 - 1 };
    let got = ctx.stream.synchronize();
    ensure_eq!(got, named("all_gather", bad, fault), "a small output");
    let said = got.err().map(|e| e.to_string()).unwrap_or_default();
    let want = format!("all_gather: PE {bad}: output needs {} elements, it has {}", 4 * w, w - 1);
    ensure_eq!(said, want, "an output that has no rows");
    ctx.meet()?;
    unchanged("output")?;
    ctx.team.recover()?;
    // Another type than the output's, on all.
    let wide = ctx.local(DType::F64, w, ctx.seed)?;
    let mine = ctx.team.all_to_all(&ctx.stream, &wide.span, &out.handle, o);
    ensure_err!(mine, Error::InvalidArgument { op: "all_to_all", argument: expected::DTYPES, .. });
    ensure_eq!(
        ctx.stream.synchronize(),
        named("all_to_all", 0, expected::refused(expected::DTYPES)),
        "another type"
    );
    ctx.team.recover()?;
    unchanged("output")
}

/// Form codes of the operations: barrier 16, all_gather 17, all_to_all 18, the vdev family 19 to 21.
fn another_operation(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    for (job, code) in jobs(ctx).into_iter().zip(19..) {
        let run = job.prepare(ctx)?;
        run.result.set(&ctx.stream, &vec![0; run.result.bytes()])?;
        let mut op = job.op();
        if ctx.me() == bad {
            op = "barrier";
            ctx.team.barrier(&ctx.stream, Options::default())?;
        } else {
            job.enqueue(ctx, ctx.team.context(), &run)?;
        }
        let fault = Fault::Operation { expected: code, got: 16 };
        let want = Error::PeerInvalid { op, pe: Pe::from(bad), what: fault };
        refused(ctx, &job, &run, &want)?;
    }
    Ok(())
}

/// dtype, row, major_align and experts a rank must be equal.
fn another_form(ctx: &Ctx) -> Outcome {
    let (w, bad) = (ctx.n(), ctx.n() - 1);
    let job = Job::dispatch((DType::F32, 4), (4, 8), splits(w, 4 * w, 5), ctx.seed);
    let as_i32 = Job { dtype: DType::I32, ..job.clone() };
    let wide = Job { row: 8, out_rows: job.out_rows.iter().map(|r| r / 2).collect(), ..job.clone() };
    let align = Job { align: 4, ..job.clone() };
    let experts = Job::dispatch((DType::F32, 4), (2, 8), splits(w, 2 * w, 5), ctx.seed);
    let differs = expected::differs;
    for (name, other, fault) in [
        ("dtype", as_i32, expected::another_dtype(DType::F32, DType::I32)),
        ("row", wide, differs(Field::RowBytes, 16, 32)),
        ("major_align", align, differs(Field::MajorAlign, 8, 4)),
        ("experts", experts, differs(Field::Experts, 4, 2)),
    ] {
        let run = job.prepare(ctx)?;
        run.result.set(&ctx.stream, &vec![0; run.result.bytes()])?;
        // Made by all, as allocations are; used by one.
        let theirs = if name == "dtype" || name == "experts" { Some(other.prepare(ctx)?) } else { None };
        if ctx.me() == bad {
            let mut other = other;
            if name == "row" {
                // An even number of rows of half the width is the same memory.
                other.in_rows = vec![0; w];
                let even = run.input.span.slice(0, run.input.span.len() / 8 * 8)?;
                let view = run.output.tensor.view(0, &[other.out_rows[bad] * 8])?;
                let args = AllToAllVdev {
                    input: &even,
                    output: &view.rendezvous(&ctx.team)?,
                    in_splits: &run.in_splits.span,
                    out_splits_offsets: &run.result.span,
                    row: 8,
                    options: Options::default(),
                };
                run.in_splits.set(&ctx.stream, &vec![0; run.in_splits.bytes()])?;
                ctx.team.all_to_all_vdev_2d(&ctx.stream, &args, 8)?;
            } else {
                other.enqueue(ctx, ctx.team.context(), theirs.as_ref().unwrap_or(&run))?;
            }
        } else {
            job.enqueue(ctx, ctx.team.context(), &run)?;
        }
        refused(ctx, &job, &run, &invalid(&job, bad, fault))?;
    }
    Ok(())
}

fn another_output(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    for job in jobs(ctx) {
        let (run, other) = (job.prepare(ctx)?, job.prepare(ctx)?);
        run.result.set(&ctx.stream, &vec![0; run.result.bytes()])?;
        job.enqueue(ctx, ctx.team.context(), if ctx.me() == bad { &other } else { &run })?;
        refused(ctx, &job, &run, &invalid(&job, bad, Fault::Output))?;
        other.output.mem.check(&ctx.stream, "the other output", other.output.mem.poison())?;
    }
    Ok(())
}

fn the_lowest_is_named(ctx: &Ctx) -> Outcome {
    for job in jobs(ctx) {
        let run = job.prepare(ctx)?;
        if ctx.me() > 0 {
            let mut wrong = job.splits[ctx.me()].clone();
            wrong[0] = -(ctx.me() as i64);
            run.in_splits.set(&ctx.stream, &i64s(&wrong))?;
        }
        job.enqueue(ctx, ctx.team.context(), &run)?;
        refused(ctx, &job, &run, &invalid(&job, 1, Fault::NegativeSplit { index: 0, value: -1 }))?;
    }
    Ok(())
}

/// A setting that one PE has otherwise: no world for anybody. The PEs are threads, so that each has its own settings.
fn settings_differ(ctx: &Ctx) -> Outcome {
    let odd = ctx.me() % 3;
    let change: [fn(&mut Config); 3] =
        [|c| c.signals += 1, |c| c.signal_pad_bytes = 64, |c| c.pool_bytes = 1 << 20];
    let names = ["SYMM_SIGNALS", "SYMM_SIGNAL_PAD_BYTES", "SYMM_POOL_BYTES"];
    for (change, name) in change.into_iter().zip(names) {
        let open = |(pe, boot): (usize, _)| {
            let mut builder = Builder::from_config(Config::default()).backend("host");
            if pe == odd {
                change(builder.config_mut());
            }
            std::thread::spawn(move || builder.init_over(boot).map(drop))
        };
        let threads: Vec<_> = symm::bootstrap::local(3).into_iter().enumerate().map(open).collect();
        for (pe, thread) in threads.into_iter().enumerate() {
            let got = thread.join().map_err(|_| Stop::fail("a PE panicked"))?;
            // The lowest PE with another value than one's own.
            let named = if pe == odd { usize::from(odd == 0) } else { odd };
            ensure_err!(got, Error::SettingDiffers { name: n, pe, .. } if *n == name && pe.index() == named);
        }
    }
    Ok(())
}
