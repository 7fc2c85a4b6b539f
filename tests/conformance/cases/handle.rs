//! What a handle shows of memory, and what it refuses.

use symm::{DType, Error, SignalOp, SignalUpdate, Span};

use crate::harness::{Case, Ctx, Outcome, ensure, ensure_eq, ensure_err};

pub(super) const CASES: &[Case] = &[
    Case::new("handle::two_in_one_segment", two_in_one_segment),
    Case::new("handle::accessors", accessors),
    Case::new("handle::get_buffer_shapes", get_buffer_shapes),
    Case::new("handle::get_signal_pad_shapes", get_signal_pad_shapes),
    Case::new("handle::range_and_rank_errors", range_and_rank_errors),
    Case::new("handle::local_copies", local_copies),
];

fn signal(index: usize, op: SignalOp, value: u64) -> SignalUpdate {
    SignalUpdate { index, op, value }
}

fn two_in_one_segment(ctx: &Ctx) -> Outcome {
    let both = ctx.team.empty(&[2048], DType::F32)?;
    let (a, b) = (both.view(0, &[1024])?, both.view(1024, &[1024])?);
    let (a, b) = (a.rendezvous(&ctx.team)?, b.rendezvous(&ctx.team)?);
    ensure_eq!((a.offset(), b.offset()), (0, 4096), "offsets in bytes");
    ensure_eq!((a.buffer_size(), b.buffer_size()), (8192, 8192), "the allocation's size");
    ensure_eq!(a.buffer_ptrs(), b.buffer_ptrs(), "allocation bases");
    // Two allocations beside each other never overlap.
    let (c, d) = (ctx.team.empty(&[1024], DType::F32)?, ctx.team.empty(&[1024], DType::F32)?);
    let (c, d) = (c.rendezvous(&ctx.team)?, d.rendezvous(&ctx.team)?);
    for (c, d) in c.buffer_ptrs().iter().zip(d.buffer_ptrs()) {
        if let (Some(c), Some(d)) = (c, d) {
            ensure!(c.0.abs_diff(d.0) >= 4096, "allocations at {c:?} and {d:?} overlap");
        }
    }
    Ok(())
}

fn accessors(ctx: &Ctx) -> Outcome {
    let tensor = ctx.team.empty(&[3, 5], DType::I16)?;
    ensure_eq!((tensor.sizes(), tensor.dtype(), tensor.len()), (&[3, 5][..], DType::I16, 15), "tensor");
    let h = tensor.rendezvous(&ctx.team)?;
    ensure_eq!((h.rank(), h.world_size()), (ctx.me(), ctx.n()), "rank and world_size");
    ensure_eq!((h.len(), h.dtype(), h.buffer_size(), h.offset()), (15, DType::I16, 30, 0), "shape");
    ensure_eq!(h.buffer_ptrs().len(), ctx.n(), "buffer pointers");
    ensure_eq!(h.signal_pad_size(), ctx.world.config().signal_pad_bytes, "signal pad size");
    ensure_eq!(h.pad_layout().channels, 9216 / 4 / ctx.n(), "channels");
    ensure_eq!(h.buffer_ptrs()[ctx.me()], Some(tensor.span().addr()), "my own pointer");
    ensure_eq!(h.span().addr(), tensor.span().addr(), "my span");
    let device = h.device_ptrs();
    for (name, at, host) in
        [("buffers", device.buffers, h.buffer_ptrs()), ("pads", device.pads, h.signal_pad_ptrs())]
    {
        // SAFETY: the handle is alive and its array has W addresses.
        let array = unsafe { Span::from_raw(at, DType::U64, ctx.n()) };
        let array: Vec<u64> = ctx.stream.read(&array)?;
        let want: Vec<u64> = host.iter().map(|p| p.map_or(0, |a| a.0)).collect();
        ensure_eq!(array, want, "{name} as kernels see them");
    }
    // SAFETY: as above.
    let members = unsafe { Span::from_raw(device.members, DType::U64, ctx.n()) };
    let pes: Vec<u64> = (0..ctx.n()).filter_map(|r| h.pe(r)).map(|pe| u64::from(pe.0)).collect();
    ensure_eq!(ctx.stream.read::<u64>(&members)?, pes, "members as kernels see them");
    // SAFETY: the handle is alive, and so is its team's record, which begins with the code.
    let code = unsafe { Span::from_raw(device.status, DType::U64, 1) };
    ensure_eq!(ctx.stream.read::<u64>(&code)?, [0], "the status as kernels see it");
    let given = h.kernel_handle();
    ensure_eq!(
        (given.buffers, given.pads),
        (device.buffers.0, device.pads.0),
        "tables of the kernel's handle"
    );
    ensure_eq!(
        (given.rank, given.ranks),
        (ctx.me() as u64, ctx.n() as u64),
        "rank and ranks of the kernel's handle"
    );
    ensure_eq!(tensor.view(2, &[3])?.rendezvous(&ctx.team)?.kernel_handle().offset, 4, "a view's offset");
    // Cached: the second rendezvous communicates nothing, so one PE alone may call it.
    if ctx.me() == 0 {
        ensure_eq!(tensor.rendezvous(&ctx.team)?.buffer_ptrs(), h.buffer_ptrs(), "the cached handle");
    }
    Ok(())
}

