//! Allocations that are not symmetric: every PE gets the step and a PE, and can go on with what is symmetric.

use symm::{DType, Error, LogEntry, Pe, Tensor};

use crate::harness::{Case, Ctx, Outcome, Stop, ensure, ensure_eq, ensure_err};

pub(super) const CASES: &[Case] = &[
    Case::new("symmetry::swapped_order", swapped_order).pes(2),
    Case::new("symmetry::one_skipped", one_skipped).pes(2),
    Case::new("symmetry::the_last_skipped", the_last_skipped).pes(2),
    Case::new("symmetry::another_size", another_size).pes(2),
    Case::new("symmetry::another_dtype", another_dtype).pes(2),
    Case::new("symmetry::another_label", another_label).pes(2),
    Case::new("symmetry::on_the_first_pe", on_the_first_pe).pes(2),
    Case::new("symmetry::another_tensor_of_the_same_log", another_tensor_of_the_same_log).pes(2),
    Case::new("symmetry::steps_go_on_counting", steps_go_on_counting).pes(2),
    Case::new("symmetry::later_entries_do_not_matter", later_entries_do_not_matter).pes(2),
    Case::new("symmetry::a_subset_that_agrees", a_subset_that_agrees).pes(3),
    Case::new("symmetry::places_are_not_compared", places_are_not_compared),
    Case::new("symmetry::same_order", same_order),
    Case::new("symmetry::branch_in_a_loop", branch_in_a_loop).pes(2),
    Case::new("symmetry::a_sub_team_before_the_whole", a_sub_team_before_the_whole).pes(2),
    Case::new("symmetry::one_with_another_team", one_with_another_team)
        .pes(2)
        .own(&[("SYMM_INIT_TIMEOUT_MS", "1500")]),
];

/// What was allocated: label, elements, type.
type Line = (&'static str, usize, DType);

fn allocate(ctx: &Ctx, lines: &[Line]) -> Outcome<Vec<Tensor>> {
    Ok(lines
        .iter()
        .map(|(label, n, d)| ctx.team.empty_labelled(label, &[*n], *d))
        .collect::<symm::Result<_>>()?)
}

fn is(entry: &Option<Box<LogEntry>>, line: Option<Line>) -> bool {
    match (entry, line) {
        (None, None) => true,
        (Some(e), Some((label, n, d))) => {
            let here = e.at.contains("symmetry.rs:");
            e.label == label && e.bytes == (n * d.size()) as u64 && e.dtype == d.name() && here
        }
        _ => false,
    }
}

/// PE `bad` allocates `theirs`, the others `ours`; each rendezvouses the line of its number `at`. All get `step`.
struct Mismatch<'a> {
    bad: usize,
    ours: &'a [Line],
    theirs: &'a [Line],
    at: (usize, usize),
    step: usize,
}

impl Mismatch<'_> {
    /// Returns this PE's tensors.
    fn run(&self, ctx: &Ctx) -> Outcome<Vec<Tensor>> {
        let odd = ctx.me() == self.bad;
        let tensors = allocate(ctx, if odd { self.theirs } else { self.ours })?;
        let tensor = &tensors[if odd { self.at.1 } else { self.at.0 }];
        // What each log has at the step, as far as the rendezvoused line.
        let upto =
            |lines: &[Line], at: usize| if self.step <= at { lines.get(self.step).copied() } else { None };
        let (a, b) = (upto(self.ours, self.at.0), upto(self.theirs, self.at.1));
        let (here, there) = if odd { (b, a) } else { (a, b) };
        // The lowest PE that has something else there.
        let named = if !odd { self.bad } else { usize::from(self.bad == 0) };
        match tensor.rendezvous(&ctx.team).map(drop) {
            Err(Error::NotSymmetric { step, pe, theirs, ours }) => {
                ensure_eq!((step, pe), (self.step as u64, Pe::from(named)), "step and PE");
                ensure!(is(&ours, here), "ours is {ours:?}, expected {here:?}");
                ensure!(is(&theirs, there), "theirs is {theirs:?}, expected {there:?}");
            }
            other => return Err(Stop::fail(format!("got {other:?}, expected NotSymmetric"))),
        }
        // Nothing is set on the team: it was no operation.
        ctx.team.status()?;
        Ok(tensors)
    }
}

/// What was allocated before the difference still works.
fn usable(ctx: &Ctx, tensor: &Tensor) -> Outcome {
    let handle = tensor.rendezvous(&ctx.team)?;
    let src = ctx.local(tensor.dtype(), tensor.len(), ctx.seed)?;
    handle.put(&ctx.stream, ctx.right(), 0, &src.span)?;
    handle.barrier(&ctx.stream, 0, None)?;
    let whole = symm::Span::slice(&tensor.span(), 0, tensor.len())?;
    // SAFETY: the tensor is alive; its bytes.
    let raw = unsafe { symm::Span::from_raw(whole.addr(), DType::U8, whole.bytes()) };
    let got: Vec<u8> = ctx.stream.read(&raw)?;
    crate::harness::same("the symmetric tensor", &got, &src.poison_of(ctx.seed, ctx.left()))?;
    ctx.stream.synchronize()?;
    Ok(())
}

