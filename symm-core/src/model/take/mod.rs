//! Collectives in which a PE takes blocks out of everybody's symmetric buffer: their arguments, checked here, and the
//! exchange they become.

mod low_contention;
mod nd;
mod scatter;
mod team;
mod tile;

pub use low_contention::ReduceOp;
pub use nd::AllToAllNd;
pub use scatter::ReduceScatterOffset;
pub use tile::{MultiRootTileReduce, Tile, TileReduce};

use super::collective::{Options, same_dtype};
use super::context::Context;
use super::handle::Handle;
use super::log::{FNV_START, fnv};
use super::reduce::check::{adds_up, aligned, apart};
use super::span::{Local, Span};
use super::stream::Stream;
use crate::backend::{Backend, Exchange, Form, MAX_TAKES, Take};
use crate::error::{Error, Result};

/// What checked arguments become.
struct Plan<B: Backend> {
    /// Elements of the buffer that take part, from its first one on.
    extent: usize,
    /// What must be equal on all members.
    shape: Vec<u64>,
    takes: Vec<Take>,
    /// Where the takes go.
    outs: Vec<Span<B>>,
    average: bool,
}

impl<B: Backend> Context<B> {
    /// Runs what was planned, in as many operations as the number of blocks asks for, which is equal on all members.
    fn take(
        &self,
        stream: &Stream<B>,
        form: Form,
        buffer: &Handle<B>,
        options: &Options,
        planned: Result<Plan<B>>,
    ) -> Result<()> {
        let blank = self.blank(form, buffer.dtype(), options);
        let ready = planned.and_then(|plan| {
            let out = self.output(form.name(), "input", buffer, blank.row_bytes)?;
            let scratch = self.scratch(form, &plan, blank.row_bytes)?;
            Ok((plan, out, scratch))
        });
        let (plan, out, scratch) = match ready {
            Ok(ready) => ready,
            Err(refused) => return self.refuse(stream, blank, refused),
        };
        stream.keep(|| (buffer.clone(), plan.outs.clone(), scratch.clone()))?;
        let mut x = Exchange {
            in_rows: plan.extent,
            lead: digest(&plan.shape),
            average: plan.average,
            output: Some(out),
            ..blank
        };
        if let Some(scratch) = &scratch {
            x.scratch = scratch.span().addr;
        }
        if plan.takes.len() <= MAX_TAKES {
            x.takes = &plan.takes;
            return self.run(stream, &x);
        }
        for takes in plan.takes.chunks(MAX_TAKES) {
            let out = self.output(form.name(), "input", buffer, x.row_bytes)?;
            self.run(stream, &Exchange { takes, ..x.with_output(Some(out)) })?;
        }
        Ok(())
    }

    fn scratch(&self, form: Form, plan: &Plan<B>, element: usize) -> Result<Option<Local<B>>> {
        let world = &self.inner.team.world;
        let taken = plan.takes.iter().map(|t| t.rows.saturating_mul(t.cols)).max().unwrap_or(0);
        let taken = usize::try_from(taken).unwrap_or(usize::MAX).saturating_mul(element);
        match world.backend.scratch_bytes(form, self.ranks(), taken) {
            0 => Ok(None),
            bytes => Local::new(world, crate::DType::U8, bytes).map(Some),
        }
    }
}

/// A number that differs, but for chance, where one of the numbers does; never 0.
fn digest(numbers: &[u64]) -> usize {
    let hash = numbers.iter().fold(FNV_START, |h, n| fnv(h, &n.to_le_bytes()));
    usize::try_from(hash | 1).unwrap_or(1)
}

/// Elements of a matrix, from its first to its last one; an error names `argument`.
fn matrix(
    op: &'static str,
    argument: &'static str,
    (rows, cols, stride): (usize, usize, usize),
) -> Result<usize> {
    if rows == 0 || cols == 0 {
        return Ok(0);
    }
    let all = (rows - 1).checked_mul(stride).and_then(|before| before.checked_add(cols));
    all.ok_or_else(|| {
        let got = format!("{rows} rows of {cols}, {stride} apart");
        Error::argument(op, argument, got, "a matrix that fits the address space")
    })
}

/// What an operation writes: of the input's type, whole elements, and nowhere where peers read.
fn check_out<B: Backend>(
    op: &'static str,
    argument: &'static str,
    out: &Span<B>,
    sums: bool,
    input: &Handle<B>,
) -> Result<()> {
    same_dtype(op, argument, out.dtype, ("the input", input.dtype()))?;
    if sums {
        adds_up(op, "input", input.dtype())?;
        aligned(op, argument, out)?;
    }
    apart(op, argument, out, ("input", &input.span()))
}

/// So many elements, no more and no fewer.
fn check_len<B: Backend>(op: &'static str, argument: &'static str, span: &Span<B>, len: usize) -> Result<()> {
    if span.len == len {
        return Ok(());
    }
    Err(Error::argument(op, argument, format!("{} elements", span.len), format!("{len} elements")))
}
