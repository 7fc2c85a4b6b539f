//! Barriers of handles and contexts; several operations in flight.

use symm::{Cmp, DType, Options, SignalOp, SignalUpdate, Stream};

use crate::harness::{Case, Ctx, Outcome, ensure_eq};
use crate::pattern::bytes;

pub(super) const CASES: &[Case] = &[
    Case::new("barrier::value_42_becomes_43", value_42_becomes_43),
    Case::new("barrier::handle_delivers_puts", handle_delivers_puts),
    Case::new("barrier::context_delivers_puts", context_delivers_puts),
    Case::new("barrier::nobody_passes_early", nobody_passes_early),
    Case::new("barrier::many_channels_interleaved", many_channels_interleaved),
    Case::new("barrier::apart_from_put_signal", apart_from_put_signal),
    Case::new("barrier::many_in_a_row", many_in_a_row),
    Case::new("barrier::two_contexts_on_two_streams", two_contexts_on_two_streams),
    Case::new("barrier::two_streams_on_one_context", two_streams_on_one_context),
    Case::new("barrier::a_stream_dropped_with_work", a_stream_dropped_with_work),
    Case::new("barrier::two_host_threads", two_host_threads),
];

/// Upstream: rank 0's 42 becomes 43 on the others.
fn value_42_becomes_43(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::I32, 1, ctx.seed)?;
    let value = ctx.local(DType::I32, 1, ctx.seed)?;
    value.set(&ctx.stream, &42i32.to_le_bytes())?;
    if ctx.me() == 0 {
        for rank in 0..ctx.n() {
            x.handle.put(&ctx.stream, rank, 0, &value.span)?;
        }
    }
    x.handle.barrier(&ctx.stream, 0, None)?;
    let got: Vec<i32> = ctx.stream.read(&x.mem.span)?;
    let mine = got[0] + i32::from(ctx.me() != 0);
    ensure_eq!(mine, if ctx.me() == 0 { 42 } else { 43 }, "the value here");
    ctx.stream.synchronize()?;
    Ok(())
}

/// Rounds of puts to everybody, a barrier without quiet, a comparison.
fn delivers(
    ctx: &Ctx,
    meet: impl Fn(&Stream, u64) -> symm::Result<()>,
    handle: &crate::harness::Symmetric,
) -> Outcome {
    let k = 333;
    let src = ctx.local(DType::U8, k, ctx.seed)?;
    for round in 0..40u64 {
        src.set(&ctx.stream, &bytes(round, ctx.me(), k))?;
        for rank in 0..ctx.n() {
            handle.handle.put(&ctx.stream, rank, k * ctx.me(), &src.span)?;
        }
        meet(&ctx.stream, round)?;
        let want: Vec<u8> = (0..ctx.n()).flat_map(|pe| bytes(round, pe, k)).collect();
        handle.mem.check(&ctx.stream, &format!("round {round}"), &want)?;
        meet(&ctx.stream, round)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn handle_delivers_puts(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 333 * ctx.n(), ctx.seed)?;
    delivers(ctx, |stream, round| x.handle.barrier(stream, round as usize % 5, None), &x)
}

fn context_delivers_puts(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 333 * ctx.n(), ctx.seed)?;
    delivers(ctx, |stream, _| ctx.team.barrier(stream, Options::default()), &x)
}

