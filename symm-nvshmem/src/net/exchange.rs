//! Collectives in a team with members that the network reaches.

use symm_core::Result;
use symm_core::backend::{Exchange, Form};
use symm_cuda::{Cuda, Stream};
use symm_kernels::geometry::{Launch, Limits, network_exchange};
use symm_kernels::network::{NetEntry, THREADS};
use symm_kernels::params::{ExchangeParams, NetExchangeParams, NetReduceParams, NetTakeParams};

use super::Network;
use crate::error::unsupported;
use crate::handle::{NetContext, NetHandle};

/// Names the members' data areas as the kernels for network members take them.
fn name_buffers(params: &mut ExchangeParams, output: Option<&NetHandle>) {
    if let Some(output) = output {
        params.near_buffers = output.near_buffers();
        params.out_buffers = output.buffers_table.gpu();
    }
}

impl Network {
    /// `output`: the rest of the output's handle, which `x` has for the direct members.
    ///
    /// # Safety
    /// As [`Backend::exchange`](symm_core::Backend::exchange).
    pub(crate) unsafe fn exchange(
        &self,
        stream: &Stream,
        (direct, context): (&symm_cuda::RawContext, &NetContext),
        x: &Exchange<'_, Cuda>,
        output: Option<&NetHandle>,
    ) -> Result<()> {
        let capturing = stream.captures();
        if x.invalid && capturing {
            return Ok(());
        }
        if !capturing {
            direct.follow_last(stream)?;
        }
        let net = self.params(context.bits);
        let remote = context.remote.gpu();
        match x.form {
            Form::Broadcast
            | Form::ReduceScatter
            | Form::OneShotAllReduce
            | Form::TwoShotAllReduce
            | Form::TwoShotAllReduceOut => {
                let mut reduce = self.cuda.reduce_params(stream, direct, x)?;
                name_buffers(&mut reduce.exchange, output);
                let launch = Launch { blocks: 1, threads: THREADS, remote: 0 };
                let params = NetReduceParams { net, remote, reduce };
                // SAFETY: the parameters are the kernel's; tables and regions live as long as context and handle, and the
                // caller promises the addresses of the descriptor.
                unsafe { self.launch(NetEntry::Reduce, launch, stream, &params) }
            }
            Form::Barrier
            | Form::AllGather
            | Form::AllToAll
            | Form::AllToAllVdev
            | Form::AllToAllVdev2d
            | Form::AllToAllVdev2dOffset => {
                let mut exchange = self.cuda.exchange_params(stream, direct, x)?;
                name_buffers(&mut exchange, output);
                let rows = if x.form == Form::AllGather {
                    x.in_rows.saturating_mul(context.ranks)
                } else {
                    x.in_rows
                };
                let moves = !x.invalid && x.form != Form::Barrier;
                let bytes = if moves { rows.saturating_mul(x.row_bytes).max(1) } else { 0 };
                let own = self.cuda.limits();
                let max_blocks = if x.max_blocks == 0 { own.max_blocks } else { x.max_blocks };
                let launch = network_exchange(bytes as u64, Limits { max_blocks, ..own });
                let params = NetExchangeParams { net, remote, exchange };
                // SAFETY: as above.
                unsafe { self.launch(NetEntry::Exchange, launch, stream, &params) }
            }
            form if form.takes() => {
                let mut take = self.cuda.take_params(stream, direct, x)?;
                name_buffers(&mut take.reduce.exchange, output);
                let launch = Launch { blocks: 1, threads: THREADS, remote: 0 };
                let adds = u32::from(form.sums_takes());
                let params = NetTakeParams { net, remote, adds, reserved: 0, take };
                // SAFETY: as above.
                unsafe { self.launch(NetEntry::Take, launch, stream, &params) }
            }
            form => {
                let why = format!("{} has no way yet over members that are not direct", form.name());
                Err(unsupported("NETWORK", why))
            }
        }
    }
}
