//! Broadcast and reductions: one launch of the reduction kernel. Also words in stream order.

use cudarc::driver::sys;
use symm_core::backend::{Exchange, Form};
use symm_core::status::words;
use symm_core::{Addr, DType, Result};
use symm_kernels::Entry;
use symm_kernels::geometry::{Limits, Pushed, pushed, pushed_by_pair, reduce};
use symm_kernels::params::{PushedParams, ReduceParams};

use crate::backend::Cuda;
use crate::exchange::{header, protocol, set_output};
use crate::handle::RawContext;
use crate::result::check;
use crate::stream::Stream;

/// What every kernel of the broadcast and the reductions is given.
pub(crate) fn reduce_params(
    stream: &Stream,
    context: &RawContext,
    x: &Exchange<'_, Cuda>,
) -> Result<ReduceParams> {
    let mut exchange = protocol(stream, context, x)?;
    // A descriptor that lacks its buffer is as invalid as one that the model refused; nothing of either is used.
    match x.output.as_ref().filter(|_| !x.invalid) {
        None => [exchange.invalid, exchange.invalid_a, exchange.invalid_b] = words(&x.refused),
        Some(out) => {
            exchange.input = x.input.0;
            set_output(&mut exchange, out);
        }
    }
    let (root, lead) = (x.root as u64, x.lead as u64);
    let header = header(&exchange, root, lead);
    let gathered = context.layout.gathered as u64;
    Ok(ReduceParams { exchange, header, result: x.result.0, root, lead, gathered })
}

impl Cuda {
    /// # Safety
    /// As [`Backend::exchange`](symm_core::Backend::exchange), for the broadcast and the forms that reduce.
    pub(crate) unsafe fn enqueue_reduce(
        &self,
        stream: &Stream,
        context: &RawContext,
        x: &Exchange<'_, Cuda>,
    ) -> Result<()> {
        let capturing = stream.is_capturing();
        if x.invalid && capturing {
            return Ok(());
        }
        let ranks = context.members.len();
        let params = reduce_params(stream, context, x)?;
        let output = x.output.as_ref().filter(|_| !x.invalid);
        let bytes = match (x.form, output) {
            (_, None) => 0,
            (Form::Broadcast, _) if x.root != context.rank => 0,
            (Form::Broadcast, _) => x.in_rows.saturating_mul(x.row_bytes).saturating_mul(ranks - 1),
            // What a gathering form gets afterwards is as much as all members add up.
            (Form::OneShotAllReduce | Form::TwoShotAllReduceOut, _) => x.in_rows.saturating_mul(x.row_bytes),
            _ => x.in_rows.saturating_mul(x.row_bytes).div_ceil(ranks),
        };
        let max_blocks = if x.max_blocks == 0 { self.max_blocks } else { x.max_blocks };
        let limits = Limits { multiprocessors: self.shared.device.multiprocessors, max_blocks };
        if !capturing {
            context.order(stream)?;
        }
        if let Some(p) = self.pushed(context, x, limits) {
            let l = &context.layout;
            let (room, room_bytes, room_step) = if p.waits {
                (l.shared_room, l.shared_room_bytes, 0)
            } else {
                (l.room, l.room_bytes, l.room_bytes)
            };
            let params = PushedParams {
                reduce: params,
                room: room as u64,
                room_bytes: room_bytes as u64,
                room_step: room_step as u64,
                pieces: p.pieces,
                two_hops: u32::from(p.two_hops),
            };
            let entry = pushed_entry(x.dtype, ranks == 2);
            // SAFETY: as below; the room is in every member's copy of the context.
            return unsafe { self.kernels.launch(entry, p.launch, stream, &params) };
        }
        let entry = match x.dtype {
            _ if output.is_none() || x.form == Form::Broadcast => Entry::Broadcast,
            DType::F16 => Entry::ReduceF16,
            DType::BF16 => Entry::ReduceBf16,
            DType::F32 => Entry::ReduceF32,
            DType::F64 => Entry::ReduceF64,
            DType::I32 => Entry::ReduceI32,
            DType::I64 => Entry::ReduceI64,
            // The verdict refuses types that do not add up, with any kernel.
            _ => Entry::Broadcast,
        };
        // SAFETY: the parameters are the kernel's; tables and regions live as long as context and handle, and the caller
        // promises the addresses of the descriptor.
        unsafe { self.kernels.launch(entry, reduce(bytes as u64, limits), stream, &params) }
    }

