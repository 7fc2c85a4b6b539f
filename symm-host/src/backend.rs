//! [`Host`]: the backend itself.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use symm_core::backend::{
    Addr, ContextParts, DevicePtrs, Exchange, Export, Get, HandleParts, PadSignal, Put, Reach, Records,
    WaitUntil,
};
use symm_core::bootstrap::Bootstrap;
use symm_core::capability::Capabilities;
use symm_core::layout::Header;
use symm_core::{Backend, Config, Deadline, Error, Fault, Pe, Result};

use crate::context::RawContext;
use crate::core::Core;
use crate::handle::{RawHandle, Status};
use crate::ops::{
    self, BarrierTask, ExchangeTask, GetTask, Plan, PutSignalTask, QuietTask, WaitSignalTask, WaitUntilTask,
};
use crate::segment::{Mapping, Segment};
use crate::stream::{Now, Point, Stream};
use crate::{NAME, control, copy};

/// The host backend of one PE. See the [crate's documentation](crate).
#[derive(Debug)]
pub struct Host {
    core: Arc<Core>,
    pe: Pe,
    /// Limit of `finalize`.
    timeout: Duration,
    finalized: AtomicBool,
}

/// A point in every stream of this PE, and in the messages of its proxy.
#[derive(Debug)]
pub struct Marker {
    points: Vec<Point>,
    /// The proxy's last message when the streams had passed.
    sent: OnceLock<u64>,
}

/// The host backend captures nothing, so there is no value of this type.
#[derive(Debug)]
pub enum Graph {}

fn no_graphs<T>() -> Result<T> {
    Err(Error::Unsupported {
        backend: NAME,
        capability: "GRAPH",
        why: "host streams run operations as they come; capture needs the cuda backend".to_owned(),
    })
}

impl Host {
    fn live(&self, op: &'static str) -> Result<()> {
        if self.finalized.load(Ordering::Acquire) { Err(Error::Finalized { op }) } else { Ok(()) }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Both threads end by themselves once what they have is done; drop does not wait for them. What is still queued
        // may name memory that only the world kept, which goes with this: it is the worker's to keep until then.
        if !self.core.streams().iter().all(Stream::is_idle) {
            self.core.worker().keep(self.core.segments());
        }
        self.core.worker().stop();
        if let Some(proxy) = self.core.proxy() {
            proxy.stop();
        }
    }
}

// SAFETY: segments and mappings live in the operations' owners (handles, contexts hold their areas); all of this type's
// waits and copies are polled by one thread at a time, and words that peers write are used as atomics only. Promises of
// the trait: (1) `Map` unmaps with its last Arc and the memfd cannot shrink; (2) tasks touch the descriptor's bytes only
// and network puts touch copies and the destination; (3) flags are released after data and acquired before use.
unsafe impl Backend for Host {
    type Segment = Segment;
    type Mapping = Mapping;
    type Stream = Stream;
    type Marker = Marker;
    type Graph = Graph;
    type Status = Status;
    type RawHandle = RawHandle;
    type RawContext = RawContext;

    fn init(boot: &Arc<dyn Bootstrap>, config: &Config) -> Result<Self> {
        config.check()?;
        let pe = boot.pe();
        let controls = control::exchange(boot, Deadline::after(config.init_timeout))?;
        let core = Arc::new(Core::new(pe, controls, config)?);
        Ok(Host { core, pe, timeout: config.timeout, finalized: AtomicBool::new(false) })
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let mut c = Capabilities::DETERMINISTIC | Capabilities::RECOVER | Capabilities::WITHOUT;
        c.set(Capabilities::NETWORK, self.core.proxy().is_some());
        let mut peers = self.core.peers().peekable();
        c.set(Capabilities::PEER_LOAD_STORE, peers.peek().is_none() || peers.any(|r| r == Reach::Direct));
        c
    }

    fn reach(&self, pe: Pe) -> Reach {
        self.core.reach(pe)
    }

    fn allocate(&self, bytes: usize) -> Result<Segment> {
        self.live("allocate")?;
        let segment = Segment::allocate(bytes)?;
        self.core.add_segment(&segment);
        Ok(segment)
    }

    fn base(&self, segment: &Segment) -> Addr {
        segment.base()
    }

