//! Operations whose input and splits change from call to call by copies in front of them, while the operation itself stays as it was
//! captured: called, then replayed from graphs, with every result compared.

use anyhow::Result;
use serde_json::{Value, json};
use symm::{
    AllToAllVdev, Capabilities, Cmp, DType, Handle, Local, Options, SignalOp, SignalUpdate, Stream, World,
    oracle,
};

use crate::Run;
use crate::dispatch::{Random, put};

/// What is run: all of them in turn.
const OPS: [&str; 8] = [
    "all_to_all_vdev",
    "all_to_all_vdev_2d",
    "all_to_all_vdev_2d_offset",
    "all_to_all",
    "all_gather",
    "broadcast",
    "put, put_signal, wait_signal",
    "put_with_signal, wait_until",
];

const SETS: usize = 6;
/// Bytes of a row.
const ROW: usize = 64;
/// Rows of a split at most.
const MOST: usize = 12;
/// Experts a PE.
const NE: usize = 3;
const ALIGN: usize = 4;
const POISON: u8 = 0xA5;
const SIGNAL: usize = 7;
const O: Options = Options { timeout: None, max_blocks: None };

/// Everybody's part of a call, and what comes of it: index = PE.
struct Draft {
    inputs: Vec<Vec<u8>>,
    splits: Vec<Vec<i64>>,
    outs: Vec<Vec<u8>>,
    results: Vec<Vec<i64>>,
}

impl Draft {
    /// The same on every PE.
    fn new(op: usize, w: usize, random: &mut Random) -> Self {
        let mut numbers =
            |n: usize| -> Vec<i64> { (0..n).map(|_| (random.next() % (MOST as u64 + 1)) as i64).collect() };
        let poison = i64::from_ne_bytes([POISON; 8]);
        let (mut splits, mut results) = (vec![vec![0]; w], vec![vec![poison]; w]);
        let (input_rows, out_rows) = match op {
            0 => {
                splits = (0..w).map(|_| numbers(w)).collect();
                (w * MOST, w * MOST)
            }
            1 => {
                splits = (0..w).map(|_| numbers(w * NE)).collect();
                (w * NE * MOST, NE * (w * MOST + ALIGN))
            }
            2 => {
                let starts: Vec<i64> = (0..NE * w).map(|i| (i * MOST) as i64).collect();
                splits = (0..w).map(|_| [numbers(NE * w), starts.clone()].concat()).collect();
                (w * NE * MOST, w * NE * MOST)
            }
            3 => (w * MOST, w * MOST),
            4 => (MOST, w * MOST),
            _ => (MOST, MOST),
        };
        let mut bytes = |rows: usize| -> Vec<u8> {
            (0..rows * ROW / 8).flat_map(|_| random.next().to_le_bytes()).collect()
        };
        let inputs: Vec<Vec<u8>> = (0..w).map(|_| bytes(input_rows)).collect();
        let mut outs = vec![vec![POISON; out_rows * ROW]; w];
        match op {
            0 => results = oracle::all_to_all_vdev(&inputs, &splits, ROW, &mut outs),
            1 => results = oracle::all_to_all_vdev_2d(&inputs, &splits, ROW, NE, ALIGN, &mut outs),
            2 => results = oracle::all_to_all_vdev_2d_offset(&inputs, &splits, ROW, NE, &mut outs),
            3 => oracle::all_to_all(&inputs, &mut outs),
            4 => oracle::all_gather(&inputs, &mut outs),
            5 => outs.fill(inputs[w - 1].clone()),
            // From the left neighbour.
            _ => (0..w).for_each(|pe| oracle::put(&mut outs, (pe + 1) % w, 0, &inputs[pe])),
        }
        Draft { inputs, splits, outs, results }
    }
}

/// This PE's part of a call.
struct Set {
    input: Local,
    splits: Local,
    want: Local,
    want_result: Local,
}

/// An operation with memory of its own, which stays the same.
struct Op {
    number: usize,
    input: Local,
    splits: Local,
    result: Local,
    out: Handle,
    sets: Vec<Set>,
}

impl Op {
    fn new(world: &World, stream: &Stream, number: usize) -> Result<Self> {
        let (me, w) = (world.pe().index(), world.n_pes());
        let mut random = Random(3000 + number as u64);
        let mut sets = Vec::new();
        for _ in 0..SETS {
            let draft = Draft::new(number, w, &mut random);
            sets.push(Set {
                input: put(world, stream, &draft.inputs[me])?,
                splits: put(world, stream, &draft.splits[me])?,
                want: put(world, stream, &draft.outs[me])?,
                want_result: put(world, stream, &draft.results[me])?,
            });
        }
        let first = &sets[0];
        Ok(Op {
            number,
            input: world.local(DType::U8, first.input.len())?,
            splits: world.local(DType::I64, first.splits.len())?,
            result: world.local(DType::I64, first.want_result.len())?,
            out: world.team().empty(&[first.want.len()], DType::U8)?.rendezvous(world.team())?,
            sets,
        })
    }

