//! Collectives of a context: their arguments, checked here, and the exchange they become.

use std::time::Duration;

use super::context::Context;
use super::handle::Handle;
use super::reduce::check::apart;
use super::span::Span;
use super::stream::Stream;
use super::team::Team;
use crate::backend::{Addr, Backend, Exchange, ExchangeOutput, Form};
use crate::dtype::DType;
use crate::error::{Error, Fault, Result};
use crate::status::DTYPES;

/// What every collective takes beside its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Deadline, counted from when the stream reaches the operation; `None` is the team's.
    pub timeout: Option<Duration>,
    /// Blocks that the operation may occupy on a GPU; `None` is `SYMM_MAX_BLOCKS`. Ignored by backends without blocks.
    pub max_blocks: Option<u32>,
}

/// Arguments of the `all_to_all_vdev` family. Splits and offsets are `i64` in the memory of the stream, in rows.
#[derive(Debug)]
pub struct AllToAllVdev<'a, B: Backend> {
    /// Rows to send: `[N, row]`, any memory of this PE outside `output`. Free again when the operation completes.
    pub input: &'a Span<B>,
    /// Where received rows go: `[M, row]`, a handle over the context's team, the same allocation on every member.
    pub output: &'a Handle<B>,
    /// `[W]`, `[W·ne]`, or `[2, ne·W]` for the offset form, outside `output`. Unchanged by the operation.
    pub in_splits: &'a Span<B>,
    /// `[2, W]` or `[2, W·ne]`: row 0 rows received, row 1 their first rows in `output`. After a failure row 0 is zero.
    /// Memory outside the other three.
    pub out_splits_offsets: &'a Span<B>,
    /// Elements of a row, 1 or more.
    pub row: usize,
    /// Deadline and block budget.
    pub options: Options,
}

impl<B: Backend> Context<B> {
    /// All members meet; this stream's earlier puts are delivered before it is passed anywhere.
    ///
    /// # Collective
    /// Over the context's team.
    ///
    /// # Errors
    /// A failure that is set on the team. A deadline that passes sets [`Error::Timeout`] on it.
    #[doc(alias("nvshmem_barrier", "nvshmem_sync", "MPI_Barrier", "MPI_Win_fence"))]
    pub fn barrier(&self, stream: &Stream<B>, options: Options) -> Result<()> {
        self.run(stream, &self.blank(Form::Barrier, DType::U8, &options))
    }

    /// Every member's `input` in rank order into everybody's `output`.
    ///
    /// # Collective
    /// Over the context's team, with equal lengths and dtype.
    ///
    /// # Shapes
    /// `input`: `[n]`, memory of this PE outside the first W·n elements of `output`, or exactly this rank's block of them
    /// (in place); `output`: `[W·n]` or larger, the same allocation on every member.
    ///
    /// # Completion
    /// When the stream has passed it, `output` is complete here and `input` may be reused.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] here and [`Error::PeerInvalid`] on the others if an argument is refused; a failure that is
    /// set on the team.
    #[doc(alias("nvshmem_fcollect", "ncclAllGather", "MPI_Allgather"))]
    pub fn all_gather(
        &self,
        stream: &Stream<B>,
        input: &Span<B>,
        output: &Handle<B>,
        options: Options,
    ) -> Result<()> {
        let op = Form::AllGather;
        let x = Exchange { in_rows: input.len, ..self.blank(op, input.dtype, &options) };
        self.equal_blocks(stream, x, input, output)
    }

    /// Block `d` of `input` to block `r` of rank `d`'s `output`, r being this PE's rank.
    ///
    /// # Collective
    /// Over the context's team, with equal lengths and dtype.
    ///
    /// # Shapes
    /// `input`: `[W·k]`, memory of this PE outside the first W·k elements of `output`; `output`: `[W·k]` or larger, the same
    /// allocation on every member.
    ///
    /// # Completion
    /// When the stream has passed it, `output` is complete here and `input` may be reused.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); `input`'s length must be a multiple of W.
    #[doc(alias("nvshmem_all_to_all", "nvshmem_alltoall", "MPI_Alltoall"))]
    pub fn all_to_all(
        &self,
        stream: &Stream<B>,
        input: &Span<B>,
        output: &Handle<B>,
        options: Options,
    ) -> Result<()> {
        let op = Form::AllToAll;
        let x = Exchange { in_rows: input.len, ..self.blank(op, input.dtype, &options) };
        let w = self.ranks();
        if !input.len.is_multiple_of(w) {
            let refused =
                Error::argument(op.name(), "input", input.len, format!("a multiple of {w} elements"));
            return self.refuse(stream, x, refused);
        }
        self.equal_blocks(stream, x, input, output)
    }

