//! Every collective against its oracle.

use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};
use symm_core::Backend;
use symm_core::dtype::DType;
use symm_core::model::{AllToAllVdev, Handle, Options};
use symm_core::oracle;

use crate::pe::{Me, Random, same};

const POISON: u8 = 0xEE;

/// A case, the same on every PE.
pub(crate) struct Case {
    pub(crate) row: usize,
    pub(crate) splits: Vec<Vec<i64>>,
    pub(crate) inputs: Vec<Vec<u8>>,
}

impl Case {
    pub(crate) fn new(w: usize, splits_each: usize, k: usize, row: usize, seed: u64) -> Self {
        let draw = |rank: usize| {
            let mut random = Random(seed + rank as u64);
            // Some experts get nothing.
            (0..splits_each)
                .map(|_| if random.below(5) == 0 { 0 } else { random.below(k + 1) as i64 })
                .collect()
        };
        let splits: Vec<Vec<i64>> = (0..w).map(draw).collect();
        let rows = |s: &Vec<i64>| s.iter().sum::<i64>() as usize;
        let inputs = splits
            .iter()
            .enumerate()
            .map(|(r, s)| Random(seed * 77 + r as u64).bytes(rows(s) * row))
            .collect();
        Case { row, splits, inputs }
    }
}

pub(crate) fn run<B: Backend>(me: &Me<B>, figures: &mut Map<String, Value>) -> Result<()> {
    let w = me.n();
    let out = me.symmetric(48 << 20)?;
    let mut checked = 0;
    for ne in [1, 8, 16, 40] {
        for align in [1, 8, 16] {
            for row in [1, 2, 14, 16, 20, 14336] {
                // Odd starts: input and output skewed by different bytes.
                for skew in [0, 3] {
                    let k = if row > 1000 { 12 } else { 200 };
                    let case = Case::new(w, w * ne, k, row, 42);
                    dispatch_and_combine(me, &out, &case, (ne, align, skew))?;
                    checked += 2;
                }
            }
        }
    }
    for row in [1, 6, 16, 4096] {
        let case = Case::new(w, w, 300, row, 7);
        one_dimensional(me, &out, &case)?;
        equal_blocks(me, &out, row * 37)?;
        checked += 3;
    }
    large_team_of_columns(me, &out)?;
    figures.insert("oracle_checks".to_owned(), json!(checked + 1));
    Ok(())
}

fn args<'a, B: Backend>(
    input: &'a symm_core::model::Span<B>,
    output: &'a Handle<B>,
    splits: &'a symm_core::model::Span<B>,
    result: &'a symm_core::model::Span<B>,
    row: usize,
) -> AllToAllVdev<'a, B> {
    AllToAllVdev {
        input,
        output,
        in_splits: splits,
        out_splits_offsets: result,
        row,
        options: Options::default(),
    }
}

/// Dispatch against the oracle, then combine of its result against its oracle (and so back to the input).
fn dispatch_and_combine<B: Backend>(
    me: &Me<B>,
    out: &Handle<B>,
    case: &Case,
    (ne, align, skew): (usize, usize, usize),
) -> Result<()> {
    let (w, r, s, row) = (me.n(), me.pe(), &me.stream, case.row);
    let what = format!("ne {ne}, align {align}, row {row}, skew {skew}");
    let mine = &case.inputs[r];
    let source = me.world.local(DType::U8, mine.len() + 16)?;
    let input = source.span().slice(skew, mine.len())?;
    s.write(&input, mine)?;
    let splits = me.local(&case.splits[r])?;
    let result = me.local(&vec![-1i64; 2 * w * ne])?;
    let total: usize = case.splits.iter().flatten().sum::<i64>() as usize;
    let bytes = (total + ne * align) * row;
    let area = out.span().slice(0, bytes)?;
    s.fill(&area, POISON)?;
    me.world.team().context().all_to_all_vdev_2d(
        s,
        &args(&input, out, &splits.span(), &result.span(), row),
        align,
    )?;
    s.synchronize()?;

    let mut outs = vec![vec![POISON; bytes]; w];
    let results = oracle::all_to_all_vdev_2d(&case.inputs, &case.splits, row, ne, align, &mut outs);
    let got: Vec<i64> = s.read(&result.span())?;
    ensure!(got == results[r], "dispatch {what}: splits and offsets\n{got:?}, expected\n{:?}", results[r]);
    same(&format!("dispatch {what}"), &s.read::<u8>(&area)?, &outs[r])?;

    // Combine: what was received, from where it lies, back to where it came from.
    let received = me.world.local(DType::U8, bytes + 16)?;
    let from = received.span().slice(skew, bytes)?;
    s.copy(&from, &area)?;
    let back = me.local(&vec![-1i64; 2 * w * ne])?;
    s.fill(&area, POISON)?;
    me.world
        .team()
        .context()
        .all_to_all_vdev_2d_offset(s, &args(&from, out, &result.span(), &back.span(), row))?;
    s.synchronize()?;
    let mut home = vec![vec![POISON; bytes]; w];
    let results = oracle::all_to_all_vdev_2d_offset(&outs, &results, row, ne, &mut home);
    let got: Vec<i64> = s.read(&back.span())?;
    ensure!(got == results[r], "combine {what}: splits and offsets\n{got:?}, expected\n{:?}", results[r]);
    same(&format!("combine {what}"), &s.read::<u8>(&area)?, &home[r])?;
    same(&format!("there and back {what}"), &s.read::<u8>(&area.slice(0, mine.len())?)?, mine)
}

