//! The backend: its calls go to `symm-cuda` where all members of a team are direct, else to `net`.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use symm_core::backend::{
    ContextParts, DevicePtrs, Exchange, ExchangeOutput, Export, Form, Get, HandleParts, Kept, PadSignal, Put,
    Reach, WaitUntil,
};
use symm_core::bootstrap::Bootstrap;
use symm_core::capability::Capabilities;
use symm_core::layout::ContextRoom;
use symm_core::{Addr, Backend, Config, Deadline, Error, Pe, Result};
use symm_cuda::{Cuda, Graph, Marker, Status, Stream};

use crate::error::BACKEND;
use crate::handle::{Mapping, RawContext, RawHandle, Segment};
use crate::heap::Heap;
use crate::library::{Library, bounded};
use crate::mpi::MpiComm;
use crate::net::Network;
use crate::start::{self, Reached};
use crate::teams::Teams;

/// How long the end of NVSHMEM may take, once all PEs have come to it.
const END: Duration = Duration::from_secs(20);

/// PEs across nodes, by NVSHMEM.
#[derive(Debug)]
pub struct Nvshmem {
    pub(crate) boot: Arc<dyn Bootstrap>,
    pub(crate) library: Library,
    pub(crate) cuda: Arc<Cuda>,
    pub(crate) heap: Arc<Heap>,
    /// For each PE: where its heap begins for loads and stores of this one; `None` where it is not direct.
    pub(crate) peers: Vec<Option<u64>>,
    /// Which PEs are direct to each other.
    pub(crate) reached: Reached,
    /// Where some PE of the world is not direct to another.
    pub(crate) net: Option<Network>,
    /// Whether the GPUs' atomics on the heap can be lost; then `net` is there, and handles use what it has in their place.
    pub(crate) weak_atomics: bool,
    pub(crate) teams: Teams,
    pub(crate) init_timeout: Duration,
}

// SAFETY:
// - A segment is a range of a heap that stays mapped until `finalize`; it is used for something else only once every clone is
//   dropped and the streams have passed that. A peer's heap stays mapped here as long.
// - Kernels get addresses that were computed from the descriptor and from ranges that the handle or context keeps.
// - Direct peers: as `symm-cuda`. Others: words that announce something are put after a fence, or after a quiet, of what they
//   announce; and whoever sees one makes what came before it visible by NVSHMEM's own means.
unsafe impl Backend for Nvshmem {
    type Segment = Segment;
    type Mapping = Mapping;
    type Stream = Stream;
    type Marker = Marker;
    type Graph = Graph;
    type Status = Status;
    type RawHandle = RawHandle;
    type RawContext = RawContext;

    fn init(boot: &Arc<dyn Bootstrap>, config: &Config) -> Result<Self> {
        start::open(boot, config, None)
    }