fn get_buffer_shapes(ctx: &Ctx) -> Outcome {
    let tensor = ctx.team.empty(&[64], DType::F32)?;
    let view = tensor.view(16, &[32])?;
    let h = view.rendezvous(&ctx.team)?;
    let me = ctx.me();
    let base = tensor.span().addr();
    // get_buffer counts from the allocation, get_remote_tensor from the view.
    ensure_eq!(h.get_buffer(me, &[64], DType::F32, 0)?.addr(), base, "get_buffer");
    ensure_eq!(h.get_buffer(me, &[2, 4], DType::F32, 8)?.addr(), base.offset(32), "get_buffer at element 8");
    ensure_eq!(h.get_buffer(me, &[128], DType::F16, 0)?.len(), 128, "get_buffer of another type");
    ensure_eq!(h.get_remote_tensor(me, &[48], DType::F32)?.addr(), base.offset(64), "get_remote_tensor");
    ensure_err!(h.get_buffer(me, &[65], DType::F32, 0), Error::InvalidArgument { argument: "range", .. });
    ensure_err!(h.get_buffer(me, &[64], DType::F32, 1), Error::InvalidArgument { argument: "range", .. });
    ensure_err!(h.get_buffer(me, &[33], DType::F64, 0), Error::InvalidArgument { argument: "range", .. });
    ensure_err!(
        h.get_buffer(me, &[1], DType::U8, usize::MAX),
        Error::InvalidArgument { argument: "range", .. }
    );
    ensure_err!(
        h.get_buffer(me, &[usize::MAX, 2], DType::U8, 0),
        Error::InvalidArgument { argument: "sizes", .. }
    );
    ensure_err!(h.get_remote_tensor(me, &[49], DType::F32), Error::InvalidArgument { argument: "range", .. });
    for rank in [ctx.n(), usize::MAX] {
        ensure_err!(h.get_buffer(rank, &[1], DType::F32, 0), Error::InvalidArgument { argument: "rank", .. });
        ensure_err!(
            h.get_remote_tensor(rank, &[1], DType::F32),
            Error::InvalidArgument { argument: "rank", .. }
        );
    }
    ensure_eq!(h.get_buffer(me, &[0], DType::F32, 64)?.len(), 0, "nothing at the end is inside");
    Ok(())
}