    /// Rows to each rank by `in_splits`, received in rank order.
    ///
    /// # Collective
    /// Over the context's team, with equal dtype and row.
    ///
    /// # Shapes
    /// `in_splits`: `[W]`, rows to each rank, in the order in which they lie in `input`. `out_splits_offsets`: `[2, W]`,
    /// rows from each rank and their dense start rows.
    ///
    /// # Completion
    /// When the stream has passed it, `output` and `out_splits_offsets` are complete here and `input` may be reused.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] here and [`Error::PeerInvalid`] on the others if an argument is refused. Splits that are
    /// negative, exceed the input, or do not fit an output: [`Error::PeerInvalid`] on every member, naming the PE;
    /// nothing is written. A failure that is set on the team.
    #[doc(alias("MPI_Alltoallv", "ncclSend", "ncclRecv"))]
    pub fn all_to_all_vdev(&self, stream: &Stream<B>, args: &AllToAllVdev<'_, B>) -> Result<()> {
        self.vdev(stream, Form::AllToAllVdev, args, 1)
    }

    /// MoE dispatch: rows by (destination, expert), received by (expert, source).
    ///
    /// # Collective
    /// Over the context's team, with equal dtype, row, experts a rank and `major_align`.
    ///
    /// # Shapes
    /// `in_splits`: `[W·ne]`, index `d·ne + e`. `out_splits_offsets`: `[2, ne·W]`, index `e·W + s`. Each expert starts at a
    /// multiple of `major_align` rows and takes at least `major_align` rows, even if it gets none. Rows of padding are
    /// not written.
    ///
    /// # Completion, Errors
    /// As [`all_to_all_vdev`](Self::all_to_all_vdev).
    pub fn all_to_all_vdev_2d(
        &self,
        stream: &Stream<B>,
        args: &AllToAllVdev<'_, B>,
        major_align: usize,
    ) -> Result<()> {
        self.vdev(stream, Form::AllToAllVdev2d, args, major_align)
    }

    /// MoE combine: rows by (expert, destination) from anywhere in the input, received by (source, expert), densely.
    ///
    /// # Collective
    /// Over the context's team, with equal dtype, row and experts a rank.
    ///
    /// # Shapes
    /// `in_splits`: `[2, ne·W]`, index `e·W + d`: rows, then start rows in `input`; what a dispatch left in
    /// `out_splits_offsets`. `out_splits_offsets`: `[2, W·ne]`, index `s·ne + e`.
    ///
    /// # Completion, Errors
    /// As [`all_to_all_vdev`](Self::all_to_all_vdev).
    pub fn all_to_all_vdev_2d_offset(&self, stream: &Stream<B>, args: &AllToAllVdev<'_, B>) -> Result<()> {
        self.vdev(stream, Form::AllToAllVdev2dOffset, args, 1)
    }

    pub(super) fn ranks(&self) -> usize {
        self.inner.layout.ranks
    }

