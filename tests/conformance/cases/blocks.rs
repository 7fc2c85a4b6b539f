//! Exchanges with fewer blocks than members, and with a number that does not divide them: every block then has several peers' rows.

use symm::{DType, Options};

use super::vdev::{Job, splits};
use crate::harness::{Case, Ctx, Outcome, ensure_eq};
use crate::pattern::bytes;

pub(super) const CASES: &[Case] = &[
    Case::new("blocks::vdev", vdev).pes(2),
    Case::new("blocks::dispatch_then_combine", dispatch_then_combine).pes(2),
    Case::new("blocks::all_to_all", all_to_all).pes(2),
    Case::new("blocks::another_number_on_each_pe", another_number_on_each_pe).pes(2),
];

const FEW: [u32; 2] = [1, 3];

/// Rows of some bytes, and of some KiB, which several warps share.
const ROWS: [(DType, usize); 2] = [(DType::U8, 5), (DType::BF16, 1500)];

fn vdev(ctx: &Ctx) -> Outcome {
    for (blocks, (dtype, row)) in FEW.into_iter().flat_map(|b| ROWS.map(|r| (b, r))) {
        let all = splits(ctx.n(), ctx.n(), 40);
        Job::vdev(dtype, row, all, ctx.seed + u64::from(blocks) + row as u64).run_with_blocks(ctx, blocks)?;
    }
    Ok(())
}

/// The combine takes rows from where the dispatch has put them, so its offsets are out of order.
fn dispatch_then_combine(ctx: &Ctx) -> Outcome {
    let (ne, w) = (3, ctx.n());
    for (blocks, row) in FEW.into_iter().flat_map(|b| ROWS.map(|r| (b, r))) {
        let seed = ctx.seed + 100 * u64::from(blocks) + row.1 as u64;
        let there = Job::dispatch(row, (ne, 8), splits(w, ne * w, 20), seed);
        let run = there.run_with_blocks(ctx, blocks)?;
        let in_rows = there.out_rows.iter().copied().max().unwrap_or(0);
        Job::combine(row, ne, run.results, vec![in_rows; w], seed + 10).run_with_blocks(ctx, blocks)?;
    }
    Ok(())
}

fn all_to_all(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    for (blocks, len) in FEW.into_iter().flat_map(|b| [1, 777, 100_000].map(|len| (b, len))) {
        let seed = ctx.seed + 10 * u64::from(blocks) + len as u64;
        let out = ctx.symmetric(DType::U16, len * w, seed)?;
        let input = ctx.local(DType::U16, len * w, seed)?;
        let inputs: Vec<_> = (0..w).map(|pe| bytes(seed, pe, 2 * len * w)).collect();
        input.set(&ctx.stream, &inputs[ctx.me()])?;
        let options = Options { max_blocks: Some(blocks), ..Options::default() };
        ctx.team.all_to_all(&ctx.stream, &input.span, &out.handle, options)?;
        let mut want: Vec<_> = (0..w).map(|pe| out.poison_of(seed, pe)).collect();
        symm::oracle::all_to_all(&inputs, &mut want);
        out.mem.check(&ctx.stream, &format!("{len} elements a block, {blocks} blocks"), &want[ctx.me()])?;
        ctx.stream.synchronize()?;
    }
    Ok(())
}

/// How many blocks a PE gives an operation is its own affair.
fn another_number_on_each_pe(ctx: &Ctx) -> Outcome {
    let (ne, w) = (2, ctx.n());
    for round in 0..4 {
        let blocks = [1, 3, 7, 2][(ctx.me() + round) % 4];
        let all = splits(w, ne * w, 30);
        let run = Job::dispatch((DType::F32, 9), (ne, 4), all, ctx.seed + round as u64)
            .run_with_blocks(ctx, blocks)?;
        ensure_eq!(run.results.len(), w, "ranks");
    }
    Ok(())
}
