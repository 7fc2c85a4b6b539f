//! Members of a team that make different set-up calls: everybody is told who is in which, and nobody's `finalize` ends well to
//! which not all came. `tests/calls.rs` has every pair, on the host.

use std::time::{Duration, Instant};

use symm::{DType, Error, Result, Team};

use crate::harness::{Case, Ctx, Outcome, Stop, ensure, ensure_eq, ensure_err};

pub(super) const CASES: &[Case] = &[
    Case::new("calls::others_than_the_rest", others_than_the_rest).pes(2).tree(),
    Case::new("calls::finalize_for_a_rendezvous", finalize_for_a_rendezvous).pes(2).tree().own(&[]),
    Case::new("calls::a_split_for_finalize", a_split_for_finalize).pes(2).tree().own(&[]),
];

/// A call, and its first step as errors have it.
type Call = (fn(&Ctx, &Team) -> Result<()>, &'static str);

const RENDEZVOUS: Call = (rendezvous, "step Offer of rendezvous");
const CONTEXT: Call = (|_, team| team.new_context(8).map(drop), "step Offer of context");
const SPLIT: Call = (|_, team| team.split(Some(0), 0).map(drop), "step Agree of split");
const RECLAIM: Call = (|_, team| team.reclaim(), "step Offer of reclaim");
const PLAN: Call = (plan, "step Agree of planned_all_to_all_vdev");
const FINALIZE: Call = (|ctx, _| ctx.world.finalize(), "step Arrive of finalize");

fn rendezvous(_: &Ctx, team: &Team) -> Result<()> {
    team.empty(&[64], DType::F32)?.rendezvous(team).map(drop)
}

fn plan(ctx: &Ctx, team: &Team) -> Result<()> {
    let splits = ctx.world.local(DType::I64, team.world_size())?;
    ctx.stream.write(&splits.span(), &vec![0_i64; team.world_size()])?;
    team.context().plan_buffers(1)?.all_to_all_vdev(&ctx.stream, &splits.span()).map(drop)
}

/// The last PE makes the call `other`, the rest `rest`.
fn one_makes(ctx: &Ctx, team: &Team, rest: Call, other: Call) -> Outcome {
    let (odd, began) = (ctx.n() - 1, Instant::now());
    let (ours, theirs) = if ctx.me() == odd { (other, rest) } else { (rest, other) };
    let got = (ours.0)(ctx, team);
    let Err(Error::Bootstrap { why, .. }) = &got else {
        return Err(Stop::fail(format!("{} beside {}: {got:?}", ours.1, theirs.1)));
    };
    let text = format!(" is in {}, this PE in {}: not every member made every call before", theirs.1, ours.1);
    let who: Option<usize> = why.split_once(&text).and_then(|(who, _)| who.strip_prefix("PE ")?.parse().ok());
    ensure!(
        who.is_some_and(|who| who < ctx.n() && (who == odd) == (ctx.me() != odd)),
        "{} beside {}: {why}",
        ours.1,
        theirs.1
    );
    ensure!(began.elapsed() < Duration::from_secs(10), "told after {:?}", began.elapsed());
    Ok(())
}

/// The team works again after `recover`.
fn others_than_the_rest(ctx: &Ctx) -> Outcome {
    let calls = [RENDEZVOUS, CONTEXT, SPLIT, RECLAIM, PLAN];
    for (i, rest) in calls.into_iter().enumerate() {
        for (_, other) in calls.into_iter().enumerate().filter(|(j, _)| *j != i) {
            one_makes(ctx, &ctx.team, rest, other)?;
            ctx.team.recover()?;
        }
    }
    calls.into_iter().try_for_each(|(call, _)| call(ctx, &ctx.team))?;
    Ok(())
}

/// Whose `finalize` failed has closed its world; that of the others names it.
fn finalize_for_a_rendezvous(ctx: &Ctx) -> Outcome {
    one_makes(ctx, ctx.world.team(), RENDEZVOUS, FINALIZE)?;
    if ctx.me() + 1 < ctx.n() {
        let (odd, got) = (format!("PE {}", ctx.n() - 1), ctx.world.finalize());
        ensure_err!(got, Error::PeerFailed { .. });
        ensure!(got.as_ref().is_err_and(|e| e.to_string().contains(&odd)), "{got:?}");
    }
    ensure_eq!(ctx.world.finalize(), Ok(()), "a second time");
    Ok(())
}

fn a_split_for_finalize(ctx: &Ctx) -> Outcome {
    one_makes(ctx, ctx.world.team(), FINALIZE, SPLIT)?;
    if ctx.me() + 1 == ctx.n() {
        ensure_err!(ctx.world.finalize(), Error::PeerFailed { .. });
    }
    Ok(())
}
