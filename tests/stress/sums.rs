//! Reductions and operations that take, again and again: called, and replayed from graphs, with inputs that change from call to
//! call; every result compared with the oracle's.

use anyhow::Result;
use serde_json::{Value, json};
use symm::{
    AllToAllNd, Capabilities, DType, Handle, Local, Options, ReduceOp, ReduceScatterOffset, Span, Stream,
    World, oracle,
};

use crate::Run;
use crate::dispatch::{Random, put};

/// Elements of a buffer for each PE.
const BLOCK: usize = 1500;
const SETS: usize = 8;
const CALLS: usize = 20_000;
const O: Options = Options { timeout: None, max_blocks: None };

/// What is run: all of them in turn.
const OPS: [&str; 7] = [
    "one_shot_all_reduce_out",
    "two_shot_all_reduce_out",
    "two_shot_all_reduce",
    "reduce_scatter",
    "all_to_all_nd",
    "reduce_scatter_offset",
    "low_contention_reduce_scatter",
];

/// Inputs of all PEs, and what each operation makes of them here.
struct Set {
    input: Local,
    /// In the order of [`OPS`].
    want: Vec<Local>,
}

impl Set {
    fn new(world: &World, stream: &Stream, seed: u64) -> Result<Self> {
        let (me, w) = (world.pe().index(), world.n_pes());
        let mut random = Random(seed);
        // Numbers whose sums round, so that an order that is not the ranks' shows.
        let mut number = || (random.next() % 4001) as f32 * 0.37 - 700.0;
        let inputs: Vec<Vec<u8>> =
            (0..w).map(|_| (0..BLOCK * w).flat_map(|_| number().to_le_bytes()).collect()).collect();
        let sum = oracle::sum(DType::F32, &inputs);
        let block = oracle::reduce_scatter(DType::F32, 1, &inputs).swap_remove(me);
        let columns = oracle::all_to_all_nd(&inputs, (BLOCK, w), 4, 1).swap_remove(me);
        let wants = [&sum, &sum, &sum, &block, &columns, &block, &block];
        let want = wants.into_iter().map(|bytes| put(world, stream, bytes)).collect::<Result<_>>()?;
        Ok(Set { input: put(world, stream, &inputs[me])?, want })
    }
}

struct Buffers {
    buffer: Handle,
    /// Copied to the buffer at the start of every call, so that graphs see what changes.
    staging: Local,
    out: Local,
}

/// `span` as bytes.
fn as_bytes(span: &Span) -> Span {
    // SAFETY: the same memory, which the buffers keep until after the last stream has been synchronised.
    unsafe { Span::from_raw(span.addr(), DType::U8, span.bytes()) }
}

impl Buffers {
    fn new(world: &World) -> Result<Self> {
        let n = BLOCK * world.n_pes();
        let buffer = world.team().empty(&[n], DType::F32)?.rendezvous(world.team())?;
        Ok(Buffers { buffer, staging: world.local(DType::F32, n)?, out: world.local(DType::F32, n)? })
    }

    /// What an operation writes here.
    fn result(&self, op: usize, w: usize) -> Result<Span> {
        Ok(match OPS[op] {
            "two_shot_all_reduce" => self.buffer.span(),
            "one_shot_all_reduce_out" | "two_shot_all_reduce_out" | "all_to_all_nd" => self.out.span(),
            _ => self.out.span().slice(0, self.out.len() / w)?,
        })
    }

    fn call(&self, world: &World, stream: &Stream, op: usize) -> Result<()> {
        let (team, w, input) = (world.team(), world.n_pes(), &self.buffer);
        stream.copy(&input.span(), &self.staging.span())?;
        let out = self.result(op, w)?;
        match OPS[op] {
            "one_shot_all_reduce_out" => team.one_shot_all_reduce_out(stream, input, &out, O)?,
            "two_shot_all_reduce_out" => team.two_shot_all_reduce_out(stream, input, &out, O)?,
            "two_shot_all_reduce" => team.two_shot_all_reduce(stream, input, O)?,
            "reduce_scatter" => team.reduce_scatter(stream, input, &out, O)?,
            "all_to_all_nd" => {
                let args = AllToAllNd {
                    input,
                    out: &out,
                    rows: BLOCK,
                    cols: w,
                    scatter_dim: 1,
                    gather_dim: 0,
                    options: O,
                };
                team.all_to_all_nd(stream, &args)?;
            }
            "reduce_scatter_offset" => {
                let args = ReduceScatterOffset {
                    input,
                    rows: w,
                    cols: BLOCK,
                    row_stride: BLOCK,
                    dim: 0,
                    offsets: None,
                    dst_ranks: None,
                    out: &[&out],
                    options: O,
                };
                team.reduce_scatter_offset(stream, &args)?;
            }
            _ => team.low_contention_reduce_scatter(stream, input, &out, ReduceOp::Sum, O)?,
        }
        Ok(())
    }
}

pub(crate) fn run(run: &Run<'_>) -> Result<Value> {
    let world = run.world;
    let stream = world.stream()?;
    let sets = (0..SETS).map(|i| Set::new(world, &stream, 500 + i as u64)).collect::<Result<Vec<_>>>()?;
    let buffers = Buffers::new(world)?;
    run.checker.clear(&stream)?;
    let calls = run.rounds(CALLS, 140);
    let ahead = |set: &Set| stream.copy(&as_bytes(&buffers.staging.span()), &set.input.span());
    let check = |op: usize, set: &Set, call: usize| {
        let got = as_bytes(&buffers.result(op, world.n_pes())?);
        run.checker.enqueue(&stream, &got, &set.want[op].span(), call as u64)
    };
    for call in 0..calls {
        let (op, set) = (call % OPS.len(), &sets[(call * 3 + call / 11) % SETS]);
        ahead(set)?;
        buffers.call(world, &stream, op)?;
        check(op, set, call)?;
        if call % 500 == 499 {
            stream.synchronize()?;
        }
    }
    let mut replays = 0;
    if world.capabilities().contains(Capabilities::GRAPH) {
        let mut graphs = Vec::new();
        for op in 0..OPS.len() {
            stream.begin_capture()?;
            let captured = buffers.call(world, &stream, op);
            graphs.push(stream.end_capture()?);
            captured?;
        }
        replays = run.rounds(1000 * OPS.len(), 5 * OPS.len());
        for replay in 0..replays {
            // Every order of neighbours occurs.
            let op = (replay * replay / 2 + replay / 9) % OPS.len();
            let set = &sets[(replay * 5 + replay / 7) % SETS];
            ahead(set)?;
            // SAFETY: what was captured lives until the synchronisation below; all PEs launch in this order.
            unsafe { stream.launch(&graphs[op])? };
            check(op, set, calls + replay)?;
            if replay % 500 == 499 {
                stream.synchronize()?;
            }
        }
        stream.synchronize()?;
    } else {
        run.skips("graphs", "the backend has none")?;
    }
    run.checker.settle(&stream)?;
    Ok(json!({ "operations": OPS, "calls": calls, "replays": replays, "compared": run.checker.how() }))
}
