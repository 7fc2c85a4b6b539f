//! all_to_all_vdev, and the job that all of its family are checked with.

use symm::{AllToAllVdev, Context, DType, Options};

use crate::harness::{Case, Ctx, Guarded, Outcome, Symmetric, ensure, ensure_eq};
use crate::pattern::{Random, bytes, i64s};

pub(super) const CASES: &[Case] = &[
    Case::new("vdev::upstream_k10", upstream_k10),
    Case::new("vdev::empty", empty),
    Case::new("vdev::one_hot", one_hot),
    Case::new("vdev::skewed", skewed),
    Case::new("vdev::all_to_one", all_to_one),
    Case::new("vdev::all_from_one", all_from_one),
    Case::new("vdev::row_bytes", row_bytes),
    Case::new("vdev::every_dtype", every_dtype),
    Case::new("vdev::exact_output", exact_output),
    Case::new("vdev::no_rows_anywhere", no_rows_anywhere),
    Case::new("vdev::many_in_a_row", many_in_a_row),
    Case::new("vdev::random_rounds", random_rounds),
];

/// Which operation of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Vdev,
    Dispatch,
    Combine,
}

/// An operation of the family as all ranks call it; every PE holds the whole of it and computes everybody's result.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) form: Form,
    pub(super) dtype: DType,
    /// Elements of a row.
    pub(super) row: usize,
    pub(super) ne: usize,
    pub(super) align: usize,
    /// `in_splits` (and offsets for the combine) by rank, as the operation takes them.
    pub(super) splits: Vec<Vec<i64>>,
    /// Rows of the inputs by rank.
    pub(super) in_rows: Vec<usize>,
    /// Rows of the outputs by rank.
    pub(super) out_rows: Vec<usize>,
    pub(super) seed: u64,
}

/// Everything of a job on this PE, and what all PEs must have afterwards.
pub(super) struct Run {
    pub(super) input: Guarded,
    pub(super) output: Symmetric,
    pub(super) in_splits: Guarded,
    pub(super) result: Guarded,
    /// Inputs by rank.
    pub(super) inputs: Vec<Vec<u8>>,
    /// Outputs by rank, from the oracle.
    pub(super) outputs: Vec<Vec<u8>>,
    /// `out_splits_offsets` by rank, from the oracle.
    pub(super) results: Vec<Vec<i64>>,
}

impl Run {
    /// Outputs by rank as they were at first.
    pub(super) fn poisons(&self, ctx: &Ctx, job: &Job) -> Vec<Vec<u8>> {
        (0..ctx.n()).map(|rank| self.output.poison_of(job.seed + 2, ctx.pe(rank))).collect()
    }
}

fn rows(splits: &[i64]) -> usize {
    splits.iter().map(|s| usize::try_from(*s).unwrap_or(0)).sum()
}

impl Job {
    /// `all_to_all_vdev` with inputs as large as the splits say, and outputs with some room behind.
    pub(super) fn vdev(dtype: DType, row: usize, splits: Vec<Vec<i64>>, seed: u64) -> Job {
        let in_rows = splits.iter().map(|s| rows(s)).collect();
        let received = |d: usize| splits.iter().map(|s| s[d] as usize).sum::<usize>();
        let out_rows = (0..splits.len()).map(|d| received(d) + 2).collect();
        Job { form: Form::Vdev, dtype, row, ne: 1, align: 1, splits, in_rows, out_rows, seed }
    }

    /// `all_to_all_vdev_2d`, with outputs of the documented bound.
    pub(super) fn dispatch(
        (dtype, row): (DType, usize),
        (ne, align): (usize, usize),
        splits: Vec<Vec<i64>>,
        seed: u64,
    ) -> Job {
        let in_rows = splits.iter().map(|s| rows(s)).collect();
        let received = |d: usize| splits.iter().map(|s| rows(&s[d * ne..(d + 1) * ne])).sum::<usize>();
        let out_rows = (0..splits.len()).map(|d| received(d) + ne * align).collect();
        Job { form: Form::Dispatch, dtype, row, ne, align, splits, in_rows, out_rows, seed }
    }

