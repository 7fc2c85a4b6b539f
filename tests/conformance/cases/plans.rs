//! Exchange plans: the same bytes as exchanges that publish their splits, again and again; what may not be reused is refused.

use std::time::{Duration, Instant};

use symm::{Capabilities, DType, Error, Fault, Field, Options, Pe, Planned, Span, oracle};

use crate::harness::{Case, Ctx, Guarded, Outcome, Stop, Symmetric, ensure, ensure_eq, ensure_err, expected};
use crate::pattern::{Random, bytes, i64s};

pub(super) const CASES: &[Case] = &[
    Case::new("plans::there_and_back", there_and_back),
    Case::new("plans::one_dimension", one_dimension),
    Case::new("plans::reused", reused),
    Case::new("plans::row_sizes", row_sizes),
    Case::new("plans::two_plans_in_turn", two_plans_in_turn),
    Case::new("plans::in_a_graph", in_a_graph).needs(Capabilities::GRAPH),
    Case::new("plans::sub_teams", sub_teams).pes(2),
    Case::new("plans::bad_splits", bad_splits),
    Case::new("plans::members_differ", members_differ).pes(2),
    Case::new("plans::buffers_too_small", buffers_too_small),
    Case::new("plans::another_team_or_stream", another_team_or_stream),
    Case::new("plans::a_late_member", a_late_member).pes(2),
    // Calls that publish their splits, as plans over members that only the network reaches.
    Case::new("plans::published", published).own(&[("SYMM_HOST_PLANS", "0")]).limit(60),
    Case::new("plans::published_by_a_small_context", small_context).own(&[("SYMM_HOST_PLANS", "0")]),
];

const O: Options = Options { timeout: None, max_blocks: None };
const OP: &str = "planned_all_to_all_vdev";

/// The names that errors have for calls of a 2-D plan, there and back.
fn calls(ctx: &Ctx) -> [&'static str; 2] {
    if expected::publishes_splits(ctx) {
        ["all_to_all_vdev_2d", "all_to_all_vdev_2d_offset"]
    } else {
        [OP; 2]
    }
}

/// Splits of every rank, rows of `row` bytes, and the memory of this PE's calls.
struct Job {
    splits: Vec<Vec<i64>>,
    ne: usize,
    align: usize,
    row: usize,
    input: Guarded,
    middle: Symmetric,
    back: Symmetric,
    in_splits: Guarded,
    seed: u64,
}

impl Job {
    fn new(ctx: &Ctx, (ne, align): (usize, usize), row: usize, seed: u64) -> Outcome<Self> {
        let w = ctx.n();
        let mut r = Random::new(&[seed, 5]);
        let splits: Vec<Vec<i64>> =
            (0..w).map(|_| (0..w * ne).map(|_| r.below(6).saturating_sub(1) as i64).collect()).collect();
        let most = splits.iter().map(|s| s.iter().sum::<i64>()).max().unwrap_or(0) as usize;
        let room = w * most + ne * align;
        let in_splits = ctx.local(DType::I64, w * ne, seed)?;
        in_splits.set(&ctx.stream, &i64s(&splits[ctx.me()]))?;
        Ok(Job {
            input: ctx.local(DType::U8, most * row, seed + 1)?,
            middle: ctx.symmetric(DType::U8, room * row, seed + 2)?,
            back: ctx.symmetric(DType::U8, most * row, seed + 3)?,
            splits,
            ne,
            align,
            row,
            in_splits,
            seed,
        })
    }

