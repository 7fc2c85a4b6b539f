//! Workload: 100,000 calls of all_to_all_vdev_2d, 256 tokens each, splits that change from call to call, every word
//! compared, padding and what lies behind the rows included. Once with few splits and short rows, once in DeepSeek V3's shape.

use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};
use symm::{AllToAllVdev, DType, Element, Handle, Local, Options, Stream, World, oracle};

use crate::Run;

const CALLS: usize = 100_000;
const TOKENS: usize = 256;
const ALIGN: usize = 8;
const POISON: u8 = 0xA5;

/// What is dispatched.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Experts that each token goes to.
    top_k: usize,
    /// Experts a PE.
    ne: usize,
    /// Bytes of a row.
    row: usize,
    /// Different sets of splits and rows.
    sets: usize,
}

/// Short rows to few experts: the way of few splits.
const SHORT: Shape = Shape { top_k: 2, ne: 8, row: 1024, sets: 16 };

impl Shape {
    /// DeepSeek V3: hidden 7168 in bf16, top-8 of 256 experts (as many a PE, rounded up): the way of many splits. `small`: with rows
    /// that a host compares quickly.
    fn v3(pes: usize, small: bool) -> Self {
        Shape { top_k: 8, ne: 256usize.div_ceil(pes), row: if small { 64 } else { 2 * 7168 }, sets: 7 }
    }

    /// Everybody's splits, index `d·ne + e`: each token's experts differ.
    fn splits(&self, pes: usize, random: &mut Random) -> Vec<Vec<i64>> {
        let experts = pes * self.ne;
        let one = |_| {
            let mut counts = vec![0i64; experts];
            for _ in 0..TOKENS {
                let mut chosen = Vec::with_capacity(self.top_k);
                while chosen.len() < self.top_k {
                    let expert = random.next() as usize % experts;
                    if !chosen.contains(&expert) {
                        chosen.push(expert);
                        counts[expert] += 1;
                    }
                }
            }
            counts
        };
        (0..pes).map(one).collect()
    }

    /// Rows that a PE receives at most, padding included.
    fn received(&self, pes: usize, splits: &[Vec<i64>]) -> usize {
        let expert = |index: usize| {
            let rows: i64 = splits.iter().map(|counts| counts[index]).sum();
            (rows as usize).next_multiple_of(ALIGN).max(ALIGN)
        };
        let of = |pe: usize| (0..self.ne).map(|e| expert(pe * self.ne + e)).sum();
        (0..pes).map(of).max().unwrap_or(0)
    }
}

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
    row: usize,
    pub(crate) input: Local,
    pub(crate) splits: Local,
    pub(crate) result: Local,
    pub(crate) want: Local,
    pub(crate) want_result: Local,
}

/// Bytes of the output of short rows: room for all rows of all PEs.
pub(crate) fn capacity(pes: usize) -> usize {
    (pes * TOKENS * SHORT.top_k + SHORT.ne * ALIGN) * SHORT.row
}

/// Values in memory of the stream.
pub(crate) fn put<T: Element>(world: &World, stream: &Stream, values: &[T]) -> Result<Local> {
    let local = world.local(T::DTYPE, values.len())?;
    stream.write(&local.span(), values)?;
    Ok(local)
}

impl Set {
    /// Short rows. The same on every PE but for which part of it is kept.
    pub(crate) fn new(world: &World, stream: &Stream, seed: u64) -> Result<Self> {
        let mut random = Random(seed);
        let splits = SHORT.splits(world.n_pes(), &mut random);
        Set::of(world, stream, SHORT, splits, capacity(world.n_pes()), random)
    }

    fn of(
        world: &World,
        stream: &Stream,
        shape: Shape,
        splits: Vec<Vec<i64>>,
        capacity: usize,
        mut random: Random,
    ) -> Result<Self> {
        let (me, pes) = (world.pe().index(), world.n_pes());
        let words = TOKENS * shape.top_k * shape.row / 8;
        let inputs: Vec<Vec<u8>> =
            (0..pes).map(|_| (0..words).flat_map(|_| random.next().to_le_bytes()).collect()).collect();
        let mut outs = vec![vec![POISON; capacity]; pes];
        let results = oracle::all_to_all_vdev_2d(&inputs, &splits, shape.row, shape.ne, ALIGN, &mut outs);
        Ok(Set {
            row: shape.row,
            input: put(world, stream, &inputs[me])?,
            splits: put(world, stream, &splits[me])?,
            result: world.local(DType::I64, 2 * pes * shape.ne)?,
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
            row: self.row,
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

pub(crate) fn short_rows(run: &Run<'_>) -> Result<Value> {
    calls(run, SHORT, run.rounds(CALLS, 100))
}

pub(crate) fn v3(run: &Run<'_>) -> Result<Value> {
    calls(run, Shape::v3(run.world.n_pes(), run.small), run.rounds(CALLS, 12))
}

fn calls(run: &Run<'_>, shape: Shape, calls: usize) -> Result<Value> {
    let world = run.world;
    let (stream, pes) = (world.stream()?, world.n_pes());
    let mut drafts = Vec::new();
    for i in 0..shape.sets {
        let mut random = Random(1000 + i as u64);
        drafts.push((shape.splits(pes, &mut random), random));
    }
    // Some rows lie behind all that is received.
    let most = drafts.iter().map(|(splits, _)| shape.received(pes, splits)).max().unwrap_or(0);
    let capacity = (most + 2 * ALIGN) * shape.row;
    let output = world.team().empty(&[capacity], DType::U8)?.rendezvous(world.team())?;
    let sets: Vec<Set> = drafts
        .into_iter()
        .map(|(splits, random)| Set::of(world, &stream, shape, splits, capacity, random))
        .collect::<Result<_>>()?;
    run.checker.clear(&stream)?;
    stream.synchronize()?;
    let began = Instant::now();
    for call in 0..calls {
        // Neighbours differ, so that a row which a call failed to move shows.
        let set = &sets[(call * 5 + call / sets.len()) % sets.len()];
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
        "top_k": shape.top_k,
        "experts": shape.ne * pes,
        "row_bytes": shape.row,
        "sets": sets.len(),
        "words_compared": words,
        "compared": run.checker.how(),
        "us_a_call_with_poison_and_comparison": us,
    }))
}