    fn name(&self) -> &'static str {
        BACKEND
    }

    fn capabilities(&self) -> Capabilities {
        // No `WITHOUT`: a transport may still deliver what a PE sent before it died. While all live, every operation ends with its
        // bytes delivered, so idle streams prove that nothing is on its way.
        let mut all = Capabilities::GRAPH | Capabilities::DETERMINISTIC | Capabilities::RECOVER;
        let direct = self.peers.iter().filter(|p| p.is_some()).count();
        if direct > 1 || self.peers.len() == 1 {
            all |= Capabilities::PEER_LOAD_STORE;
        }
        all |=
            if direct == self.peers.len() { Capabilities::DEVICE_INITIATED } else { Capabilities::NETWORK };
        all
    }

    fn reach(&self, pe: Pe) -> Reach {
        let direct = self.peers.get(pe.index()).is_some_and(Option::is_some);
        if direct { Reach::Direct } else { Reach::Network }
    }

    fn allocate(&self, bytes: usize) -> Result<Segment> {
        self.heap.take(bytes).map(|range| Segment(Arc::new(range)))
    }

    fn base(&self, segment: &Segment) -> Addr {
        segment.0.base()
    }

    fn export(&self, segment: &Segment) -> Result<Export> {
        Ok(Export { bytes: (segment.0.offset as u64).to_le_bytes().to_vec(), fds: Vec::new() })
    }

    fn import(&self, from: Pe, export: &Export) -> Result<Mapping> {
        let wrong = |why: &str| Error::Bootstrap { call: "import", why: format!("PE {from}: {why}") };
        let bytes: [u8; 8] =
            export.bytes.as_slice().try_into().map_err(|_| wrong("a description of another length"))?;
        let offset = usize::try_from(u64::from_le_bytes(bytes)).ok().filter(|o| *o < self.heap.bytes);
        let offset = offset.ok_or_else(|| wrong("an offset beyond the heap"))?;
        let base = self.peers.get(from.index()).copied().flatten();
        Ok(Mapping { offset, address: base.map(|b| b + offset as u64), _own: None })
    }

    fn own(&self, segment: &Segment) -> Mapping {
        let range = segment.0.clone();
        Mapping { offset: range.offset, address: Some(range.base().0), _own: Some(range) }
    }

    fn mapped(&self, mapping: &Mapping) -> Option<Addr> {
        mapping.address.map(Addr)
    }

    unsafe fn zero(&self, segment: &Segment, offset: usize, bytes: usize) -> Result<()> {
        // SAFETY: the caller promises that nothing uses those bytes of the segment.
        unsafe { self.cuda.zero_at(segment.0.base().0 + offset as u64, bytes) }
    }

    fn status(&self) -> Result<Status> {
        self.cuda.status()
    }

    fn clear_status(&self, status: &Status) -> Result<()> {
        self.cuda.clear_status(status)
    }

    fn bind_handle(&self, parts: HandleParts<Self>) -> Result<RawHandle> {
        RawHandle::bind(self, parts)
    }

    fn context_room(&self, members: &[Pe]) -> ContextRoom {
        // Teams of direct members run `symm-cuda`'s kernels; those of the network take no elements from there.
        if self.reached.among(members) { self.cuda.context_room(members) } else { ContextRoom::default() }
    }

    fn bind_context(&self, parts: ContextParts<Self>) -> Result<RawContext> {
        RawContext::bind(self, parts)
    }

    fn device_ptrs(&self, handle: &RawHandle) -> DevicePtrs {
        self.cuda.device_ptrs(&handle.direct)
    }

    fn multicast_ptr(&self, _handle: &RawHandle) -> Option<Addr> {
        None
    }

    fn context_epoch(&self, context: &RawContext) -> Result<u64> {
        self.cuda.context_epoch(&context.direct)
    }

    unsafe fn reset_context(&self, context: &RawContext, epoch: u64) -> Result<()> {
        // SAFETY: the caller promises the same.
        unsafe { self.cuda.reset_context(&context.direct, epoch) }
    }

    fn wake(&self) {
        self.cuda.wake();
    }

    fn stream(&self) -> Result<Stream> {
        self.cuda.stream()
    }

    unsafe fn stream_from_raw(&self, raw: *mut c_void) -> Result<Stream> {
        // SAFETY: the caller promises the same.
        unsafe { self.cuda.stream_from_raw(raw) }
    }

    fn synchronize(&self, stream: &Stream) -> Result<()> {
        match &self.net {
            None => self.cuda.synchronize(stream),
            Some(net) => net.synchronize(stream),
        }
    }

    fn mark(&self) -> Result<Marker> {
        self.cuda.mark()
    }

    fn passed(&self, marker: &Marker) -> Result<bool> {
        self.cuda.passed(marker)
    }

    fn begin_capture(&self, stream: &Stream) -> Result<()> {
        self.cuda.begin_capture(stream)
    }

    fn end_capture(&self, stream: &Stream) -> Result<Graph> {
        self.cuda.end_capture(stream)
    }

    fn is_capturing(&self, stream: &Stream) -> Result<bool> {
        self.cuda.is_capturing(stream)
    }

    fn keep(&self, stream: &Stream, kept: Kept) -> Result<()> {
        self.cuda.keep(stream, kept)
    }

    fn released(&self) -> Vec<Kept> {
        self.cuda.released()
    }

    unsafe fn launch(&self, graph: &Graph, stream: &Stream) -> Result<()> {
        // SAFETY: the caller promises the same.
        unsafe { self.cuda.launch(graph, stream) }
    }

    unsafe fn copy_in(&self, stream: &Stream, dst: Addr, src: &[u8]) -> Result<()> {
        // SAFETY: the caller promises the same.
        unsafe { self.cuda.copy_in(stream, dst, src) }
    }

    unsafe fn copy_out(&self, stream: &Stream, src: Addr, dst: &mut [u8]) -> Result<()> {
        // SAFETY: the caller promises the same.
        unsafe { self.cuda.copy_out(stream, src, dst) }
    }

    unsafe fn fill(&self, stream: &Stream, dst: Addr, value: u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller promises the same.
        unsafe { self.cuda.fill(stream, dst, value, bytes) }
    }

    unsafe fn memset32(&self, stream: &Stream, dst: Addr, value: u32, count: usize) -> Result<()> {
        // SAFETY: the caller promises the same.
        unsafe { self.cuda.memset32(stream, dst, value, count) }
    }

    unsafe fn write_value32(&self, stream: &Stream, dst: Addr, value: u32) -> Result<()> {
        // SAFETY: the caller promises the same.
        unsafe { self.cuda.write_value32(stream, dst, value) }
    }

    unsafe fn copy(&self, stream: &Stream, dst: Addr, src: Addr, bytes: usize) -> Result<()> {
        // SAFETY: the caller promises the same.
        unsafe { self.cuda.copy(stream, dst, src, bytes) }
    }

    unsafe fn put(&self, stream: &Stream, handle: &RawHandle, put: &Put) -> Result<()> {
        match (&self.net, &handle.net) {
            (Some(net), Some(h)) => {
                // SAFETY: the caller promises the same.
                let data = |put: &Put| unsafe { self.cuda.put(stream, &handle.direct, put) };
                // SAFETY: the caller promises the same.
                unsafe { net.put_to(stream, h, put, data) }
            }
            // SAFETY: the caller promises the same.
            _ => unsafe { self.cuda.put(stream, &handle.direct, put) },
        }
    }

    unsafe fn get(&self, stream: &Stream, handle: &RawHandle, get: &Get) -> Result<()> {
        match (&self.net, &handle.net) {
            // SAFETY: the caller promises the same.
            (Some(net), Some(h)) if h.reaches(get.rank) => unsafe { net.get(stream, h, get) },
            // SAFETY: the caller promises the same.
            _ => unsafe { self.cuda.get(stream, &handle.direct, get) },
        }
    }

    fn put_signal(&self, stream: &Stream, handle: &RawHandle, signal: &PadSignal) -> Result<()> {
        match (&self.net, &handle.net) {
            (Some(net), Some(h)) => net.pad_signal(stream, (handle, h), signal, false),
            _ => self.cuda.put_signal(stream, &handle.direct, signal),
        }
    }

    fn wait_signal(&self, stream: &Stream, handle: &RawHandle, signal: &PadSignal) -> Result<()> {
        match (&self.net, &handle.net) {
            (Some(net), Some(h)) => net.pad_signal(stream, (handle, h), signal, true),
            _ => self.cuda.wait_signal(stream, &handle.direct, signal),
        }
    }

    fn wait_until(&self, stream: &Stream, handle: &RawHandle, wait: &WaitUntil) -> Result<()> {
        match (&self.net, &handle.net) {
            (Some(net), Some(h)) => net.wait_until(stream, h, wait),
            _ => self.cuda.wait_until(stream, &handle.direct, wait),
        }
    }

    fn barrier(&self, stream: &Stream, handle: &RawHandle, channel: usize, limit: Duration) -> Result<()> {
        match (&self.net, &handle.net) {
            (Some(net), Some(h)) => net.barrier(stream, handle, h, (channel, limit)),
            _ => self.cuda.barrier(stream, &handle.direct, channel, limit),
        }
    }

    fn fence(&self, _stream: &Stream) -> Result<()> {
        // Every operation, direct or not, ends with its bytes delivered: what the stream does next comes after them.
        Ok(())
    }

    fn quiet(&self, _stream: &Stream, _status: &Status, _limit: Duration) -> Result<()> {
        // As for `fence`.
        Ok(())
    }

    fn scratch_bytes(&self, form: Form, ranks: usize, bytes: usize) -> usize {
        self.cuda.scratch_bytes(form, ranks, bytes)
    }

    fn without_plans(&self, context: &RawContext) -> Option<&'static str> {
        context
            .net
            .as_ref()
            .map(|_| "some members are not direct, and no kernel over the network takes planned moves")
    }

    unsafe fn exchange(&self, stream: &Stream, context: &RawContext, x: &Exchange<'_, Self>) -> Result<()> {
        let output = x.output.as_ref().map(|o| ExchangeOutput {
            handle: &o.handle.direct,
            id: o.id,
            offset: o.offset,
            rows: o.rows,
        });
        let direct = x.with_output::<Cuda>(output);
        match (&self.net, &context.net) {
            (Some(net), Some(c)) => {
                let output = x.output.as_ref().and_then(|o| o.handle.net.as_ref());
                // SAFETY: the caller promises the same.
                unsafe { net.exchange(stream, (&context.direct, c), &direct, output) }
            }
            // SAFETY: the caller promises the same.
            _ => unsafe { self.cuda.exchange(stream, &context.direct, &direct) },
        }
    }

    fn finalize(&self) -> Result<()> {
        // A failure, or a PE that does not come, leaves NVSHMEM to the process's exit: its own end would wait for ever, or
        // end this process.
        let fine = !self.cuda.has_failed() && self.boot.failed().is_empty();
        let fine = fine && self.streams_end();
        if !start::all_end(&self.boot, fine, Deadline::after(END)) {
            log::debug!("PE {}: NVSHMEM is not ended after a failure", self.boot.pe());
            return Ok(());
        }
        if let Some(net) = &self.net {
            net.stop();
        }
        let library = self.library;
        let ended = bounded(&self.cuda, "nvshmemx_hostlib_finalize", Deadline::after(END), move || {
            // SAFETY: every PE has said that its streams are idle and that nothing has failed; the model takes no call after
            // this one.
            unsafe { library.finalize() };
            Ok(())
        })?;
        ended.map_err(|text| Error::Backend {
            backend: BACKEND,
            call: "nvshmemx_hostlib_finalize",
            code: -1,
            text,
        })
    }
}