    /// `all_to_all_vdev_2d_offset`: `[2, ne·W]` by rank.
    pub(super) fn combine(
        (dtype, row): (DType, usize),
        ne: usize,
        splits_offsets: Vec<Vec<i64>>,
        in_rows: Vec<usize>,
        seed: u64,
    ) -> Job {
        let w = splits_offsets.len();
        let received = |d: usize| {
            let of = |s: &Vec<i64>| (0..ne).map(|e| s[e * w + d] as usize).sum::<usize>();
            splits_offsets.iter().map(of).sum::<usize>()
        };
        let out_rows = (0..w).map(|d| received(d) + 1).collect();
        Job { form: Form::Combine, dtype, row, ne, align: 1, splits: splits_offsets, in_rows, out_rows, seed }
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.row * self.dtype.size()
    }

    /// The operation's name in errors.
    pub(super) fn op(&self) -> &'static str {
        match self.form {
            Form::Vdev => "all_to_all_vdev",
            Form::Dispatch => "all_to_all_vdev_2d",
            Form::Combine => "all_to_all_vdev_2d_offset",
        }
    }

    pub(super) fn has_offsets(&self) -> bool {
        self.form == Form::Combine
    }

    fn oracle(&self, inputs: &[Vec<u8>], outputs: &mut [Vec<u8>]) -> Vec<Vec<i64>> {
        let (rb, ne) = (self.row_bytes(), self.ne);
        match self.form {
            Form::Vdev => symm::oracle::all_to_all_vdev(inputs, &self.splits, rb, outputs),
            Form::Dispatch => {
                symm::oracle::all_to_all_vdev_2d(inputs, &self.splits, rb, ne, self.align, outputs)
            }
            Form::Combine => symm::oracle::all_to_all_vdev_2d_offset(inputs, &self.splits, rb, ne, outputs),
        }
    }

    /// Allocates and fills this PE's part. The output has as many rows on every PE as the largest needs (allocations are
    /// symmetric), of which each gives the operation its own number.
    ///
    /// # Collective
    /// Over the case's team.
    pub(super) fn prepare(&self, ctx: &Ctx) -> Outcome<Run> {
        let (me, w, rb) = (ctx.team.rank(), self.splits.len(), self.row_bytes());
        let of = |rank: usize| bytes(self.seed, rank, self.in_rows[rank] * rb);
        let inputs: Vec<Vec<u8>> = (0..w).map(of).collect();
        let input = ctx.local(self.dtype, self.in_rows[me] * self.row, self.seed + 1)?;
        input.set(&ctx.stream, &inputs[me])?;
        let most = self.out_rows.iter().copied().max().unwrap_or(0);
        let output = ctx.symmetric(self.dtype, most * self.row, self.seed + 2)?;
        let in_splits = ctx.local(DType::I64, self.splits[me].len(), self.seed + 3)?;
        in_splits.set(&ctx.stream, &i64s(&self.splits[me]))?;
        let result = ctx.local(DType::I64, 2 * w * self.ne, self.seed + 4)?;
        let mut outputs: Vec<_> = (0..w).map(|rank| output.poison_of(self.seed + 2, ctx.pe(rank))).collect();
        let results = self.oracle(&inputs, &mut outputs);
        Ok(Run { input, output, in_splits, result, inputs, outputs, results })
    }

    /// Enqueues the operation on this PE.
    pub(super) fn enqueue(&self, ctx: &Ctx, context: &Context, run: &Run) -> symm::Result<()> {
        self.enqueue_with(ctx, context, run, Options::default())
    }

    pub(super) fn enqueue_with(
        &self,
        ctx: &Ctx,
        context: &Context,
        run: &Run,
        options: Options,
    ) -> symm::Result<()> {
        let view = run.output.tensor.view(0, &[self.out_rows[ctx.team.rank()] * self.row])?;
        let args = AllToAllVdev {
            input: &run.input.span,
            // Cached: the allocation is bound already.
            output: &view.rendezvous(&ctx.team)?,
            in_splits: &run.in_splits.span,
            out_splits_offsets: &run.result.span,
            row: self.row,
            options,
        };
        match self.form {
            Form::Vdev => context.all_to_all_vdev(&ctx.stream, &args),
            Form::Dispatch => context.all_to_all_vdev_2d(&ctx.stream, &args, self.align),
            Form::Combine => context.all_to_all_vdev_2d_offset(&ctx.stream, &args),
        }
    }

    /// Compares output, result, and that inputs are unchanged.
    pub(super) fn check(&self, ctx: &Ctx, run: &Run) -> Outcome {
        let (me, s) = (ctx.team.rank(), &ctx.stream);
        let what = format!(
            "{:?} of {} x {} ({} experts, align {})",
            self.form, self.row, self.dtype, self.ne, self.align
        );
        let result = run.result.get_i64(s)?;
        ensure_eq!(result, run.results[me], "{what}: out_splits_offsets");
        run.result.check(s, "out_splits_offsets", &i64s(&run.results[me]))?;
        run.output.mem.check(s, &format!("{what}: output"), &run.outputs[me])?;
        run.input.check(s, &format!("{what}: input"), &run.inputs[me])?;
        run.in_splits.check(s, &format!("{what}: in_splits"), &i64s(&self.splits[me]))
    }

    /// The whole of it in the team's own context.
    pub(super) fn run(&self, ctx: &Ctx) -> Outcome<Run> {
        self.run_in(ctx, ctx.team.context())
    }

    /// The whole of it with so many blocks at most.
    pub(super) fn run_with_blocks(&self, ctx: &Ctx, blocks: u32) -> Outcome<Run> {
        let run = self.prepare(ctx)?;
        let options = Options { max_blocks: Some(blocks), ..Options::default() };
        self.enqueue_with(ctx, ctx.team.context(), &run, options)?;
        self.check(ctx, &run)?;
        ctx.stream.synchronize()?;
        Ok(run)
    }

    pub(super) fn run_in(&self, ctx: &Ctx, context: &Context) -> Outcome<Run> {
        let run = self.prepare(ctx)?;
        self.enqueue(ctx, context, &run)?;
        self.check(ctx, &run)?;
        ctx.stream.synchronize()?;
        Ok(run)
    }
}