const F: DType = DType::F32;

fn swapped_order(ctx: &Ctx) -> Outcome {
    let (common, p, q) = (("", 8, F), ("", 16, F), ("", 32, F));
    let (bad, ours, theirs) = (ctx.n() - 1, [common, p, q], [common, q, p]);
    // Everybody means `p`.
    let tensors = Mismatch { bad, ours: &ours, theirs: &theirs, at: (1, 2), step: 1 }.run(ctx)?;
    usable(ctx, &tensors[0])
}

fn one_skipped(ctx: &Ctx) -> Outcome {
    let (common, p, q) = (("", 8, F), ("", 16, F), ("", 32, F));
    let (bad, ours, theirs) = (ctx.n() - 1, [common, p, q], [common, q]);
    let tensors = Mismatch { bad, ours: &ours, theirs: &theirs, at: (2, 1), step: 1 }.run(ctx)?;
    usable(ctx, &tensors[0])
}

fn the_last_skipped(ctx: &Ctx) -> Outcome {
    let (common, p) = (("", 8, F), ("", 8, F));
    let (bad, ours, theirs) = (ctx.n() - 1, [common, p], [common]);
    let tensors = Mismatch { bad, ours: &ours, theirs: &theirs, at: (1, 0), step: 1 }.run(ctx)?;
    usable(ctx, &tensors[0])
}

fn another_size(ctx: &Ctx) -> Outcome {
    let (bad, ours, theirs) = (ctx.n() - 1, [("", 8, F), ("", 16, F)], [("", 8, F), ("", 17, F)]);
    let tensors = Mismatch { bad, ours: &ours, theirs: &theirs, at: (1, 1), step: 1 }.run(ctx)?;
    usable(ctx, &tensors[0])
}

/// The same bytes, another type.
fn another_dtype(ctx: &Ctx) -> Outcome {
    let (bad, ours, theirs) = (ctx.n() - 1, [("", 8, F), ("", 16, F)], [("", 8, F), ("", 16, DType::I32)]);
    let tensors = Mismatch { bad, ours: &ours, theirs: &theirs, at: (1, 1), step: 1 }.run(ctx)?;
    usable(ctx, &tensors[0])
}

fn another_label(ctx: &Ctx) -> Outcome {
    let (bad, ours, theirs) = (ctx.n() - 1, [("a", 8, F), ("b", 16, F)], [("a", 8, F), ("c", 16, F)]);
    let tensors = Mismatch { bad, ours: &ours, theirs: &theirs, at: (1, 1), step: 1 }.run(ctx)?;
    usable(ctx, &tensors[0])
}

fn on_the_first_pe(ctx: &Ctx) -> Outcome {
    let (ours, theirs) = ([("k", 8, F), ("v", 16, F)], [("v", 16, F), ("k", 8, F)]);
    Mismatch { bad: 0, ours: &ours, theirs: &theirs, at: (0, 1), step: 0 }.run(ctx).map(drop)
}

/// Equal logs, but one PE passes another of its tensors: the shorter log ends there.
fn another_tensor_of_the_same_log(ctx: &Ctx) -> Outcome {
    let lines = [("", 8, F), ("", 8, F), ("", 8, F)];
    let bad = ctx.n() - 1;
    let tensors = Mismatch { bad, ours: &lines, theirs: &lines, at: (2, 0), step: 1 }.run(ctx)?;
    tensors.iter().try_for_each(|t| usable(ctx, t))
}

/// Steps count a team's allocations from 0, also those that a rendezvous of the whole team has agreed on.
fn steps_go_on_counting(ctx: &Ctx) -> Outcome {
    for tensor in allocate(ctx, &[("", 1, F), ("", 2, F), ("", 3, F)])? {
        tensor.rendezvous(&ctx.team)?;
    }
    let mine = if ctx.me() == ctx.n() - 1 { 5 } else { 4 };
    let tensor = ctx.team.empty(&[mine], F)?;
    ensure_err!(tensor.rendezvous(&ctx.team).map(drop), Error::NotSymmetric { step: 3, .. });
    Ok(())
}

fn later_entries_do_not_matter(ctx: &Ctx) -> Outcome {
    let first = ctx.team.empty(&[8], F)?;
    let later: Vec<_> =
        (0..ctx.me()).map(|i| ctx.team.empty(&[i + 1], DType::U8)).collect::<symm::Result<_>>()?;
    usable(ctx, &first)?;
    ensure_eq!(later.len(), ctx.me(), "later allocations");
    let next = ctx.team.empty(&[8], F)?;
    ensure_err!(next.rendezvous(&ctx.team).map(drop), Error::NotSymmetric { step: 1, .. });
    Ok(())
}

