//! reduce_scatter and the forms of all_reduce: bit for bit the oracle's sums, on every rank.

use symm::{DType, Options, Span};

use super::sums::{DTYPES, Job, Op, elements, same_sums};
use crate::harness::{Case, Ctx, Outcome, ensure, ensure_eq};
use crate::pattern::Random;

pub(super) const CASES: &[Case] = &[
    Case::new("reduce::all_reduce_sizes", all_reduce_sizes).limit(60),
    Case::new("reduce::scatter_sizes", scatter_sizes).limit(60),
    Case::new("reduce::every_dtype", every_dtype),
    Case::new("reduce::lengths", lengths),
    Case::new("reduce::no_elements", no_elements),
    Case::new("reduce::rounded_once", rounded_once),
    Case::new("reduce::zeros_and_denormals", zeros_and_denormals),
    Case::new("reduce::integers_wrap", integers_wrap),
    Case::new("reduce::elements_that_look_like_none", elements_that_look_like_none),
    Case::new("reduce::another_offset_on_each_pe", another_offset_on_each_pe),
    Case::new("reduce::many_rows", many_rows),
    Case::new("reduce::copy_onto_itself", copy_onto_itself),
    Case::new("reduce::copies_and_plain_together", copies_and_plain_together),
    Case::new("reduce::many_in_a_row", many_in_a_row),
    Case::new("reduce::inputs_free_when_passed", inputs_free_when_passed),
    Case::new("reduce::two_streams_on_one_context", two_streams_on_one_context),
    Case::new("reduce::sub_teams", sub_teams).pes(2),
    Case::new("reduce::beside_other_operations", beside_other_operations),
    Case::new("reduce::random_rounds", random_rounds),
    Case::new("reduce::one_block", one_block),
    Case::new("reduce::around_every_limit", around_every_limit).limit(60),
    Case::new("reduce::outputs_at_odd_places", outputs_at_odd_places),
    Case::new("reduce::sizes_take_turns", sizes_take_turns).limit(60),
    Case::new("reduce::large", large).limit(60),
];

fn run(ctx: &Ctx, op: Op, dtype: DType, n: usize, skip: usize, seed: u64) -> Outcome {
    Job::new(ctx, op, dtype, n, skip, seed)?.run(ctx, 0)
}

/// Elements to skip so that the buffer begins at a multiple of `align` bytes, and of no larger power of two up to 16.
fn skip(ctx: &Ctx, dtype: DType, align: usize) -> Outcome<Option<usize>> {
    let at = ctx.symmetric(dtype, 1, ctx.seed)?.handle.offset();
    let wanted = |k: usize| (at + k * dtype.size()) % 16 == align % 16;
    Ok((0..16).find(|k| wanted(*k)))
}

/// Upstream: bytes 4, 8192, 8196 at alignments 4, 8 and 16, for every type whose elements fit them.
fn all_reduce_sizes(ctx: &Ctx) -> Outcome {
    let mut ran = 0;
    for (i, dtype) in DTYPES.into_iter().enumerate() {
        for align in [4, 8, 16] {
            let Some(skip) = skip(ctx, dtype, align)? else { continue };
            for bytes in [4, 8192, 8196].into_iter().filter(|b| b % dtype.size() == 0) {
                let op = Op::ALL_REDUCE[(ran + i) % 6];
                let ops =
                    if dtype == DType::F32 || dtype == DType::BF16 { &Op::ALL_REDUCE[..] } else { &[op] };
                for op in ops {
                    run(ctx, *op, dtype, bytes / dtype.size(), skip, ctx.seed + ran as u64)?;
                    ran += 1;
                }
            }
        }
    }
    ensure!(ran >= 120, "{ran} combinations");
    Ok(())
}

/// Upstream: 128, 8192 and 589824 elements in both modes; any W takes the multiple of W below.
fn scatter_sizes(ctx: &Ctx) -> Outcome {
    for (i, n) in [128, 8192, 589_824].into_iter().enumerate() {
        let seed = ctx.seed + 10 * i as u64;
        let lead = 16;
        let even = n / ctx.n() * ctx.n();
        let matrix = n / (lead * ctx.n()) * lead * ctx.n();
        run(ctx, Op::Scatter, DType::F32, even, 0, seed)?;
        run(ctx, Op::ScatterLast(lead), DType::F32, matrix, 1, seed + 1)?;
        if n < 10_000 {
            run(ctx, Op::Scatter, DType::BF16, even, 1, seed + 2)?;
            run(ctx, Op::ScatterLast(lead), DType::BF16, matrix, 0, seed + 3)?;
        }
    }
    Ok(())
}