/// Splits of `w` ranks to `n` places each, random below `k`, seed 42 + rank.
pub(super) fn splits(w: usize, n: usize, k: usize) -> Vec<Vec<i64>> {
    let of = |rank: usize| {
        let mut r = Random::new(&[42 + rank as u64]);
        (0..n).map(|_| r.below(k) as i64).collect()
    };
    (0..w).map(of).collect()
}

/// Upstream: k = 10, capacities k·W and k·W·W rows.
fn upstream_k10(ctx: &Ctx) -> Outcome {
    let (k, w) = (10, ctx.n());
    let mut job = Job::vdev(DType::F32, 1, splits(w, w, k), ctx.seed);
    job.in_rows = vec![k * w; w];
    job.out_rows = vec![k * w * w; w];
    let run = job.run(ctx)?;
    // Row 0 is a column of the split matrix, row 1 its exclusive scan.
    let column: Vec<i64> = job.splits.iter().map(|s| s[ctx.me()]).collect();
    let scan = column.iter().scan(0, |sum, n| Some(std::mem::replace(sum, *sum + n)));
    let want = [column.clone(), scan.collect()].concat();
    ensure_eq!(run.results[ctx.me()], want, "the oracle's own result");
    Ok(())
}

fn shaped(ctx: &Ctx, of: impl Fn(usize, usize) -> i64) -> Outcome {
    let w = ctx.n();
    let splits = (0..w).map(|s| (0..w).map(|d| of(s, d)).collect()).collect();
    Job::vdev(DType::U8, 5, splits, ctx.seed).run(ctx).map(drop)
}

fn empty(ctx: &Ctx) -> Outcome {
    shaped(ctx, |_, _| 0)
}

fn one_hot(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    (0..w).try_for_each(|shift| shaped(ctx, |s, d| if d == (s + shift) % w { 17 } else { 0 }))
}