fn one_dimensional<B: Backend>(me: &Me<B>, out: &Handle<B>, case: &Case) -> Result<()> {
    let (w, r, s, row) = (me.n(), me.pe(), &me.stream, case.row);
    let input = me.local(&case.inputs[r])?;
    let splits = me.local(&case.splits[r])?;
    let result = me.local(&vec![-1i64; 2 * w])?;
    let bytes = case.splits.iter().flatten().sum::<i64>() as usize * row;
    let area = out.span().slice(0, bytes)?;
    s.fill(&area, POISON)?;
    me.world
        .team()
        .context()
        .all_to_all_vdev(s, &args(&input.span(), out, &splits.span(), &result.span(), row))?;
    s.synchronize()?;
    let mut outs = vec![vec![POISON; bytes]; w];
    let results = oracle::all_to_all_vdev(&case.inputs, &case.splits, row, &mut outs);
    let got: Vec<i64> = s.read(&result.span())?;
    ensure!(got == results[r], "vdev row {row}: {got:?}, expected {:?}", results[r]);
    same(&format!("vdev row {row}"), &s.read::<u8>(&area)?, &outs[r])
}

fn equal_blocks<B: Backend>(me: &Me<B>, out: &Handle<B>, block: usize) -> Result<()> {
    let (w, r, s) = (me.n(), me.pe(), &me.stream);
    let inputs: Vec<Vec<u8>> = (0..w).map(|p| Random(900 + p as u64).bytes(block * w)).collect();
    let input = me.local(&inputs[r])?;
    let area = out.span().slice(0, block * w * w)?;
    let context = me.world.team().context();
    s.fill(&area, POISON)?;
    context.all_gather(s, &input.span(), out, Options::default())?;
    s.synchronize()?;
    let mut outs = vec![vec![POISON; block * w * w]; w];
    oracle::all_gather(&inputs, &mut outs);
    same(&format!("all_gather of {}", block * w), &s.read::<u8>(&area)?, &outs[r])?;
    s.fill(&area, POISON)?;
    context.all_to_all(s, &input.span(), out, Options::default())?;
    s.synchronize()?;
    let mut outs = vec![vec![POISON; block * w * w]; w];
    oracle::all_to_all(&inputs, &mut outs);
    same(&format!("all_to_all of {block}"), &s.read::<u8>(&area)?, &outs[r])
}

/// More columns than one tile of the kernel holds, and few blocks, in a context of its own.
fn large_team_of_columns<B: Backend>(me: &Me<B>, out: &Handle<B>) -> Result<()> {
    let (w, r, s) = (me.n(), me.pe(), &me.stream);
    let ne = 1500;
    let context = me.world.team().new_context(w * ne)?;
    for max_blocks in [None, Some(1), Some(3)] {
        let case = Case::new(w, w * ne, 9, 10, 1234);
        let input = me.local(&case.inputs[r])?;
        let splits = me.local(&case.splits[r])?;
        let result = me.local(&vec![-1i64; 2 * w * ne])?;
        let total: usize = case.splits.iter().flatten().sum::<i64>() as usize;
        let bytes = (total + ne * 4) * case.row;
        let area = out.span().slice(0, bytes)?;
        s.fill(&area, POISON)?;
        let (spans, options) =
            ((splits.span(), result.span(), input.span()), Options { max_blocks, ..Options::default() });
        let args = AllToAllVdev { options, ..args(&spans.2, out, &spans.0, &spans.1, case.row) };
        context.all_to_all_vdev_2d(s, &args, 4)?;
        s.synchronize()?;
        let mut outs = vec![vec![POISON; bytes]; w];
        let results = oracle::all_to_all_vdev_2d(&case.inputs, &case.splits, case.row, ne, 4, &mut outs);
        let got: Vec<i64> = s.read(&result.span())?;
        ensure!(got == results[r], "{ne} experts, {max_blocks:?} blocks: splits and offsets differ");
        same(&format!("{ne} experts, {max_blocks:?} blocks"), &s.read::<u8>(&area)?, &outs[r])?;
    }
    Ok(())
}