/// The last rank comes late and puts before it comes: whoever passed sees what it put.
fn nobody_passes_early(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 64, ctx.seed)?;
    let late = ctx.n() - 1;
    let src = ctx.local(DType::U8, 64, ctx.seed)?;
    src.set(&ctx.stream, &bytes(ctx.seed, late, 64))?;
    for round in 0..2 {
        if ctx.me() == late {
            ctx.pause(20_000);
            for rank in 0..ctx.n() {
                x.handle.put(&ctx.stream, rank, 0, &src.span)?;
            }
        }
        if round == 0 {
            x.handle.barrier(&ctx.stream, 1, None)?;
        } else {
            ctx.team.barrier(&ctx.stream, Options::default())?;
        }
        x.mem.check(&ctx.stream, "what the late one put", &bytes(ctx.seed, late, 64))?;
        x.handle.barrier(&ctx.stream, 0, None)?;
        x.mem.set(&ctx.stream, x.mem.poison())?;
        x.handle.barrier(&ctx.stream, 0, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// Each channel on a stream of its own, begun in another order on each PE, some channels more often than others.
fn many_channels_interleaved(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 16, ctx.seed)?;
    let channels = [0, 1, 2, 3, 5, 8, 13, 21, 34, x.handle.pad_layout().channels - 1];
    let streams = channels.iter().map(|_| ctx.world.stream()).collect::<symm::Result<Vec<_>>>()?;
    for round in 0..6 {
        for step in 0..channels.len() {
            let i = (step * 3 + ctx.me() * 7 + round) % channels.len();
            for _ in 0..=i % 3 {
                x.handle.barrier(&streams[i], channels[i], None)?;
            }
        }
    }
    for stream in streams.iter().rev() {
        stream.synchronize()?;
    }
    Ok(())
}

/// A pending put_signal is no arrival, and a barrier consumes none (upstream 2.15 mixes them up on multicast).
fn apart_from_put_signal(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 16, ctx.seed)?;
    for rank in 0..ctx.n() {
        x.handle.put_signal(&ctx.stream, rank, 3, None)?;
    }
    for _ in 0..3 {
        x.handle.barrier(&ctx.stream, 3, None)?;
    }
    let slots: Vec<u32> = ctx.stream.read(&x.handle.get_signal_pad(ctx.me(), &[], DType::U32, 0)?)?;
    let w = ctx.n();
    let want: Vec<u32> = (0..slots.len()).map(|i| u32::from((3 * w..4 * w).contains(&i))).collect();
    ensure_eq!(slots, want, "slots while signals are pending on channel 3");
    for rank in 0..ctx.n() {
        x.handle.wait_signal(&ctx.stream, rank, 3, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn many_in_a_row(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 16, ctx.seed)?;
    for _ in 0..300 {
        x.handle.barrier(&ctx.stream, 0, None)?;
        ctx.team.barrier(&ctx.stream, Options::default())?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// Operations of two contexts, begun in opposite orders by odd and even PEs, on a stream each.
fn two_contexts_on_two_streams(ctx: &Ctx) -> Outcome {
    let contexts = [ctx.team.context().clone(), ctx.team.new_context(4 * ctx.n())?];
    ensure_eq!(contexts[1].max_splits(), 4 * ctx.n(), "max_splits of the second");
    let streams = [ctx.world.stream()?, ctx.world.stream()?];
    let k = 40;
    let outs = [0, 1].map(|i| ctx.symmetric(DType::U32, k * ctx.n(), ctx.seed + i));
    let ins = [0, 1].map(|i| ctx.local(DType::U32, k * ctx.n(), ctx.seed + 10 + i));
    let mut pairs = Vec::new();
    for (out, input) in outs.into_iter().zip(ins) {
        pairs.push((out?, input?));
    }
    ctx.stream.synchronize()?;
    for round in 0..10u64 {
        let first = ctx.me() % 2;
        for i in [first, 1 - first] {
            let (out, input) = &pairs[i];
            input.set(&streams[i], &bytes(round + 50 * i as u64, ctx.me(), input.bytes()))?;
            contexts[i].all_to_all(&streams[i], &input.span, &out.handle, Options::default())?;
        }
        for i in [0, 1] {
            let (out, input) = &pairs[i];
            let inputs: Vec<_> =
                (0..ctx.n()).map(|pe| bytes(round + 50 * i as u64, pe, input.bytes())).collect();
            let mut want: Vec<Vec<u8>> = vec![vec![0; out.mem.bytes()]; ctx.n()];
            symm::oracle::all_to_all(&inputs, &mut want);
            out.mem.check(&streams[i], &format!("context {i}, round {round}"), &want[ctx.me()])?;
        }
        // Nobody overwrites an output that is still being compared: the next arrival comes after it in the stream.
    }
    streams.iter().try_for_each(Stream::synchronize)?;
    Ok(())
}

/// One operation of a context is in flight; the next waits for it, whatever its stream.
fn two_streams_on_one_context(ctx: &Ctx) -> Outcome {
    let streams = [ctx.world.stream()?, ctx.world.stream()?];
    let k = 25;
    let out = [
        ctx.symmetric(DType::U16, k * ctx.n(), ctx.seed)?,
        ctx.symmetric(DType::U16, k * ctx.n(), ctx.seed + 1)?,
    ];
    let input = [ctx.local(DType::U16, k, ctx.seed)?, ctx.local(DType::U16, k, ctx.seed)?];
    ctx.stream.synchronize()?;
    for round in 0..20u64 {
        for i in [0, 1] {
            input[i].set(&streams[i], &bytes(2 * round + i as u64, ctx.me(), 2 * k))?;
            ctx.team.all_gather(&streams[i], &input[i].span, &out[i].handle, Options::default())?;
        }
        for i in [1, 0] {
            let want: Vec<u8> = (0..ctx.n()).flat_map(|pe| bytes(2 * round + i as u64, pe, 2 * k)).collect();
            out[i].mem.check(&streams[i], &format!("stream {i}, round {round}"), &want)?;
        }
    }
    streams.iter().try_for_each(Stream::synchronize)?;
    Ok(())
}

/// Dropping a stream never blocks and loses nothing that was enqueued.
fn a_stream_dropped_with_work(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 16, ctx.seed)?;
    let src = ctx.local(DType::U8, 16, ctx.seed)?;
    src.set(&ctx.stream, &bytes(ctx.seed, ctx.me(), 16))?;
    ctx.stream.synchronize()?;
    let other = ctx.world.stream()?;
    x.handle.barrier(&other, 0, None)?;
    let signal = SignalUpdate { index: 0, op: SignalOp::Set, value: 1 };
    x.handle.put_with_signal(&other, ctx.right(), 0, &src.span, signal)?;
    drop(other);
    x.handle.wait_until(&ctx.stream, 0, Cmp::Eq, 1, None)?;
    x.mem.check(&ctx.stream, "x", &bytes(ctx.seed, ctx.left(), 16))?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// Upstream: two host threads, a stream each.
fn two_host_threads(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 16, ctx.seed)?;
    let ring = |channel: usize| -> symm::Result<()> {
        let stream = ctx.world.stream()?;
        for _ in 0..30 {
            x.handle.put_signal(&stream, ctx.right(), channel, None)?;
            x.handle.wait_signal(&stream, ctx.left(), channel, None)?;
            x.handle.barrier(&stream, channel, None)?;
        }
        stream.synchronize()
    };
    std::thread::scope(|s| {
        let other = s.spawn(|| ring(1));
        let mine = ring(0);
        let panicked = symm::Error::Bootstrap { call: "thread", why: "panicked".into() };
        other.join().unwrap_or(Err(panicked)).and(mine)
    })?;
    ctx.stream.synchronize()?;
    Ok(())
}