    fn export(&self, segment: &Segment) -> Result<Export> {
        segment.export()
    }

    fn import(&self, from: Pe, export: &Export) -> Result<Mapping> {
        Mapping::import(from, export, self.core.reach(from) == Reach::Direct)
    }

    fn own(&self, segment: &Segment) -> Mapping {
        segment.own()
    }

    fn mapped(&self, mapping: &Mapping) -> Option<Addr> {
        mapping.direct.then(|| Addr::of(mapping.map.base()))
    }

    unsafe fn zero(&self, segment: &Segment, offset: usize, bytes: usize) -> Result<()> {
        if offset.checked_add(bytes).is_none_or(|end| end > segment.bytes()) {
            let got = format!("{bytes} bytes at {offset}");
            return Err(Error::argument("zero", "range", got, format!("inside {} bytes", segment.bytes())));
        }
        // SAFETY: the range is inside the segment, as checked, and no operation uses it, by the caller's promise.
        unsafe { std::ptr::write_bytes(segment.base().offset(offset).as_ptr::<u8>(), 0, bytes) };
        std::sync::atomic::fence(Ordering::SeqCst);
        Ok(())
    }

    fn status(&self) -> Result<Status> {
        Ok(Status::default())
    }

    fn bind_handle(&self, parts: HandleParts<Self>) -> Result<RawHandle> {
        RawHandle::bind(&self.core, parts)
    }

    fn bind_context(&self, parts: ContextParts<Self>) -> Result<RawContext> {
        RawContext::bind(&self.core, parts)
    }

    fn device_ptrs(&self, handle: &RawHandle) -> DevicePtrs {
        handle.device_ptrs()
    }

    fn multicast_ptr(&self, _handle: &RawHandle) -> Option<Addr> {
        None
    }

    fn context_epoch(&self, context: &RawContext) -> Result<u64> {
        Ok(context.0.begun())
    }

    unsafe fn reset_context(&self, context: &RawContext, epoch: u64) -> Result<()> {
        context.0.reset(epoch);
        Ok(())
    }

    fn records(&self) -> Records {
        Records { waits: self.core.waits().waits(), fallbacks: Vec::new() }
    }

    fn wake(&self) {
        for context in self.core.contexts() {
            context.status.pass_on();
        }
        self.core.doorbell().ring();
    }

    fn stream(&self) -> Result<Stream> {
        self.live("stream")?;
        Ok(self.core.stream())
    }

    fn synchronize(&self, stream: &Stream) -> Result<()> {
        stream.drain(stream.accepted());
        Ok(())
    }

    fn mark(&self) -> Result<Marker> {
        let points = self.core.streams().iter().map(|s| Point::of(&s.0)).collect();
        Ok(Marker { points, sent: OnceLock::new() })
    }

    fn passed(&self, marker: &Marker) -> Result<bool> {
        if !marker.points.iter().all(Point::passed) {
            return Ok(false);
        }
        // Puts to network peers outlive their stream's progress; memory may be reused only when they have arrived.
        Ok(self.core.proxy().is_none_or(|p| p.delivered(*marker.sent.get_or_init(|| p.flush_all()))))
    }

    fn begin_capture(&self, _stream: &Stream) -> Result<()> {
        no_graphs()
    }

    fn end_capture(&self, _stream: &Stream) -> Result<Graph> {
        no_graphs()
    }

    unsafe fn launch(&self, graph: &Graph, _stream: &Stream) -> Result<()> {
        match *graph {}
    }

    unsafe fn copy_in(&self, stream: &Stream, dst: Addr, src: &[u8]) -> Result<()> {
        // SAFETY: `src` outlives the call, which returns when the copy has ended; `dst` is writable by the caller's promise.
        unsafe { self.copy_and_wait(stream, dst, Addr::of(src.as_ptr()), src.len()) }
    }

    unsafe fn copy_out(&self, stream: &Stream, src: Addr, dst: &mut [u8]) -> Result<()> {
        // SAFETY: `dst` outlives the call, which returns when the copy has ended; `src` is readable by the caller's promise.
        unsafe { self.copy_and_wait(stream, Addr::of(dst.as_mut_ptr()), src, dst.len()) }
    }

