//! Exchange plans: splits exchanged once, for many exchanges with the same splits.
//!
//! ```text
//! let mut buffers = context.plan_buffers(ne)?;                               // memory, no communication
//! let mut plan = buffers.all_to_all_vdev_2d(&stream, &in_splits, align)?;    // collective: splits are exchanged, here only
//! loop {
//!     let there = plan.dispatch(&stream, &Planned { input: &tokens, output: &expert_rows, … })?;
//!     …                                                                      // experts work on plan.received()
//!     there.combine(&stream, &Planned { input: &results, output: &tokens_back, … })?;
//! }
//! ```
//!
//! A call publishes a header and no splits, nobody works out places, and the way back is known without asking. Where a member
//! has no such form of exchange (over NVSHMEM, one with peers that are not direct), each call is the ordinary exchange with the
//! plan's splits: [`ExchangePlan::publishes_splits`]. Borrows keep what a plan was made of: the plan borrows its buffers, so they cannot get another plan while it lives; a dispatch borrows
//! the plan until it is taken back, so rows under way cannot be overtaken by the next dispatch.

mod legs;

use super::collective::{Options, one_dtype};
use super::context::Context;
use super::handle::Handle;
use super::reduce::check::apart;
use super::span::{Local, Span};
use super::stream::Stream;
use crate::backend::{Backend, Exchange, Form};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::pe::Pe;

use legs::{Agreed, Leg};

const OP: &str = Form::PlannedAllToAllVdev.name();

/// Most rows that a PE may plan to send: the kernels' limit, too (`kernels/cu/exchange/common.cuh`).
const MAX_ROWS: u64 = 1 << 40;

/// Memory of a plan; see [`Context::plan_buffers`].
#[derive(Debug)]
pub struct PlanBuffers<B: Backend> {
    context: Context<B>,
    /// Experts a rank.
    ne: usize,
    /// Moves there and back; where calls publish splits, what they leave in `out_splits_offsets`, which the plan knows already.
    tables: [Local<B>; 2],
    /// Rows and offsets as received there, and as returned.
    results: [Local<B>; 2],
    /// The stream of the last call of a plan, which may still read the tables.
    used_by: Option<Stream<B>>,
}

/// An exchange whose splits all members know; made by [`PlanBuffers::all_to_all_vdev`] or
/// [`PlanBuffers::all_to_all_vdev_2d`], used many times.
///
/// It borrows its buffers: they cannot be given another plan while this one lives.
///
/// ```compile_fail,E0499
/// # use symm_core::model::{PlanBuffers, Span, Stream};
/// fn two<B: symm_core::Backend>(buffers: &mut PlanBuffers<B>, stream: &Stream<B>, splits: &Span<B>) {
///     let first = buffers.all_to_all_vdev(stream, splits);
///     let second = buffers.all_to_all_vdev(stream, splits); // the buffers are the first plan's
///     drop((first, second));
/// }
/// ```
#[derive(Debug)]
pub struct ExchangePlan<'b, B: Backend> {
    buffers: &'b mut PlanBuffers<B>,
    /// There and back.
    legs: [Leg; 2],
    /// What calls there and back are.
    forms: [Form; 2],
    major_align: usize,
}

/// What one call of a plan moves.
#[derive(Debug)]
pub struct Planned<'a, B: Backend> {
    /// Rows to send: `[N, row]`, any memory of this PE outside `output`. Free again when the operation completes.
    pub input: &'a Span<B>,
    /// Where received rows go: `[M, row]`, a handle over the plan's team, the same allocation on every member.
    pub output: &'a Handle<B>,
    /// Elements of a row, 1 or more.
    pub row: usize,
    /// Deadline and block budget.
    pub options: Options,
}

