//! all_to_all and all_gather: equal blocks.

use symm::{DType, Options};

use crate::harness::{Case, Ctx, Outcome, Symmetric, ensure_eq};
use crate::pattern::{Random, bytes, f32s, i64s};

pub(super) const CASES: &[Case] = &[
    Case::new("all_to_all::ten_f32", ten_f32),
    Case::new("all_to_all::two_i64", two_i64),
    Case::new("all_to_all::every_dtype", every_dtype),
    Case::new("all_to_all::sizes", sizes),
    Case::new("all_to_all::gather_every_dtype", gather_every_dtype),
    Case::new("all_to_all::gather_sizes", gather_sizes),
    Case::new("all_to_all::larger_output", larger_output),
    Case::new("all_to_all::another_offset_on_each_pe", another_offset_on_each_pe),
    Case::new("all_to_all::symmetric_input", symmetric_input),
    Case::new("all_to_all::input_free_when_passed", input_free_when_passed),
    Case::new("all_to_all::many_in_a_row", many_in_a_row),
    Case::new("all_to_all::random_rounds", random_rounds),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    AllToAll,
    AllGather,
}

/// Runs `op` with `k` elements a block and compares everything.
fn run(ctx: &Ctx, op: Op, dtype: DType, k: usize, seed: u64) -> Outcome {
    let n = ctx.n();
    let len = if op == Op::AllToAll { k * n } else { k };
    let out = ctx.symmetric(dtype, k * n, seed)?;
    let input = ctx.local(dtype, len, seed)?;
    let of = |pe| bytes(seed, pe, len * dtype.size());
    input.set(&ctx.stream, &of(ctx.me()))?;
    enqueue(ctx, op, &input, &out)?;
    let inputs: Vec<_> = (0..n).map(of).collect();
    let mut want: Vec<_> = (0..n).map(|pe| out.poison_of(seed, pe)).collect();
    match op {
        Op::AllToAll => symm::oracle::all_to_all(&inputs, &mut want),
        Op::AllGather => symm::oracle::all_gather(&inputs, &mut want),
    }
    out.mem.check(&ctx.stream, &format!("{op:?} of {k} {dtype} a block: output"), &want[ctx.me()])?;
    input.check(&ctx.stream, "input", &inputs[ctx.me()])?;
    ctx.stream.synchronize()?;
    // No PE frees its output while a peer might still write it, were the operation wrong.
    ctx.meet()?;
    out.mem.check(&ctx.stream, "output, once all are through", &want[ctx.me()])
}

fn enqueue(ctx: &Ctx, op: Op, input: &crate::harness::Guarded, out: &Symmetric) -> Outcome {
    match op {
        Op::AllToAll => ctx.team.all_to_all(&ctx.stream, &input.span, &out.handle, Options::default())?,
        Op::AllGather => ctx.team.all_gather(&ctx.stream, &input.span, &out.handle, Options::default())?,
    }
    Ok(())
}

