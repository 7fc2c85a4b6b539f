//! The handle: every member's data and pads, and the one-sided operations on them.

use std::sync::Arc;
use std::time::Duration;

use super::pool::Block;
use super::span::Span;
use super::stream::Stream;
use super::team::TeamInner;
use super::tensor::{Allocation, elements};
use super::world::WorldInner;
use crate::backend::{
    Addr, Backend, Cmp, Get, HandleParts, PadSignal, Put, Reach, Region, SignalUpdate, WaitUntil, op,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::PadLayout;
use crate::pe::Pe;

/// What all handles of one allocation over one team share.
pub(crate) struct HandleCore<B: Backend> {
    pub(crate) team: Arc<TeamInner<B>>,
    pub(crate) raw: B::RawHandle,
    buffers: Vec<Option<Addr>>,
    pads: Vec<Option<Addr>>,
    /// Offset of each rank's data in its segment.
    segment_offsets: Vec<usize>,
    pad: PadLayout,
    pad_segment: B::Segment,
    pad_offset: usize,
}

impl<B: Backend> std::fmt::Debug for HandleCore<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("raw", &self.raw).finish_non_exhaustive()
    }
}

impl<B: Backend> HandleCore<B> {
    pub(crate) fn bind(
        team: &Arc<TeamInner<B>>,
        parts: HandleParts<B>,
        pad_block: &Block<B>,
    ) -> Result<Self> {
        let backend = &team.world.backend;
        let addr = |r: &Region<B>| backend.mapped(&r.mapping).map(|a| a.offset(r.offset));
        let buffers = parts.data.iter().map(addr).collect();
        let pads = parts.pads.iter().map(addr).collect();
        let segment_offsets = parts.data.iter().map(|r| r.offset).collect();
        let pad = parts.pad;
        let raw = backend.bind_handle(parts)?;
        Ok(HandleCore {
            team: team.clone(),
            raw,
            buffers,
            pads,
            segment_offsets,
            pad,
            pad_segment: pad_block.segment.clone(),
            pad_offset: pad_block.offset,
        })
    }

    pub(crate) fn zero_pad(&self, world: &WorldInner<B>) -> Result<()> {
        // SAFETY: `recover` calls this while no member has an operation in flight; the pad lies inside its segment.
        unsafe { world.backend.zero(&self.pad_segment, self.pad_offset, self.pad.bytes) }
    }
}

/// The result of a rendezvous: a tensor (or a view) as every member of a team has it. Owned; clones are the same handle,
/// and it may outlive the tensor.
#[doc(alias = "_SymmetricMemory")]
#[derive(Debug)]
pub struct Handle<B: Backend> {
    allocation: Arc<Allocation<B>>,
    pub(crate) core: Arc<HandleCore<B>>,
    offset: usize,
    len: usize,
    dtype: DType,
}

impl<B: Backend> Clone for Handle<B> {
    fn clone(&self) -> Self {
        Handle {
            allocation: self.allocation.clone(),
            core: self.core.clone(),
            offset: self.offset,
            len: self.len,
            dtype: self.dtype,
        }
    }
}

impl<B: Backend> Handle<B> {
    pub(crate) fn new(
        allocation: Arc<Allocation<B>>,
        core: Arc<HandleCore<B>>,
        offset: usize,
        len: usize,
        dtype: DType,
    ) -> Self {
        Handle { allocation, core, offset, len, dtype }
    }

    /// This PE's rank in the handle's team.
    pub fn rank(&self) -> usize {
        self.core.team.group.my_rank()
    }

    /// Members of the handle's team, W.
    pub fn world_size(&self) -> usize {
        self.core.team.group.len()
    }

    /// The PE of a rank.
    pub fn pe(&self, rank: usize) -> Option<Pe> {
        self.core.team.group.members().get(rank).copied()
    }

    /// First byte of each rank's *allocation* data area (without [`offset`](Self::offset)); `None` where it is not direct.
    #[doc(alias = "nvshmem_ptr")]
    pub fn buffer_ptrs(&self) -> &[Option<Addr>] {
        &self.core.buffers
    }

    /// First byte of each rank's signal pad; `None` where it is not direct.
    pub fn signal_pad_ptrs(&self) -> &[Option<Addr>] {
        &self.core.pads
    }

    /// Multicast address of this handle's data (allocation base plus [`offset`](Self::offset)); `None` without multicast.
    pub fn multicast_ptr(&self) -> Option<Addr> {
        let base = self.core.team.world.backend.multicast_ptr(&self.core.raw)?;
        Some(base.offset(self.offset))
    }

    /// Bytes of the allocation's data area, as asked for.
    pub fn buffer_size(&self) -> usize {
        self.allocation.bytes
    }

