//! Collectives that leave a GPU's multiprocessors to others: its copy engines move the data.

use super::{Plan, check_len, check_out};
use crate::backend::{Backend, Form, Take};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::model::collective::Options;
use crate::model::context::Context;
use crate::model::handle::Handle;
use crate::model::span::Span;
use crate::model::stream::Stream;

/// How `low_contention_reduce_scatter` makes one element of W.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// Their sum, in rank order.
    #[default]
    Sum,
    /// Their sum, divided by W before it is rounded; floats only.
    Avg,
}

/// What these operations have in common (PyTorch's `_low_contention_…`): data lie in a symmetric `input` and are *got* from
/// there. On a GPU its copy engines get them, into memory that is this PE's own. No multiprocessor moves data, but a launch of one
/// block waits for the peers before the copies, and another one after them: while a peer is late, that block occupies its part of one
/// multiprocessor. Adding up takes multiprocessors for as long as reading W blocks of this PE's own memory does. Other backends
/// move the data as they always do, with the same results.
///
/// Since copy engines are given their addresses beforehand, `input` must begin at the same byte of the allocation on every
/// member. After a failure the output may hold anything: nothing stops a copy, so copies write this PE's own memory only. That is why
/// data are got where [`all_to_all`](Context::all_to_all) pushes them.
///
/// # Ordering
/// On a GPU a call gives the stream a launch that waits for the members, W copies, and a launch that ends the operation, three
/// things where other operations are one. This PE's own block, if it is large, is copied by a stream beside, which begins where the call
/// does and joins before its end. They keep the order of the stream and of the context like any operation; beyond that:
/// - Threads that share a stream must not call at the same time: what another thread enqueues between the three would run
///   between them, and a second low-contention call there would be taken for a part of this one.
/// - Nothing stops the copies: they run although the first launch found a failure, which the last one reports.
/// - They see what each member's stream had written to its `input` before its own call. What *peers* put there needs a signal or
///   a barrier on that member first, as for every other operation; copies wait for no signal by themselves.
impl<B: Backend> Context<B> {
    /// Every member's `input` in rank order to this PE's `output`.
    ///
    /// # Collective
    /// Over the context's team, with equal lengths and dtype; `input` is the same part of the same allocation on every member.
    ///
    /// # Shapes
    /// `input`: `[n]`, any dtype, unchanged; `output`: `[W·n]`, memory of this PE outside `input`.
    ///
    /// # Completion
    /// When the stream has passed it, `output` is complete here and `input` may be reused. On a GPU copy engines move the data,
    /// between two launches of one block each.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] here and [`Error::PeerInvalid`] on the others if an argument is refused; `PeerInvalid` on
    /// all if length, dtype or place differ from rank 0's. A failure that is set on the team.
    #[doc(alias = "_low_contention_all_gather")]
    pub fn low_contention_all_gather(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        output: &Span<B>,
        options: Options,
    ) -> Result<()> {
        let form = Form::LowContentionAllGather;
        let planned = self.plan_copies(form, input, output, (0, input.len()));
        self.take(stream, form, input, &options, planned)
    }

    /// Block r of every member's `input` in rank order to this PE's `output`, r being this PE's rank.
    ///
    /// # Collective
    /// As [`low_contention_all_gather`](Self::low_contention_all_gather).
    ///
    /// # Shapes
    /// `input`: `[W·k]`, any dtype, unchanged; `output`: `[W·k]`, memory of this PE outside `input`.
    ///
    /// # Completion, Errors
    /// As there, the two launches of one block included; `input`'s length must be a multiple of W.
    pub fn low_contention_all_to_all(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        output: &Span<B>,
        options: Options,
    ) -> Result<()> {
        let form = Form::LowContentionAllToAll;
        let planned = self.block(form, input).and_then(|block| self.plan_copies(form, input, output, block));
        self.take(stream, form, input, &options, planned)
    }

    /// The sum, or average, of block r of all `input`s to `output`, r being this PE's rank.
    ///
    /// # Collective
    /// As [`low_contention_all_gather`](Self::low_contention_all_gather), with equal `op`.
    ///
    /// # Shapes
    /// `input`: `[W·k]` of a dtype that [reduces](DType::reduces), unchanged; `output`: `[k]`, memory of this PE outside
    /// `input`. f16 and bf16 are added up, and divided, as f32 and rounded once.
    ///
    /// # Completion, Errors
    /// As there, but the second launch adds up, on as many multiprocessors as a reduction takes; `input`'s length must be a multiple of W, and its dtype a float for [`ReduceOp::Avg`].
    /// [`Error::OutOfMemory`] on a GPU, where the blocks are brought here first.
    #[doc(alias = "_low_contention_reduce_scatter")]
    pub fn low_contention_reduce_scatter(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        output: &Span<B>,
        op: ReduceOp,
        options: Options,
    ) -> Result<()> {
        let form = Form::LowContentionReduceScatter;
        let planned = self.block(form, input).and_then(|(start, len)| {
            check_len(form.name(), "output", output, len)?;
            check_out(form.name(), "output", output, true, input)?;
            let dtype = input.dtype();
            let average = op == ReduceOp::Avg;
            if average && !matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64) {
                let expected = format!("Sum: an average of {dtype} is no {dtype}");
                return Err(Error::argument(form.name(), "op", "Avg", expected));
            }
            let [src, cols] = [start, len].map(|n| n as u64);
            let dst = output.addr;
            let take = Take { src, src_stride: cols, rows: 1, cols, dst, dst_stride: cols, dst_step: 0 };
            Ok(Plan {
                extent: input.len(),
                shape: vec![input.len() as u64, u64::from(average)],
                takes: vec![take],
                outs: vec![output.clone()],
                average,
            })
        });
        self.take(stream, form, input, &options, planned)
    }

    /// First element and length of this rank's block.
    fn block(&self, form: Form, input: &Handle<B>) -> Result<(usize, usize)> {
        let (w, len) = (self.ranks(), input.len());
        if len.is_multiple_of(w) {
            return Ok((self.inner.team.group.my_rank() * (len / w), len / w));
        }
        Err(Error::argument(form.name(), "input", len, format!("a multiple of {w} elements")))
    }

    fn plan_copies(
        &self,
        form: Form,
        input: &Handle<B>,
        output: &Span<B>,
        (start, len): (usize, usize),
    ) -> Result<Plan<B>> {
        let op = form.name();
        let all = len.saturating_mul(self.ranks());
        check_len(op, "output", output, all)?;
        check_out(op, "output", output, false, input)?;
        let [src, cols] = [start, len].map(|n| n as u64);
        let dst = output.addr;
        let take = Take { src, src_stride: cols, rows: 1, cols, dst, dst_stride: cols, dst_step: cols };
        Ok(Plan {
            extent: input.len(),
            shape: vec![input.len() as u64],
            takes: vec![take],
            outs: vec![output.clone()],
            average: false,
        })
    }
}
