//! One PE's part of a step: permute, dispatch, experts, combine, reduce; timed one by one, then verified.

use std::time::Instant;

use symm::moe::{Plan, Reference, combine_row, expert_apply, input_row};
use symm::{AllToAllVdev, Context, DType, Element, Error, Handle, Options, Result, Span, Stream, World};

use super::ceiling;
use super::compare::{Mismatch, compare};
use super::prepare::Job;
use super::report::StepTimes;

/// Rows are moved between the host and the backend's memory in pieces of about this many bytes, which stay in a cache.
const PIECE: usize = 256 << 10;

/// Everything that this PE's steps use. Made once; a step takes no new memory for rows.
pub(super) struct Work<'a, T: Element> {
    job: &'a Job,
    pe: usize,
    plan: Plan,
    stream: Stream,
    context: Context,
    /// Dispatch input, rows of tokens in the plan's order. Also what the ceiling copies.
    input: Span,
    in_splits: Span,
    /// Dispatch output; the experts work in place, so it is the combine input too.
    dispatched: Handle,
    dispatched_rows: Span,
    /// Out-splits and offsets of the dispatch, which are the in-splits and offsets of the combine.
    dispatched_splits: Span,
    /// Combine output: rows in the order of the dispatch input.
    combined: Handle,
    combined_splits: Span,
    copy_to: Span,
    steps: [Inputs<T>; 2],
    piece: Vec<T>,
    returned: Vec<T>,
    result: Vec<T>,
    /// First difference seen, with the number of all.
    mismatch: Option<Mismatch>,
}

/// Rows of this PE's tokens, and what a step must give for them.
///
/// There are two of these, for even and odd steps. They differ, so a row that a step failed to move shows: its place
/// still holds what the step before left there.
struct Inputs<T> {
    tokens: Vec<T>,
    expected: Vec<u8>,
}

impl<T: Element> Inputs<T> {
    fn new(job: &Job, plan: &Plan, seed: u64) -> Self {
        let mut tokens = vec![T::zeroed(); plan.tokens.len() * job.hidden];
        for (token, row) in plan.tokens.clone().zip(tokens.chunks_exact_mut(job.hidden)) {
            input_row(job.float, seed, token, bytemuck::cast_slice_mut(row));
        }
        let reference = Reference { trace: &job.trace, float: job.float, hidden: job.hidden, seed };
        Inputs { tokens, expected: reference.rows(plan.tokens.clone()) }
    }
}

impl<'a, T: Element> Work<'a, T> {
    /// Allocates, makes inputs and computes what they must give.
    ///
    /// # Collective
    /// Over the world.
    pub(super) fn new(world: &World, job: &'a Job) -> Result<Self> {
        let team = world.team();
        let (pe, pes) = (team.rank(), team.world_size());
        let plan = Plan::new(&job.trace, pe, pes)?;
        let busiest = |rows: &[u64]| rows.iter().map(|n| *n as usize).max().unwrap_or(0).max(1);
        let symmetric = |label: &str, rows: usize| {
            team.empty_labelled(label, &[rows, job.hidden], T::DTYPE)?.rendezvous(team)
        };
        let dispatched = symmetric("dispatched", busiest(&job.counts.received_padded))?;
        let combined = symmetric("combined", busiest(&job.counts.sent))?;
        let elements = plan.rows() * job.hidden;
        let input = world.local(T::DTYPE, elements.max(1))?.span().slice(0, elements)?;
        let stream = world.stream()?;
        let n = pes * plan.ne;
        let splits = |len: usize| Ok::<_, Error>(world.local(DType::I64, len)?.span());
        let in_splits = splits(n)?;
        stream.write(&in_splits, &plan.in_splits)?;
        let context = match team.context() {
            own if own.max_splits() >= n => own.clone(),
            _ => team.new_context(n)?,
        };
        Ok(Work {
            job,
            pe,
            stream,
            context,
            input,
            in_splits,
            dispatched_rows: dispatched.span(),
            dispatched_splits: splits(2 * n)?,
            combined_splits: splits(2 * n)?,
            copy_to: ceiling::target(world, &combined, elements)?,
            dispatched,
            combined,
            steps: [0, 1].map(|odd| Inputs::new(job, &plan, job.seed.wrapping_add(odd))),
            piece: vec![T::zeroed(); (PIECE / job.row_bytes()).max(1) * job.hidden],
            returned: vec![T::zeroed(); elements],
            result: vec![T::zeroed(); plan.tokens.len() * job.hidden],
            mismatch: None,
            plan,
        })
    }

    pub(super) fn into_mismatch(self) -> Option<Mismatch> {
        self.mismatch
    }

    /// Runs and verifies one step; negative numbers are the warm-up. Dispatch, combine and copy are made so many times in a row.
    ///
    /// # Collective
    /// Over the world, with the same numbers.
    pub(super) fn step(&mut self, step: i64, calls: u64) -> Result<StepTimes> {
        let odd = usize::from(step & 1 == 1);
        let permute = self.alone(|w| w.permute(odd))?;
        let dispatch = self.alone(|w| (0..calls).try_for_each(|_| w.dispatch()))?;
        self.experts()?;
        let combine = self.alone(|w| (0..calls).try_for_each(|_| w.combine()))?;
        let reduce = self.alone(|w| w.reduce())?;
        self.verify(step, odd);
        let mut copy = (0, 0);
        self.alone(|w| {
            copy.0 = now();
            (0..calls).try_for_each(|_| w.stream.copy(&w.copy_to, &w.input))?;
            w.stream.synchronize()?;
            copy.1 = now();
            Ok(())
        })?;
        Ok(StepTimes { permute, dispatch, combine, reduce, copy })
    }

