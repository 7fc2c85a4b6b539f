//! Collectives in a team with members that the network reaches.

use symm_core::Result;
use symm_core::backend::{Exchange, Form};
use symm_cuda::{Cuda, Stream};
use symm_kernels::geometry::{Limits, network_exchange};
use symm_kernels::network::NetEntry;
use symm_kernels::params::{ExchangeParams, NetExchangeParams, NetReduceParams, NetTakeParams, TakeParams};

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

/// Bytes that a PE takes of all members' buffers together.
fn taken(take: &TakeParams, ranks: usize) -> u64 {
    let count = (take.count as usize).min(take.takes.len());
    let one = take.takes[..count].iter().map(|t| t.rows.saturating_mul(t.cols)).fold(0, u64::saturating_add);
    one.saturating_mul(ranks as u64)
}

impl Network {
    /// The GPU, and the blocks that the call or the settings allow.
    fn limits(&self, x: &Exchange<'_, Cuda>) -> Limits {
        let own = self.cuda.limits();
        Limits { max_blocks: if x.max_blocks == 0 { own.max_blocks } else { x.max_blocks }, ..own }
    }

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
                let all = x.in_rows.saturating_mul(x.row_bytes);
                // A member adds up its own columns only.
                let bytes = if x.form == Form::ReduceScatter { all / context.ranks } else { all };
                let launch = network_exchange(bytes as u64, self.limits(x));
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
                let launch = network_exchange(bytes as u64, self.limits(x));
                let params = NetExchangeParams { net, remote, exchange };
                // SAFETY: as above.
                unsafe { self.launch(NetEntry::Exchange, launch, stream, &params) }
            }
            form if form.takes() => {
                let mut take = self.cuda.take_params(stream, direct, x)?;
                name_buffers(&mut take.reduce.exchange, output);
                let adds = u32::from(form.sums_takes());
                let launch = network_exchange(taken(&take, context.ranks), self.limits(x));
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