    /// Byte offset of this tensor in its allocation; non-zero for views.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Byte offset of `rank`'s allocation in its memory segment; small allocations share segments.
    pub fn segment_offset(&self, rank: usize) -> Option<usize> {
        self.core.segment_offsets.get(rank).copied()
    }

    /// Bytes of the slots in each pad ([`Config::signal_pad_bytes`](crate::Config::signal_pad_bytes)).
    pub fn signal_pad_size(&self) -> usize {
        self.core.pad.slot_bytes
    }

    /// Layout of the whole pad, for users' own kernels.
    pub fn pad_layout(&self) -> &PadLayout {
        &self.core.pad
    }

    /// Elements of the tensor that the handle was made from.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element type of the tensor.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// This PE's elements of the tensor.
    pub fn span(&self) -> Span<B> {
        let addr = self.allocation.addr.offset(self.offset);
        Span::of_allocation(&self.allocation, addr, self.dtype, self.len)
    }

    /// Whether `rank`'s memory is reached by load and store.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the team.
    pub fn is_direct(&self, rank: usize) -> Result<bool> {
        let pe = self.member("is_direct", rank)?;
        Ok(self.core.team.world.backend.reach(pe) == Reach::Direct)
    }

    /// `rank`'s data as a span: `sizes` elements of `dtype` from element `storage_offset` *of the allocation* on.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if they are not inside or the rank is none; [`Error::Unsupported`] if it is not direct.
    pub fn get_buffer(
        &self,
        rank: usize,
        sizes: &[usize],
        dtype: DType,
        storage_offset: usize,
    ) -> Result<Span<B>> {
        self.remote("get_buffer", rank, (0, storage_offset), (sizes, dtype))
    }

    /// `rank`'s data as a span: `sizes` elements of `dtype` from the *tensor's* first element on.
    ///
    /// # Errors
    /// As [`get_buffer`](Self::get_buffer).
    pub fn get_remote_tensor(&self, rank: usize, sizes: &[usize], dtype: DType) -> Result<Span<B>> {
        self.remote("get_remote_tensor", rank, (self.offset, 0), (sizes, dtype))
    }

    /// `rank`'s pad slots as a span: all of them as u32 if `sizes` is empty, else `sizes` elements of `dtype` from
    /// element `storage_offset` on.
    ///
    /// # Errors
    /// As [`get_buffer`](Self::get_buffer).
    pub fn get_signal_pad(
        &self,
        rank: usize,
        sizes: &[usize],
        dtype: DType,
        storage_offset: usize,
    ) -> Result<Span<B>> {
        const OP: &str = "get_signal_pad";
        let whole = [self.core.pad.slot_bytes / 4];
        let (sizes, dtype) = if sizes.is_empty() { (&whole[..], DType::U32) } else { (sizes, dtype) };
        let base = self.direct(OP, rank, &self.core.pads)?;
        let (start, len) = inside(OP, (0, storage_offset), (sizes, dtype), self.core.pad.slot_bytes)?;
        Ok(Span::of_allocation(&self.allocation, base.offset(start), dtype, len))
    }

    fn remote(
        &self,
        op: &'static str,
        rank: usize,
        start: (usize, usize),
        shape: (&[usize], DType),
    ) -> Result<Span<B>> {
        let base = self.direct(op, rank, &self.core.buffers)?;
        let (start, len) = inside(op, start, shape, self.allocation.bytes)?;
        Ok(Span::of_allocation(&self.allocation, base.offset(start), shape.1, len))
    }

    fn direct(&self, op: &'static str, rank: usize, ptrs: &[Option<Addr>]) -> Result<Addr> {
        let pe = self.member(op, rank)?;
        ptrs[rank].ok_or_else(|| Error::Unsupported {
            backend: self.core.team.world.backend.name(),
            capability: op,
            why: format!("rank {rank} (PE {pe}) is reached by the network only; use put and get"),
        })
    }

    fn member(&self, op: &'static str, rank: usize) -> Result<Pe> {
        self.pe(rank)
            .ok_or_else(|| Error::argument(op, "rank", rank, format!("a rank in [0, {})", self.world_size())))
    }

    fn begin(&self, op: &'static str, stream: &Stream<B>, rank: usize) -> Result<()> {
        self.core.team.check(op)?;
        self.member(op, rank)?;
        stream.enter(op, &self.core.team)
    }

    /// Byte range of `len` elements of `dtype` from element `start` of the tensor on, checked.
    fn range(&self, op: &'static str, start: usize, span: &Span<B>) -> Result<usize> {
        inside(op, (self.offset, start), (&[span.len], span.dtype), self.allocation.bytes).map(|(o, _)| o)
    }

