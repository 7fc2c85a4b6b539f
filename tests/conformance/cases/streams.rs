//! Streams of others, each as its users pass it; and set-ups while a stream is being captured.

use std::ffi::c_void;

use symm::{Backend, Capabilities, Cmp, DType, Error, Options, SignalOp, SignalUpdate, Stream};

use crate::harness::{Case, Ctx, Outcome, ensure_eq, ensure_err};

pub(super) const CASES: &[Case] = &[
    Case::new("streams::legacy_default", legacy_default),
    Case::new("streams::per_thread_default", per_thread_default),
    Case::new("streams::of_cudarc", of_cudarc),
    Case::new("streams::set_up_during_a_capture", set_up_during_a_capture).needs(Capabilities::GRAPH),
];

/// The stream with this number; `None` where the backend has no streams of others, and says so.
fn numbered(ctx: &Ctx, number: usize) -> Outcome<Option<Stream>> {
    let raw: *mut c_void = std::ptr::without_provenance_mut(number);
    // SAFETY: a number that the driver has for a stream of every context, or a live stream of the caller's.
    let made = unsafe { ctx.world.stream_from_raw(raw) };
    if ctx.world.backend().name() == "host" {
        ensure_err!(made, Error::Unsupported { capability: "stream_from_raw", .. });
        return Ok(None);
    }
    Ok(Some(made?))
}

/// Something of every kind, in the order of one stream.
fn works(ctx: &Ctx, stream: &Stream) -> Outcome {
    let (me, w) = (ctx.me(), ctx.n());
    let x = ctx.symmetric(DType::I32, 64 * w, ctx.seed)?;
    let out = ctx.symmetric(DType::I32, 64 * w, ctx.seed + 1)?;
    let mine = ctx.world.local(DType::I32, 64)?;
    let all = ctx.world.local(DType::I32, 64 * w)?;
    for round in 1..=3 {
        let value = |rank: usize| (round * 100 + rank) as i32;
        stream.write(&mine.span(), &[value(me); 64])?;
        let signal = SignalUpdate { index: 0, op: SignalOp::Set, value: round as u64 };
        x.handle.put_with_signal(stream, ctx.right(), 64 * me, &mine.span(), signal)?;
        x.handle.wait_until(stream, 0, Cmp::Eq, round as u64, None)?;
        let left = ctx.left();
        let got: Vec<i32> = stream.read(&x.handle.span().slice(64 * left, 64)?)?;
        ensure_eq!(got, vec![value(left); 64], "round {round}: what the left neighbour put");
        x.handle.put_signal(stream, ctx.right(), 1, None)?;
        x.handle.wait_signal(stream, left, 1, None)?;
        ctx.team.all_gather(stream, &mine.span(), &out.handle, Options::default())?;
        stream.copy(&all.span(), &out.handle.span())?;
        let got: Vec<i32> = stream.read(&all.span())?;
        let want: Vec<i32> = (0..w).flat_map(|rank| [value(rank); 64]).collect();
        ensure_eq!(got, want, "round {round}: all_gather");
        x.handle.barrier(stream, 2, None)?;
    }
    stream.synchronize()?;
    Ok(())
}

fn legacy_default(ctx: &Ctx) -> Outcome {
    match numbered(ctx, 0)? {
        Some(stream) => works(ctx, &stream),
        None => Ok(()),
    }
}

/// Its name means another stream on another thread, so it is refused there.
fn per_thread_default(ctx: &Ctx) -> Outcome {
    let Some(stream) = numbered(ctx, 2)? else { return Ok(()) };
    works(ctx, &stream)?;
    let elsewhere = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let x = ctx.world.local(DType::U8, 64)?;
            stream.fill(&x.span(), 1)
        });
        other.join().expect("no panic")
    });
    ensure_err!(elsewhere, Error::InvalidArgument { argument: "stream", .. });
    // What is dropped there waits for what this thread's stream still does.
    let x = ctx.symmetric(DType::U8, 1 << 20, ctx.seed + 2)?;
    let row = ctx.world.local(DType::U8, 1 << 20)?;
    stream.fill(&row.span(), 7)?;
    x.handle.put(&stream, ctx.right(), 0, &row.span())?;
    std::thread::scope(|scope| scope.spawn(move || drop(row)).join().expect("no panic"));
    x.handle.barrier(&stream, 0, None)?;
    let got: Vec<u8> = stream.read(&x.handle.span())?;
    ensure_eq!(got, vec![7; 1 << 20], "a put whose source was dropped on another thread");
    works(ctx, &stream)
}

#[cfg(not(feature = "cuda"))]
fn of_cudarc(ctx: &Ctx) -> Outcome {
    numbered(ctx, 0).map(drop)
}

#[cfg(feature = "cuda")]
fn of_cudarc(ctx: &Ctx) -> Outcome {
    use crate::harness::Stop;
    use cudarc::driver::{CudaContext, sys};
    if ctx.world.backend().name() == "host" {
        return numbered(ctx, 0).map(drop);
    }
    let mut device = 0;
    // SAFETY: a valid place; the world's context is current on the thread that opened it.
    let asked = unsafe { sys::cuCtxGetDevice(&raw mut device) };
    ensure_eq!(asked, sys::CUresult::CUDA_SUCCESS, "cuCtxGetDevice");
    let ordinal = usize::try_from(device).map_err(Stop::fail)?;
    let context = CudaContext::new(ordinal).map_err(Stop::fail)?;
    for theirs in [context.new_stream().map_err(Stop::fail)?, context.default_stream()] {
        if let Some(stream) = numbered(ctx, theirs.cu_stream().expose_provenance())? {
            works(ctx, &stream)?;
        }
    }
    Ok(())
}

/// A rendezvous, a team and a context that are made while a stream of this PE is being captured: nobody waits, and the capture has
/// what was given to its stream.
fn set_up_during_a_capture(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    let captured = ctx.world.stream()?;
    let mine = ctx.world.local(DType::I32, 8)?;
    ctx.stream.write(&mine.span(), &[ctx.me() as i32; 8])?;
    let before = ctx.symmetric(DType::I32, 8 * w, ctx.seed)?;
    captured.begin_capture()?;
    before.handle.barrier(&captured, 0, None)?;
    let team = ctx.another_team()?;
    let context = team.new_context(64)?;
    let out = ctx.symmetric_over(&team, DType::I32, 8 * w, ctx.seed + 1)?;
    context.all_gather(&captured, &mine.span(), &out.handle, Options::default())?;
    out.handle.barrier(&captured, 1, None)?;
    // Eager work goes on beside it.
    before.handle.barrier(&ctx.stream, 1, None)?;
    ctx.stream.synchronize()?;
    let graph = captured.end_capture()?;
    for _ in 0..2 {
        ctx.stream.fill(&out.handle.span(), 0xEE)?;
        ctx.stream.synchronize()?;
        ctx.meet()?;
        // SAFETY: what was captured lives until the synchronisation below; members replay one graph only.
        unsafe { captured.launch(&graph)? };
        captured.synchronize()?;
        let got: Vec<i32> = ctx.stream.read(&out.handle.span())?;
        let want: Vec<i32> = (0..w).flat_map(|rank| [rank as i32; 8]).collect();
        ensure_eq!(got, want, "what the replay gathered");
        ctx.meet()?;
    }
    Ok(())
}
