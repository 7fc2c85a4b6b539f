//! One-sided operations and the barrier of a handle, towards members that the network reaches.

use std::time::Duration;

use symm_core::Result;
use symm_core::backend::{Get, PadSignal, Put, SignalOp, WaitUntil, op};
use symm_cuda::Stream;
use symm_kernels::geometry::{Launch, network_copy};
use symm_kernels::network::NetEntry;
use symm_kernels::params::{
    BarrierParams, NetBarrierParams, NetCopyParams, NetPadSignalParams, NetWaitParams, WaitParams, near,
};

use super::Network;
use crate::handle::{NetHandle, RawHandle, reaches};

const ONE_WARP: Launch = Launch { blocks: 1, threads: 32, remote: 0 };

/// A limit as kernels take it.
fn nanoseconds(limit: Duration) -> u64 {
    u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)
}

/// Ranks as a bit set; those beyond 63 are left out.
fn bit(rank: usize) -> u64 {
    1u64.checked_shl(u32::try_from(rank).unwrap_or(u32::MAX)).unwrap_or(0)
}

impl NetHandle {
    fn pe(&self, rank: usize) -> u64 {
        u64::from(self.members[rank].0)
    }
}

impl Network {
    /// A put to any member of the handle. What is added to a signal goes by NVSHMEM to direct members as well, since its atomics
    /// and the GPU's are not atomic with respect to each other; `data` puts to those.
    ///
    /// # Safety
    /// As [`Backend::put`](symm_core::Backend::put).
    pub(crate) unsafe fn put_to(
        &self,
        stream: &Stream,
        handle: &NetHandle,
        put: &Put,
        data: impl FnOnce(&Put) -> Result<()>,
    ) -> Result<()> {
        let adds = put.signal.filter(|s| s.op == SignalOp::Add);
        let rest = match adds {
            _ if handle.reaches(put.rank) => *put,
            None => return data(put),
            Some(_) => {
                data(&Put { signal: None, ..*put })?;
                Put { bytes: 0, ..*put }
            }
        };
        // SAFETY: the caller promises the same.
        unsafe { self.put(stream, handle, &rest) }
    }

    /// # Safety
    /// As [`Backend::put`](symm_core::Backend::put).
    unsafe fn put(&self, stream: &Stream, handle: &NetHandle, put: &Put) -> Result<()> {
        if put.bytes == 0 && put.signal.is_none() {
            return Ok(());
        }
        let mut params = NetCopyParams {
            status: handle.status.addresses(),
            net: self.params(handle.bits),
            record: stream.launch_record()?,
            dst: handle.buffers[put.rank] + put.offset as u64,
            src: put.src.0,
            bytes: put.bytes as u64,
            pe: handle.pe(put.rank),
            ..NetCopyParams::default()
        };
        if let Some(signal) = put.signal {
            params.signal = handle.pads[put.rank] + handle.pad.signal(signal.index) as u64;
            params.signal_value = signal.value;
            params.signal_add = u32::from(signal.op == SignalOp::Add);
        }
        let launch = network_copy(params.bytes, self.cuda.limits());
        // SAFETY: the parameters are the kernel's; the caller promises the source, the handle keeps the rest.
        unsafe { self.launch(NetEntry::Put, launch, stream, &params) }
    }

    /// # Safety
    /// As [`Backend::get`](symm_core::Backend::get).
    pub(crate) unsafe fn get(&self, stream: &Stream, handle: &NetHandle, get: &Get) -> Result<()> {
        if get.bytes == 0 {
            return Ok(());
        }
        let params = NetCopyParams {
            status: handle.status.addresses(),
            net: self.params(handle.bits),
            record: stream.launch_record()?,
            dst: get.dst.0,
            src: handle.buffers[get.rank] + get.offset as u64,
            bytes: get.bytes as u64,
            pe: handle.pe(get.rank),
            ..NetCopyParams::default()
        };
        let launch = network_copy(params.bytes, self.cuda.limits());
        // SAFETY: the parameters are the kernel's; the caller promises the destination, the handle keeps the source.
        unsafe { self.launch(NetEntry::Get, launch, stream, &params) }
    }