fn every_dtype(ctx: &Ctx) -> Outcome {
    let ops = [Op::ALL_REDUCE.as_slice(), &[Op::Scatter, Op::ScatterLast(5)]].concat();
    for (i, dtype) in DTYPES.into_iter().enumerate() {
        for (k, op) in ops.iter().enumerate() {
            run(ctx, *op, dtype, 5 * ctx.n() * 13, 0, ctx.seed + (10 * i + k) as u64)?;
        }
    }
    Ok(())
}

fn lengths(ctx: &Ctx) -> Outcome {
    let ops = [Op::OneShotOut, Op::OneShotCopyOut, Op::TwoShot, Op::TwoShotOut];
    for (i, n) in [1, 2, 3, 31, 32, 33, 64, 255, 1000, 4099, 20_011].into_iter().enumerate() {
        for (k, op) in ops.into_iter().enumerate() {
            let dtype = DTYPES[(i + k) % 6];
            run(ctx, op, dtype, n, i % 3, ctx.seed + (10 * i + k) as u64)?;
        }
    }
    Ok(())
}

fn no_elements(ctx: &Ctx) -> Outcome {
    for op in Op::ALL_REDUCE.into_iter().chain([Op::Scatter, Op::ScatterLast(3)]) {
        run(ctx, op, DType::F32, 0, 3, ctx.seed)?;
    }
    Ok(())
}