fn get_signal_pad_shapes(ctx: &Ctx) -> Outcome {
    let h = ctx.team.empty(&[8], DType::U8)?.rendezvous(&ctx.team)?;
    let (me, bytes) = (ctx.me(), h.signal_pad_size());
    let whole = h.get_signal_pad(me, &[], DType::F64, 0)?;
    ensure_eq!((whole.len(), whole.dtype()), (bytes / 4, DType::U32), "the whole pad is u32");
    ensure_eq!(Some(whole.addr()), h.signal_pad_ptrs()[me], "its address");
    let part = h.get_signal_pad(me, &[2, 2], DType::U64, 3)?;
    ensure_eq!((part.len(), part.addr()), (4, whole.addr().offset(24)), "a part");
    let last = h.get_signal_pad(me, &[1], DType::U32, bytes / 4 - 1)?;
    ensure_eq!(last.addr(), whole.addr().offset(bytes - 4), "the last slot");
    ensure_err!(
        h.get_signal_pad(me, &[1], DType::U32, bytes / 4),
        Error::InvalidArgument { argument: "range", .. }
    );
    ensure_err!(
        h.get_signal_pad(me, &[bytes + 1], DType::U8, 0),
        Error::InvalidArgument { argument: "range", .. }
    );
    ensure_err!(
        h.get_signal_pad(ctx.n(), &[], DType::U32, 0),
        Error::InvalidArgument { argument: "rank", .. }
    );
    Ok(())
}

fn range_and_rank_errors(ctx: &Ctx) -> Outcome {
    let x = ctx.team.empty(&[16], DType::F32)?.rendezvous(&ctx.team)?;
    let m = ctx.local(DType::F32, 17, ctx.seed)?;
    let one = m.span.slice(0, 1)?;
    let stream = &ctx.stream;
    for rank in [ctx.n(), usize::MAX] {
        ensure_err!(x.put(stream, rank, 0, &one), Error::InvalidArgument { op: "put", argument: "rank", .. });
        ensure_err!(x.get(stream, rank, 0, &one), Error::InvalidArgument { op: "get", argument: "rank", .. });
        let refused = x.put_with_signal(stream, rank, 0, &one, signal(0, SignalOp::Set, 1));
        ensure_err!(refused, Error::InvalidArgument { op: "put_with_signal", argument: "rank", .. });
    }
    for start in [16, 1 << 40, usize::MAX] {
        ensure_err!(x.put(stream, 0, start, &one), Error::InvalidArgument { argument: "range", .. });
        ensure_err!(x.get(stream, 0, start, &one), Error::InvalidArgument { argument: "range", .. });
    }
    ensure_err!(x.put(stream, 0, 0, &m.span), Error::InvalidArgument { argument: "range", .. });
    let refused = x.put_with_signal(stream, 0, 0, &one, signal(512, SignalOp::Add, 1));
    ensure_err!(refused, Error::InvalidArgument { op: "put_with_signal", argument: "signal", .. });
    ensure_err!(m.span.slice(17, 1), Error::InvalidArgument { op: "slice", .. });
    ensure_err!(ctx.stream.write(&one, &[1.0f64]), Error::InvalidArgument { op: "write", .. });
    ensure_err!(ctx.stream.read::<u32>(&one), Error::InvalidArgument { op: "read", .. });
    ensure_err!(ctx.team.empty(&[usize::MAX, 2], DType::U8), Error::InvalidArgument { op: "empty", .. });
    // Refused here, so nothing is set on the team.
    ctx.team.status()?;
    stream.synchronize()?;
    Ok(())
}

fn local_copies(ctx: &Ctx) -> Outcome {
    let a = ctx.local(DType::U8, 10_001, ctx.seed)?;
    let b = ctx.local(DType::U8, 10_001, ctx.seed + 1)?;
    ctx.stream.copy(&b.span, &a.span)?;
    b.check(&ctx.stream, "copy", a.poison())?;
    ctx.stream.fill(&b.span.slice(1, 9999)?, 0x3c)?;
    let mut want = a.poison().to_vec();
    want[1..10_000].fill(0x3c);
    b.check(&ctx.stream, "fill", &want)?;
    a.check(&ctx.stream, "source", a.poison())?;
    let overlap = ctx.stream.copy(&a.span.slice(0, 100)?, &a.span.slice(99, 100)?);
    ensure_err!(overlap, Error::InvalidArgument { op: "copy", .. });
    ensure_err!(ctx.stream.copy(&a.span, &b.span.slice(0, 5)?), Error::InvalidArgument { op: "copy", .. });
    ctx.stream.synchronize()?;
    Ok(())
}
