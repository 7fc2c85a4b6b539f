//! The backend: its calls go to the modules that do them.

use std::ffi::c_void;
use std::sync::{Arc, Weak};
use std::time::Duration;

use symm_core::backend::{
    ContextParts, DevicePtrs, Exchange, Export, Form, Get, HandleParts, Kept, PadSignal, Put, Reach, Records,
    WaitUntil,
};
use symm_core::bootstrap::Bootstrap;
use symm_core::capability::Capabilities;
use symm_core::layout::{ContextLayout, ContextRoom};
use symm_core::{Addr, Backend, Config, Pe, Result};

use crate::capture::Relaxed;
use crate::device::Atomics;
use crate::handle::{RawContext, RawHandle};
use crate::launch::Kernels;
use crate::probe::{Opened, open};
use crate::result::{BACKEND, lock};
use crate::shared::Shared;
use crate::status::Status;
use crate::stream::{self, Graph, Marker, Stream};
use crate::vmm::{Mapped, Mapping, Segment};

/// PEs on the GPUs of one host.
#[derive(Debug)]
pub struct Cuda {
    pub(crate) shared: Arc<Shared>,
    pub(crate) kernels: Kernels,
    /// For each PE: whether this GPU's atomics work on its memory.
    pub(crate) atomics: Vec<Atomics>,
    pub(crate) max_blocks: u32,
    /// Most bytes of an all-reduce whose elements are pushed.
    pub(crate) all_reduce_push: usize,
    /// The same between two members, once all have arrived.
    pub(crate) all_reduce_push_pair: usize,
    /// Whether all PEs are on one host.
    pub(crate) one_host: bool,
    /// What memory is shared as instead of what was asked for, and why.
    pub(crate) fallback: Option<String>,
}

// SAFETY:
// - Segments and mappings are `Arc`s that are unmapped by the last clone; a mapping holds a reference to the physical
//   memory, which therefore stays valid whatever its owner does.
// - Kernels get addresses that were computed from the descriptor and from mappings that the handle or context keeps.
// - Signals, flags and barriers are release stores after, and acquire loads before, the bytes they announce, at system
//   scope; the end of a kernel orders its writes before the next operation of the stream.
unsafe impl Backend for Cuda {
    type Segment = Segment;
    type Mapping = Mapping;
    type Stream = Stream;
    type Marker = Marker;
    type Graph = Graph;
    type Status = Status;
    type RawHandle = RawHandle;
    type RawContext = RawContext;

    fn init(boot: &Arc<dyn Bootstrap>, config: &Config) -> Result<Self> {
        let Opened { shared, kernels, atomics, one_host, fallback } = open(boot, config)?;
        Ok(Cuda {
            shared,
            kernels,
            atomics,
            max_blocks: config.max_blocks,
            all_reduce_push: config.all_reduce_push,
            all_reduce_push_pair: config.all_reduce_push_pair,
            one_host,
            fallback,
        })
    }