    /// `put_signal`, or `wait_signal` if `waits`.
    pub(crate) fn pad_signal(
        &self,
        stream: &Stream,
        (raw, handle): (&RawHandle, &NetHandle),
        s: &PadSignal,
        waits: bool,
    ) -> Result<()> {
        let direct = !handle.reaches(s.rank);
        let peer = if direct { raw.direct.pad_addresses()[s.rank] } else { handle.pads[s.rank] };
        let (mine, theirs, pad) = (handle.pads[handle.rank], peer, &handle.pad);
        let (slot, credit, count, op) = if waits {
            (
                mine + pad.slot(s.channel, s.rank) as u64,
                theirs + pad.credit_word(s.channel, handle.rank) as u64,
                mine + pad.consumed_word(s.channel, s.rank) as u64,
                op::WAIT_SIGNAL,
            )
        } else {
            (
                theirs + pad.slot(s.channel, handle.rank) as u64,
                mine + pad.credit_word(s.channel, s.rank) as u64,
                mine + pad.sent_word(s.channel, s.rank) as u64,
                op::PUT_SIGNAL,
            )
        };
        let params = NetPadSignalParams {
            status: handle.status.addresses(),
            net: self.params(handle.bits),
            slot,
            credit,
            count,
            limit_ns: nanoseconds(s.limit),
            op,
            pe: handle.pe(s.rank),
            late: bit(s.rank),
            waits: u32::from(waits),
            direct: u32::from(direct),
        };
        // SAFETY: the parameters are the kernel's; the words are in pads that the handle keeps.
        unsafe { self.launch(NetEntry::PadSignal, ONE_WARP, stream, &params) }
    }

    pub(crate) fn wait_until(&self, stream: &Stream, handle: &NetHandle, wait: &WaitUntil) -> Result<()> {
        // Any PE may signal, so the wait can name only its own PE: its signal is what did not come.
        let params = NetWaitParams {
            net: self.params(handle.bits),
            wait: WaitParams {
                status: handle.status.addresses(),
                word: handle.pads[handle.rank] + handle.pad.signal(wait.index) as u64,
                value: wait.value,
                limit_ns: nanoseconds(wait.limit),
                op: op::WAIT_UNTIL,
                pe: handle.pe(handle.rank),
                late: bit(handle.rank),
                cmp: wait.cmp as u32,
                reserved: 0,
            },
        };
        // SAFETY: the parameters are the kernel's; the word is in this PE's pad, which the handle keeps.
        unsafe { self.launch(NetEntry::WaitUntil, ONE_WARP, stream, &params) }
    }

    pub(crate) fn barrier(
        &self,
        stream: &Stream,
        raw: &RawHandle,
        handle: &NetHandle,
        (channel, limit): (usize, Duration),
    ) -> Result<()> {
        let direct = raw.direct.pad_addresses();
        debug_assert!((0..direct.len()).all(|r| reaches(handle.bits, r) == (direct[r] == 0)));
        let params = NetBarrierParams {
            net: self.params(handle.bits),
            pads: handle.pads_table.gpu(),
            barrier: BarrierParams {
                status: handle.status.addresses(),
                near_pads: near(direct),
                pads: raw.direct.pads_table(),
                members: raw.direct.members_table(),
                words: handle.pad.barrier_word(channel, 0) as u64,
                counter: handle.pad.barrier_counter(channel) as u64,
                limit_ns: nanoseconds(limit),
                ranks: u32::try_from(handle.members.len()).unwrap_or(u32::MAX),
                rank: u32::try_from(handle.rank).unwrap_or(u32::MAX),
            },
        };
        // SAFETY: the parameters are the kernel's; tables and pads live as long as the handle.
        unsafe { self.launch(NetEntry::Barrier, ONE_WARP, stream, &params) }
    }
}