/// Rows that were dispatched, to be taken back by [`combine`](Self::combine), or dropped where nothing comes back.
///
/// It borrows the plan: the next dispatch has to wait until this one is taken back.
///
/// ```compile_fail,E0499
/// # use symm_core::model::{ExchangePlan, Planned, Stream};
/// fn overtake<B: symm_core::Backend>(
///     plan: &mut ExchangePlan<'_, B>,
///     stream: &Stream<B>,
///     there: &Planned<'_, B>,
///     back: &Planned<'_, B>,
/// ) -> symm_core::Result<()> {
///     let first = plan.dispatch(stream, there)?;
///     let second = plan.dispatch(stream, there)?; // the first one's rows are still under way
///     first.combine(stream, back)?;
///     second.combine(stream, back)
/// }
/// ```
///
/// In turn it is fine:
///
/// ```
/// # use symm_core::model::{ExchangePlan, Planned, Stream};
/// fn in_turn<B: symm_core::Backend>(
///     plan: &mut ExchangePlan<'_, B>,
///     stream: &Stream<B>,
///     there: &Planned<'_, B>,
///     back: &Planned<'_, B>,
/// ) -> symm_core::Result<()> {
///     plan.dispatch(stream, there)?.combine(stream, back)?;
///     plan.dispatch(stream, there)?.combine(stream, back)
/// }
/// ```
#[derive(Debug)]
pub struct Dispatched<'p, 'b, B: Backend> {
    plan: &'p mut ExchangePlan<'b, B>,
    stream: Stream<B>,
}

impl<B: Backend> Context<B> {
    /// Memory for plans of `ne` experts a rank (1 for plans of one dimension). Does not communicate.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `ne` is 0 or W·ne beyond what the address space holds; [`Error::OutOfMemory`].
    pub fn plan_buffers(&self, ne: usize) -> Result<PlanBuffers<B>> {
        let columns = self.ranks().checked_mul(ne).filter(|n| *n > 0 && *n < usize::MAX / 64);
        let Some(columns) = columns else {
            return Err(Error::argument(OP, "ne", ne, "1 or more, and W·ne columns that fit memory"));
        };
        let world = &self.inner.team.world;
        let new = |words| Local::new(world, DType::I64, words);
        Ok(PlanBuffers {
            context: self.clone(),
            ne,
            tables: [new(4 * (columns + 1))?, new(4 * (columns + 1))?],
            results: [new(2 * columns)?, new(2 * columns)?],
            used_by: None,
        })
    }
}

