//! Memory given twice: what peers write while it is read is refused, what is safe works.

use symm::{AllToAllVdev, DType, Error, Options, Pe, Planned, Result, Span};

use crate::harness::{Case, Ctx, Outcome, ensure_eq, ensure_err, expected};
use crate::pattern::{bytes, i64s};

pub(super) const CASES: &[Case] = &[
    Case::new("overlaps::all_gather_in_place", all_gather_in_place),
    Case::new("overlaps::equal_blocks", equal_blocks),
    Case::new("overlaps::vdev", vdev),
    Case::new("overlaps::plans", plans),
    Case::new("overlaps::copied_inputs", copied_inputs),
];

const O: Options = Options { timeout: None, max_blocks: None };

/// The last PE's call is refused for `argument`, the others' are right; then all go on.
fn one_bad(
    ctx: &Ctx,
    op: &'static str,
    argument: &'static str,
    bad: impl FnOnce() -> Result<()>,
    good: impl FnOnce() -> Result<()>,
) -> Outcome {
    let last = ctx.n() - 1;
    if ctx.me() == last {
        ensure_err!(bad(), Error::InvalidArgument { op: o, argument: a, .. } if *a == argument && o.starts_with(op));
    } else {
        good()?;
    }
    // Without a planned form the exchange that stands in for it says its own name.
    let planned = op == "planned_all_to_all_vdev" && expected::publishes_splits(ctx);
    let op = if planned { "all_to_all_vdev" } else { op };
    let want = Error::PeerInvalid { op, pe: Pe::from(last), what: expected::refused(argument) };
    let told = expected::as_told(ctx.stream.synchronize(), &want);
    ensure_eq!(told, Err(want), "{op}: {argument} of one PE");
    ctx.meet()?;
    ctx.team.recover()?;
    Ok(())
}

/// Everybody's block lies in the output already, as NCCL has it.
fn all_gather_in_place(ctx: &Ctx) -> Outcome {
    for (dtype, n) in [(DType::U8, 0), (DType::U8, 3), (DType::F32, 77), (DType::F64, 40_000)] {
        let (w, all) = (ctx.n(), ctx.symmetric(dtype, n * ctx.n() + 5, ctx.seed)?);
        let (mut want, block) = (all.mem.poison().to_vec(), n * dtype.size());
        let of = |rank: usize| bytes(ctx.seed, ctx.pe(rank), block);
        let own = all.mem.span.slice(ctx.me() * n, n)?;
        let mut with_own = want.clone();
        with_own[ctx.me() * block..][..block].copy_from_slice(&of(ctx.me()));
        all.mem.set(&ctx.stream, &with_own)?;
        ctx.stream.synchronize()?;
        // Nobody pushes to an output that is still being filled.
        ctx.meet()?;
        ctx.team.all_gather(&ctx.stream, &own, &all.handle, O)?;
        (0..w).for_each(|rank| want[rank * block..][..block].copy_from_slice(&of(rank)));
        all.mem.check(&ctx.stream, &format!("{n} of {dtype} in place"), &want)?;
        ctx.stream.synchronize()?;
    }
    Ok(())
}

fn equal_blocks(ctx: &Ctx) -> Outcome {
    let (w, n) = (ctx.n(), 6);
    let x = ctx.symmetric(DType::F32, w * n + n, ctx.seed)?;
    let (out, mine) = (&x.handle, ctx.local(DType::F32, w * n, ctx.seed)?);
    let (s, of) = (&ctx.stream, |start, len| x.mem.span.slice(start, len));
    let block = mine.span.slice(0, n)?;
    let gather = |input: &Span| ctx.team.all_gather(s, input, out, O);
    let all = |input: &Span| ctx.team.all_to_all(s, input, out, O);
    // Of this rank's block, one element beside it; of another's.
    one_bad(ctx, "all_gather", "input", || gather(&of((w - 1) * n + 1, n)?), || gather(&block))?;
    if w > 1 {
        one_bad(ctx, "all_gather", "input", || gather(&of(0, n)?), || gather(&block))?;
    }
    for start in [0, 1, n - 1] {
        one_bad(ctx, "all_to_all", "input", || all(&of(start, w * n)?), || all(&mine.span))?;
    }
    x.mem.check(s, "an output of refused operations", x.mem.poison())?;
    ctx.stream.synchronize()?;
    // Behind what is written is memory like any other.
    let tail = of(w * n, n)?;
    gather(&tail)?;
    let got = x.mem.get(s)?;
    ctx.stream.synchronize()?;
    let theirs = |rank| x.poison_of(ctx.seed, ctx.pe(rank))[4 * w * n..].to_vec();
    let want: Vec<u8> = (0..w).flat_map(theirs).collect();
    ensure_eq!(&got[..4 * w * n], &want[..], "an input behind the blocks");
    Ok(())
}

