//! Streams, markers, events and captured graphs.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;

use cudarc::driver::sys::{
    self, CUevent, CUevent_flags, CUgraph, CUgraphExec, CUresult, CUstream, CUstreamCaptureMode,
};
use symm_core::{Addr, Error, Result};

use crate::arena::{Block, Kind};
use crate::capture::{self, Relaxed};
use crate::device::{Entered, current, enter};
use crate::record::Turns;
use crate::result::{BACKEND, check, lock};
use crate::shared::{Shared, create_stream};

/// An in-order queue of operations on the GPU. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct Stream(pub(crate) Arc<StreamInner>);

#[derive(Debug)]
pub(crate) struct StreamInner {
    pub(crate) shared: Arc<Shared>,
    /// A `CUstream` as a number, so that the struct is `Send`.
    raw: usize,
    /// Whether the stream goes with this struct; else it is the caller's.
    owned: bool,
    /// The thread whose per-thread default stream it is, where it is one: on other threads its number means another stream.
    thread: Option<ThreadId>,
    /// Counters of the launches on this stream: they follow one another, so one record is enough.
    pub(crate) record: Block,
    /// While a capture that `begin_capture` began is going on: the stream's end before it.
    pub(crate) capture: Mutex<Option<Arc<Event>>>,
    /// Whose turn it is among the exchanges of this stream, and of the capture that was seen last.
    pub(crate) turns: Mutex<Turns>,
    /// For what goes on beside this stream and joins it again, made when there first is something: a `CUstream` as a number.
    pub(crate) beside: OnceLock<usize>,
}

impl StreamInner {
    pub(crate) fn raw(&self) -> CUstream {
        self.raw as CUstream
    }

    pub(crate) fn is_capturing(&self) -> bool {
        capture::is_capturing(self.raw())
    }

    /// Whether the stream cannot be named on this thread.
    fn is_elsewhere(&self) -> bool {
        self.thread.is_some_and(|thread| thread != std::thread::current().id())
    }

    /// A point behind everything enqueued so far; `None` if all of that has ended, or is captured and not run.
    pub(crate) fn end(&self) -> Result<Option<Event>> {
        // A look at a stream that is not captured ends somebody's capture in the strictest mode.
        let _relaxed = Relaxed::enter()?;
        let on = if self.is_elsewhere() {
            // The one stream that waits for the per-thread streams of all threads.
            LEGACY as CUstream
        } else if self.is_capturing() || self.is_idle() {
            return Ok(None);
        } else {
            self.raw()
        };
        let event = Event::plain()?;
        event.record_on(on)?;
        Ok(Some(event))
    }