impl<B: Backend> PlanBuffers<B> {
    /// A plan for exchanges as [`Context::all_to_all_vdev`] makes them.
    ///
    /// # Collective
    /// Over the context's team. Waits for the stream, for that of the last call of the buffers' plan before, and for all
    /// members: for set-up, not for the hot path.
    ///
    /// # Shapes
    /// `in_splits`: `[W]` i64; read once, here. The buffers must have been made for one expert a rank.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] here and [`Error::PeerInvalid`] on the others if an argument is refused; `PeerInvalid` on every
    /// member for a negative split, or members that make different plans; [`Error::Setup`] naming a member on which the team has
    /// failed, which itself gets that failure; [`Error::Timeout`] naming who did not come;
    /// [`Error::PeerFailed`]; [`Error::Unsupported`] while the stream is captured. `InvalidArgument` on every member if calls
    /// [publish splits](ExchangePlan::publishes_splits) and the context was made for fewer. None of them stays set on the team.
    pub fn all_to_all_vdev(
        &mut self,
        stream: &Stream<B>,
        in_splits: &Span<B>,
    ) -> Result<ExchangePlan<'_, B>> {
        self.plan(stream, Form::AllToAllVdev, in_splits, 1)
    }

    /// A plan for exchanges as [`Context::all_to_all_vdev_2d`] makes them, and back as
    /// [`Context::all_to_all_vdev_2d_offset`] does.
    ///
    /// # Collective
    /// As [`all_to_all_vdev`](Self::all_to_all_vdev), with equal `major_align`.
    ///
    /// # Shapes
    /// `in_splits`: `[W·ne]` i64, index `d·ne + e`; read once, here.
    ///
    /// # Errors
    /// As there.
    pub fn all_to_all_vdev_2d(
        &mut self,
        stream: &Stream<B>,
        in_splits: &Span<B>,
        major_align: usize,
    ) -> Result<ExchangePlan<'_, B>> {
        self.plan(stream, Form::AllToAllVdev2d, in_splits, major_align)
    }

    fn plan(
        &mut self,
        stream: &Stream<B>,
        form: Form,
        in_splits: &Span<B>,
        major_align: usize,
    ) -> Result<ExchangePlan<'_, B>> {
        let mine = self.read_splits(stream, form, in_splits, major_align);
        let team = &self.context.inner.team;
        let without = team.world.backend.without_plans(self.context.inner.raw());
        let Agreed { legs, without } = legs::agree(team, form, (self.ne, major_align), mine, without)?;
        for (leg, (table, result)) in legs.iter().zip(self.tables.iter().zip(&self.results)) {
            if without.is_none() {
                let words = crate::splits::table(&leg.moves);
                stream.write(&table.span().slice(0, words.len())?, &words)?;
            }
            stream.write(&result.span(), &leg.result)?;
        }
        let forms = match without {
            None => [Form::PlannedAllToAllVdev; 2],
            Some((pe, why)) => {
                self.publish_splits(pe, &why)?;
                [form, Form::AllToAllVdev2dOffset]
            }
        };
        Ok(ExchangePlan { buffers: self, legs, forms, major_align })
    }

    /// Notes that calls publish their splits, since `pe` lacks the planned form.
    fn publish_splits(&self, pe: Pe, why: &str) -> Result<()> {
        let (team, max) = (&self.context.inner.team, self.context.max_splits());
        if self.context.ranks() * self.ne > max {
            let expected = format!(
                "at most {max} splits, W·ne: calls of this plan publish them, since PE {pe} has no planned form ({why}); a \
                 context made for more takes them"
            );
            return Err(Error::argument(OP, "ne", self.ne, expected));
        }
        let n = team.group.len();
        team.world.counters.fall_back(format!(
            "exchange plans of a team of {n}: every call publishes its splits, since PE {pe} has no planned form: {why}"
        ));
        Ok(())
    }

    fn read_splits(
        &mut self,
        stream: &Stream<B>,
        form: Form,
        in_splits: &Span<B>,
        major_align: usize,
    ) -> Result<Vec<i64>> {
        let w = self.context.ranks();
        if form == Form::AllToAllVdev && self.ne != 1 {
            return Err(Error::argument(OP, "ne", self.ne, "1: a plan of one dimension has no experts"));
        }
        if major_align == 0 || major_align > i32::MAX as usize {
            return Err(Error::argument(
                OP,
                "major_align",
                major_align,
                "a number of rows from 1 to 2^31 - 1",
            ));
        }
        if in_splits.dtype != DType::I64 {
            return Err(Error::argument(OP, "in_splits", in_splits.dtype, "i64"));
        }
        if in_splits.len != w * self.ne {
            let got = format!("{} elements", in_splits.len);
            return Err(Error::argument(OP, "in_splits", got, format!("[{}]", w * self.ne)));
        }
        stream.enter(OP, &self.context.inner.team)?;
        if let Some(last) = self.used_by.take_if(|last| !last.is(stream)) {
            last.synchronize()?;
        }
        let splits = stream.read(in_splits)?;
        // Negative ones are told to all, with their place.
        let rows = splits.iter().filter_map(|n| u64::try_from(*n).ok()).fold(0, u64::saturating_add);
        if rows > MAX_ROWS {
            let expected = format!("at most {MAX_ROWS} rows in all, more than any memory holds");
            return Err(Error::argument(OP, "in_splits", rows, expected));
        }
        Ok(splits)
    }
}

impl<'b, B: Backend> ExchangePlan<'b, B> {
    /// Whether calls are ordinary exchanges that publish the plan's splits, since a member has no planned form:
    /// [`Context::all_to_all_vdev`] or [`Context::all_to_all_vdev_2d`] there, [`Context::all_to_all_vdev_2d_offset`] back, by which
    /// names errors and [`Stats`](super::Stats) then call them. Everything else is as it says here: what is moved, what is refused,
    /// that no other plan's call mixes with it. The same on every member; [`Stats::fallbacks`](super::Stats) says why.
    pub fn publishes_splits(&self) -> bool {
        self.forms[0] != Form::PlannedAllToAllVdev
    }

    /// Rows that this PE sends: the input of a dispatch needs as many.
    pub fn in_rows(&self) -> usize {
        self.legs[0].in_rows
    }

    /// Rows that the output of a dispatch needs here, up to the last one that is written.
    pub fn out_rows(&self) -> usize {
        self.legs[0].out_rows
    }

    /// Rows and offsets of what a dispatch brings, as [`Context::all_to_all_vdev_2d`] writes `out_splits_offsets`: `[2, W·ne]`
    /// i64, in the memory of the stream. Not to be written.
    pub fn received(&self) -> Span<B> {
        self.buffers.results[0].span()
    }

    /// The same of what comes back: row 0 is `in_splits` of the plan.
    pub fn returned(&self) -> Span<B> {
        self.buffers.results[1].span()
    }