    unsafe fn fill(&self, stream: &Stream, dst: Addr, value: u8, bytes: usize) -> Result<()> {
        self.live("fill")?;
        // SAFETY: the range is writable until the stream has passed this, by the caller's promise.
        stream.enqueue(Now::new(move || unsafe { std::ptr::write_bytes(dst.as_ptr::<u8>(), value, bytes) }));
        Ok(())
    }

    unsafe fn memset32(&self, stream: &Stream, dst: Addr, value: u32, count: usize) -> Result<()> {
        self.live("memset32")?;
        let fill = move || {
            let words = dst.as_ptr::<u32>();
            // SAFETY: `count` aligned words are writable until the stream has passed this, by the caller's promise.
            (0..count).for_each(|i| unsafe { words.add(i).write(value) });
        };
        stream.enqueue(Now::new(fill));
        Ok(())
    }

    unsafe fn write_value32(&self, stream: &Stream, dst: Addr, value: u32) -> Result<()> {
        self.live("write_value32")?;
        let core = Arc::clone(&self.core);
        let write = move || {
            // Large copies before this may still be on their way out of the core.
            copy::drain();
            // SAFETY: an aligned word that is writable until the stream has passed this, by the caller's promise. Who else
            // uses it meanwhile does so by atomics, as it is a flag.
            let word = unsafe { &*dst.as_ptr::<AtomicU32>() };
            word.store(value, Ordering::SeqCst);
            core.ring_direct();
        };
        stream.enqueue(Now::new(write));
        Ok(())
    }

    unsafe fn copy(&self, stream: &Stream, dst: Addr, src: Addr, bytes: usize) -> Result<()> {
        self.live("copy")?;
        stream.enqueue(local_copy(dst, src, bytes));
        Ok(())
    }

    unsafe fn put(&self, stream: &Stream, handle: &RawHandle, put: &Put) -> Result<()> {
        self.live("put")?;
        handle.0.check_rank("put", put.rank)?;
        if let Some(signal) = &put.signal {
            handle.0.check_signal("put", signal.index)?;
        }
        check_span("put", handle.0.data_bytes, put.offset, put.bytes)?;
        let (handle, lane, put) = (Arc::clone(&handle.0), Arc::clone(&stream.0.lane), *put);
        // SAFETY: the source stays readable until the stream has passed this, by the caller's promise.
        stream.enqueue(Now::new(move || unsafe { ops::put(&handle, &lane, &put) }));
        Ok(())
    }

    unsafe fn get(&self, stream: &Stream, handle: &RawHandle, get: &Get) -> Result<()> {
        self.live("get")?;
        handle.0.check_rank("get", get.rank)?;
        check_span("get", handle.0.data_bytes, get.offset, get.bytes)?;
        stream.enqueue(GetTask::new(&handle.0, &stream.0.lane, get));
        Ok(())
    }

    fn put_signal(&self, stream: &Stream, handle: &RawHandle, signal: &PadSignal) -> Result<()> {
        self.live("put_signal")?;
        handle.0.check_rank("put_signal", signal.rank)?;
        handle.0.check_channel("put_signal", signal.channel)?;
        stream.enqueue(PutSignalTask::new(&handle.0, &stream.0.lane, signal));
        Ok(())
    }

    fn wait_signal(&self, stream: &Stream, handle: &RawHandle, signal: &PadSignal) -> Result<()> {
        self.live("wait_signal")?;
        handle.0.check_rank("wait_signal", signal.rank)?;
        handle.0.check_channel("wait_signal", signal.channel)?;
        stream.enqueue(WaitSignalTask::new(&handle.0, &stream.0.lane, signal));
        Ok(())
    }

    fn wait_until(&self, stream: &Stream, handle: &RawHandle, wait: &WaitUntil) -> Result<()> {
        self.live("wait_until")?;
        handle.0.check_signal("wait_until", wait.index)?;
        stream.enqueue(WaitUntilTask::new(&handle.0, wait));
        Ok(())
    }

    fn barrier(&self, stream: &Stream, handle: &RawHandle, channel: usize, limit: Duration) -> Result<()> {
        self.live("barrier")?;
        handle.0.check_channel("barrier", channel)?;
        stream.enqueue(BarrierTask::new(&handle.0, &stream.0.lane, channel, limit));
        Ok(())
    }

