//! Collectives: one launch of the exchange kernel.

use symm_core::Result;
use symm_core::backend::{Exchange, ExchangeOutput, Form};
use symm_core::status::words;
use symm_kernels::Entry;
use symm_kernels::geometry::{Limits, exchange, exchange_few};
use symm_kernels::params::{ExchangeParams, FEW_RANKS, FEW_SPLITS, near};

use crate::backend::Cuda;
use crate::handle::RawContext;
use crate::ops::nanoseconds;
use crate::stream::Stream;

/// What every kernel of the exchange protocol is given, whatever its form.
pub(crate) fn protocol(
    stream: &Stream,
    context: &RawContext,
    x: &Exchange<'_, Cuda>,
) -> Result<ExchangeParams> {
    let l = &context.layout;
    Ok(ExchangeParams {
        status: context.status.params(),
        record: stream.record()?,
        near_regions: near(&context.regions),
        regions: context.regions_ptr(),
        members: context.members_ptr(),
        mine: context.mine,
        local: context.local_ptr(),
        arrival: l.arrival as u64,
        done: l.done as u64,
        aborted: l.aborted as u64,
        slots: l.slots as u64,
        slot_bytes: l.slot_bytes as u64,
        notes: l.notes as u64,
        pushed: l.pushed as u64,
        form: x.form.code(),
        dtype: u64::from(x.dtype.code()),
        row_bytes: x.row_bytes as u64,
        ne: x.ne as u64,
        major_align: x.major_align as u64,
        in_rows: x.in_rows as u64,
        limit_ns: nanoseconds(x.limit),
        ranks: u32::try_from(context.members.len()).unwrap_or(u32::MAX),
        rank: u32::try_from(context.rank).unwrap_or(u32::MAX),
        ..ExchangeParams::default()
    })
}

/// What this PE publishes, in the order of `symm_core::layout::Header`: epoch, form, …; faults of splits, and splits, there are
/// none.
pub(crate) fn header(e: &ExchangeParams, root: u64, lead: u64) -> [u64; 16] {
    [
        0,
        e.form,
        e.dtype,
        e.row_bytes,
        e.ne,
        e.major_align,
        e.invalid,
        e.invalid_a,
        e.invalid_b,
        e.out_id,
        e.out_offset,
        e.out_rows,
        e.in_rows,
        0,
        root,
        lead,
    ]
}

/// The operation's symmetric buffer.
pub(crate) fn set_output(params: &mut ExchangeParams, out: &ExchangeOutput<'_, Cuda>) {
    params.near_buffers = near(&out.handle.buffers);
    params.out_buffers = out.handle.device_ptrs().buffers.0;
    params.out_bytes = out.handle.data_bytes as u64;
    params.out_id = out.id;
    params.out_offset = out.offset as u64;
    params.out_rows = out.rows as u64;
}

/// What a kernel that moves rows is given, all but the blocks of its launch.
pub(crate) fn exchange_params(
    stream: &Stream,
    context: &RawContext,
    x: &Exchange<'_, Cuda>,
) -> Result<ExchangeParams> {
    let mut params = protocol(stream, context, x)?;
    params.input = x.input.0;
    params.in_splits = x.in_splits.0;
    params.out_splits = x.out_splits_offsets.0;
    if x.invalid {
        // Nothing of a refused descriptor is read, so nothing of it needs to be right.
        [params.invalid, params.invalid_a, params.invalid_b] = words(&x.refused);
    } else {
        params.n_splits = x.form.n_splits(context.members.len(), x.ne) as u64;
        // The kernels compare the word of the dtype and read nothing of it: a plan's digest has room above the code.
        params.dtype |= (x.lead as u64) << 32;
        if let Some(out) = &x.output {
            set_output(&mut params, out);
        }
    }
    Ok(params)
}

/// The kernel for a form: its own where notes hold all that is published, else the one for any number of splits.
fn entry(form: Form, params: &ExchangeParams) -> Entry {
    if u64::from(params.ranks) > FEW_RANKS || params.n_splits > FEW_SPLITS {
        return Entry::Exchange;
    }
    match form {
        Form::Barrier => Entry::ExchangeBarrier,
        Form::AllGather => Entry::ExchangeAllGather,
        Form::AllToAll => Entry::ExchangeAllToAll,
        Form::AllToAllVdev => Entry::ExchangeVdev,
        Form::AllToAllVdev2d => Entry::ExchangeVdev2d,
        Form::AllToAllVdev2dOffset => Entry::ExchangeVdev2dOffset,
        _ => Entry::Exchange,
    }
}

impl Cuda {
    /// # Safety
    /// As [`Backend::exchange`](symm_core::Backend::exchange).
    pub(crate) unsafe fn enqueue_exchange(
        &self,
        stream: &Stream,
        context: &RawContext,
        x: &Exchange<'_, Cuda>,
    ) -> Result<()> {
        if x.form.takes() {
            // SAFETY: the caller's promise, passed on.
            return unsafe { self.enqueue_take(stream, context, x) };
        }
        if x.form == Form::PlannedAllToAllVdev {
            // SAFETY: the caller's promise, passed on.
            return unsafe { self.enqueue_planned(stream, context, x) };
        }
        if x.form.reduces() || x.form == Form::Broadcast {
            // SAFETY: the caller's promise, passed on.
            return unsafe { self.enqueue_reduce(stream, context, x) };
        }
        let capturing = stream.is_capturing();
        if x.invalid && capturing {
            return Ok(());
        }
        let ranks = context.members.len();
        let mut params = exchange_params(stream, context, x)?;
        let rows = if x.form == Form::AllGather { x.in_rows.saturating_mul(ranks) } else { x.in_rows };
        let bytes =
            if x.invalid || x.form == Form::Barrier { 0 } else { rows.saturating_mul(x.row_bytes).max(1) };
        let max_blocks = if x.max_blocks == 0 { self.max_blocks } else { x.max_blocks };
        let limits = Limits { multiprocessors: self.shared.device.multiprocessors, max_blocks };
        let entry = entry(x.form, &params);
        let launch = match entry {
            Entry::Exchange => exchange(bytes as u64, params.ranks, limits),
            _ => exchange_few(bytes as u64, params.ranks, limits),
        };
        params.remote_blocks = launch.remote;
        if !capturing {
            context.order(stream)?;
        }
        let mut turn = stream.turn()?;
        params.turn = turn.number();
        // SAFETY: the parameters are the kernel's; tables and regions live as long as context and handle, and the caller
        // promises the addresses of the descriptor.
        unsafe {
            self.kernels.launch(entry.for_launch(launch.threads, bytes as u64), launch, stream, &params)?
        };
        turn.taken();
        Ok(())
    }
}