/// The first PEs agree among themselves, whatever the last one did.
fn a_subset_that_agrees(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    let (ours, theirs) = ([("", 8, F), ("", 16, F)], [("", 8, F), ("", 17, F)]);
    let tensors = Mismatch { bad, ours: &ours, theirs: &theirs, at: (1, 1), step: 1 }.run(ctx)?;
    if ctx.me() != bad {
        let subset = ctx.team_of(&(0..bad).collect::<Vec<_>>())?;
        let handle = tensors[1].rendezvous(&subset)?;
        handle.barrier(&ctx.stream, 0, None)?;
        ctx.stream.synchronize()?;
    }
    ctx.meet()?;
    usable(ctx, &tensors[0])
}

/// Equal allocations at another place on each PE are symmetric: offsets travel in the rendezvous.
fn places_are_not_compared(ctx: &Ctx) -> Outcome {
    // Of a team of its own, so that only the place in memory differs.
    let alone = ctx.team_of(&[ctx.me()])?;
    let shift = alone.empty(&[1000 * (1 + ctx.me())], DType::U8)?;
    let tensor = ctx.team.empty(&[64], F)?;
    usable(ctx, &tensor)?;
    ensure_eq!(shift.len(), 1000 * (1 + ctx.me()), "the shift");
    Ok(())
}

/// Many allocations, met in another order than they were made: the order of rendezvous is another thing.
fn same_order(ctx: &Ctx) -> Outcome {
    let lines: Vec<Line> = (0..12).map(|i| (["", "k", "v"][i % 3], 8 + i, F)).collect();
    let tensors = allocate(ctx, &lines)?;
    (0..tensors.len()).map(|i| &tensors[i * 5 % 12]).try_for_each(|t| usable(ctx, t))
}

/// A PE that takes another branch in one iteration of a loop is found at that iteration, not at the end.
fn branch_in_a_loop(ctx: &Ctx) -> Outcome {
    let odd = ctx.me() == ctx.n() - 1;
    let mut kept = Vec::new();
    for i in 0..6_usize {
        if i == 3 && odd {
            // Expert weights that only this PE has.
            kept.push(ctx.team.empty_labelled("scratch", &[4], F)?);
        }
        let tensor = ctx.team.empty_labelled("layer", &[16 + i], F)?;
        if i < 3 {
            usable(ctx, &tensor)?;
            kept.push(tensor);
            continue;
        }
        let named = Pe::from(if odd { 0 } else { ctx.n() - 1 });
        let got = tensor.rendezvous(&ctx.team).map(drop);
        // The same step in every later iteration: what differs is where it began.
        ensure_err!(got, Error::NotSymmetric { step: 3, pe, .. } if *pe == named);
        kept.push(tensor);
    }
    ensure_eq!(kept.len(), if odd { 7 } else { 6 }, "tensors");
    usable(ctx, &kept[0])
}

/// Teams share no counter: a rendezvous of some PEs moves nothing that the others count.
fn a_sub_team_before_the_whole(ctx: &Ctx) -> Outcome {
    let tensor = ctx.team.empty(&[8], F)?;
    let (half, all) = (ctx.n().div_ceil(2), ctx.n());
    let mine: Vec<usize> = if ctx.me() < half { (0..half).collect() } else { (half..all).collect() };
    let sub = ctx.team_of(&mine)?;
    let before = tensor.rendezvous(&sub)?;
    if ctx.me() < half {
        // More often than the other half.
        drop(ctx.team_of(&mine)?);
    }
    usable(ctx, &tensor)?;
    before.barrier(&ctx.stream, 0, None)?;
    ctx.stream.synchronize()?;
    ensure_eq!(before.world_size(), mine.len(), "ranks of the sub-team's handle");
    Ok(())
}

/// All but one meet over one team, that one over another with the same members: each side misses the other, by name.
fn one_with_another_team(ctx: &Ctx) -> Outcome {
    let bad = ctx.n() - 1;
    let other = ctx.another_team()?;
    let tensor = ctx.team.empty(&[8], F)?;
    let odd = ctx.me() == bad;
    let late: Vec<Pe> = if odd { (0..bad).map(Pe::from).collect() } else { vec![Pe::from(bad)] };
    let got = tensor.rendezvous(if odd { &other } else { &ctx.team }).map(drop);
    ensure_err!(got, Error::Timeout { op: "rendezvous", late: l, .. } if *l == late);
    ctx.meet()?;
    // Each team was called by some of its members.
    ctx.team.recover()?;
    other.recover()?;
    tensor.rendezvous(&other)?;
    usable(ctx, &tensor)
}
