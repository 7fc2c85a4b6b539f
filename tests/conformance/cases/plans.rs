//! Exchange plans: the same bytes as exchanges that publish their splits, again and again; what may not be reused is refused.

use symm::{Capabilities, DType, Error, Options, Planned, Span, oracle};

use super::plan_errors::{another_team_or_stream, bad_splits, buffers_too_small, members_differ};
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
    // Calls that publish their splits, as plans over members that only the network reaches.
    Case::new("plans::published", published).own(&[("SYMM_HOST_PLANS", "0")]).limit(60),
    Case::new("plans::published_by_a_small_context", small_context).own(&[("SYMM_HOST_PLANS", "0")]),
];

const O: Options = Options { timeout: None, max_blocks: None };
pub(super) const OP: &str = "planned_all_to_all_vdev";

/// The names that errors have for calls of a 2-D plan, there and back.
pub(super) fn calls(ctx: &Ctx) -> [&'static str; 2] {
    if expected::publishes_splits(ctx) {
        ["all_to_all_vdev_2d", "all_to_all_vdev_2d_offset"]
    } else {
        [OP; 2]
    }
}

/// Splits of every rank, rows of `row` bytes, and the memory of this PE's calls.
pub(super) struct Job {
    pub(super) splits: Vec<Vec<i64>>,
    pub(super) ne: usize,
    pub(super) align: usize,
    pub(super) row: usize,
    pub(super) input: Guarded,
    pub(super) middle: Symmetric,
    pub(super) back: Symmetric,
    pub(super) in_splits: Guarded,
    pub(super) seed: u64,
}

impl Job {
    pub(super) fn new(ctx: &Ctx, (ne, align): (usize, usize), row: usize, seed: u64) -> Outcome<Self> {
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

    pub(super) fn there(&self) -> Planned<'_> {
        Planned { input: &self.input.span, output: &self.middle.handle, row: self.row, options: O }
    }

    /// Results are the dispatched rows themselves.
    pub(super) fn back<'a>(&'a self, results: &'a Span) -> Planned<'a> {
        Planned { input: results, output: &self.back.handle, row: self.row, options: O }
    }

    pub(super) fn input_of(&self, ctx: &Ctx, rank: usize, round: u64) -> Vec<u8> {
        bytes(self.seed + 100 * round, ctx.pe(rank), self.input.bytes())
    }

    /// Fresh rows, poison everywhere else.
    pub(super) fn fill(&self, ctx: &Ctx, round: u64) -> Outcome {
        self.input.set(&ctx.stream, &self.input_of(ctx, ctx.me(), round))?;
        self.middle.mem.set(&ctx.stream, self.middle.mem.poison())?;
        self.back.mem.set(&ctx.stream, self.back.mem.poison())?;
        Ok(())
    }

    /// Middle and `out_splits_offsets` of this rank.
    pub(super) fn want(&self, ctx: &Ctx, round: u64) -> (Vec<u8>, Vec<i64>) {
        let inputs: Vec<_> = (0..ctx.n()).map(|rank| self.input_of(ctx, rank, round)).collect();
        let mut outs: Vec<_> =
            (0..ctx.n()).map(|rank| self.middle.poison_of(self.seed + 2, ctx.pe(rank))).collect();
        let mut results =
            oracle::all_to_all_vdev_2d(&inputs, &self.splits, self.row, self.ne, self.align, &mut outs);
        (outs.swap_remove(ctx.me()), results.swap_remove(ctx.me()))
    }

    /// What a combine leaves: the rows that were sent, then poison.
    pub(super) fn want_back(&self, ctx: &Ctx, round: u64) -> Vec<u8> {
        let sent = self.splits[ctx.me()].iter().sum::<i64>() as usize * self.row;
        let mut want = self.back.mem.poison().to_vec();
        want[..sent].copy_from_slice(&self.input_of(ctx, ctx.me(), round)[..sent]);
        want
    }
}

pub(super) fn rounds(ctx: &Ctx, job: &Job, n: u64) -> Outcome {
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

/// The cases of plans once more, and the record that says why.
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
