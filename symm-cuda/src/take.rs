//! Forms that take: one launch, or, for the low-contention forms, a launch, copies by the copy engines, and another launch.
//!
//! Copy engines get and do not put, although they put a little faster (390 GB/s where they get 371, 2 H200): nothing keeps a copy that
//! was enqueued from running, so what it writes must be this PE's own, whatever the launch before it finds.

use symm_core::backend::{Exchange, ExchangeOutput, Form, Take};
use symm_core::{Addr, DType, Result};
use symm_kernels::geometry::{Launch, Limits, reduce};
use symm_kernels::params::{self, TAKE_BEGIN, TAKE_FINISH, TAKE_WHOLE, TakeParams};
use symm_kernels::{Entry, params::MAX_TAKES};

use crate::backend::Cuda;
use crate::handle::RawContext;
use crate::reduce::reduce_params;
use crate::stream::{Stream, enqueue_copy};

const _: () = assert!(MAX_TAKES == symm_core::backend::MAX_TAKES);

/// Bytes of a PE's own block from which on it is copied beside the others: by a copy engine of its own, for two events that the GPU
/// and, outside a graph, the host have to handle.
const BESIDE: usize = 2 << 20;

/// Bytes of scratch that a form needs; see [`Backend::scratch_bytes`](symm_core::Backend::scratch_bytes).
pub(crate) fn scratch_bytes(form: Form, ranks: usize, bytes: usize) -> usize {
    // What is added up is brought here first.
    if form == Form::LowContentionReduceScatter { block_bytes(bytes).saturating_mul(ranks) } else { 0 }
}

/// Bytes from one rank's block to the next one's in scratch: all blocks are aligned alike.
fn block_bytes(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(16).unwrap_or(usize::MAX)
}

fn in_bytes(t: &Take, size: u64) -> params::Take {
    params::Take {
        src: t.src * size,
        src_stride: t.src_stride * size,
        rows: t.rows,
        cols: t.cols * size,
        dst: t.dst.0,
        dst_stride: t.dst_stride * size,
        dst_step: t.dst_step * size,
    }
}

fn entry(dtype: DType) -> Entry {
    match dtype {
        DType::F16 => Entry::TakeF16,
        DType::BF16 => Entry::TakeBf16,
        DType::F32 => Entry::TakeF32,
        DType::F64 => Entry::TakeF64,
        DType::I32 => Entry::TakeI32,
        DType::I64 => Entry::TakeI64,
        // The model refuses other types where something is added up.
        _ => Entry::TakeCopy,
    }
}

/// What every kernel of the forms that take is given.
pub(crate) fn take_params(
    stream: &Stream,
    context: &RawContext,
    x: &Exchange<'_, Cuda>,
) -> Result<TakeParams> {
    let reduce = reduce_params(stream, context, x)?;
    // Of a descriptor that takes part as invalid nothing is used.
    let valid = x.output.is_some() && !x.invalid;
    let divisor = if x.average { reduce.exchange.ranks } else { 1 };
    let mut params = TakeParams { reduce, divisor, phase: TAKE_WHOLE, ..TakeParams::default() };
    let size = x.row_bytes as u64;
    for (place, t) in params.takes.iter_mut().zip(x.takes).filter(|_| valid) {
        *place = in_bytes(t, size);
        params.count += 1;
    }
    Ok(params)
}

impl Cuda {
    /// # Safety
    /// As [`Backend::exchange`](symm_core::Backend::exchange), for the forms that take.
    pub(crate) unsafe fn enqueue_take(
        &self,
        stream: &Stream,
        context: &RawContext,
        x: &Exchange<'_, Cuda>,
    ) -> Result<()> {
        let capturing = stream.is_capturing();
        if x.invalid && capturing {
            return Ok(());
        }
        let params = take_params(stream, context, x)?;
        let output = x.output.as_ref().filter(|_| !x.invalid);
        if !capturing {
            context.order(stream)?;
        }
        let sums = x.form.sums_takes();
        let entry = if sums { entry(x.dtype) } else { Entry::TakeCopy };
        if let Some(out) = output.filter(|_| x.form.low_contention()) {
            // SAFETY: the caller's promise, passed on.
            return unsafe { self.low_contention(stream, (x, out), params, entry) };
        }
        let launch = self.size(x, &params);
        // SAFETY: the parameters are the kernel's; tables and regions live as long as context and handle, and the caller
        // promises the addresses of the descriptor.
        unsafe { self.kernels.launch(entry, launch, stream, &params) }
    }

    fn size(&self, x: &Exchange<'_, Cuda>, params: &TakeParams) -> Launch {
        let bytes = params.takes.iter().map(|t| t.rows.saturating_mul(t.cols)).fold(0, u64::saturating_add);
        let max_blocks = if x.max_blocks == 0 { self.max_blocks } else { x.max_blocks };
        reduce(bytes, Limits { multiprocessors: self.shared.device.multiprocessors, max_blocks })
    }

    /// # Safety
    /// As [`enqueue_take`](Self::enqueue_take).
    unsafe fn low_contention(
        &self,
        stream: &Stream,
        (x, out): (&Exchange<'_, Cuda>, &ExchangeOutput<'_, Cuda>),
        mut params: TakeParams,
        entry: Entry,
    ) -> Result<()> {
        let one = Launch { blocks: 1, ..self.size(x, &TakeParams::default()) };
        let (t, ranks, me) = (params.takes[0], out.handle.buffers.len(), out.handle.rank);
        let bytes = usize::try_from(t.rows.saturating_mul(t.cols)).unwrap_or(usize::MAX);
        let sums = x.form.sums_takes();
        let (dst, step) =
            if sums { (x.scratch, block_bytes(bytes)) } else { (Addr(t.dst), t.dst_step as usize) };
        let at = |rank: usize| {
            let src = Addr(out.handle.buffers[rank]).offset(out.offset + t.src as usize);
            (dst.offset(rank * step), src)
        };
        let copy = |rank: usize| {
            let (dst, src) = at(rank);
            enqueue_copy(stream, dst, src, bytes)
        };
        params.phase = TAKE_BEGIN;
        // SAFETY: as in `enqueue_take`.
        let begin = || unsafe { self.kernels.launch(Entry::TakeCopy, one, stream, &params) };
        // Everybody begins with another member.
        let others = || (me + 1..ranks).chain(0..me).try_for_each(copy);
        if bytes < BESIDE {
            begin()?;
            others()?;
            copy(me)?;
        } else {
            // This PE's own block waits for nobody and takes no link.
            let (dst, src) = at(me);
            stream.copy_beside(dst, src, bytes, || begin().and_then(|()| others()))?;
        }
        params.phase = TAKE_FINISH;
        let launch = if sums {
            params.sources = dst.0;
            params.source_step = step as u64;
            params.takes[0].src = 0;
            self.size(x, &params)
        } else {
            params.count = 0;
            one
        };
        // SAFETY: as in `enqueue_take`; the scratch is this PE's own.
        unsafe { self.kernels.launch(entry, launch, stream, &params) }
    }
}
