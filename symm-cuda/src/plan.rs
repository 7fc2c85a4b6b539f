//! The planned exchange: one launch that pushes what a table says.

use symm_core::Result;
use symm_core::backend::Exchange;
use symm_kernels::Entry;
use symm_kernels::geometry::{self, Limits};
use symm_kernels::params::PlanParams;

use crate::backend::Cuda;
use crate::handle::RawContext;
use crate::reduce::reduce_params;
use crate::stream::Stream;

impl Cuda {
    /// # Safety
    /// As [`Backend::exchange`](symm_core::Backend::exchange), for the planned form.
    pub(crate) unsafe fn enqueue_planned(
        &self,
        stream: &Stream,
        context: &RawContext,
        x: &Exchange<'_, Cuda>,
    ) -> Result<()> {
        let capturing = stream.is_capturing();
        if x.invalid && capturing {
            return Ok(());
        }
        let reduce = reduce_params(stream, context, x)?;
        let moves = if reduce.exchange.invalid == 0 { x.moves } else { &[] };
        let params = PlanParams { reduce, moves: x.moves_table.0, count: moves.len() as u64 };
        let rows = moves.iter().map(|m| m.rows).fold(0, u64::saturating_add);
        let bytes = rows.saturating_mul(x.row_bytes as u64);
        let max_blocks = if x.max_blocks == 0 { self.max_blocks } else { x.max_blocks };
        let limits = Limits { multiprocessors: self.shared.device.multiprocessors, max_blocks };
        if !capturing {
            context.order(stream)?;
        }
        // SAFETY: the parameters are the kernel's; tables and regions live as long as context and handle, and the caller
        // promises the addresses of the descriptor.
        unsafe { self.kernels.launch(Entry::Plan, geometry::reduce(bytes, limits), stream, &params) }
    }
}