    /// Sends rows as planned.
    ///
    /// # Collective
    /// Over the plan's team, with equal plan, dtype and row.
    ///
    /// # Completion
    /// When the stream has passed it, `output` is complete here and `input` may be reused.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] here and [`Error::PeerInvalid`] on the others if an argument is refused; `PeerInvalid` on all
    /// if plan, dtype or row differ from rank 0's; nothing is written. A failure that is set on the team.
    pub fn dispatch<'p>(
        &'p mut self,
        stream: &Stream<B>,
        args: &Planned<'_, B>,
    ) -> Result<Dispatched<'p, 'b, B>> {
        self.run(stream, 0, args)?;
        self.buffers.used_by = Some(stream.clone());
        Ok(Dispatched { stream: stream.clone(), plan: self })
    }

    /// One call, there (0) or back (1).
    fn run(&self, stream: &Stream<B>, which: usize, args: &Planned<'_, B>) -> Result<()> {
        let (context, leg) = (&self.buffers.context, &self.legs[which]);
        let blank = context.blank(self.forms[which], args.input.dtype, &args.options);
        match self.check(leg, args) {
            Err(refused) => context.refuse(stream, blank, refused),
            Ok(row_bytes) => {
                let output = context.output(OP, "output", args.output, row_bytes)?;
                let (table, results) = (&self.buffers.tables[which], &self.buffers.results);
                stream.keep(|| {
                    let memory = (table.clone(), results.clone(), context.clone());
                    (args.input.clone(), args.output.clone(), memory)
                })?;
                let x = Exchange {
                    row_bytes,
                    input: args.input.addr,
                    output: Some(output),
                    lead: leg.digest,
                    ..blank
                };
                if !self.publishes_splits() {
                    let x = Exchange { moves: &leg.moves, moves_table: table.span().addr, ..x };
                    return context.run(stream, &x);
                }
                // Row 0 of what comes back is what was sent; what was brought, with its places, is what goes back.
                let x = Exchange {
                    ne: self.buffers.ne,
                    major_align: if which == 0 { self.major_align } else { 1 },
                    in_rows: args.input.len / args.row,
                    in_splits: results[1 - which].span().addr,
                    out_splits_offsets: table.span().addr,
                    ..x
                };
                context.run(stream, &x)
            }
        }
    }

    /// Bytes of a row.
    fn check(&self, leg: &Leg, args: &Planned<'_, B>) -> Result<usize> {
        let (len, row) = (args.input.len, args.row);
        if row == 0 || !len.is_multiple_of(row) {
            return Err(Error::argument(
                OP,
                "row",
                row,
                format!("1 or more, and a divisor of input's {len} elements"),
            ));
        }
        if len / row < leg.in_rows {
            let got = format!("{} rows", len / row);
            return Err(Error::argument(
                OP,
                "input",
                got,
                format!("the plan's {} rows or more", leg.in_rows),
            ));
        }
        one_dtype(OP, args.input.dtype, args.output.dtype())?;
        apart(OP, "input", args.input, ("output", &args.output.span()))?;
        let Some(row_bytes) = row.checked_mul(args.input.dtype.size()) else {
            return Err(Error::argument(OP, "row", row, "a row that fits the address space"));
        };
        let rows = self.buffers.context.output(OP, "output", args.output, row_bytes)?.rows;
        if rows < leg.out_rows {
            let expected = format!("the plan's {} rows or more", leg.out_rows);
            return Err(Error::argument(OP, "output", format!("{rows} rows"), expected));
        }
        Ok(row_bytes)
    }
}

impl<B: Backend> Dispatched<'_, '_, B> {
    /// Rows and offsets of what was brought; [`ExchangePlan::received`].
    pub fn received(&self) -> Span<B> {
        self.plan.received()
    }

    /// Sends the rows of the places where the dispatch put them back to where they came from, as
    /// [`Context::all_to_all_vdev_2d_offset`] with the dispatch's `out_splits_offsets` does: every PE gets its rows in the order
    /// in which it had sent them.
    ///
    /// # Collective
    /// As [`ExchangePlan::dispatch`], on the stream of the dispatch.
    ///
    /// # Completion, Errors
    /// As there; another stream than the dispatch's is refused, since nothing orders it behind the rows.
    pub fn combine(self, stream: &Stream<B>, args: &Planned<'_, B>) -> Result<()> {
        let plan = self.plan;
        if !stream.is(&self.stream) {
            let context = &plan.buffers.context;
            let blank = context.blank(plan.forms[1], args.input.dtype, &args.options);
            let refused = Error::argument(OP, "stream", "another stream", "the stream of the dispatch");
            return context.refuse(stream, blank, refused);
        }
        plan.run(stream, 1, args)
    }
}