    /// Writes `src` to `rank`'s tensor, from element `start` (of `src`'s type) on.
    ///
    /// # One-sided
    /// Only this PE acts. `rank` may be this PE's own.
    ///
    /// # Completion
    /// When `stream` has passed it, `src` may be reused. The data are delivered after [`quiet`](Stream::quiet), a barrier
    /// of the same stream, or a signal ordered after it by [`fence`](Stream::fence).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]; a failure that is set on the team.
    #[doc(alias("nvshmem_putmem", "nvshmem_put", "MPI_Put"))]
    pub fn put(&self, stream: &Stream<B>, rank: usize, start: usize, src: &Span<B>) -> Result<()> {
        self.put_any("put", stream, (rank, start), src, None)
    }

    /// Writes `src` as [`put`](Self::put) does, then updates user signal `signal.index` of `rank`'s pad.
    ///
    /// # One-sided
    /// Only this PE acts.
    ///
    /// # Completion
    /// Whoever sees the signal ([`wait_until`](Self::wait_until)) sees the data of this put. Earlier puts are covered only
    /// if a [`fence`](Stream::fence) stands between them and this one.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::InvalidArgument`] for a signal outside the pad.
    #[doc(alias("nvshmem_putmem_signal", "nvshmem_put_with_signal"))]
    pub fn put_with_signal(
        &self,
        stream: &Stream<B>,
        rank: usize,
        start: usize,
        src: &Span<B>,
        signal: SignalUpdate,
    ) -> Result<()> {
        self.check_signal("put_with_signal", signal.index)?;
        self.put_any("put_with_signal", stream, (rank, start), src, Some(signal))
    }

    fn put_any(
        &self,
        op: &'static str,
        stream: &Stream<B>,
        (rank, start): (usize, usize),
        src: &Span<B>,
        signal: Option<SignalUpdate>,
    ) -> Result<()> {
        self.begin(op, stream, rank)?;
        let offset = self.range(op, start, src)?;
        stream.keep(|| (self.clone(), src.clone()))?;
        let put = Put { rank, offset, src: src.addr, bytes: src.bytes(), signal };
        self.count(if put.signal.is_some() { op::PUT_WITH_SIGNAL } else { op::PUT }, put.bytes);
        // SAFETY: the destination range was checked; the span's keeper, or its creator's promise, keeps the source valid.
        unsafe { self.core.team.world.backend.put(&stream.raw, &self.core.raw, &put) }
    }

    /// Reads `rank`'s tensor from element `start` (of `dst`'s type) on into `dst`, which may be any memory.
    ///
    /// # One-sided
    /// Only this PE acts.
    ///
    /// # Completion
    /// The data are in `dst` when `stream` has passed it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]; a failure that is set on the team.
    #[doc(alias("nvshmem_getmem", "MPI_Get"))]
    pub fn get(&self, stream: &Stream<B>, rank: usize, start: usize, dst: &Span<B>) -> Result<()> {
        self.begin("get", stream, rank)?;
        let offset = self.range("get", start, dst)?;
        stream.keep(|| (self.clone(), dst.clone()))?;
        let limit = self.core.team.timeout();
        let get = Get { rank, offset, dst: dst.addr, bytes: dst.bytes(), limit };
        self.count(op::GET, get.bytes);
        // SAFETY: the source range was checked; the span's keeper, or its creator's promise, keeps `dst` valid.
        unsafe { self.core.team.world.backend.get(&stream.raw, &self.core.raw, &get) }
    }

    /// Raises the slot of this PE on `channel` in `dst_rank`'s pad, once that slot is 0 (depth 1, no data).
    ///
    /// # One-sided
    /// Pairs with [`wait_signal`](Self::wait_signal) on `dst_rank`. What this stream wrote before is visible after that.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for the rank or channel; a failure that is set on the team. A deadline (`timeout`, or the
    /// team's) that passes sets [`Error::Timeout`] on the team.
    pub fn put_signal(
        &self,
        stream: &Stream<B>,
        dst_rank: usize,
        channel: usize,
        timeout: Option<Duration>,
    ) -> Result<()> {
        let signal = self.pad_signal("put_signal", stream, (dst_rank, channel), timeout)?;
        self.count(op::PUT_SIGNAL, 0);
        self.core.team.world.backend.put_signal(&stream.raw, &self.core.raw, &signal)
    }

    /// Waits for the slot of `src_rank` on `channel` in this PE's pad to be 1 and sets it to 0.
    ///
    /// # One-sided
    /// Pairs with [`put_signal`](Self::put_signal) on `src_rank`.
    ///
    /// # Errors
    /// As [`put_signal`](Self::put_signal).
    pub fn wait_signal(
        &self,
        stream: &Stream<B>,
        src_rank: usize,
        channel: usize,
        timeout: Option<Duration>,
    ) -> Result<()> {
        let signal = self.pad_signal("wait_signal", stream, (src_rank, channel), timeout)?;
        self.count(op::WAIT_SIGNAL, 0);
        self.core.team.world.backend.wait_signal(&stream.raw, &self.core.raw, &signal)
    }