    pub(super) fn blank(&self, form: Form, dtype: DType, options: &Options) -> Exchange<'_, B> {
        let team = &self.inner.team;
        Exchange {
            form,
            dtype,
            row_bytes: dtype.size(),
            ne: 1,
            major_align: 1,
            input: Addr::NULL,
            in_rows: 0,
            output: None,
            in_splits: Addr::NULL,
            out_splits_offsets: Addr::NULL,
            result: Addr::NULL,
            root: 0,
            lead: 0,
            takes: &[],
            average: false,
            scratch: Addr::NULL,
            moves: &[],
            moves_table: Addr::NULL,
            invalid: false,
            refused: Fault::REFUSED,
            max_blocks: options.max_blocks.unwrap_or(team.world.config.max_blocks),
            limit: options.timeout.unwrap_or_else(|| team.timeout()),
        }
    }

    pub(super) fn run(&self, stream: &Stream<B>, x: &Exchange<'_, B>) -> Result<()> {
        self.inner.team.check(x.form.name())?;
        if let Err(refused) = stream.enter(x.form.name(), &self.inner.team) {
            // Another world's stream runs nothing of this one, and the members wait for this PE.
            return self.refuse(&Stream::new(&self.inner.team.world)?, self.abandon(x), refused);
        }
        stream.keep(|| self.clone())?;
        let planned = x.moves.iter().fold(0, |rows, m| m.rows.saturating_add(rows));
        let rows = x.in_rows.saturating_add(usize::try_from(planned).unwrap_or(usize::MAX));
        self.inner.team.world.counters.count(x.form.code(), rows.saturating_mul(x.row_bytes));
        // SAFETY: lengths were checked by the caller of this; spans and handles are kept valid by their keepers or by
        // their creators' promises.
        unsafe { self.inner.team.world.backend.exchange(&stream.raw, self.inner.raw(), x) }
    }

    /// As much of an operation as takes part in it where it is refused.
    fn abandon(&self, x: &Exchange<'_, B>) -> Exchange<'_, B> {
        let none = Options::default();
        Exchange { limit: x.limit, max_blocks: x.max_blocks, ..self.blank(x.form, x.dtype, &none) }
    }

    /// Takes part with validity 0, so that no member waits for this PE, and returns the reason.
    pub(super) fn refuse(&self, stream: &Stream<B>, x: Exchange<'_, B>, refused: Error) -> Result<()> {
        self.run(stream, &Exchange { invalid: true, refused: refused.refusal(), output: None, ..x })?;
        Err(refused)
    }

    pub(super) fn output<'a>(
        &self,
        op: &'static str,
        argument: &'static str,
        output: &'a Handle<B>,
        row_bytes: usize,
    ) -> Result<ExchangeOutput<'a, B>> {
        let team = &self.inner.team;
        if output.core.team.group.id() != team.group.id() {
            let expected = format!("a handle over the context's team {:?}", team.group.members());
            let got = format!("a handle over {:?}", output.core.team.group.members());
            return Err(Error::argument(op, argument, got, expected));
        }
        Ok(ExchangeOutput {
            handle: &output.core.raw,
            id: output.output_id(),
            offset: output.offset(),
            rows: output.len() * output.dtype().size() / row_bytes,
        })
    }

    fn equal_blocks(
        &self,
        stream: &Stream<B>,
        x: Exchange<'_, B>,
        input: &Span<B>,
        output: &Handle<B>,
    ) -> Result<()> {
        let op = x.form.name();
        let checked = one_dtype(op, input.dtype, output.dtype())
            .and_then(|()| self.input_apart(x.form, input, output))
            .and_then(|()| self.output(op, "output", output, x.row_bytes));
        match checked {
            Err(refused) => self.refuse(stream, x, refused),
            Ok(out) => {
                stream.keep(|| (input.clone(), output.clone()))?;
                self.run(stream, &Exchange { input: input.addr, output: Some(out), ..x })
            }
        }
    }

    /// Peers write their blocks while this PE reads its input; its own block of an all_gather nobody else writes.
    fn input_apart(&self, form: Form, input: &Span<B>, output: &Handle<B>) -> Result<()> {
        let (all, own) = (output.span(), self.inner.team.group.my_rank().saturating_mul(input.bytes()));
        let gathers = form == Form::AllGather;
        if gathers && own <= all.bytes() && input.addr == all.addr.offset(own) {
            return Ok(());
        }
        let written = if gathers { input.len.saturating_mul(self.ranks()) } else { input.len };
        apart(form.name(), "input", input, ("output", &all.slice(0, written.min(all.len))?))
    }

    fn vdev(
        &self,
        stream: &Stream<B>,
        form: Form,
        args: &AllToAllVdev<'_, B>,
        major_align: usize,
    ) -> Result<()> {
        let blank = self.blank(form, args.input.dtype, &args.options);
        match self.check_vdev(form, args, major_align) {
            Err(refused) => self.refuse(stream, blank, refused),
            Ok(v) => {
                stream.keep(|| {
                    let spans = [args.input, args.in_splits, args.out_splits_offsets].map(Span::clone);
                    (spans, args.output.clone())
                })?;
                let x = Exchange {
                    row_bytes: v.row_bytes,
                    ne: v.ne,
                    major_align,
                    input: args.input.addr,
                    in_rows: args.input.len / args.row,
                    output: Some(v.output),
                    in_splits: args.in_splits.addr,
                    out_splits_offsets: args.out_splits_offsets.addr,
                    ..blank
                };
                self.run(stream, &x)
            }
        }
    }

    fn check_vdev<'a>(
        &self,
        form: Form,
        args: &AllToAllVdev<'a, B>,
        major_align: usize,
    ) -> Result<Checked<'a, B>> {
        let op = form.name();
        let wrong =
            |argument, got: String, expected: String| Err(Error::argument(op, argument, got, expected));
        let w = self.ranks();
        let len = args.input.len;
        if args.row == 0 || !len.is_multiple_of(args.row) {
            return wrong(
                "row",
                args.row.to_string(),
                format!("1 or more, and a divisor of input's {len} elements"),
            );
        }
        if major_align == 0 || major_align > i32::MAX as usize {
            return wrong(
                "major_align",
                major_align.to_string(),
                "a number of rows from 1 to 2^31 - 1".into(),
            );
        }
        one_dtype(op, args.input.dtype, args.output.dtype())?;
        for (name, span) in [("in_splits", args.in_splits), ("out_splits_offsets", args.out_splits_offsets)] {
            if span.dtype != DType::I64 {
                return wrong(name, span.dtype.to_string(), "i64".into());
            }
            if !span.addr.0.is_multiple_of(8) {
                return wrong(name, format!("address {:?}", span.addr), "8-byte alignment".into());
            }
        }
        // Peers write rows to the output while this PE still reads; what they send may land anywhere in it.
        let output = ("output", &args.output.span());
        apart(op, "input", args.input, output)?;
        apart(op, "in_splits", args.in_splits, output)?;
        for other in [output, ("input", args.input), ("in_splits", args.in_splits)] {
            apart(op, "out_splits_offsets", args.out_splits_offsets, other)?;
        }
        let row_bytes = match args.row.checked_mul(args.input.dtype.size()) {
            Some(b) => b,
            None => return wrong("row", args.row.to_string(), "a row that fits the address space".into()),
        };
        let rows_of_splits = if form.has_in_offsets() { 2 } else { 1 };
        let n = args.in_splits.len / rows_of_splits;
        let shape = |n: &str| if rows_of_splits == 2 { format!("[2, {n}]") } else { format!("[{n}]") };
        let ne = if form == Form::AllToAllVdev { 1 } else { n / w };
        if args.in_splits.len != rows_of_splits * w * ne {
            let expected =
                if form == Form::AllToAllVdev { format!("[{w}]") } else { shape(&format!("{w}·ne")) };
            return wrong("in_splits", format!("{} elements", args.in_splits.len), expected);
        }
        if args.out_splits_offsets.len != 2 * w * ne {
            let got = format!("{} elements", args.out_splits_offsets.len);
            return wrong("out_splits_offsets", got, format!("[2, {}]", w * ne));
        }
        let max = self.max_splits();
        if w * ne > max {
            let expected = format!("at most {max} splits (a context made for more takes them)");
            return wrong("in_splits", format!("{} splits", w * ne), expected);
        }
        Ok(Checked { row_bytes, ne, output: self.output(op, "output", args.output, row_bytes)? })
    }
}