    /// Whether everything enqueued so far has ended. Not for a stream that is being captured.
    fn is_idle(&self) -> bool {
        // SAFETY: the stream is live.
        unsafe { sys::cuStreamQuery(self.raw()) == CUresult::CUDA_SUCCESS }
    }
}

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`: names of streams that the driver has in every context.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

impl Stream {
    /// Makes the context current; every operation on a stream begins with it.
    ///
    /// # Errors
    /// `InvalidArgument` for the per-thread default stream of another thread; the driver's.
    pub(crate) fn enter(&self) -> Result<Entered> {
        if self.0.is_elsewhere() {
            return Err(Error::argument(
                "stream",
                "stream",
                "the per-thread default stream of another thread",
                "the thread that gave it to stream_from_raw, or a stream that is the same on all threads",
            ));
        }
        self.0.shared.device.enter()
    }

    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Self> {
        let _entered = shared.device.enter()?;
        let record = Block::new(shared, Kind::Device, symm_kernels::params::RECORD_BYTES)?;
        Ok(Stream::over(shared, create_stream()?, record, true))
    }

    /// A stream over one of the caller's.
    ///
    /// # Safety
    /// As [`Backend::stream_from_raw`](symm_core::Backend::stream_from_raw).
    pub(crate) unsafe fn from_raw(shared: &Arc<Shared>, raw: CUstream) -> Result<Self> {
        let _entered = shared.device.enter()?;
        let _relaxed = Relaxed::enter()?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the caller promises a live stream; `context` is a valid place.
        check("cuStreamGetCtx", unsafe { sys::cuStreamGetCtx(raw, &raw mut context) })?;
        if !shared.device.has_context(context) {
            return Err(Error::InvalidArgument {
                op: "stream_from_raw",
                argument: "stream",
                got: "a stream of another CUDA context".to_owned(),
                expected: format!("one of the primary context of GPU {}", shared.device.ordinal),
            });
        }
        let record = Block::new(shared, Kind::Device, symm_kernels::params::RECORD_BYTES)?;
        Ok(Stream::over(shared, raw, record, false))
    }

    fn over(shared: &Arc<Shared>, raw: CUstream, record: Block, owned: bool) -> Self {
        let (capture, turns) = (Mutex::new(None), Mutex::new(Turns::default()));
        let shared_with = shared.clone();
        let inner = Arc::new(StreamInner {
            shared: shared_with,
            raw: raw as usize,
            owned,
            thread: (raw as usize == PER_THREAD).then(|| std::thread::current().id()),
            record,
            capture,
            turns,
            beside: OnceLock::new(),
        });
        lock(&shared.streams).push(Arc::downgrade(&inner));
        Stream(inner)
    }

    /// The driver's stream, for callers that enqueue work of their own. Valid until the last clone is dropped.
    pub fn cu_stream(&self) -> CUstream {
        self.0.raw()
    }

    /// Makes the graph that the stream is captured into keep something.
    pub(crate) fn keep(&self, kept: symm_core::backend::Kept) -> Result<()> {
        let _entered = self.enter()?;
        let (_, graph) = capture::capture_of(self.cu_stream())?;
        capture::keep(&self.0.shared, graph, kept)
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.enter().map_or(true, |_entered| self.0.is_capturing())
    }

    /// Refuses what waits for the stream while it is being captured.
    pub(crate) fn not_capturing(&self, op: &'static str) -> Result<()> {
        if self.is_capturing() {
            let why = "it waits for the stream, which is being captured".to_owned();
            return Err(Error::Unsupported { backend: BACKEND, capability: op, why });
        }
        Ok(())
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.not_capturing("synchronize")?;
        let _entered = self.enter()?;
        // SAFETY: the stream lives as long as `self`.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.cu_stream()) })
    }

    /// Makes this stream wait for the present end of `other`.
    pub(crate) fn follow(&self, other: &Stream) -> Result<()> {
        let _entered = self.enter()?;
        follow(self.cu_stream(), other.cu_stream())
    }

    pub(crate) fn begin_capture(&self) -> Result<()> {
        let _entered = self.enter()?;
        if self.is_capturing() {
            return Err(Error::argument(
                "begin_capture",
                "stream",
                "a stream that is being captured",
                "an idle one",
            ));
        }
        let mut capture = lock(&self.0.capture);
        // What the stream has queued so far is not captured, and whoever marks the streams meanwhile must know of it.
        let before = Event::plain()?;
        before.record_on(self.cu_stream())?;
        // The caller may allocate while it captures; in the stricter modes that would end the capture.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is live.
        check("cuStreamBeginCapture_v2", unsafe { sys::cuStreamBeginCapture_v2(self.cu_stream(), mode) })?;
        *capture = Some(Arc::new(before));
        Ok(())
    }

    pub(crate) fn end_capture(&self) -> Result<Graph> {
        let _entered = self.enter()?;
        // Held until the capture has ended, so that nobody marks the stream in between.
        let mut capture = lock(&self.0.capture);
        if capture.take().is_none() {
            return Err(Error::argument(
                "end_capture",
                "stream",
                "a stream that is not being captured",
                "one that is, by begin_capture",
            ));
        }
        let mut graph: CUgraph = std::ptr::null_mut();
        // SAFETY: the stream is live and `graph` a valid place.
        let ended = unsafe { sys::cuStreamEndCapture(self.cu_stream(), &raw mut graph) };
        drop(capture);
        check("cuStreamEndCapture", ended)?;
        let mut exec: CUgraphExec = std::ptr::null_mut();
        // SAFETY: `graph` was made just now and `exec` is a valid place.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) };
        // SAFETY: the executable graph, if any, has its own copy of everything.
        let destroyed = unsafe { sys::cuGraphDestroy(graph) };
        check("cuGraphInstantiateWithFlags", made)?;
        check("cuGraphDestroy", destroyed)?;
        Ok(Graph { exec: exec as usize, context: current()? })
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        // Destroying a stream does not wait for its work, so whoever marks the streams later must know of it.
        let _entered = match self.shared.device.enter() {
            Ok(entered) => entered,
            Err(e) => {
                log::warn!("{}: a stream was dropped unmarked: {e}", symm_core::pe::here());
                return;
            }
        };
        // What went on there has joined this one.
        if let Some(beside) = self.beside.get() {
            destroy(*beside as CUstream);
        }
        // A captured one has no work left but what was queued before the capture.
        let before = lock(&self.capture).take();
        let left = match before {
            Some(before) => Ok(Some(before)),
            None => self.end().map(|end| end.map(Arc::new)),
        };
        match left {
            Ok(event) => lock(&self.shared.departed).extend(event),
            Err(e) => log::warn!("{}: a stream was dropped unmarked: {e}", symm_core::pe::here()),
        }
        if !self.owned {
            return;
        }
        destroy(self.raw());
    }
}

/// Destroys a stream of this library's, of which this is the last owner.
pub(crate) fn destroy(raw: CUstream) {
    // SAFETY: the stream is live and nobody else's; the driver frees it once its work is done.
    if let Err(e) = check("cuStreamDestroy_v2", unsafe { sys::cuStreamDestroy_v2(raw) }) {
        log::warn!("{}: {e}", symm_core::pe::here());
    }
}

/// Makes a stream wait for the present end of another.
pub(crate) fn follow(stream: CUstream, other: CUstream) -> Result<()> {
    let event = Event::plain()?;
    event.record_on(other)?;
    wait_for(stream, &event)
}

pub(crate) fn wait_for(stream: CUstream, event: &Event) -> Result<()> {
    // SAFETY: stream and event are live; the driver keeps what it needs of an event that is destroyed early.
    check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream, event.raw(), 0) })
}

/// A captured sequence of operations.
#[derive(Debug)]
pub struct Graph {
    /// A `CUgraphExec` as a number, so that the struct is `Send`.
    exec: usize,
    /// The context that it was made in.
    context: usize,
}

impl Graph {
    pub(crate) fn launch(&self, stream: &Stream) -> Result<()> {
        let _entered = stream.enter()?;
        // SAFETY: both are live; the caller of `Backend::launch` keeps what was captured valid.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.exec as CUgraphExec, stream.cu_stream()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let exec = self.exec as CUgraphExec;
        // SAFETY: this is the only owner; a launch that is still running is finished by the driver first.
        let destroy = |_entered| check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(exec) });
        if let Err(e) = enter(self.context).and_then(destroy) {
            log::warn!("{}: {e}", symm_core::pe::here());
        }
    }
}

/// A point in every stream of this PE.
#[derive(Debug)]
pub struct Marker {
    pub(crate) events: Vec<Arc<Event>>,
}

impl Marker {
    /// Whether every stream has passed it.
    pub(crate) fn passed(&self) -> Result<bool> {
        for event in &self.events {
            if !event.passed()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A point in one stream, with the time at which the GPU passed it.
#[derive(Debug)]
pub struct Event {
    /// A `CUevent` as a number, so that the struct is `Send`.
    raw: usize,
    /// The context that it was made in.
    context: usize,
}

impl Event {
    /// An event that keeps the time.
    ///
    /// # Errors
    /// The driver's; the GPU's primary context must be current, as it is after any call on a stream on a thread that had no other.
    pub fn timed() -> Result<Self> {
        Event::create(CUevent_flags::CU_EVENT_DEFAULT)
    }

    pub(crate) fn plain() -> Result<Self> {
        Event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn create(flags: CUevent_flags) -> Result<Self> {
        let mut raw: CUevent = std::ptr::null_mut();
        // SAFETY: `raw` is a valid place.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut raw, flags as u32) })?;
        Ok(Event { raw: raw as usize, context: current()? })
    }

    pub(crate) fn raw(&self) -> CUevent {
        self.raw as CUevent
    }

    /// Marks the present end of `stream`.
    ///
    /// # Errors
    /// The driver's.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _entered = stream.enter()?;
        self.record_on(stream.cu_stream())
    }

    pub(crate) fn record_on(&self, stream: CUstream) -> Result<()> {
        // SAFETY: both are live.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw(), stream) })
    }

    /// Milliseconds between two events that the GPU has passed.
    ///
    /// # Errors
    /// The driver's, also if one was not recorded, not passed, or keeps no time.
    pub fn milliseconds_since(&self, start: &Event) -> Result<f32> {
        let mut ms = 0.0;
        // SAFETY: both are live and `ms` is a valid place.
        let asked = unsafe { sys::cuEventElapsedTime_v2(&raw mut ms, start.raw(), self.raw()) };
        check("cuEventElapsedTime_v2", asked)?;
        Ok(ms)
    }

    pub(crate) fn passed(&self) -> Result<bool> {
        let _entered = enter(self.context)?;
        // SAFETY: the event is live.
        match unsafe { sys::cuEventQuery(self.raw()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => check("cuEventQuery", other).map(|()| true),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: this is the only owner; the driver keeps what a stream still waits for.
        let destroy = |_entered| check("cuEventDestroy_v2", unsafe { sys::cuEventDestroy_v2(self.raw()) });
        if let Err(e) = enter(self.context).and_then(destroy) {
            log::warn!("{}: {e}", symm_core::pe::here());
        }
    }
}

/// Enqueues a copy between any two addresses that the GPU reaches.
pub(crate) fn enqueue_copy(stream: &Stream, dst: Addr, src: Addr, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let _entered = stream.enter()?;
    // SAFETY: the caller of `Backend::copy` promises both ranges until the stream has passed this.
    check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(dst.0, src.0, bytes, stream.cu_stream()) })
}

/// Enqueues a fill.
pub(crate) fn enqueue_fill(stream: &Stream, dst: Addr, value: u8, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let _entered = stream.enter()?;
    // SAFETY: the caller of `Backend::fill` promises the range until the stream has passed this.
    check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(dst.0, value, bytes, stream.cu_stream()) })
}

/// Copies host bytes to the GPU in stream order and waits.
pub(crate) fn copy_in(stream: &Stream, dst: Addr, src: &[u8]) -> Result<()> {
    stream.not_capturing("copy_in")?;
    let _entered = stream.enter()?;
    if !src.is_empty() {
        // SAFETY: the source is a live slice until the synchronisation below; the caller promises the destination.
        let done =
            unsafe { sys::cuMemcpyHtoDAsync_v2(dst.0, src.as_ptr().cast(), src.len(), stream.cu_stream()) };
        check("cuMemcpyHtoDAsync_v2", done)?;
    }
    stream.synchronize()
}

/// Copies bytes to the host in stream order and waits.
pub(crate) fn copy_out(stream: &Stream, src: Addr, dst: &mut [u8]) -> Result<()> {
    stream.not_capturing("copy_out")?;
    let _entered = stream.enter()?;
    if !dst.is_empty() {
        // SAFETY: the destination is a live slice until the synchronisation below; the caller promises the source.
        let done = unsafe {
            sys::cuMemcpyDtoHAsync_v2(dst.as_mut_ptr().cast(), src.0, dst.len(), stream.cu_stream())
        };
        check("cuMemcpyDtoHAsync_v2", done)?;
    }
    stream.synchronize()
}