    fn there(&self) -> Planned<'_> {
        Planned { input: &self.input.span, output: &self.middle.handle, row: self.row, options: O }
    }

    /// Results are the dispatched rows themselves.
    fn back<'a>(&'a self, results: &'a Span) -> Planned<'a> {
        Planned { input: results, output: &self.back.handle, row: self.row, options: O }
    }

    fn input_of(&self, ctx: &Ctx, rank: usize, round: u64) -> Vec<u8> {
        bytes(self.seed + 100 * round, ctx.pe(rank), self.input.bytes())
    }

    /// Fresh rows, poison everywhere else.
    fn fill(&self, ctx: &Ctx, round: u64) -> Outcome {
        self.input.set(&ctx.stream, &self.input_of(ctx, ctx.me(), round))?;
        self.middle.mem.set(&ctx.stream, self.middle.mem.poison())?;
        self.back.mem.set(&ctx.stream, self.back.mem.poison())?;
        Ok(())
    }

    /// Middle and `out_splits_offsets` of this rank.
    fn want(&self, ctx: &Ctx, round: u64) -> (Vec<u8>, Vec<i64>) {
        let inputs: Vec<_> = (0..ctx.n()).map(|rank| self.input_of(ctx, rank, round)).collect();
        let mut outs: Vec<_> =
            (0..ctx.n()).map(|rank| self.middle.poison_of(self.seed + 2, ctx.pe(rank))).collect();
        let mut results =
            oracle::all_to_all_vdev_2d(&inputs, &self.splits, self.row, self.ne, self.align, &mut outs);
        (outs.swap_remove(ctx.me()), results.swap_remove(ctx.me()))
    }

    /// What a combine leaves: the rows that were sent, then poison.
    fn want_back(&self, ctx: &Ctx, round: u64) -> Vec<u8> {
        let sent = self.splits[ctx.me()].iter().sum::<i64>() as usize * self.row;
        let mut want = self.back.mem.poison().to_vec();
        want[..sent].copy_from_slice(&self.input_of(ctx, ctx.me(), round)[..sent]);
        want
    }
}

fn rounds(ctx: &Ctx, job: &Job, n: u64) -> Outcome {
    let mut buffers = ctx.team.context().plan_buffers(job.ne)?;
    let mut plan = buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, job.align)?;
    ensure_eq!(plan.publishes_splits(), expected::publishes_splits(ctx), "publishes_splits");
    ensure_eq!(ctx.stream.read::<i64>(&plan.received())?, job.want(ctx, 0).1, "received");
    let returned: Vec<i64> = ctx.stream.read(&plan.returned())?;
    ensure_eq!(&returned[..ctx.n() * job.ne], &job.splits[ctx.me()][..], "returned");
    for round in 0..n {
        job.fill(ctx, round)?;
        let results = job.middle.handle.span();
        let there = plan.dispatch(&ctx.stream, &job.there())?;
        if round % 3 == ctx.me() as u64 {
            ctx.pause(300);
        }
        there.combine(&ctx.stream, &job.back(&results))?;
        let what = format!("round {round}, {} experts, align {}, rows of {}", job.ne, job.align, job.row);
        job.middle.mem.check(&ctx.stream, &what, &job.want(ctx, round).0)?;
        job.back.mem.check(&ctx.stream, &format!("{what}: back"), &job.want_back(ctx, round))?;
        ctx.stream.synchronize()?;
        ctx.meet()?;
    }
    Ok(())
}

/// Upstream's sizes of the dispatch: alignments 1, 8 and 16; also one expert and many.
fn there_and_back(ctx: &Ctx) -> Outcome {
    for (i, (ne, align)) in [(8, 1), (8, 8), (8, 16), (1, 1), (1, 7), (40, 2)].into_iter().enumerate() {
        rounds(ctx, &Job::new(ctx, (ne, align), 24, ctx.seed + 10 * i as u64)?, 2)?;
    }
    Ok(())
}

fn one_dimension(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    let job = Job::new(ctx, (1, 1), 10, ctx.seed)?;
    let inputs: Vec<_> = (0..w).map(|rank| job.input_of(ctx, rank, 0)).collect();
    let mut outs: Vec<_> = (0..w).map(|rank| job.middle.poison_of(job.seed + 2, ctx.pe(rank))).collect();
    let results = oracle::all_to_all_vdev(&inputs, &job.splits, job.row, &mut outs);
    let mut buffers = ctx.team.context().plan_buffers(1)?;
    let mut plan = buffers.all_to_all_vdev(&ctx.stream, &job.in_splits.span)?;
    ensure_eq!(ctx.stream.read::<i64>(&plan.received())?, results[ctx.me()], "received");
    job.fill(ctx, 0)?;
    let rows = job.middle.handle.span();
    plan.dispatch(&ctx.stream, &job.there())?.combine(&ctx.stream, &job.back(&rows))?;
    job.middle.mem.check(&ctx.stream, "there", &outs[ctx.me()])?;
    job.back.mem.check(&ctx.stream, "back", &job.want_back(ctx, 0))?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// One plan, many calls; dispatches that nobody takes back, too.
fn reused(ctx: &Ctx) -> Outcome {
    let job = Job::new(ctx, (4, 4), 64, ctx.seed)?;
    rounds(ctx, &job, 12)?;
    let mut buffers = ctx.team.context().plan_buffers(4)?;
    // The same buffers for one plan after another.
    for round in 20..23 {
        let mut plan = buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, job.align)?;
        job.fill(ctx, round)?;
        drop(plan.dispatch(&ctx.stream, &job.there())?);
        drop(plan.dispatch(&ctx.stream, &job.there())?);
        job.middle.mem.check(&ctx.stream, "there only", &job.want(ctx, round).0)?;
        ctx.stream.synchronize()?;
        ctx.meet()?;
    }
    Ok(())
}