struct Checked<'a, B: Backend> {
    row_bytes: usize,
    ne: usize,
    output: ExchangeOutput<'a, B>,
}

pub(crate) fn same_dtype(
    op: &'static str,
    argument: &'static str,
    got: DType,
    (whose, expected): (&'static str, DType),
) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(Error::argument(op, argument, got, format!("{whose}'s dtype, {expected}")))
}

/// Of an operation whose input and output are given beside each other: neither is what the other must be like.
pub(crate) fn one_dtype(op: &'static str, input: DType, output: DType) -> Result<()> {
    if input == output {
        return Ok(());
    }
    Err(Error::argument(op, DTYPES, format!("{input} and {output}"), "one for both"))
}

/// The team's own operations: those of [`Team::context`].
impl<B: Backend> Team<B> {
    /// See [`Context::barrier`].
    ///
    /// # Errors
    /// As there.
    pub fn barrier(&self, stream: &Stream<B>, options: Options) -> Result<()> {
        self.context().barrier(stream, options)
    }

    /// See [`Context::all_gather`].
    ///
    /// # Errors
    /// As there.
    pub fn all_gather(
        &self,
        stream: &Stream<B>,
        input: &Span<B>,
        output: &Handle<B>,
        options: Options,
    ) -> Result<()> {
        self.context().all_gather(stream, input, output, options)
    }

    /// See [`Context::all_to_all`].
    ///
    /// # Errors
    /// As there.
    pub fn all_to_all(
        &self,
        stream: &Stream<B>,
        input: &Span<B>,
        output: &Handle<B>,
        options: Options,
    ) -> Result<()> {
        self.context().all_to_all(stream, input, output, options)
    }

    /// See [`Context::all_to_all_vdev`].
    ///
    /// # Errors
    /// As there.
    pub fn all_to_all_vdev(&self, stream: &Stream<B>, args: &AllToAllVdev<'_, B>) -> Result<()> {
        self.context().all_to_all_vdev(stream, args)
    }

    /// See [`Context::all_to_all_vdev_2d`].
    ///
    /// # Errors
    /// As there.
    pub fn all_to_all_vdev_2d(
        &self,
        stream: &Stream<B>,
        args: &AllToAllVdev<'_, B>,
        major_align: usize,
    ) -> Result<()> {
        self.context().all_to_all_vdev_2d(stream, args, major_align)
    }

    /// See [`Context::all_to_all_vdev_2d_offset`].
    ///
    /// # Errors
    /// As there.
    pub fn all_to_all_vdev_2d_offset(&self, stream: &Stream<B>, args: &AllToAllVdev<'_, B>) -> Result<()> {
        self.context().all_to_all_vdev_2d_offset(stream, args)
    }
}