    fn pad_signal(
        &self,
        op: &'static str,
        stream: &Stream<B>,
        (rank, channel): (usize, usize),
        timeout: Option<Duration>,
    ) -> Result<PadSignal> {
        self.begin(op, stream, rank)?;
        self.check_channel(op, channel)?;
        stream.keep(|| self.clone())?;
        Ok(PadSignal { rank, channel, limit: timeout.unwrap_or_else(|| self.core.team.timeout()) })
    }

    /// Waits until user signal `index` of this PE's pad compares with `value`; the signal is left as it is.
    ///
    /// # One-sided
    /// Pairs with [`put_with_signal`](Self::put_with_signal) of any peer.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for the index; a failure that is set on the team. A deadline that passes sets
    /// [`Error::Timeout`] on the team; it names this PE, since any other may be the one that owes the signal. The other
    /// members get one with the phase `given up`.
    #[doc(alias("nvshmem_signal_wait_until", "nvshmem_wait_for_signal"))]
    pub fn wait_until(
        &self,
        stream: &Stream<B>,
        index: usize,
        cmp: Cmp,
        value: u64,
        timeout: Option<Duration>,
    ) -> Result<()> {
        self.begin("wait_until", stream, self.rank())?;
        self.check_signal("wait_until", index)?;
        stream.keep(|| self.clone())?;
        let limit = timeout.unwrap_or_else(|| self.core.team.timeout());
        let wait = WaitUntil { index, cmp, value, limit };
        self.count(op::WAIT_UNTIL, 0);
        self.core.team.world.backend.wait_until(&stream.raw, &self.core.raw, &wait)
    }

    /// All members meet on `channel`; this stream's earlier puts are delivered before it is passed anywhere.
    ///
    /// # Collective
    /// Over the handle's team, on the same channel. Channels are independent of each other, of `put_signal`, and of
    /// contexts.
    ///
    /// # Errors
    /// As [`put_signal`](Self::put_signal).
    pub fn barrier(&self, stream: &Stream<B>, channel: usize, timeout: Option<Duration>) -> Result<()> {
        self.begin("barrier", stream, self.rank())?;
        self.check_channel("barrier", channel)?;
        stream.keep(|| self.clone())?;
        let limit = timeout.unwrap_or_else(|| self.core.team.timeout());
        self.count(op::HANDLE_BARRIER, 0);
        self.core.team.world.backend.barrier(&stream.raw, &self.core.raw, channel, limit)
    }

    fn count(&self, op: u64, bytes: usize) {
        self.core.team.world.counters.count(op, bytes);
    }

    fn check_channel(&self, op: &'static str, channel: usize) -> Result<()> {
        let channels = self.core.pad.channels;
        if channel < channels {
            return Ok(());
        }
        let expected = format!("a channel in [0, {channels}), which SYMM_SIGNAL_PAD_BYTES bounds");
        Err(Error::argument(op, "channel", channel, expected))
    }

    fn check_signal(&self, op: &'static str, index: usize) -> Result<()> {
        let n = self.core.pad.n_signals;
        if index < n {
            return Ok(());
        }
        Err(Error::argument(op, "signal", index, format!("an index in [0, {n}), which SYMM_SIGNALS bounds")))
    }

    /// What an exchange publishes about this handle as its output.
    pub(crate) fn output_id(&self) -> u64 {
        // (team, index) is equal on all members; the index alone is enough inside one team, the mix keeps teams apart.
        self.allocation.id.0.rotate_left(32) ^ self.allocation.id.1
    }
}

/// First byte and length of `shape` from element `start.1` after byte `start.0` on, if that is inside `bytes`.
fn inside(
    op: &'static str,
    start: (usize, usize),
    (sizes, dtype): (&[usize], DType),
    bytes: usize,
) -> Result<(usize, usize)> {
    let len = elements(op, sizes, dtype)?;
    let first = start.1.checked_mul(dtype.size()).and_then(|b| b.checked_add(start.0));
    let end = first.and_then(|f| f.checked_add(len * dtype.size()));
    match (first, end) {
        (Some(first), Some(end)) if end <= bytes => Ok((first, len)),
        _ => {
            let got = format!("{len} elements of {dtype} from element {} after byte {}", start.1, start.0);
            Err(Error::argument(op, "range", got, format!("a range inside {bytes} bytes")))
        }
    }
}