fn vdev(ctx: &Ctx) -> Outcome {
    const ROW: usize = 4;
    let (w, s) = (ctx.n(), &ctx.stream);
    // One of i64s, so that any of the four spans may lie in it.
    let x = ctx.symmetric(DType::I64, 64 * w * ROW, ctx.seed)?;
    let mine = ctx.local(DType::I64, 3 * w * ROW, ctx.seed)?;
    let splits = ctx.local(DType::I64, 2 * w, ctx.seed)?;
    let result = ctx.local(DType::I64, 2 * w, ctx.seed)?;
    splits.set(s, &i64s(&vec![0; 2 * w]))?;
    let of = |start, len| x.mem.span.slice(start, len);
    for form in ["all_to_all_vdev", "all_to_all_vdev_2d", "all_to_all_vdev_2d_offset"] {
        let in_len = if form == "all_to_all_vdev_2d_offset" { 2 * w } else { w };
        let call = |input: &Span, in_splits: &Span, out_splits_offsets: &Span| {
            let (row, output, options) = (ROW, &x.handle, O);
            let args = AllToAllVdev { input, output, in_splits, out_splits_offsets, row, options };
            match form {
                "all_to_all_vdev" => ctx.team.all_to_all_vdev(s, &args),
                "all_to_all_vdev_2d" => ctx.team.all_to_all_vdev_2d(s, &args, 1),
                _ => ctx.team.all_to_all_vdev_2d_offset(s, &args),
            }
        };
        let (input, ins, outs) = (&mine.span, &splits.span.slice(0, in_len)?, &result.span);
        let good = || call(input, ins, outs);
        one_bad(ctx, form, "input", || call(&of(1, 3 * w * ROW)?, ins, outs), good)?;
        one_bad(ctx, form, "in_splits", || call(input, &of(63 * w * ROW, in_len)?, outs), good)?;
        let name = "out_splits_offsets";
        one_bad(ctx, form, name, || call(input, ins, &of(0, 2 * w)?), good)?;
        one_bad(ctx, form, name, || call(input, ins, &mine.span.slice(1, 2 * w)?), good)?;
        one_bad(ctx, form, name, || call(input, ins, &splits.span), good)?;
        good()?;
        ctx.stream.synchronize()?;
    }
    x.mem.check(s, "an output without rows", x.mem.poison())?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn plans(ctx: &Ctx) -> Outcome {
    let (w, s) = (ctx.n(), &ctx.stream);
    let x = ctx.symmetric(DType::F32, 8 * w, ctx.seed)?;
    let mine = ctx.local(DType::F32, 4 * w, ctx.seed)?;
    let splits = ctx.local(DType::I64, w, ctx.seed)?;
    splits.set(s, &i64s(&vec![1; w]))?;
    let mut buffers = ctx.team.context().plan_buffers(1)?;
    let mut plan = buffers.all_to_all_vdev(s, &splits.span)?;
    let inside = x.mem.span.slice(4 * w, 4 * w)?;
    let mut call =
        |input: &Span| plan.dispatch(s, &Planned { input, output: &x.handle, row: 4, options: O }).map(drop);
    let op = "planned_all_to_all_vdev";
    if ctx.me() + 1 == w {
        one_bad(ctx, op, "input", || call(&inside), || Ok(()))?;
    } else {
        one_bad(ctx, op, "input", || Ok(()), || call(&mine.span))?;
    }
    x.mem.check(s, "an output of a refused plan", x.mem.poison())?;
    call(&mine.span)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// `one_shot_all_reduce_copy_out` to exactly its input, but not beside it.
fn copied_inputs(ctx: &Ctx) -> Outcome {
    let (n, s) = (50, &ctx.stream);
    let x = ctx.symmetric(DType::I32, n, ctx.seed)?;
    let mine = ctx.local(DType::I32, n + 1, ctx.seed)?;
    let (input, beside) = (mine.span.slice(0, n)?, mine.span.slice(1, n)?);
    let call = |out: &Span| ctx.team.one_shot_all_reduce_copy_out(s, &x.handle, &input, out, O);
    one_bad(ctx, "one_shot_all_reduce", "out", || call(&beside), || call(&input))?;
    let ones = [1u8, 0, 0, 0].repeat(n + 1);
    mine.set(s, &ones)?;
    call(&input)?;
    let mut want = (ctx.n() as u32).to_le_bytes().repeat(n);
    want.extend([1, 0, 0, 0]);
    mine.check(s, "sums over the input", &want)?;
    ctx.stream.synchronize()?;
    Ok(())
}