    /// How an all-reduce is pushed; `None` if it is to be read. The same on all members whose arguments agree.
    fn pushed(&self, context: &RawContext, x: &Exchange<'_, Cuda>, limits: Limits) -> Option<Pushed> {
        let all_reduce =
            matches!(x.form, Form::OneShotAllReduce | Form::TwoShotAllReduce | Form::TwoShotAllReduceOut);
        if !all_reduce || x.invalid || x.output.is_none() || !x.dtype.reduces() {
            return None;
        }
        let bytes = x.in_rows.saturating_mul(x.row_bytes) as u64;
        let (ranks, l) = (u32::try_from(context.members.len()).ok()?, &context.layout);
        pushed(bytes, ranks, self.all_reduce_push as u64, l.room_bytes as u64, limits).or_else(|| {
            let most = self.all_reduce_push_pair as u64;
            if ranks == 2 { pushed_by_pair(bytes, most, l.shared_room_bytes as u64, limits) } else { None }
        })
    }
}

/// The kernel for a type that adds up.
fn pushed_entry(dtype: DType, pair: bool) -> Entry {
    match (dtype, pair) {
        (DType::F16, false) => Entry::PushedF16,
        (DType::BF16, false) => Entry::PushedBf16,
        (DType::F32, false) => Entry::PushedF32,
        (DType::F64, false) => Entry::PushedF64,
        (DType::I32, false) => Entry::PushedI32,
        (_, false) => Entry::PushedI64,
        (DType::F16, true) => Entry::PushedF16Pair,
        (DType::BF16, true) => Entry::PushedBf16Pair,
        (DType::F32, true) => Entry::PushedF32Pair,
        (DType::F64, true) => Entry::PushedF64Pair,
        (DType::I32, true) => Entry::PushedI32Pair,
        (_, true) => Entry::PushedI64Pair,
    }
}

/// Enqueues setting 32-bit words. The caller promises what [`Backend::memset32`](symm_core::Backend::memset32) asks.
pub(crate) fn enqueue_memset32(stream: &Stream, dst: Addr, value: u32, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let _entered = stream.enter()?;
    // SAFETY: the caller promises `count` aligned words until the stream has passed this.
    check("cuMemsetD32Async", unsafe { sys::cuMemsetD32Async(dst.0, value, count, stream.cu_stream()) })
}

/// Enqueues writing one 32-bit word behind a fence at system scope. The caller promises what
/// [`Backend::write_value32`](symm_core::Backend::write_value32) asks.
pub(crate) fn enqueue_write_value32(stream: &Stream, dst: Addr, value: u32) -> Result<()> {
    if stream.is_capturing() {
        // Captures take no memory operations of streams; the edges of a graph order a memset as well.
        return enqueue_memset32(stream, dst, value, 1);
    }
    let _entered = stream.enter()?;
    // SAFETY: the caller promises an aligned word until the stream has passed this. Flags of 0 ask for the fence.
    check("cuStreamWriteValue32_v2", unsafe {
        sys::cuStreamWriteValue32_v2(stream.cu_stream(), dst.0, value, 0)
    })
}

#[cfg(test)]
mod tests {
    use symm_core::layout::{ContextLayout, ContextRoom};

    use super::*;

    #[test]
    fn a_context_has_room_for_all_that_the_setting_allows() {
        let limits = Limits { multiprocessors: 132, max_blocks: 0 };
        for ranks in [2, 3, 4, 5, 8, 64, 128] {
            for most in [1, 2048, 64 << 10, 1 << 20, 1 << 30] {
                let room = ContextLayout::room_for(most, ranks as usize) as u64;
                for bytes in [0, 1, 1537, 16 << 10, most as u64 / 2, most as u64] {
                    let fits = pushed(bytes.min(most as u64), ranks, most as u64, room, limits).is_some();
                    assert!(fits, "{bytes} of {most} bytes, {ranks} members");
                }
            }
        }
        for most in [2048, 64 << 10, 16 << 20, 1 << 30] {
            let room = ContextRoom::for_sums(1024, most, 2).shared as u64;
            for bytes in [1025, most as u64 / 2, most as u64] {
                assert!(
                    pushed_by_pair(bytes, most as u64, room, limits).is_some(),
                    "{bytes} of {most} bytes"
                );
            }
        }
    }
}