fn row_sizes(ctx: &Ctx) -> Outcome {
    for (i, row) in [1, 2, 7, 16, 100, 4096, 14_336].into_iter().enumerate() {
        rounds(ctx, &Job::new(ctx, (2, 4), row, ctx.seed + 10 * i as u64)?, 1)?;
    }
    Ok(())
}

/// On one context, with ordinary exchanges between them.
fn two_plans_in_turn(ctx: &Ctx) -> Outcome {
    let jobs = [Job::new(ctx, (4, 8), 32, ctx.seed)?, Job::new(ctx, (2, 1), 48, ctx.seed + 50)?];
    let mut buffers = [ctx.team.context().plan_buffers(4)?, ctx.team.context().plan_buffers(2)?];
    let mut plans = Vec::new();
    for (buffers, job) in buffers.iter_mut().zip(&jobs) {
        plans.push(buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, job.align)?);
    }
    for round in 0..6 {
        for (plan, job) in plans.iter_mut().zip(&jobs) {
            job.fill(ctx, round)?;
            drop(plan.dispatch(&ctx.stream, &job.there())?);
            ctx.team.barrier(&ctx.stream, O)?;
            job.middle.mem.check(&ctx.stream, &format!("round {round}"), &job.want(ctx, round).0)?;
            ctx.meet()?;
        }
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// There and back captured once and replayed with rows that change; a plan itself cannot be made in a capture.
fn in_a_graph(ctx: &Ctx) -> Outcome {
    let job = Job::new(ctx, (4, 8), 48, ctx.seed)?;
    let rows = job.middle.handle.span();
    let mut buffers = ctx.team.context().plan_buffers(4)?;
    let mut plan = buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, job.align)?;
    ctx.stream.begin_capture()?;
    let captured =
        plan.dispatch(&ctx.stream, &job.there()).and_then(|d| d.combine(&ctx.stream, &job.back(&rows)));
    let graph = ctx.stream.end_capture()?;
    captured?;
    for round in 0..4 {
        job.fill(ctx, round)?;
        // SAFETY: the job and the plan's buffers outlive the synchronisation below; members replay one graph only.
        unsafe { ctx.stream.launch(&graph)? };
        job.middle.mem.check(&ctx.stream, &format!("replay {round}"), &job.want(ctx, round).0)?;
        job.back.mem.check(&ctx.stream, &format!("replay {round}: back"), &job.want_back(ctx, round))?;
        ctx.stream.synchronize()?;
        ctx.meet()?;
    }
    Ok(())
}

/// Two halves at once; ranks are not PEs.
fn sub_teams(ctx: &Ctx) -> Outcome {
    let n = ctx.n();
    let (low, high): (Vec<usize>, Vec<usize>) = ((0..n / 2).collect(), (n / 2..n).rev().collect());
    let sub = ctx.with(ctx.team_of(if ctx.me() < n / 2 { &low } else { &high })?)?;
    let job = Job::new(&sub, (3, 2), 20, ctx.seed)?;
    let mut buffers = sub.team.context().plan_buffers(3)?;
    let mut plan = buffers.all_to_all_vdev_2d(&sub.stream, &job.in_splits.span, job.align)?;
    job.fill(&sub, 0)?;
    let rows = job.middle.handle.span();
    plan.dispatch(&sub.stream, &job.there())?.combine(&sub.stream, &job.back(&rows))?;
    job.middle.mem.check(&sub.stream, "there", &job.want(&sub, 0).0)?;
    job.back.mem.check(&sub.stream, "back", &job.want_back(&sub, 0))?;
    sub.stream.synchronize()?;
    Ok(())
}

fn invalid(op: &'static str, pe: usize, what: Fault) -> Error {
    Error::PeerInvalid { op, pe: Pe::from(pe), what }
}

