//! Workload: 100,000 calls of all_to_all_vdev_2d, 256 tokens each, splits that change from call to call, every word
//! compared, padding and what lies behind the rows included.

use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};
use symm::{AllToAllVdev, DType, Element, Handle, Local, Options, Stream, World, oracle};

use crate::Run;

const CALLS: usize = 100_000;
const TOKENS: usize = 256;
const TOP_K: usize = 2;
/// Experts a PE.
const NE: usize = 8;
const ALIGN: usize = 8;
/// Bytes of a row.
const ROW: usize = 1024;
const POISON: u8 = 0xA5;
/// Different sets of splits and rows.
const SETS: usize = 16;

/// A stream of numbers that look random (SplitMix64), the same on every PE.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// One set of splits and rows, in the memory of the stream, with what must come of them here.
pub(crate) struct Set {
    pub(crate) input: Local,
    pub(crate) splits: Local,
    pub(crate) result: Local,
    pub(crate) want: Local,
    pub(crate) want_result: Local,
}

/// Bytes of the output: room for all rows of all PEs.
pub(crate) fn capacity(pes: usize) -> usize {
    (pes * TOKENS * TOP_K + NE * ALIGN) * ROW
}

fn put<T: Element>(world: &World, stream: &Stream, values: &[T]) -> Result<Local> {
    let local = world.local(T::DTYPE, values.len())?;
    stream.write(&local.span(), values)?;
    Ok(local)
}

impl Set {
    /// The same on every PE but for which part of it is kept.
    pub(crate) fn new(world: &World, stream: &Stream, seed: u64) -> Result<Self> {
        let (me, pes) = (world.pe().index(), world.n_pes());
        let mut random = Random(seed);
        let (mut splits, mut inputs) = (Vec::new(), Vec::new());
        for _ in 0..pes {
            let mut counts = vec![0i64; pes * NE];
            for _ in 0..TOKENS * TOP_K {
                let expert = random.next() as usize % counts.len();
                counts[expert] += 1;
            }
            splits.push(counts);
            let rows = (0..TOKENS * TOP_K * ROW / 8).flat_map(|_| random.next().to_le_bytes()).collect();
            inputs.push(rows);
        }
        let mut outs = vec![vec![POISON; capacity(pes)]; pes];
        let results = oracle::all_to_all_vdev_2d(&inputs, &splits, ROW, NE, ALIGN, &mut outs);
        Ok(Set {
            input: put(world, stream, &inputs[me])?,
            splits: put(world, stream, &splits[me])?,
            result: world.local(DType::I64, 2 * pes * NE)?,
            want: put(world, stream, &outs[me])?,
            want_result: put(world, stream, &results[me])?,
        })
    }

    /// Poisons the output and enqueues the call.
    pub(crate) fn call(&self, world: &World, stream: &Stream, output: &Handle) -> Result<()> {
        stream.fill(&output.span(), POISON)?;
        let (input, splits, result) = (self.input.span(), self.splits.span(), self.result.span());
        stream.fill(&result, POISON)?;
        let args = AllToAllVdev {
            input: &input,
            output,
            in_splits: &splits,
            out_splits_offsets: &result,
            row: ROW,
            options: Options::default(),
        };
        Ok(world.team().all_to_all_vdev_2d(stream, &args, ALIGN)?)
    }

    /// Enqueues the comparison of everything that the call should have left.
    pub(crate) fn check(&self, run: &Run<'_>, stream: &Stream, output: &Handle, call: u64) -> Result<()> {
        run.checker.enqueue(stream, &output.span(), &self.want.span(), call)?;
        run.checker.enqueue(stream, &self.result.span(), &self.want_result.span(), call)
    }
}

pub(crate) fn run(run: &Run<'_>) -> Result<Value> {
    let world = run.world;
    let stream = world.stream()?;
    let calls = run.rounds(CALLS, 100);
    let output = world.team().empty(&[capacity(world.n_pes())], DType::U8)?.rendezvous(world.team())?;
    let sets = (0..SETS).map(|i| Set::new(world, &stream, 1000 + i as u64)).collect::<Result<Vec<_>>>()?;
    run.checker.clear(&stream)?;
    stream.synchronize()?;
    let began = Instant::now();
    for call in 0..calls {
        // Neighbours differ, so that a row which a call failed to move shows.
        let set = &sets[(call * 5 + call / SETS) % SETS];
        set.call(world, &stream, &output)?;
        set.check(run, &stream, &output, call as u64)?;
        // A failure ends the run soon, and the queue stays short.
        if call % 1000 == 999 {
            stream.synchronize()?;
        }
    }
    run.checker.settle(&stream)?;
    let us = began.elapsed().as_secs_f64() * 1e6 / calls as f64;
    let words = calls * (output.span().bytes() + sets[0].result.span().bytes()) / 8;
    Ok(json!({
        "calls": calls,
        "tokens": TOKENS,
        "words_compared": words,
        "compared": run.checker.how(),
        "us_a_call_with_poison_and_comparison": us,
    }))
}