/// Sets every rank's elements by hand, and compares the sums of three forms with `want`.
fn by_hand(ctx: &Ctx, dtype: DType, of: impl Fn(usize) -> Vec<u8>, want: &[u8]) -> Outcome {
    let n = want.len() / dtype.size();
    let x = ctx.symmetric(dtype, n, ctx.seed)?;
    let out = ctx.local(dtype, n, ctx.seed)?;
    let o = Options::default();
    for form in 0..3 {
        x.mem.set(&ctx.stream, &of(ctx.me()))?;
        match form {
            0 => ctx.team.one_shot_all_reduce_out(&ctx.stream, &x.handle, &out.span, o)?,
            1 => ctx.team.two_shot_all_reduce_out(&ctx.stream, &x.handle, &out.span, o)?,
            _ => ctx.team.two_shot_all_reduce(&ctx.stream, &x.handle, o)?,
        }
        let got = if form == 2 { x.mem.get(&ctx.stream)? } else { out.get(&ctx.stream)? };
        same_sums(&format!("form {form} of {dtype}"), dtype, &got, want)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// 256 + 1 + 1 … as f32, rounded once: a bf16 of 256 plus 1 rounded each time would stay 256.
fn rounded_once(ctx: &Ctx) -> Outcome {
    let bf16 = |v: f32| ((v.to_bits() + 0x7fff + (v.to_bits() >> 16 & 1)) >> 16) as u16;
    let value = |rank| if rank == 0 { 256.0 } else { 1.0 };
    let sum = 255.0 + ctx.n() as f32;
    let want = bf16(sum).to_le_bytes().repeat(9);
    by_hand(ctx, DType::BF16, |rank| bf16(value(rank)).to_le_bytes().repeat(9), &want)?;
    if ctx.n() == 3 {
        ensure_eq!(bf16(sum), bf16(258.0), "the point of the case");
    }
    // f16 the same way, from 2048: tabled, so that nothing is computed twice in one way.
    let table = [0x6800, 0x6800, 0x6801, 0x6802, 0x6802, 0x6802, 0x6803, 0x6804u16];
    let want = table[(ctx.n() - 1) % 8].to_le_bytes().repeat(9);
    let half = |rank| if rank == 0 { 0x6800u16 } else { 0x3c00 };
    by_hand(ctx, DType::F16, |rank| half(rank).to_le_bytes().repeat(9), &want)
}

fn zeros_and_denormals(ctx: &Ctx) -> Outcome {
    let w = ctx.n() as u32;
    let f = |bits: &[u32]| bits.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<u8>>();
    // -0 stays -0; denormals add up exactly; W largest numbers overflow; infinities of both signs are no number.
    let max = if w == 1 { f32::MAX.to_bits() } else { f32::INFINITY.to_bits() };
    let of = |rank: usize| {
        let infinity = if rank == 0 { f32::INFINITY } else { f32::NEG_INFINITY };
        f(&[0x8000_0000, 1, 0x8000_0002, f32::MAX.to_bits(), infinity.to_bits()])
    };
    let mixed = if w == 1 { f32::INFINITY } else { f32::NAN };
    let want = f(&[0x8000_0000, w, 0x8000_0000 | (2 * w), max, mixed.to_bits()]);
    by_hand(ctx, DType::F32, of, &want)?;
    let h = |bits: &[u16]| bits.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<u8>>();
    for dtype in [DType::F16, DType::BF16] {
        let want = h(&[0x8000, w as u16, 0x8000 | (2 * w as u16)]);
        by_hand(ctx, dtype, |_| h(&[0x8000, 1, 0x8002]), &want)?;
    }
    Ok(())
}

fn integers_wrap(ctx: &Ctx) -> Outcome {
    let w = ctx.n() as i64;
    let small = i32::MAX.wrapping_mul(w as i32).to_le_bytes().repeat(37);
    by_hand(ctx, DType::I32, |_| i32::MAX.to_le_bytes().repeat(37), &small)?;
    let large = i64::MIN.wrapping_add(3).wrapping_mul(w).to_le_bytes().repeat(37);
    by_hand(ctx, DType::I64, |_| (i64::MIN + 3).to_le_bytes().repeat(37), &large)
}

/// Elements that make no word where GPUs push them (`KEY_A` to `KEY_D` of `kernels/cu/pushed/common.cuh`): all, some, or all but a few.
fn elements_that_look_like_none(ctx: &Ctx) -> Outcome {
    let key = [0x7fb5_e1d3u32, 0x7fa9_3c6b, 0x7fb2_d74f, 0x7fad_4e95];
    let mut random = Random::new(&[ctx.seed]);
    for vectors in [1, 70, 3000, 68_000] {
        for one_in in [1, 3, 500] {
            // By rank and vector, the same numbers on every PE.
            let seed = random.below(1 << 30) as u32;
            let value = |rank: usize, i: usize| {
                let other = (i as u32 / 4 + 7 * rank as u32).wrapping_mul(0x9E37_79B1) ^ seed;
                if (other >> 8).is_multiple_of(one_in) { key[i % 4] } else { other }
            };
            let sum = |i| (0..ctx.n()).fold(0u32, |s, rank| s.wrapping_add(value(rank, i)));
            let want: Vec<u8> = (0..4 * vectors).flat_map(|i| sum(i).to_le_bytes()).collect();
            by_hand(
                ctx,
                DType::I32,
                |rank| (0..4 * vectors).flat_map(|i| value(rank, i).to_le_bytes()).collect(),
                &want,
            )?;
        }
    }
    Ok(())
}

/// Buffers whose alignments have nothing in common.
fn another_offset_on_each_pe(ctx: &Ctx) -> Outcome {
    for (i, dtype) in DTYPES.into_iter().enumerate() {
        for (k, op) in Op::ALL_REDUCE.into_iter().chain([Op::Scatter, Op::ScatterLast(3)]).enumerate() {
            let seed = ctx.seed + (10 * i + k) as u64;
            let mut job = Job::new(ctx, op, dtype, 3 * ctx.n() * 47, 0, seed)?;
            let len = job.handle.len();
            job.shift(ctx, ctx.me() % 5, len)?;
            job.run(ctx, 1)?;
        }
    }
    Ok(())
}

/// Columns narrower than a vector, and a matrix of one column a rank.
fn many_rows(ctx: &Ctx) -> Outcome {
    for (i, (lead, cols)) in
        [(1, 8), (7, 1), (129, 3), (2500, 2), (64, 130), (3, 1024)].into_iter().enumerate()
    {
        let dtype = DTYPES[i % 6];
        run(ctx, Op::ScatterLast(lead), dtype, lead * cols * ctx.n(), i % 2, ctx.seed + i as u64)?;
    }
    Ok(())
}

/// The output may be the local input.
fn copy_onto_itself(ctx: &Ctx) -> Outcome {
    let n = 3001;
    let x = ctx.symmetric(DType::F32, n, ctx.seed)?;
    let mine = ctx.local(DType::F32, n, ctx.seed)?;
    mine.set(&ctx.stream, &elements(DType::F32, ctx.seed, ctx.me(), n))?;
    let (h, o) = (&x.handle, Options::default());
    ctx.team.one_shot_all_reduce_copy_out(&ctx.stream, h, &mine.span, &mine.span, o)?;
    let inputs: Vec<_> = (0..ctx.n()).map(|pe| elements(DType::F32, ctx.seed, pe, n)).collect();
    let want = symm::oracle::sum(DType::F32, &inputs);
    same_sums("in place", DType::F32, &mine.get(&ctx.stream)?, &want)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// Whose elements are in its buffer already need not copy them.
fn copies_and_plain_together(ctx: &Ctx) -> Outcome {
    let n = 777;
    let x = ctx.symmetric(DType::BF16, n, ctx.seed)?;
    let (local, out) = (ctx.local(DType::BF16, n, 1)?, ctx.local(DType::BF16, n, 2)?);
    let mine = elements(DType::BF16, ctx.seed, ctx.me(), n);
    let (h, o) = (&x.handle, Options::default());
    if ctx.me().is_multiple_of(2) {
        local.set(&ctx.stream, &mine)?;
        ctx.team.one_shot_all_reduce_copy_out(&ctx.stream, h, &local.span, &out.span, o)?;
    } else {
        x.mem.set(&ctx.stream, &mine)?;
        ctx.team.one_shot_all_reduce_out(&ctx.stream, h, &out.span, o)?;
    }
    let inputs: Vec<_> = (0..ctx.n()).map(|pe| elements(DType::BF16, ctx.seed, pe, n)).collect();
    let want = symm::oracle::sum(DType::BF16, &inputs);
    same_sums("sums", DType::BF16, &out.get(&ctx.stream)?, &want)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// The same buffers again and again, refilled the moment that an operation is passed here: whoever still read them would
/// find the next round's numbers. PEs pause at different rounds.
fn many_in_a_row(ctx: &Ctx) -> Outcome {
    let jobs =
        [Op::OneShotOut, Op::OneShotCopyOut, Op::TwoShot, Op::TwoShotOut, Op::Scatter, Op::ScatterLast(4)];
    let made = jobs.map(|op| Job::new(ctx, op, DType::F32, 4 * 33 * ctx.n(), 1, ctx.seed));
    for (i, job) in made.into_iter().enumerate() {
        let job = job?;
        for round in 0..40 {
            job.fill(ctx, &ctx.stream, round)?;
            let plain = job.enqueue(ctx.team.context(), &ctx.stream)?;
            if (round as usize + i) % 13 == 3 * ctx.me() {
                ctx.pause(300);
            }
            job.check(ctx, &ctx.stream, round, plain.as_ref())?;
        }
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// Overwritten in stream order right behind the operation, without a look at the result first.
fn inputs_free_when_passed(ctx: &Ctx) -> Outcome {
    let n = 30_000;
    for op in [Op::OneShotOut, Op::TwoShotOut] {
        let job = Job::new(ctx, op, DType::I32, n, 0, ctx.seed)?;
        job.fill(ctx, &ctx.stream, 0)?;
        job.enqueue(ctx.team.context(), &ctx.stream)?;
        ctx.stream.fill(&job.handle.span(), 0xff)?;
        let inputs: Vec<_> = (0..ctx.n()).map(|pe| elements(DType::I32, ctx.seed, pe, n)).collect();
        let want = symm::oracle::sum(DType::I32, &inputs);
        job.out.check(&ctx.stream, &format!("{op:?}"), &want)?;
        ctx.stream.synchronize()?;
    }
    Ok(())
}

fn two_streams_on_one_context(ctx: &Ctx) -> Outcome {
    let streams = [ctx.world.stream()?, ctx.world.stream()?];
    let ops = [Op::TwoShot, Op::OneShotCopyOut, Op::TwoShotOut, Op::OneShotOut];
    let jobs = ops.map(|op| Job::new(ctx, op, DType::F64, 500, 0, ctx.seed));
    let jobs = jobs.into_iter().collect::<Result<Vec<_>, _>>()?;
    for round in 0..12 {
        for (i, job) in jobs.iter().enumerate() {
            job.fill(ctx, &streams[i % 2], round)?;
        }
        for (i, job) in jobs.iter().enumerate() {
            job.enqueue(ctx.team.context(), &streams[i % 2])?;
        }
        for (i, job) in jobs.iter().enumerate().rev() {
            job.check(ctx, &streams[i % 2], round, None)?;
        }
    }
    for stream in streams {
        stream.synchronize()?;
    }
    Ok(())
}

/// Two halves at once; ranks are not PEs.
fn sub_teams(ctx: &Ctx) -> Outcome {
    let n = ctx.n();
    let (low, high): (Vec<usize>, Vec<usize>) = ((0..n / 2).collect(), (n / 2..n).rev().collect());
    let mine = if ctx.me() < n / 2 { &low } else { &high };
    let sub = ctx.with(ctx.team_of(mine)?)?;
    for op in [Op::OneShot, Op::TwoShot, Op::TwoShotOut, Op::Scatter] {
        run(&sub, op, DType::F32, 60 * sub.n(), 1, ctx.seed)?;
    }
    sub.stream.synchronize()?;
    Ok(())
}

/// Reductions and pushes take turns on one context.
fn beside_other_operations(ctx: &Ctx) -> Outcome {
    let job = Job::new(ctx, Op::TwoShotOut, DType::F32, 900, 0, ctx.seed)?;
    let out = ctx.symmetric(DType::U8, 5 * ctx.n(), ctx.seed)?;
    let input = ctx.local(DType::U8, 5, ctx.seed)?;
    for round in 0..20 {
        job.fill(ctx, &ctx.stream, round)?;
        job.enqueue(ctx.team.context(), &ctx.stream)?;
        ctx.team.all_gather(&ctx.stream, &input.span, &out.handle, Options::default())?;
        ctx.team.barrier(&ctx.stream, Options::default())?;
        job.check(ctx, &ctx.stream, round, None)?;
    }
    let want: Vec<u8> = (0..ctx.n()).flat_map(|pe| input.poison_of(ctx.seed, pe)).collect();
    out.mem.check(&ctx.stream, "all_gather", &want)?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn random_rounds(ctx: &Ctx) -> Outcome {
    let mut r = Random::new(&[ctx.seed]);
    for round in 0..40 {
        let dtype = r.of(&DTYPES);
        let k = r.below(r.clone().of(&[4, 40, 1000]));
        let lead = 1 + r.below(5);
        let op = match r.below(8) {
            6 => Op::Scatter,
            7 => Op::ScatterLast(lead),
            i => Op::ALL_REDUCE[i],
        };
        let n = if op.scatters() { k * lead * ctx.n() } else { k };
        run(ctx, op, dtype, n, r.below(4), ctx.seed + 100 + round)?;
    }
    Ok(())
}

/// One block on a GPU, and as many as there are: the same bits.
fn one_block(ctx: &Ctx) -> Outcome {
    for (i, op) in Op::ALL_REDUCE.into_iter().chain([Op::Scatter, Op::ScatterLast(4)]).enumerate() {
        let mut job = Job::new(ctx, op, DTYPES[i % 6], 4 * ctx.n() * 250, 1, ctx.seed)?;
        for (round, max_blocks) in [Some(1), Some(3), None].into_iter().enumerate() {
            job.options.max_blocks = max_blocks;
            job.run(ctx, round as u64)?;
        }
    }
    Ok(())
}

/// Sizes at which GPUs change how elements travel: chunks of 1536 bytes, one block or several, one hop or two between 3 to 8 members,
/// pushed at once or not (a MiB).
fn around_every_limit(ctx: &Ctx) -> Outcome {
    let limits = [1536, 11 * 1536, 12 * 1536, 64 << 10, 80 << 10, 280 << 10, 600 << 10, 1 << 20];
    for (i, limit) in limits.into_iter().enumerate() {
        for (k, more) in [-1i64, 0, 1].into_iter().enumerate() {
            let turn = 3 * i + k;
            let dtype = DTYPES[turn % 6];
            let n = (limit as i64 / dtype.size() as i64 + more) as usize;
            run(ctx, Op::ALL_REDUCE[(turn / 2) % 6], dtype, n, turn % 4, ctx.seed + turn as u64)?;
        }
    }
    Ok(())
}

/// Neither inputs nor outputs begin where vectors do, nor equally far from there.
fn outputs_at_odd_places(ctx: &Ctx) -> Outcome {
    for (i, dtype) in DTYPES.into_iter().enumerate() {
        for n in [1, 5000] {
            let job = Job::new(
                ctx,
                [Op::OneShotOut, Op::TwoShotOut, Op::OneShotCopyOut][i % 3],
                dtype,
                n,
                i % 3,
                ctx.seed,
            )?;
            let inputs: Vec<_> = (0..ctx.n()).map(|pe| elements(dtype, ctx.seed, ctx.pe(pe), n)).collect();
            let out = ctx.local(dtype, n + 8, ctx.seed)?;
            for at in 0..3 {
                job.fill(ctx, &ctx.stream, 0)?;
                out.set(&ctx.stream, out.poison())?;
                let begin = at + ctx.me() % 5;
                job.enqueue_to(ctx, &out.span.slice(begin, n)?)?;
                let sums = symm::oracle::sum(dtype, &inputs);
                let mut want = out.poison().to_vec();
                want[begin * dtype.size()..][..sums.len()].copy_from_slice(&sums);
                same_sums(&format!("{n} {dtype} from {begin}"), dtype, &out.get(&ctx.stream)?, &want)?;
            }
        }
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// Large and small ones by turns, so that each finds what another size has left in the context.
fn sizes_take_turns(ctx: &Ctx) -> Outcome {
    let sizes = [1, 40_000, 3000, 300_000, 20, 9000];
    let jobs = sizes.into_iter().enumerate().map(|(i, n)| {
        let op = [Op::OneShotOut, Op::TwoShot, Op::OneShotCopyOut, Op::TwoShotOut][i % 4];
        Job::new(ctx, op, DTYPES[i], n, i % 2, ctx.seed)
    });
    let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
    for round in 0..4 {
        for job in &jobs {
            job.fill(ctx, &ctx.stream, round)?;
        }
        for job in &jobs {
            job.enqueue(ctx.team.context(), &ctx.stream)?;
        }
        for job in &jobs {
            job.check(ctx, &ctx.stream, round, None)?;
        }
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// Past every threshold for large amounts, and no multiple of anything; between two members the last amount, too, that GPUs push with
/// `SYMM_ALL_REDUCE_PUSH_PAIR` of 16 MiB, and the first that they do not.
fn large(ctx: &Ctx) -> Outcome {
    let (n, most) = ((3 << 20) / 2 + 13, 4 << 20);
    let ops = [(Op::OneShotCopyOut, n), (Op::TwoShot, n), (Op::TwoShotOut, n)];
    let of_two = [(Op::TwoShot, most), (Op::OneShotCopyOut, most + 1)];
    for (job, (op, n)) in ops.into_iter().chain(of_two.into_iter().filter(|_| ctx.n() == 2)).enumerate() {
        let x = ctx.symmetric(DType::I32, n, ctx.seed)?;
        let out = ctx.local(DType::I32, n, ctx.seed)?;
        // Other elements in each: what the one before left anywhere is wrong.
        let salt = (job as i32) << 25;
        let word = |rank: usize, i: usize| {
            (i as i32).wrapping_mul(0x9E37_79B1u32 as i32) ^ (rank as i32) << 20 ^ salt
        };
        let mine: Vec<i32> = (0..n).map(|i| word(ctx.me(), i)).collect();
        let o = Options::default();
        // SAFETY: the memory of `out`, which lives longer, as its own type.
        let local = unsafe { Span::from_raw(out.span.addr(), DType::I32, n) };
        if op == Op::OneShotCopyOut {
            ctx.stream.write(&local, &mine)?;
            ctx.team.one_shot_all_reduce_copy_out(&ctx.stream, &x.handle, &local, &out.span, o)?;
        } else {
            ctx.stream.write(&x.handle.span(), &mine)?;
            match op {
                Op::TwoShot => ctx.team.two_shot_all_reduce(&ctx.stream, &x.handle, o)?,
                _ => ctx.team.two_shot_all_reduce_out(&ctx.stream, &x.handle, &out.span, o)?,
            }
        }
        let sums = if op == Op::TwoShot { x.handle.span() } else { local };
        let got: Vec<i32> = ctx.stream.read(&sums)?;
        let want = |i| (0..ctx.n()).fold(0i32, |s, rank| s.wrapping_add(word(rank, i)));
        let mut wrong = (0..n).filter(|i| got[*i] != want(*i));
        let first = wrong.next();
        let more = wrong.clone().count();
        ensure_eq!(
            first,
            None,
            "{op:?} of {n}: first wrong element, {more} more, the last {:?}",
            wrong.next_back()
        );
        ctx.stream.synchronize()?;
    }
    Ok(())
}
