//! Broadcast and reductions of a context: their arguments, checked here, and the exchange they become.

pub(super) mod check;
mod team;

use check::{Names, Sum};

use super::collective::Options;
use super::context::Context;
use super::handle::Handle;
use super::span::{Local, Span};
use super::stream::Stream;
use crate::backend::{Addr, Backend, Exchange, Form};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Sums are over all members in rank order, from rank 0 up: equal bit for bit on every member, whatever the backend's
/// [`DETERMINISTIC`](crate::capability::Capabilities::DETERMINISTIC) says it can. f16 and bf16 are added up as f32 and
/// rounded once, to nearest even; integers wrap; of several NaNs any comes out.
impl<B: Backend> Context<B> {
    /// The root's `buffer` to everybody's.
    ///
    /// # Collective
    /// Over the context's team, with equal root, length and dtype; `buffer` is the same allocation on every member.
    ///
    /// # Shapes
    /// `buffer`: `[n]`, any n and any dtype. `root`: a rank of the context's team.
    ///
    /// # Completion
    /// When the stream has passed it, `buffer` is complete here and may be read and written.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] here and [`Error::PeerInvalid`] on the others if an argument is refused; `PeerInvalid` on
    /// all if root, length or dtype differ from rank 0's; nothing is written. A failure that is set on the team.
    #[doc(alias("nvshmem_broadcast", "ncclBroadcast", "MPI_Bcast"))]
    pub fn broadcast(
        &self,
        stream: &Stream<B>,
        buffer: &Handle<B>,
        root: usize,
        options: Options,
    ) -> Result<()> {
        let form = Form::Broadcast;
        let x = Exchange { root, in_rows: buffer.len(), ..self.blank(form, buffer.dtype(), &options) };
        let w = self.ranks();
        if root >= w {
            let refused = Error::argument(form.name(), "root", root, format!("a rank in [0, {w})"));
            return self.refuse(stream, x, refused);
        }
        match self.output(form.name(), "buffer", buffer, x.row_bytes) {
            Err(refused) => self.refuse(stream, x, refused),
            Ok(out) => {
                stream.keep(|| buffer.clone())?;
                let input = buffer.span().addr;
                self.run(stream, &Exchange { input, output: Some(out), ..x })
            }
        }
    }