/// Upstream: 10 f32 a peer, filled with the rank; chunk i is i everywhere.
fn ten_f32(ctx: &Ctx) -> Outcome {
    let out = ctx.symmetric(DType::F32, 10 * ctx.n(), ctx.seed)?;
    let input = ctx.local(DType::F32, 10 * ctx.n(), ctx.seed)?;
    input.set(&ctx.stream, &f32s(ctx.me() as f32, 10 * ctx.n()))?;
    enqueue(ctx, Op::AllToAll, &input, &out)?;
    let want: Vec<u8> = (0..ctx.n()).flat_map(|i| f32s(i as f32, 10)).collect();
    out.mem.check(&ctx.stream, "output", &want)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// Upstream: 2 int64 a PE, rank·100 + destination.
fn two_i64(ctx: &Ctx) -> Outcome {
    let out = ctx.symmetric(DType::I64, 2 * ctx.n(), ctx.seed)?;
    let input = ctx.local(DType::I64, 2 * ctx.n(), ctx.seed)?;
    let me = ctx.me() as i64;
    let values: Vec<i64> = (0..ctx.n() as i64).flat_map(|d| [me * 100 + d; 2]).collect();
    input.set(&ctx.stream, &i64s(&values))?;
    enqueue(ctx, Op::AllToAll, &input, &out)?;
    let want: Vec<i64> = (0..ctx.n() as i64).flat_map(|i| [i * 100 + me; 2]).collect();
    ensure_eq!(out.mem.get_i64(&ctx.stream)?, want, "output");
    ctx.stream.synchronize()?;
    Ok(())
}

fn every_dtype(ctx: &Ctx) -> Outcome {
    DType::ALL
        .into_iter()
        .enumerate()
        .try_for_each(|(i, d)| run(ctx, Op::AllToAll, d, 13, ctx.seed + i as u64))
}

fn gather_every_dtype(ctx: &Ctx) -> Outcome {
    DType::ALL
        .into_iter()
        .enumerate()
        .try_for_each(|(i, d)| run(ctx, Op::AllGather, d, 13, ctx.seed + i as u64))
}

fn sizes(ctx: &Ctx) -> Outcome {
    let largest = (1 << 20) / ctx.n();
    let sizes = [0, 1, 2, 3, 15, 16, 17, 63, 65, 4095, 4096, 4097, largest];
    sizes.into_iter().try_for_each(|k| run(ctx, Op::AllToAll, DType::U8, k, ctx.seed + k as u64))
}

fn gather_sizes(ctx: &Ctx) -> Outcome {
    let largest = (1 << 20) / ctx.n();
    let sizes = [0, 1, 2, 3, 15, 16, 17, 63, 65, 4095, 4096, 4097, largest];
    sizes.into_iter().try_for_each(|k| run(ctx, Op::AllGather, DType::U8, k, ctx.seed + k as u64))
}

fn larger_output(ctx: &Ctx) -> Outcome {
    let k = 5;
    for op in [Op::AllToAll, Op::AllGather] {
        let len = if op == Op::AllToAll { k * ctx.n() } else { k };
        let out = ctx.symmetric(DType::U32, k * ctx.n() + 33, ctx.seed)?;
        let input = ctx.local(DType::U32, len, ctx.seed)?;
        enqueue(ctx, op, &input, &out)?;
        let inputs: Vec<_> = (0..ctx.n()).map(|pe| input.poison_of(ctx.seed, pe)).collect();
        let mut want: Vec<_> = (0..ctx.n()).map(|pe| out.poison_of(ctx.seed, pe)).collect();
        match op {
            Op::AllToAll => symm::oracle::all_to_all(&inputs, &mut want),
            Op::AllGather => symm::oracle::all_gather(&inputs, &mut want),
        }
        out.mem.check(&ctx.stream, &format!("{op:?}"), &want[ctx.me()])?;
        ctx.stream.synchronize()?;
    }
    Ok(())
}

/// The byte offset of the output is each PE's own.
fn another_offset_on_each_pe(ctx: &Ctx) -> Outcome {
    let (k, n) = (6, ctx.n());
    let out = ctx.symmetric(DType::U16, (k + 11) * n, ctx.seed)?;
    let start = 11 * ctx.me();
    let view = out.tensor.view(start, &[k * n])?.rendezvous(&ctx.team)?;
    let input = ctx.local(DType::U16, k * n, ctx.seed)?;
    ctx.team.all_to_all(&ctx.stream, &input.span, &view, Options::default())?;
    let mut want = out.mem.poison().to_vec();
    for s in 0..n {
        let theirs = input.poison_of(ctx.seed, s);
        let at = 2 * (start + k * s);
        want[at..at + 2 * k].copy_from_slice(&theirs[2 * k * ctx.me()..2 * k * (ctx.me() + 1)]);
    }
    out.mem.check(&ctx.stream, "output", &want)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// Input in a symmetric allocation, another part of the output's.
fn symmetric_input(ctx: &Ctx) -> Outcome {
    let (k, n) = (50, ctx.n());
    let both = ctx.symmetric(DType::F64, 2 * k * n, ctx.seed)?;
    let (input, out) = (both.tensor.view(0, &[k * n])?, both.tensor.view(k * n, &[k * n])?);
    let out = out.rendezvous(&ctx.team)?;
    ctx.team.all_to_all(&ctx.stream, &input.span(), &out, Options::default())?;
    let half = 8 * k * n;
    let all: Vec<_> = (0..n).map(|pe| both.poison_of(ctx.seed, pe)).collect();
    let inputs: Vec<_> = all.iter().map(|a| a[..half].to_vec()).collect();
    let mut outs: Vec<_> = all.iter().map(|a| a[half..].to_vec()).collect();
    symm::oracle::all_to_all(&inputs, &mut outs);
    let want = [inputs[ctx.me()].clone(), outs[ctx.me()].clone()].concat();
    both.mem.check(&ctx.stream, "input and output", &want)?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn input_free_when_passed(ctx: &Ctx) -> Outcome {
    let (k, n) = (40_000, ctx.n());
    let out = ctx.symmetric(DType::U8, k * n, ctx.seed)?;
    let input = ctx.local(DType::U8, k, ctx.seed)?;
    input.set(&ctx.stream, &bytes(ctx.seed, ctx.me(), k))?;
    enqueue(ctx, Op::AllGather, &input, &out)?;
    // In stream order, right behind the operation.
    input.set(&ctx.stream, &vec![0xff; k])?;
    let want: Vec<u8> = (0..n).flat_map(|pe| bytes(ctx.seed, pe, k)).collect();
    out.mem.check(&ctx.stream, "output", &want)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// Nothing but the operations themselves keeps PEs together; PEs pause at different rounds.
fn many_in_a_row(ctx: &Ctx) -> Outcome {
    let (k, n) = (7, ctx.n());
    let outs = [ctx.symmetric(DType::U32, k * n, ctx.seed)?, ctx.symmetric(DType::U32, k * n, ctx.seed + 1)?];
    let input = ctx.local(DType::U32, k * n, ctx.seed)?;
    for round in 0..200u64 {
        let out = &outs[round as usize % 2];
        input.set(&ctx.stream, &bytes(round, ctx.me(), 4 * k * n))?;
        enqueue(ctx, Op::AllToAll, &input, out)?;
        if round % 29 == 3 * ctx.me() as u64 {
            ctx.pause(300);
        }
        let inputs: Vec<_> = (0..n).map(|pe| bytes(round, pe, 4 * k * n)).collect();
        let mut want = vec![vec![0; 4 * k * n]; n];
        symm::oracle::all_to_all(&inputs, &mut want);
        // A peer that is one round ahead writes the other output.
        out.mem.check(&ctx.stream, &format!("round {round}"), &want[ctx.me()])?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn random_rounds(ctx: &Ctx) -> Outcome {
    let mut r = Random::new(&[ctx.seed]);
    for round in 0..40 {
        let op = r.of(&[Op::AllToAll, Op::AllGather]);
        let dtype = r.of(&DType::ALL);
        let k = r.below(r.clone().of(&[4, 40, 1000]));
        run(ctx, op, dtype, k, ctx.seed + 1000 + round)?;
    }
    Ok(())
}