    fn name(&self) -> &'static str {
        BACKEND
    }

    fn capabilities(&self) -> Capabilities {
        let mut all = Capabilities::PEER_LOAD_STORE
            | Capabilities::GRAPH
            | Capabilities::DETERMINISTIC
            | Capabilities::RECOVER
            | Capabilities::DEVICE_INITIATED;
        // The end of a process of another host cannot be proven.
        all.set(Capabilities::WITHOUT, self.one_host);
        all
    }

    fn reach(&self, _pe: Pe) -> Reach {
        // `init` fails unless every pair is.
        Reach::Direct
    }

    fn allocate(&self, bytes: usize) -> Result<Segment> {
        Mapped::allocate(&self.shared, bytes).map(|m| Segment(Arc::new(m)))
    }

    fn base(&self, segment: &Segment) -> Addr {
        Addr(segment.0.base)
    }

    fn export(&self, segment: &Segment) -> Result<Export> {
        segment.0.export()
    }

    fn import(&self, _from: Pe, export: &Export) -> Result<Mapping> {
        Mapped::import(&self.shared, export).map(|m| Mapping(Arc::new(m)))
    }

    fn own(&self, segment: &Segment) -> Mapping {
        Mapping(segment.0.clone())
    }

    fn mapped(&self, mapping: &Mapping) -> Option<Addr> {
        Some(Addr(mapping.0.base))
    }

    unsafe fn zero(&self, segment: &Segment, offset: usize, bytes: usize) -> Result<()> {
        let _entered = self.shared.device.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        self.shared.zero(segment.0.base + offset as u64, bytes)
    }

    fn status(&self) -> Result<Status> {
        let _entered = self.shared.device.enter()?;
        let _relaxed = Relaxed::enter()?;
        Status::new(&self.shared)
    }

    fn clear_status(&self, status: &Status) -> Result<()> {
        status.clear()
    }

    fn bind_handle(&self, parts: HandleParts<Self>) -> Result<RawHandle> {
        let _entered = self.shared.device.enter()?;
        let _relaxed = Relaxed::enter()?;
        RawHandle::bind(&self.shared, parts)
    }

    fn context_room(&self, members: &[Pe]) -> ContextRoom {
        ContextRoom::for_sums(self.all_reduce_push, self.all_reduce_push_pair, members.len())
    }

    fn bind_context(&self, parts: ContextParts<Self>) -> Result<RawContext> {
        let _entered = self.shared.device.enter()?;
        let _relaxed = Relaxed::enter()?;
        RawContext::bind(&self.shared, parts)
    }

    fn device_ptrs(&self, handle: &RawHandle) -> DevicePtrs {
        handle.device_ptrs()
    }

    fn multicast_ptr(&self, _handle: &RawHandle) -> Option<Addr> {
        None
    }

    fn context_epoch(&self, context: &RawContext) -> Result<u64> {
        let _entered = self.shared.device.enter()?;
        let mut epoch = [0];
        self.shared.download(context.mine + ContextLayout::TICKET as u64, &mut epoch)?;
        Ok(epoch[0])
    }

    unsafe fn reset_context(&self, context: &RawContext, epoch: u64) -> Result<()> {
        let _entered = self.shared.device.enter()?;
        context.reset(&self.shared, epoch)
    }

    fn records(&self) -> Records {
        Records { waits: Vec::new(), fallbacks: self.fallback.iter().cloned().collect() }
    }

    fn wake(&self) {
        let all: Vec<_> = lock(&self.shared.statuses).iter().filter_map(Weak::upgrade).collect();
        for status in all {
            let pushed = self.shared.device.enter().and_then(|_entered| status.push());
            if let Err(e) = pushed {
                // Kernels still find the failure in host memory, later.
                log::warn!("{}: {e}", symm_core::pe::here());
            }
        }
    }

    fn stream(&self) -> Result<Stream> {
        let _entered = self.shared.device.enter()?;
        let _relaxed = Relaxed::enter()?;
        Stream::new(&self.shared)
    }

    unsafe fn stream_from_raw(&self, raw: *mut c_void) -> Result<Stream> {
        // SAFETY: the caller promises the same.
        unsafe { Stream::from_raw(&self.shared, raw.cast()) }
    }

    fn synchronize(&self, stream: &Stream) -> Result<()> {
        stream.synchronize()
    }

    fn mark(&self) -> Result<Marker> {
        self.shared.mark()
    }

    fn passed(&self, marker: &Marker) -> Result<bool> {
        let _entered = self.shared.device.enter()?;
        let _relaxed = Relaxed::enter()?;
        marker.passed()
    }

    fn begin_capture(&self, stream: &Stream) -> Result<()> {
        stream.begin_capture()
    }

    fn end_capture(&self, stream: &Stream) -> Result<Graph> {
        stream.end_capture()
    }

    fn is_capturing(&self, stream: &Stream) -> Result<bool> {
        Ok(stream.is_capturing())
    }

    fn keep(&self, stream: &Stream, kept: Kept) -> Result<()> {
        stream.keep(kept)
    }

    fn released(&self) -> Vec<Kept> {
        std::mem::take(&mut *lock(&self.shared.released)).into_iter().map(|d| d.0).collect()
    }

    unsafe fn launch(&self, graph: &Graph, stream: &Stream) -> Result<()> {
        graph.launch(stream)
    }

    unsafe fn copy_in(&self, stream: &Stream, dst: Addr, src: &[u8]) -> Result<()> {
        stream::copy_in(stream, dst, src)
    }

    unsafe fn copy_out(&self, stream: &Stream, src: Addr, dst: &mut [u8]) -> Result<()> {
        stream::copy_out(stream, src, dst)
    }

    unsafe fn fill(&self, stream: &Stream, dst: Addr, value: u8, bytes: usize) -> Result<()> {
        stream::enqueue_fill(stream, dst, value, bytes)
    }

    unsafe fn memset32(&self, stream: &Stream, dst: Addr, value: u32, count: usize) -> Result<()> {
        crate::reduce::enqueue_memset32(stream, dst, value, count)
    }

    unsafe fn write_value32(&self, stream: &Stream, dst: Addr, value: u32) -> Result<()> {
        crate::reduce::enqueue_write_value32(stream, dst, value)
    }

    unsafe fn copy(&self, stream: &Stream, dst: Addr, src: Addr, bytes: usize) -> Result<()> {
        stream::enqueue_copy(stream, dst, src, bytes)
    }

    unsafe fn put(&self, stream: &Stream, handle: &RawHandle, put: &Put) -> Result<()> {
        // SAFETY: the caller promises the same.
        unsafe { self.enqueue_put(stream, handle, put) }
    }

    unsafe fn get(&self, stream: &Stream, handle: &RawHandle, get: &Get) -> Result<()> {
        // SAFETY: the caller promises the same.
        unsafe { self.enqueue_get(stream, handle, get) }
    }

    fn put_signal(&self, stream: &Stream, handle: &RawHandle, signal: &PadSignal) -> Result<()> {
        self.enqueue_put_signal(stream, handle, signal)
    }

    fn wait_signal(&self, stream: &Stream, handle: &RawHandle, signal: &PadSignal) -> Result<()> {
        self.enqueue_wait_signal(stream, handle, signal)
    }

    fn wait_until(&self, stream: &Stream, handle: &RawHandle, wait: &WaitUntil) -> Result<()> {
        self.enqueue_wait_until(stream, handle, wait)
    }

    fn barrier(&self, stream: &Stream, handle: &RawHandle, channel: usize, limit: Duration) -> Result<()> {
        self.enqueue_barrier(stream, handle, channel, limit)
    }

    fn fence(&self, _stream: &Stream) -> Result<()> {
        // A kernel's end makes its writes visible everywhere before the stream's next operation begins.
        Ok(())
    }

    fn quiet(&self, _stream: &Stream, _status: &Status, _limit: Duration) -> Result<()> {
        // As for `fence`: a put is delivered when its kernel has ended, so whatever the stream does next comes after it.
        Ok(())
    }

    fn scratch_bytes(&self, form: Form, ranks: usize, bytes: usize) -> usize {
        crate::take::scratch_bytes(form, ranks, bytes)
    }

    unsafe fn exchange(
        &self,
        stream: &Stream,
        context: &RawContext,
        exchange: &Exchange<'_, Self>,
    ) -> Result<()> {
        // SAFETY: the caller promises the same.
        unsafe { self.enqueue_exchange(stream, context, exchange) }
    }

    fn finalize(&self) -> Result<()> {
        // No threads, and no transfers outside streams.
        Ok(())
    }
}
