//! One-sided operations and the barrier of a handle.

use std::time::Duration;

use symm_core::backend::{Get, PadSignal, Put, SignalOp, WaitUntil, op};
use symm_core::{Error, Result};
use symm_kernels::Entry;
use symm_kernels::geometry::{Launch, copy};
use symm_kernels::params::{BarrierParams, CopyParams, PadSignalParams, WaitParams, near};

use crate::backend::Cuda;
use crate::device::Atomics;
use crate::handle::RawHandle;
use crate::result::BACKEND;
use crate::stream::Stream;

const ONE_THREAD: Launch = Launch { blocks: 1, threads: 1, remote: 0 };
const TWO_WARPS: Launch = Launch { blocks: 1, threads: 64, remote: 0 };

/// A limit as kernels take it.
pub(crate) fn nanoseconds(limit: Duration) -> u64 {
    u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)
}

/// Ranks as a bit set; those beyond 63 are left out.
fn bit(rank: usize) -> u64 {
    1u64.checked_shl(u32::try_from(rank).unwrap_or(u32::MAX)).unwrap_or(0)
}

impl Cuda {
    /// Refuses to add to a word of a peer whose memory this GPU's atomics do not work on.
    fn check_atomics(&self, handle: &RawHandle, rank: usize) -> Result<()> {
        let pe = handle.members[rank];
        let why = match self.atomics[pe.index()] {
            Atomics::Work => return Ok(()),
            Atomics::Lacking => {
                format!("the link to the GPU of PE {pe} has no atomics (PCIe); SignalOp::Set works")
            }
            Atomics::Unknown => format!(
                "whether atomics reach the GPU of PE {pe} is not known: it is not visible here (CUDA_VISIBLE_DEVICES), and NVML \
                 (libnvidia-ml.so.1) does not know it; SignalOp::Set works"
            ),
        };
        Err(Error::Unsupported { backend: BACKEND, capability: "put_with_signal (add)", why })
    }

    /// # Safety
    /// As [`Backend::put`](symm_core::Backend::put).
    pub(crate) unsafe fn enqueue_put(&self, stream: &Stream, handle: &RawHandle, put: &Put) -> Result<()> {
        if put.bytes == 0 && put.signal.is_none() {
            return Ok(());
        }
        let mut params = CopyParams {
            status: handle.status.params(),
            record: stream.record()?,
            dst: handle.buffers[put.rank] + put.offset as u64,
            src: put.src.0,
            bytes: put.bytes as u64,
            ..CopyParams::default()
        };
        if let Some(signal) = put.signal {
            let add = signal.op == SignalOp::Add;
            if add {
                self.check_atomics(handle, put.rank)?;
            }
            params.signal = handle.pads[put.rank] + handle.pad.signal(signal.index) as u64;
            params.signal_value = signal.value;
            params.signal_add = u32::from(add);
        }
        // SAFETY: the parameters are the kernel's; the caller promises the source, the handle's mappings hold the rest.
        unsafe { self.kernels.launch(Entry::Put, copy(params.bytes, self.limits()), stream, &params) }
    }

    /// # Safety
    /// As [`Backend::get`](symm_core::Backend::get).
    pub(crate) unsafe fn enqueue_get(&self, stream: &Stream, handle: &RawHandle, get: &Get) -> Result<()> {
        if get.bytes == 0 {
            return Ok(());
        }
        let params = CopyParams {
            status: handle.status.params(),
            record: stream.record()?,
            dst: get.dst.0,
            src: handle.buffers[get.rank] + get.offset as u64,
            bytes: get.bytes as u64,
            ..CopyParams::default()
        };
        // SAFETY: the parameters are the kernel's; the caller promises the destination, the handle's mappings the source.
        unsafe { self.kernels.launch(Entry::Get, copy(params.bytes, self.limits()), stream, &params) }
    }

    pub(crate) fn enqueue_put_signal(
        &self,
        stream: &Stream,
        handle: &RawHandle,
        s: &PadSignal,
    ) -> Result<()> {
        let slot = handle.pads[s.rank] + handle.pad.slot(s.channel, handle.rank) as u64;
        // Where no compare-and-swap reaches the slot, this PE's streams come one at a time, and each looks and stores.
        let claim = match self.atomics[handle.members[s.rank].index()] {
            Atomics::Work => 0,
            _ => handle.pads[handle.rank] + handle.pad.sent_word(s.channel, s.rank) as u64,
        };
        self.pad_signal(
            stream,
            handle,
            s,
            PadSignalParams { slot, claim, op: op::PUT_SIGNAL, from: 0, to: 1, ..Default::default() },
        )
    }

    pub(crate) fn enqueue_wait_signal(
        &self,
        stream: &Stream,
        handle: &RawHandle,
        s: &PadSignal,
    ) -> Result<()> {
        // In this PE's own memory, where its compare-and-swap and a peer's store meet.
        let slot = handle.pads[handle.rank] + handle.pad.slot(s.channel, s.rank) as u64;
        self.pad_signal(
            stream,
            handle,
            s,
            PadSignalParams { slot, op: op::WAIT_SIGNAL, from: 1, to: 0, ..Default::default() },
        )
    }

    fn pad_signal(
        &self,
        stream: &Stream,
        handle: &RawHandle,
        s: &PadSignal,
        base: PadSignalParams,
    ) -> Result<()> {
        let params = PadSignalParams {
            status: handle.status.params(),
            limit_ns: nanoseconds(s.limit),
            pe: u64::from(handle.members[s.rank].0),
            late: bit(s.rank),
            ..base
        };
        // SAFETY: the parameters are the kernel's; the slot is in a pad that the handle's mappings hold.
        unsafe { self.kernels.launch(Entry::PadSignal, ONE_THREAD, stream, &params) }
    }

    pub(crate) fn enqueue_wait_until(
        &self,
        stream: &Stream,
        handle: &RawHandle,
        wait: &WaitUntil,
    ) -> Result<()> {
        // Any PE may signal, so the wait can name only its own PE: its signal is what did not come.
        let params = WaitParams {
            status: handle.status.params(),
            word: handle.pads[handle.rank] + handle.pad.signal(wait.index) as u64,
            value: wait.value,
            limit_ns: nanoseconds(wait.limit),
            op: op::WAIT_UNTIL,
            pe: u64::from(handle.members[handle.rank].0),
            late: bit(handle.rank),
            cmp: wait.cmp as u32,
            reserved: 0,
        };
        // SAFETY: the parameters are the kernel's; the word is in this PE's pad, which the handle's mappings hold.
        unsafe { self.kernels.launch(Entry::WaitUntil, ONE_THREAD, stream, &params) }
    }

    pub(crate) fn enqueue_barrier(
        &self,
        stream: &Stream,
        handle: &RawHandle,
        channel: usize,
        limit: Duration,
    ) -> Result<()> {
        let params = BarrierParams {
            status: handle.status.params(),
            near_pads: near(&handle.pads),
            pads: handle.device_ptrs().pads.0,
            members: handle.members_ptr(),
            words: handle.pad.barrier_word(channel, 0) as u64,
            counter: handle.pad.barrier_counter(channel) as u64,
            limit_ns: nanoseconds(limit),
            ranks: u32::try_from(handle.members.len()).unwrap_or(u32::MAX),
            rank: u32::try_from(handle.rank).unwrap_or(u32::MAX),
        };
        // SAFETY: the parameters are the kernel's; tables and pads live as long as the handle.
        unsafe { self.kernels.launch(Entry::Barrier, TWO_WARPS, stream, &params) }
    }
}