/// A plan that one PE asks for wrongly is nobody's; nothing stays set on the team.
fn bad_splits(ctx: &Ctx) -> Outcome {
    let (w, bad) = (ctx.n(), ctx.n() - 1);
    let job = Job::new(ctx, (2, 4), 8, ctx.seed)?;
    let long = ctx.local(DType::I64, 2 * w + 1, ctx.seed)?;
    let ints = ctx.local(DType::I32, 2 * w, ctx.seed)?;
    for (span, align, argument) in [
        (&long.span, 4, "in_splits"),
        (&ints.span, 4, "in_splits"),
        (&job.in_splits.span, 0, "major_align"),
        (&job.in_splits.span, usize::MAX, "major_align"),
    ] {
        let mut buffers = ctx.team.context().plan_buffers(2)?;
        if ctx.me() == bad {
            let got = buffers.all_to_all_vdev_2d(&ctx.stream, span, align);
            ensure_err!(got, Error::InvalidArgument { op: OP, argument: a, .. } if *a == argument);
        } else {
            let got = buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, 4);
            ensure_eq!(
                got.err(),
                Some(invalid(OP, bad, Fault::Argument(argument))),
                "{argument} of another PE"
            );
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
fn members_differ(ctx: &Ctx) -> Outcome {
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
    let another = expected::differs(ctx, Field::Shape, 0, 0);
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
    ensure_eq!(
        ctx.stream.synchronize(),
        Err(invalid(calls(ctx)[0], bad, Fault::Argument(argument))),
        "{argument} of PE {bad}"
    );
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

fn buffers_too_small(ctx: &Ctx) -> Outcome {
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
    one_bad(ctx, &job, "output", &Planned { input: &ints.span, row: 1, ..job.there() })
}

fn another_team_or_stream(ctx: &Ctx) -> Outcome {
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
        Err(invalid(calls(ctx)[1], 0, Fault::Argument("stream"))),
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

/// Every case of this file once more, and the record that says why.
fn published(ctx: &Ctx) -> Outcome {
    type Run = fn(&Ctx) -> Outcome;
    let mut cases: Vec<(&str, Run)> = vec![
        ("there_and_back", there_and_back),
        ("one_dimension", one_dimension),
        ("reused", reused),
        ("row_sizes", row_sizes),
        ("two_plans_in_turn", two_plans_in_turn),
        ("bad_splits", bad_splits),
        ("buffers_too_small", buffers_too_small),
        ("another_team_or_stream", another_team_or_stream),
    ];
    if ctx.n() > 1 {
        cases.extend([("sub_teams", sub_teams as Run), ("members_differ", members_differ)]);
    }
    for (name, case) in cases {
        let own = ctx.with(ctx.another_team()?)?;
        case(&own).map_err(|e| match e {
            Stop::Fail(why) => Stop::Fail(format!("{name}: {why}")),
            skip => skip,
        })?;
    }
    let stats = ctx.world.stats();
    let counted = |op| stats.operations.iter().any(|c| c.op == op && c.bytes > 0);
    let [there, back] = calls(ctx);
    ensure!(counted(there) && counted(back), "not counted: {:?}", stats.operations);
    let about_plans = format!("exchange plans of a team of {}: ", ctx.n());
    let noted = stats.fallbacks.iter().filter(|f| f.starts_with(&about_plans)).count();
    let reason = stats.fallbacks.iter().any(|f| f.contains("has no planned form: "));
    let want = expected::publishes_splits(ctx);
    ensure_eq!((noted, reason), (usize::from(want), want), "fallbacks {:?}", stats.fallbacks);
    Ok(())
}

/// Splits that are published in every call need a context with room for them; planned calls do not.
fn small_context(ctx: &Ctx) -> Outcome {
    let job = Job::new(ctx, (2, 4), 8, ctx.seed)?;
    let context = ctx.team.new_context(ctx.n())?;
    let mut buffers = context.plan_buffers(2)?;
    let plan = buffers.all_to_all_vdev_2d(&ctx.stream, &job.in_splits.span, 4);
    if expected::publishes_splits(ctx) {
        ensure_err!(plan, Error::InvalidArgument { op: OP, argument: "ne", got, expected }
            if got == "2" && expected.starts_with(&format!("at most {} splits", ctx.n())));
    } else {
        plan?;
    }
    ensure_eq!(ctx.team.status(), Ok(()), "status");
    rounds(ctx, &job, 1)
}