fn skewed(ctx: &Ctx) -> Outcome {
    shaped(ctx, |s, d| if s == 0 { 400 >> d } else { (s * d % 3) as i64 })
}

fn all_to_one(ctx: &Ctx) -> Outcome {
    (0..ctx.n()).try_for_each(|to| shaped(ctx, |s, d| if d == to { 20 + s as i64 } else { 0 }))
}

fn all_from_one(ctx: &Ctx) -> Outcome {
    (0..ctx.n()).try_for_each(|from| shaped(ctx, |s, d| if s == from { 20 + d as i64 } else { 0 }))
}

/// Row sizes in bytes that every kernel has to take, as (dtype, elements).
pub(super) const ROWS: &[(DType, usize)] = &[
    (DType::U8, 1),
    (DType::BF16, 1),
    (DType::U8, 3),
    (DType::F16, 7),
    (DType::F32, 4),
    (DType::F32, 25),
    (DType::BF16, 7168),
];

fn row_bytes(ctx: &Ctx) -> Outcome {
    for (i, (dtype, row)) in ROWS.iter().enumerate() {
        let k = if *row > 1000 { 4 } else { 12 };
        Job::vdev(*dtype, *row, splits(ctx.n(), ctx.n(), k), ctx.seed + 10 * i as u64).run(ctx)?;
    }
    Ok(())
}

fn every_dtype(ctx: &Ctx) -> Outcome {
    for (i, dtype) in DType::ALL.into_iter().enumerate() {
        Job::vdev(dtype, 3, splits(ctx.n(), ctx.n(), 9), ctx.seed + 10 * i as u64).run(ctx)?;
    }
    Ok(())
}

fn exact_output(ctx: &Ctx) -> Outcome {
    let mut job = Job::vdev(DType::F32, 3, splits(ctx.n(), ctx.n(), 30), ctx.seed);
    job.out_rows.iter_mut().for_each(|rows| *rows -= 2);
    job.run(ctx).map(drop)
}

/// Inputs and outputs without any memory.
fn no_rows_anywhere(ctx: &Ctx) -> Outcome {
    let mut job = Job::vdev(DType::F32, 3, vec![vec![0; ctx.n()]; ctx.n()], ctx.seed);
    job.out_rows.fill(0);
    ensure!(job.in_rows.iter().all(|r| *r == 0), "no rows");
    job.run(ctx).map(drop)
}

/// The same buffers again and again, splits rewritten in stream order, the host never waiting between operations.
fn many_in_a_row(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    let shapes: Vec<Job> = (0..4u64)
        .map(|i| {
            let mut r = Random::new(&[ctx.seed, i]);
            let splits = (0..w).map(|_| (0..w).map(|_| r.below(9) as i64).collect()).collect();
            Job::vdev(DType::U16, 9, splits, ctx.seed + 100 * i)
        })
        .collect();
    let mut runs = Vec::new();
    for job in &shapes {
        runs.push(job.prepare(ctx)?);
    }
    for round in 0..40 {
        shapes[round % 4].enqueue(ctx, ctx.team.context(), &runs[round % 4])?;
    }
    for (job, run) in shapes.iter().zip(&runs) {
        job.check(ctx, run)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn random_rounds(ctx: &Ctx) -> Outcome {
    let w = ctx.n();
    let mut r = Random::new(&[ctx.seed, w as u64]);
    for round in 0..70 {
        let dtype = r.of(&DType::ALL);
        let row = 1 + r.below(r.clone().of(&[1, 5, 50, 300]));
        let k = 1 + r.below(12);
        let zeros = r.below(4);
        let split = |r: &mut Random| if r.below(4) < zeros { 0 } else { r.below(k) as i64 };
        let splits = (0..w).map(|_| (0..w).map(|_| split(&mut r)).collect()).collect();
        let mut job = Job::vdev(dtype, row, splits, ctx.seed + 1000 + 10 * round);
        // Rows behind the last one that is sent.
        job.in_rows.iter_mut().for_each(|rows| *rows += r.below(3));
        job.run(ctx)?;
    }
    Ok(())
}