    /// Time of what `call` enqueues in ns, between a barrier and the end of what it enqueued.
    fn alone(&mut self, call: impl FnOnce(&mut Self) -> Result<()>) -> Result<u64> {
        self.context.barrier(&self.stream, Options::default())?;
        self.stream.synchronize()?;
        let began = Instant::now();
        call(self)?;
        self.stream.synchronize()?;
        Ok(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Writes each row of the dispatch input: its token's row.
    fn permute(&mut self, odd: usize) -> Result<()> {
        let row = self.job.hidden;
        let rows_a_piece = self.piece.len() / row;
        let tokens = &self.steps[odd].tokens;
        for (number, choices) in self.plan.choice_of_row.chunks(rows_a_piece).enumerate() {
            let piece = &mut self.piece[..choices.len() * row];
            for (choice, out) in choices.iter().zip(piece.chunks_exact_mut(row)) {
                let token = choice / self.plan.top_k;
                out.copy_from_slice(&tokens[token * row..(token + 1) * row]);
            }
            self.stream.write(&self.input.slice(number * rows_a_piece * row, piece.len())?, piece)?;
        }
        Ok(())
    }

    fn dispatch(&self) -> Result<()> {
        let args = AllToAllVdev {
            input: &self.input,
            output: &self.dispatched,
            in_splits: &self.in_splits,
            out_splits_offsets: &self.dispatched_splits,
            row: self.job.hidden,
            options: Options::default(),
        };
        self.context.all_to_all_vdev_2d(&self.stream, &args, self.job.align)
    }

    fn combine(&self) -> Result<()> {
        let args = AllToAllVdev {
            input: &self.dispatched_rows,
            output: &self.combined,
            in_splits: &self.dispatched_splits,
            out_splits_offsets: &self.combined_splits,
            row: self.job.hidden,
            options: Options::default(),
        };
        self.context.all_to_all_vdev_2d_offset(&self.stream, &args)
    }

    /// Applies this PE's experts to the rows that the dispatch says it brought, where it says they are.
    fn experts(&mut self) -> Result<()> {
        let splits: Vec<i64> = self.stream.read(&self.dispatched_splits)?;
        let (rows, starts) = splits.split_at(splits.len() / 2);
        let row = self.job.hidden;
        let pes = self.job.pes;
        for (index, (rows, start)) in rows.iter().zip(starts).enumerate() {
            let expert = self.pe * self.plan.ne + index / pes;
            // A wrong number becomes a range outside the output, which `slice` refuses.
            let (rows, start) = (*rows as usize, *start as usize);
            let all = self.dispatched_rows.slice(start.saturating_mul(row), rows.saturating_mul(row))?;
            let mut done = 0;
            while done < all.len() {
                let n = self.piece.len().min(all.len() - done);
                let (part, piece) = (all.slice(done, n)?, &mut self.piece[..n]);
                self.stream.read_into(&part, piece)?;
                expert_apply(self.job.float, expert, bytemuck::cast_slice_mut(piece));
                self.stream.write(&part, piece)?;
                done += n;
            }
        }
        Ok(())
    }

    /// Adds each token's rows with its weights, in the order of its choices.
    fn reduce(&mut self) -> Result<()> {
        let (row, k) = (self.job.row_bytes(), self.plan.top_k);
        self.stream.read_into(&self.combined.span().slice(0, self.returned.len())?, &mut self.returned)?;
        let rows: &[u8] = bytemuck::cast_slice(&self.returned);
        let result: &mut [u8] = bytemuck::cast_slice_mut(&mut self.result);
        let weights = &self.job.trace.weights[self.plan.tokens.start * k..];
        let mut choices: Vec<(f32, &[u8])> = Vec::with_capacity(k);
        for (local, out) in result.chunks_exact_mut(row).enumerate() {
            choices.clear();
            let made = (0..k).filter_map(|j| Some((weights[local * k + j], self.plan.row(local, j)?)));
            choices.extend(made.map(|(weight, r)| (weight, &rows[r * row..(r + 1) * row])));
            combine_row(self.job.float, &choices, out);
        }
        Ok(())
    }

    /// Compares every value of this PE's tokens.
    fn verify(&mut self, step: i64, odd: usize) {
        if let (Some(place), [first, ..]) =
            (self.job.corrupt, bytemuck::cast_slice_mut::<T, u8>(&mut self.result))
            && place == (self.pe, step)
        {
            *first ^= 1;
        }
        let found = compare(self.job.float, bytemuck::cast_slice(&self.result), &self.steps[odd].expected);
        let Some(d) = found else { return };
        let first = self.mismatch.get_or_insert_with(|| Mismatch {
            pe: self.pe,
            step,
            token: self.plan.tokens.start + d.first / self.job.hidden,
            column: d.first % self.job.hidden,
            got: d.got.to_string(),
            expected: d.expected.to_string(),
            values: 0,
        });
        first.values += d.values;
    }
}

/// The monotonic clock in ns.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}
