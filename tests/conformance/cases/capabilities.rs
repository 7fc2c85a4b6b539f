//! What the backend says it can do, against the table of this suite and against what it does.

use symm::{Backend, Capabilities, DType, Error, Options, Pe, Reach};

use crate::harness::{Case, Ctx, Outcome, Stop, ensure, ensure_eq, ensure_err, expected};

pub(super) const CASES: &[Case] = &[
    Case::new("capabilities::as_listed", as_listed),
    Case::new("capabilities::reach", reach),
    Case::new("capabilities::unsupported_capture", unsupported_capture),
    Case::new("capabilities::multimem", multimem),
    Case::new("capabilities::graph_replay", graph_replay).needs(Capabilities::GRAPH),
    Case::new("capabilities::graph_never_replayed", graph_never_replayed).needs(Capabilities::GRAPH),
];

fn as_listed(ctx: &Ctx) -> Outcome {
    let config = ctx.world.config();
    let backend = ctx.world.backend();
    ensure_eq!(backend.name(), config.backend, "the backend that SYMM_BACKEND names");
    ensure!(backend.why().contains(&config.backend), "the reason does not name it: {}", backend.why());
    let mut want = expected::capabilities(backend.name(), config.host_nodes);
    let direct = expected::peer_load_store(ctx.me(), ctx.n(), config.host_nodes);
    want.set(Capabilities::PEER_LOAD_STORE, direct);
    // Depend on the machine, not on the backend alone.
    let has = ctx.world.capabilities() - Capabilities::MULTICAST - Capabilities::DEVICE_INITIATED;
    ensure_eq!(has, want, "capabilities");
    Ok(())
}

fn reach(ctx: &Ctx) -> Outcome {
    let nodes = ctx.world.config().host_nodes;
    let x = ctx.symmetric(DType::F32, 8, ctx.seed)?;
    let (handle, stream) = (&x.handle, &ctx.stream);
    for rank in 0..ctx.n() {
        let want = expected::direct(ctx.me(), rank, ctx.n(), nodes);
        let reach = if want { Reach::Direct } else { Reach::Network };
        ensure_eq!(ctx.world.reach(Pe::from(rank)), reach, "reach of PE {rank}");
        ensure_eq!(handle.is_direct(rank)?, want, "is_direct({rank})");
        ensure_eq!(handle.buffer_ptrs()[rank].is_some(), want, "buffer pointer of rank {rank}");
        ensure_eq!(handle.signal_pad_ptrs()[rank].is_some(), want, "pad pointer of rank {rank}");
        let tensor = handle.get_remote_tensor(rank, &[8], DType::F32);
        let pad = handle.get_signal_pad(rank, &[], DType::U32, 0);
        if want {
            let remote: Vec<f32> = stream.read(&tensor?)?;
            ensure_eq!(remote.len(), 8, "elements");
            let slots: Vec<u32> = stream.read(&pad?)?;
            ensure!(slots.iter().all(|s| *s == 0), "an idle pad is not zero: {slots:?}");
        } else {
            ensure_err!(tensor, Error::Unsupported { capability: "get_remote_tensor", .. });
            ensure_err!(pad, Error::Unsupported { capability: "get_signal_pad", .. });
        }
    }
    ensure_err!(handle.is_direct(ctx.n()), Error::InvalidArgument { argument: "rank", .. });
    Ok(())
}

fn unsupported_capture(ctx: &Ctx) -> Outcome {
    if ctx.has(Capabilities::GRAPH) {
        ctx.stream.begin_capture()?;
        ctx.stream.end_capture()?;
    } else {
        ensure_err!(ctx.stream.begin_capture(), Error::Unsupported { capability: "GRAPH", .. });
    }
    // Either way the stream works on.
    let x = ctx.symmetric(DType::U8, 4, ctx.seed)?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// Without multicast every operation on it says so on every rank, and what does the same; the team goes on.
fn multimem(ctx: &Ctx) -> Outcome {
    if ctx.has(Capabilities::MULTICAST) {
        return Err(Stop::skip("the backend has multicast"));
    }
    let x = ctx.symmetric(DType::F32, 8 * ctx.n(), ctx.seed)?;
    let local = ctx.local(DType::F32, 8 * ctx.n(), ctx.seed)?;
    ensure!(x.handle.multicast_ptr().is_none(), "an address without the capability");
    let (s, h, out, o) = (&ctx.stream, &x.handle, &local.span, Options::default());
    let c = ctx.team.context();
    let calls: [(&str, symm::Result<()>); 6] = [
        ("two_shot_all_reduce", c.multimem_all_reduce(s, h, o)),
        ("one_shot_all_reduce", c.multimem_one_shot_all_reduce(s, h, o).map(drop)),
        ("one_shot_all_reduce", c.multimem_one_shot_all_reduce_out(s, h, out, o)),
        ("tile_reduce", c.multimem_one_shot_reduce_out(s, h, 0, out, o)),
        ("all_gather", c.multimem_all_gather_out(s, &out.slice(0, 8)?, h, o)),
        ("put", h.memcpy_to_multicast(s, out, 0)),
    ];
    let off = ctx.world.config().disable_multicast;
    for (instead, got) in calls {
        let said =
            |why: &str| if off { why.contains("SYMM_DISABLE_MULTICAST") } else { why.contains(instead) };
        ensure_err!(got, Error::Unsupported { capability: "MULTICAST", why, .. } if said(why));
    }
    ensure_eq!(ctx.team.status(), Ok(()), "status");
    ctx.team.barrier(&ctx.stream, o)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// Upstream: two forked streams with a put/wait ring, replayed 4 times; the pad is all zero afterwards.
fn graph_replay(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 64, ctx.seed)?;
    ctx.stream.begin_capture()?;
    x.handle.put_signal(&ctx.stream, ctx.right(), 0, None)?;
    x.handle.wait_signal(&ctx.stream, ctx.left(), 0, None)?;
    x.handle.barrier(&ctx.stream, 5, None)?;
    let graph = ctx.stream.end_capture()?;
    for _ in 0..4 {
        // SAFETY: `x` outlives the synchronisation below; members replay one graph only.
        unsafe { ctx.stream.launch(&graph)? };
    }
    ctx.stream.synchronize()?;
    let slots: Vec<u32> = ctx.stream.read(&x.handle.get_signal_pad(ctx.me(), &[], DType::U32, 0)?)?;
    ensure!(slots.iter().all(|s| *s == 0), "the pad is not zero after the replays");
    Ok(())
}

fn graph_never_replayed(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 64, ctx.seed)?;
    ctx.stream.begin_capture()?;
    x.handle.barrier(&ctx.stream, 5, None)?;
    ctx.stream.end_capture()?;
    x.handle.barrier(&ctx.stream, 5, None)?;
    ctx.stream.synchronize()?;
    Ok(())
}
