//! Graphs: three of them on one buffer, and those that another library captures.

use anyhow::Result;
use serde_json::{Value, json};
use symm::{Capabilities, DType};

use crate::Run;
use crate::dispatch::{Set, capacity};

/// Three graphs, each a call with its own splits and rows, all into one output, replayed in turn.
pub(crate) fn three_on_one_buffer(run: &Run<'_>) -> Result<Value> {
    let world = run.world;
    if !world.capabilities().contains(Capabilities::GRAPH) {
        let why = "the backend has no graphs";
        run.skips("graphs", why)?;
        return Ok(json!({ "replays": 0, "why": why }));
    }
    let stream = world.stream()?;
    let output = world.team().empty(&[capacity(world.n_pes())], DType::U8)?.rendezvous(world.team())?;
    let sets = (0..3).map(|i| Set::new(world, &stream, 70 + i)).collect::<Result<Vec<_>>>()?;
    let mut graphs = Vec::new();
    for set in &sets {
        stream.begin_capture()?;
        let captured = set.call(world, &stream, &output);
        graphs.push(stream.end_capture()?);
        captured?;
    }
    run.checker.clear(&stream)?;
    let replays = run.rounds(3000, 30);
    for replay in 0..replays {
        // Every order of neighbours occurs.
        let which = (replay * replay / 2 + replay / 9) % 3;
        // SAFETY: the graph keeps what it uses, nothing in it was made from a raw address; all PEs launch in this order.
        unsafe { stream.launch(&graphs[which])? };
        sets[which].check(run, &stream, &output, replay as u64)?;
        if replay % 500 == 499 {
            stream.synchronize()?;
        }
    }
    run.checker.settle(&stream)?;
    Ok(json!({ "graphs": graphs.len(), "replays": replays, "compared": run.checker.how() }))
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn foreign_stream(run: &Run<'_>) -> Result<Value> {
    let why = "this build has no GPU backend";
    run.skips("foreign", why)?;
    Ok(json!({ "replays": 0, "why": why }))
}

#[cfg(feature = "cuda")]
pub(crate) use cuda::foreign_stream;

#[cfg(feature = "cuda")]
mod cuda {
    use std::time::{Duration, Instant};

    use anyhow::{Result, ensure};
    use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUstream, CUstreamCaptureMode};
    use serde_json::{Value, json};
    use symm::{Backend, DType, Span};

    use crate::Run;
    use crate::check::{bytes, check};
    use crate::dispatch::{Set, capacity};

    /// Captures calls on a stream of the driver's own, with the driver's own capture in its strictest mode, drops every
    /// handle and tensor, and launches: the graph alone keeps the memory, and gives it back when it goes.
    pub(crate) fn foreign_stream(run: &Run<'_>) -> Result<Value> {
        let world = run.world;
        if world.backend().name() != "cuda" {
            let why = "the backend has no streams of others";
            run.skips("foreign", why)?;
            return Ok(json!({ "replays": 0, "why": why }));
        }
        let own = world.stream()?;
        let retired = world.retired();
        let mut raw: CUstream = std::ptr::null_mut();
        // SAFETY: a valid place; a context is current on the thread that opened the world.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut raw, 1) })?;
        // SAFETY: a live stream of the primary context, destroyed below after the last clone is dropped.
        let stream = unsafe { world.stream_from_raw(raw.cast())? };
        let set = Set::new(world, &own, 4711)?;
        let output = world.team().empty(&[capacity(world.n_pes())], DType::U8)?.rendezvous(world.team())?;
        run.checker.clear(&own)?;
        own.synchronize()?;

        // Eager first.
        set.call(world, &stream, &output)?;
        set.check(run, &stream, &output, 0)?;
        run.checker.settle(&stream)?;

        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: the stream is live and idle.
        check("cuStreamBeginCapture_v2", unsafe { sys::cuStreamBeginCapture_v2(raw, mode) })?;
        set.call(world, &stream, &output)?;
        // What this library does beside a capture does not end it.
        let beside = world.local(DType::U8, 1 << 20)?;
        let other = world.stream()?;
        drop((beside, other));
        let mut graph: CUgraph = std::ptr::null_mut();
        // SAFETY: the stream is live, `graph` a valid place.
        check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(raw, &raw mut graph) })?;
        let mut exec: CUgraphExec = std::ptr::null_mut();
        // SAFETY: the graph is live, `exec` a valid place.
        check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) })?;
        // SAFETY: the executable graph has its own copy.
        check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph) })?;

        // SAFETY: the graph keeps the memory of the output until it is destroyed, below.
        let seen = unsafe { Span::from_raw(output.span().addr(), DType::U8, output.span().bytes()) };
        let want: Vec<u8> = bytes(&own, &set.want.span())?;
        drop((output, set));
        for _ in 0..3 {
            world.team().reclaim()?;
        }
        // Whatever was given back is taken and spoilt.
        let spoilt: Vec<_> = (0..4)
            .map(|_| world.team().empty(&[capacity(world.n_pes())], DType::U8))
            .collect::<Result<_, _>>()?;
        for tensor in &spoilt {
            own.fill(&tensor.span(), 0xFF)?;
        }
        own.synchronize()?;
        world.team().barrier(&own, symm::Options::default())?;
        own.synchronize()?;
        let replays = run.rounds(200, 3);
        for replay in 0..replays {
            own.fill(&seen, 0)?;
            own.synchronize()?;
            // SAFETY: both are live; the graph keeps what it uses.
            check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(exec, raw) })?;
            stream.synchronize()?;
            ensure!(bytes(&own, &seen)? == want, "replay {replay} of a graph that another library captured");
        }
        drop(spoilt);
        // SAFETY: no launch is left.
        check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(exec) })?;
        drop(stream);
        // SAFETY: nobody has it any more.
        check("cuStreamDestroy_v2", unsafe { sys::cuStreamDestroy_v2(raw) })?;
        // The driver tells of the end on a thread of its own.
        let began = Instant::now();
        let mut rounds = 0;
        loop {
            world.team().reclaim()?;
            rounds += 1;
            // Reclaiming is collective, so all members make the same number of rounds.
            if rounds >= 20 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let left = world.retired();
        ensure!(
            left <= retired,
            "{left} allocations are still held {:?} after the graph went",
            began.elapsed()
        );
        Ok(json!({ "replays": replays }))
    }
}