    /// This rank's part of the sum of all `input`s to `output`.
    ///
    /// # Collective
    /// Over the context's team, with equal length and dtype; `input` is the same allocation on every member.
    ///
    /// # Shapes
    /// `input`: `[W·k]` of a dtype that [reduces](DType::reduces), unchanged by the operation; `output`: `[k]` of the same
    /// dtype, memory of this PE outside `input`. Rank r gets elements `r·k…` of the sum.
    ///
    /// # Completion
    /// When the stream has passed it, `output` is complete here and `input` may be reused.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] here and [`Error::PeerInvalid`] on the others if an argument is refused; `PeerInvalid` on
    /// all if length or dtype differ from rank 0's; nothing is written. A failure that is set on the team.
    #[doc(alias(
        "reduce_scatter_out",
        "nvshmem_sum_reducescatter",
        "ncclReduceScatter",
        "MPI_Reduce_scatter_block"
    ))]
    pub fn reduce_scatter(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        output: &Span<B>,
        options: Options,
    ) -> Result<()> {
        let names = Names { op: "reduce_scatter", buffer: "input", out: "output" };
        let numel = input.len();
        let result = Some((output, numel / self.ranks()));
        let sum = Sum { names, lead: 1, numel, input: None, result };
        self.scatter(stream, input, sum, numel, &options)
    }

    /// This rank's columns of the sum of all `input`s to `output`.
    ///
    /// # Collective
    /// Over the context's team, with equal length, `last_dim` and dtype; `input` is the same allocation on every member.
    ///
    /// # Shapes
    /// `input`: `[…, last_dim]`, leading dimensions of any number, unchanged by the operation; `output`: `[…, last_dim/W]`,
    /// memory of this PE outside `input`. Rank r gets columns `r·last_dim/W…` of each row of the sum.
    ///
    /// # Completion, Errors
    /// As [`reduce_scatter`](Self::reduce_scatter); `last_dim` must divide `input`'s length and be a multiple of W.
    pub fn reduce_scatter_last_dim(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        last_dim: usize,
        output: &Span<B>,
        options: Options,
    ) -> Result<()> {
        let names = Names { op: "reduce_scatter_last_dim", buffer: "input", out: "output" };
        if last_dim == 0 || !input.len().is_multiple_of(last_dim) {
            let expected = format!("1 or more, and a divisor of input's {} elements", input.len());
            let x = self.blank(Form::ReduceScatter, input.dtype(), &options);
            return self.refuse(stream, x, Error::argument(names.op, "last_dim", last_dim, expected));
        }
        let numel = input.len();
        let result = Some((output, numel / self.ranks()));
        let sum = Sum { names, lead: (numel / last_dim).max(1), numel, input: None, result };
        self.scatter(stream, input, sum, last_dim, &options)
    }

    fn scatter(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        sum: Sum<'_, B>,
        last_dim: usize,
        options: &Options,
    ) -> Result<()> {
        let w = self.ranks();
        if last_dim.is_multiple_of(w) {
            return self.sum(stream, Form::ReduceScatter, input, sum, options);
        }
        let Names { op, buffer, .. } = sum.names;
        let (argument, expected) = if last_dim == input.len() {
            (buffer, format!("a multiple of {w} elements"))
        } else {
            ("last_dim", format!("a multiple of the {w} members"))
        };
        let x = self.blank(Form::ReduceScatter, input.dtype(), options);
        self.refuse(stream, x, Error::argument(op, argument, last_dim, expected))
    }

    /// The sum of all `input`s to new memory of this PE. Every member gets everybody's elements: for small inputs. (On GPUs both
    /// all-reduces push up to [`all_reduce_push`](crate::Config::all_reduce_push) bytes, between two members up to
    /// [`all_reduce_push_pair`](crate::Config::all_reduce_push_pair), the same way.)
    ///
    /// # Collective
    /// Over the context's team, with equal length and dtype; `input` is the same allocation on every member.
    ///
    /// # Shapes
    /// `input`: `[n]`, any n, of a dtype that [reduces](DType::reduces), unchanged by the operation. Returns `[n]`.
    ///
    /// # Completion
    /// When the stream has passed it, the returned memory is complete here and `input` may be reused.
    ///
    /// # Errors
    /// As [`reduce_scatter`](Self::reduce_scatter); [`Error::OutOfMemory`].
    #[doc(alias("nvshmem_sum_reduce", "ncclAllReduce", "MPI_Allreduce"))]
    pub fn one_shot_all_reduce(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        options: Options,
    ) -> Result<Local<B>> {
        let names = Names { op: "one_shot_all_reduce", buffer: "input", out: "out" };
        let numel = input.len();
        let out = self.new_local(stream, input.dtype(), numel, &options)?;
        let span = out.span();
        let sum = Sum { names, lead: 1, numel, input: None, result: Some((&span, numel)) };
        self.sum(stream, Form::OneShotAllReduce, input, sum, &options)?;
        Ok(out)
    }

    /// [`one_shot_all_reduce`](Self::one_shot_all_reduce) to memory of the caller's.
    ///
    /// # Collective
    /// As there.
    ///
    /// # Shapes
    /// `out`: `[n]` of the input's dtype, memory of this PE outside `input`.
    ///
    /// # Completion, Errors
    /// As there.
    pub fn one_shot_all_reduce_out(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        out: &Span<B>,
        options: Options,
    ) -> Result<()> {
        let names = Names { op: "one_shot_all_reduce_out", buffer: "input", out: "out" };
        let numel = input.len();
        let sum = Sum { names, lead: 1, numel, input: None, result: Some((out, numel)) };
        self.sum(stream, Form::OneShotAllReduce, input, sum, &options)
    }

    /// Copies `local_input` to the start of `symm_buffer`, then adds up as
    /// [`one_shot_all_reduce`](Self::one_shot_all_reduce) does.
    ///
    /// # Collective
    /// Over the context's team, with equal length and dtype of `local_input`; `symm_buffer` is the same allocation on every
    /// member. A member whose summands are in its buffer already may call `one_shot_all_reduce` instead.
    ///
    /// # Shapes
    /// `local_input`: `[n]`, any memory of this PE outside `symm_buffer`; `symm_buffer`: `[n]` or larger, of the same dtype,
    /// unchanged behind element n. Returns `[n]`.
    ///
    /// # Completion
    /// When the stream has passed it, the returned memory is complete here and both inputs may be reused.
    ///
    /// # Errors
    /// As there. After a refusal or failure `symm_buffer` may hold `local_input`, or a part of it.
    pub fn one_shot_all_reduce_copy(
        &self,
        stream: &Stream<B>,
        symm_buffer: &Handle<B>,
        local_input: &Span<B>,
        options: Options,
    ) -> Result<Local<B>> {
        let names = Names { op: "one_shot_all_reduce_copy", buffer: "symm_buffer", out: "out" };
        let numel = local_input.len;
        let out = self.new_local(stream, local_input.dtype, numel, &options)?;
        let span = out.span();
        let sum = Sum { names, lead: 1, numel, input: Some(local_input), result: Some((&span, numel)) };
        self.sum(stream, Form::OneShotAllReduce, symm_buffer, sum, &options)?;
        Ok(out)
    }

    /// [`one_shot_all_reduce_copy`](Self::one_shot_all_reduce_copy) to memory of the caller's.
    ///
    /// # Collective
    /// As there.
    ///
    /// # Shapes
    /// `out`: `[n]` of the input's dtype, memory of this PE outside `symm_buffer`; it may be `local_input`.
    ///
    /// # Completion, Errors
    /// As there.
    pub fn one_shot_all_reduce_copy_out(
        &self,
        stream: &Stream<B>,
        symm_buffer: &Handle<B>,
        local_input: &Span<B>,
        out: &Span<B>,
        options: Options,
    ) -> Result<()> {
        let names = Names { op: "one_shot_all_reduce_copy_out", buffer: "symm_buffer", out: "out" };
        let numel = local_input.len;
        let sum = Sum { names, lead: 1, numel, input: Some(local_input), result: Some((out, numel)) };
        self.sum(stream, Form::OneShotAllReduce, symm_buffer, sum, &options)
    }

    /// The sum of all `buffer`s to all of them. Each member adds up one part and writes it everywhere: for large buffers.
    ///
    /// # Collective
    /// Over the context's team, with equal length and dtype; `buffer` is the same allocation on every member.
    ///
    /// # Shapes
    /// `buffer`: `[n]`, any n, of a dtype that [reduces](DType::reduces).
    ///
    /// # Completion
    /// When the stream has passed it, `buffer` is complete here and may be read and written.
    ///
    /// # Errors
    /// As [`reduce_scatter`](Self::reduce_scatter). After a failure `buffer` may hold some sums.
    #[doc(alias("two_shot_all_reduce_", "nvshmem_sum_reduce", "ncclAllReduce", "MPI_Allreduce"))]
    pub fn two_shot_all_reduce(
        &self,
        stream: &Stream<B>,
        buffer: &Handle<B>,
        options: Options,
    ) -> Result<()> {
        let names = Names { op: "two_shot_all_reduce", buffer: "buffer", out: "" };
        let sum = Sum { names, lead: 1, numel: buffer.len(), input: None, result: None };
        self.sum(stream, Form::TwoShotAllReduce, buffer, sum, &options)
    }

    /// The sum of all `input`s to `output`, by parts as [`two_shot_all_reduce`](Self::two_shot_all_reduce). **May also
    /// overwrite part of `input`**: a member leaves sums that it made there; which elements those are is not
    /// promised.
    ///
    /// # Collective
    /// As there.
    ///
    /// # Shapes
    /// `input`: as there; `output`: `[n]` of the same dtype, memory of this PE outside `input`.
    ///
    /// # Completion
    /// When the stream has passed it, `output` is complete here and `input` may be read and written.
    ///
    /// # Errors
    /// As there.
    pub fn two_shot_all_reduce_out(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        output: &Span<B>,
        options: Options,
    ) -> Result<()> {
        let names = Names { op: "two_shot_all_reduce_out", buffer: "input", out: "output" };
        let numel = input.len();
        let sum = Sum { names, lead: 1, numel, input: None, result: Some((output, numel)) };
        self.sum(stream, Form::TwoShotAllReduceOut, input, sum, &options)
    }

    /// Memory for a result. If there is none, this PE takes part with validity 0, as with a refused argument.
    fn new_local(
        &self,
        stream: &Stream<B>,
        dtype: DType,
        numel: usize,
        options: &Options,
    ) -> Result<Local<B>> {
        match Local::new(&self.inner.team.world, dtype, numel) {
            Ok(local) => Ok(local),
            Err(e) => {
                self.refuse(stream, self.blank(Form::OneShotAllReduce, dtype, options), e.clone())?;
                Err(e)
            }
        }
    }

    fn sum(
        &self,
        stream: &Stream<B>,
        form: Form,
        buffer: &Handle<B>,
        sum: Sum<'_, B>,
        options: &Options,
    ) -> Result<()> {
        let x = Exchange { in_rows: sum.numel, lead: sum.lead, ..self.blank(form, buffer.dtype(), options) };
        let checked =
            sum.check(buffer).and_then(|()| self.output(sum.names.op, sum.names.buffer, buffer, x.row_bytes));
        match checked {
            Err(refused) => self.refuse(stream, x, refused),
            Ok(out) => {
                stream.keep(|| {
                    (buffer.clone(), sum.input.cloned(), sum.result.map(|(span, _)| span.clone()))
                })?;
                let x = Exchange {
                    input: sum.input.map_or(Addr::NULL, |span| span.addr),
                    result: sum.result.map_or(Addr::NULL, |(span, _)| span.addr),
                    output: Some(out),
                    ..x
                };
                self.run(stream, &x)
            }
        }
    }
}