impl Nvshmem {
    /// As [`Backend::init`], and NVSHMEM's own start-up goes over an MPI communicator instead of a unique id: where the sockets
    /// of its unique id do not work, or for a job that is MPI's anyway.
    ///
    /// # Collective
    /// Over the world, once in a process; every PE's rank in `comm` is its number.
    ///
    /// # Errors
    /// As [`Backend::init`]; `Unavailable` on all if on some PE NVSHMEM's plugin for MPI is missing or of another MPI, or MPI was
    /// initialised for one thread only.
    pub fn init_over_mpi(boot: &Arc<dyn Bootstrap>, config: &Config, comm: MpiComm) -> Result<Self> {
        start::open(boot, config, Some(comm))
    }

    /// Whether all streams have ended what was enqueued, within a moment.
    fn streams_end(&self) -> bool {
        let deadline = Deadline::after(Duration::from_secs(2));
        let Ok(marker) = self.cuda.mark() else { return false };
        loop {
            match self.cuda.passed(&marker) {
                Ok(true) => return true,
                Ok(false) if !deadline.passed() => std::thread::sleep(Duration::from_micros(100)),
                _ => return false,
            }
        }
    }

    /// NVSHMEM's release and where its library is from, in words.
    pub fn describe(&self) -> String {
        let limited = if self.library.is_limited() { ", several PEs a GPU, without collectives" } else { "" };
        format!("NVSHMEM {}{limited}, heap of {} bytes", self.library.version(), self.heap.bytes)
    }
}