    /// Brings a set to where the operation takes it from.
    fn stage(&self, stream: &Stream, set: &Set) -> Result<()> {
        stream.copy(&self.input.span(), &set.input.span())?;
        Ok(stream.copy(&self.splits.span(), &set.splits.span())?)
    }

    /// Enqueues the operation.
    fn call(&self, world: &World, stream: &Stream) -> Result<()> {
        let (team, out) = (world.team(), &self.out);
        let (input, splits, result) = (self.input.span(), self.splits.span(), self.result.span());
        stream.fill(&out.span(), POISON)?;
        stream.fill(&result, POISON)?;
        let args = AllToAllVdev {
            input: &input,
            output: out,
            in_splits: &splits,
            out_splits_offsets: &result,
            row: ROW,
            options: O,
        };
        let (me, w) = (team.rank(), team.world_size());
        let (right, left) = ((me + 1) % w, (me + w - 1) % w);
        match self.number {
            0 => team.all_to_all_vdev(stream, &args)?,
            1 => team.all_to_all_vdev_2d(stream, &args, ALIGN)?,
            2 => team.all_to_all_vdev_2d_offset(stream, &args)?,
            3 => team.all_to_all(stream, &input, out, O)?,
            4 => team.all_gather(stream, &input, out, O)?,
            5 => {
                stream.copy(&out.span(), &input)?;
                team.broadcast(stream, out, w - 1, O)?;
            }
            6 => {
                // Nobody puts before the neighbour has compared what came last, and spoilt it.
                out.barrier(stream, 0, None)?;
                out.put(stream, right, 0, &input)?;
                out.put_signal(stream, right, 1, None)?;
                out.wait_signal(stream, left, 1, None)?;
            }
            _ => {
                let signal = |value| SignalUpdate { index: SIGNAL, op: SignalOp::Set, value };
                out.barrier(stream, 0, None)?;
                out.put_with_signal(stream, right, 0, &input, signal(1))?;
                out.wait_until(stream, SIGNAL, Cmp::Eq, 1, None)?;
                // Back to what it was, for the next replay, before whose barrier nobody signals.
                out.put_with_signal(stream, me, 0, &input.slice(0, 0)?, signal(0))?;
            }
        }
        Ok(())
    }

    fn check(&self, run: &Run<'_>, stream: &Stream, set: &Set, call: usize) -> Result<()> {
        run.checker.enqueue(stream, &self.out.span(), &set.want.span(), call as u64)?;
        run.checker.enqueue(stream, &self.result.span(), &set.want_result.span(), call as u64)
    }
}

pub(crate) fn run(run: &Run<'_>) -> Result<Value> {
    let world = run.world;
    let stream = world.stream()?;
    let ops = (0..OPS.len()).map(|op| Op::new(world, &stream, op)).collect::<Result<Vec<_>>>()?;
    run.checker.clear(&stream)?;
    let calls = run.rounds(200, 6) * OPS.len();
    for call in 0..calls {
        let op = &ops[call % OPS.len()];
        let set = &op.sets[(call * 5 + call / 7) % SETS];
        op.stage(&stream, set)?;
        op.call(world, &stream)?;
        op.check(run, &stream, set, call)?;
    }
    stream.synchronize()?;
    let mut replays = 0;
    if world.capabilities().contains(Capabilities::GRAPH) {
        let mut graphs = Vec::new();
        for op in &ops {
            stream.begin_capture()?;
            let captured = op.call(world, &stream);
            graphs.push(stream.end_capture()?);
            captured?;
        }
        replays = run.rounds(1000, 5) * OPS.len();
        for replay in 0..replays {
            // Every order of neighbours occurs.
            let which = (replay * replay / 2 + replay / 9) % OPS.len();
            let op = &ops[which];
            let set = &op.sets[(replay * 5 + replay / 11) % SETS];
            op.stage(&stream, set)?;
            // SAFETY: what was captured lives until the synchronisation below; all PEs launch in this order.
            unsafe { stream.launch(&graphs[which])? };
            op.check(run, &stream, set, calls + replay)?;
            if replay % 500 == 499 {
                stream.synchronize()?;
            }
        }
    } else {
        run.skips("graphs", "the backend has none")?;
    }
    run.checker.settle(&stream)?;
    Ok(json!({ "operations": OPS, "calls": calls, "replays": replays, "compared": run.checker.how() }))
}