    fn fence(&self, stream: &Stream) -> Result<()> {
        self.live("fence")?;
        let lane = Arc::clone(&stream.0.lane);
        stream.enqueue(Now::new(move || ops::fence(&lane)));
        Ok(())
    }

    fn quiet(&self, stream: &Stream, status: &Status, limit: Duration) -> Result<()> {
        self.live("quiet")?;
        stream.enqueue(QuietTask::new(&self.core, &stream.0.lane, self.pe, status, limit));
        Ok(())
    }

    fn without_plans(&self, _context: &RawContext) -> Option<&'static str> {
        (!self.core.has_plans()).then_some("SYMM_HOST_PLANS is 0")
    }

    unsafe fn exchange(
        &self,
        stream: &Stream,
        context: &RawContext,
        exchange: &Exchange<'_, Self>,
    ) -> Result<()> {
        self.live(exchange.form.name())?;
        let x = exchange;
        let ranks = context.0.members.len();
        // An invalid call may carry any `ne`; the product must not overflow for that.
        let fits = x.ne.checked_mul(ranks).is_some();
        let header = Header {
            form: x.form.code(),
            dtype: u64::from(x.dtype.code()),
            row_bytes: x.row_bytes as u64,
            ne: x.ne as u64,
            major_align: x.major_align as u64,
            out_id: x.output.as_ref().map_or(0, |o| o.id),
            out_offset: x.output.as_ref().map_or(0, |o| o.offset as u64),
            out_rows: x.output.as_ref().map_or(0, |o| o.rows as u64),
            in_rows: x.in_rows as u64,
            root: x.root as u64,
            lead: x.lead as u64,
            ..Header::default()
        };
        let plan = Plan {
            form: x.form,
            dtype: x.dtype,
            header,
            n_splits: if fits { x.form.n_splits(ranks, x.ne) } else { 0 },
            input: x.input,
            output: x.output.as_ref().map(|o| Arc::clone(&o.handle.0)),
            in_splits: x.in_splits,
            out_splits_offsets: x.out_splits_offsets,
            result: x.result,
            takes: x.takes.to_vec(),
            average: x.average,
            moves: x.moves.to_vec(),
            invalid: x.invalid || !fits,
            refused: if fits { x.refused.clone() } else { Fault::Argument { name: "in_splits", got: None } },
            limit: x.limit,
        };
        stream.enqueue_with(|| ExchangeTask::new(&context.0, &stream.0.lane, plan));
        Ok(())
    }

    fn finalize(&self) -> Result<()> {
        if self.finalized.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        for stream in self.core.streams() {
            stream.drain(stream.accepted());
        }
        self.core.worker().stop();
        let worker = self.core.worker().join();
        let proxy = self.core.proxy().map_or(Ok(()), |p| p.finish(Deadline::after(self.timeout)));
        worker.and(proxy)
    }
}

impl Host {
    /// Copies in stream order and returns when that has ended.
    ///
    /// # Safety
    /// Both ranges are valid for `bytes` bytes until this returns, and do not overlap.
    unsafe fn copy_and_wait(&self, stream: &Stream, dst: Addr, src: Addr, bytes: usize) -> Result<()> {
        self.live("copy")?;
        let number = stream.enqueue(local_copy(dst, src, bytes));
        stream.drain(number);
        Ok(())
    }
}

/// A local copy as a task. The caller promises what [`Backend::copy`] asks.
fn local_copy(dst: Addr, src: Addr, bytes: usize) -> Now<impl FnOnce() + Send> {
    Now::new(move || {
        let large = bytes >= copy::LARGE;
        // SAFETY: both ranges are valid until the stream has passed this and do not overlap, by the promise of those
        // who make this task.
        unsafe { copy::copy(dst.as_ptr(), src.as_ptr(), bytes, large) };
        if large {
            copy::drain();
        }
    })
}

/// Checks a range of a data area.
fn check_span(op: &'static str, area: usize, offset: usize, bytes: usize) -> Result<()> {
    if offset.checked_add(bytes).is_some_and(|end| end <= area) {
        return Ok(());
    }
    Err(Error::argument(op, "range", format!("{bytes} bytes at {offset}"), format!("inside {area} bytes")))
}
