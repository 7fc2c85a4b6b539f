//! The one place that lists backends: an enum that is itself a [`Backend`], so that `World`, `Team` and `Handle` are
//! plain types that C and Python can hold.
//!
//! Every value made by one backend is only ever given back to it, since values never leave their world; a mixture is
//! answered with an error all the same.

#[cfg(feature = "cuda")]
mod foreign;
mod open;
mod status;

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use symm_core::backend::{
    Addr, Backend, ContextParts, DevicePtrs, Exchange, ExchangeOutput, Export, Form, Get, HandleParts, Kept,
    PadSignal, Put, Reach, Region, WaitUntil,
};
use symm_core::bootstrap::Bootstrap;
use symm_core::capability::Capabilities;
use symm_core::layout::ContextRoom;
use symm_core::{Config, Pe, Result};

#[cfg(feature = "cuda")]
use self::foreign::{Foreign, mixture};
use crate::select::Means;

macro_rules! erased {
    ($($(#[$doc:meta])* $any:ident = $assoc:ident $(+ $derive:ident)?;)*) => {$(
        $(#[$doc])*
        #[derive(Debug $(, $derive)?)]
        #[non_exhaustive]
        #[allow(clippy::large_enum_variant, reason = "never in an array; behind an Arc where it is shared")]
        pub enum $any {
            /// Of the host backend.
            Host(<symm_host::Host as Backend>::$assoc),
            /// Of the CUDA backend.
            #[cfg(feature = "cuda")]
            Cuda(<symm_cuda::Cuda as Backend>::$assoc),
            /// Of the NVSHMEM backend.
            #[cfg(feature = "nvshmem")]
            Nvshmem(<symm_nvshmem::Nvshmem as Backend>::$assoc),
        }
    )*};
}

erased! {
    /// A segment of whichever backend.
    AnySegment = Segment + Clone;
    /// A mapping of whichever backend.
    AnyMapping = Mapping + Clone;
    /// A stream of whichever backend.
    AnyStream = Stream + Clone;
    /// A marker of whichever backend.
    AnyMarker = Marker;
    /// A graph of whichever backend.
    AnyGraph = Graph;
    /// A status record of whichever backend.
    AnyStatus = Status + Clone;
    /// A handle of whichever backend.
    AnyHandle = RawHandle;
    /// A context of whichever backend.
    AnyContext = RawContext;
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one a world, and it stays where it was made")]
pub(crate) enum Chosen {
    Host(symm_host::Host),
    #[cfg(feature = "cuda")]
    Cuda(symm_cuda::Cuda),
    #[cfg(feature = "nvshmem")]
    Nvshmem(symm_nvshmem::Nvshmem),
}

/// The backend that `init` chose for the world, with the reason.
#[derive(Debug)]
pub struct AnyBackend {
    chosen: Chosen,
    why: String,
}

impl AnyBackend {
    /// Why this backend was chosen, in one sentence.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// Runs an expression on the chosen backend.
macro_rules! each {
    ($self:ident, |$b:ident| $body:expr) => {
        match &$self.chosen {
            Chosen::Host($b) => $body,
            #[cfg(feature = "cuda")]
            Chosen::Cuda($b) => $body,
            #[cfg(feature = "nvshmem")]
            Chosen::Nvshmem($b) => $body,
        }
    };
}

/// Runs an expression on the chosen backend, with the arguments' variants of that backend.
macro_rules! on {
    ($self:ident, |$b:ident $(, $arg:ident: $any:ident)*| $body:expr $(=> $wrap:ident)?) => {
        match (&$self.chosen, $($arg),*) {
            (Chosen::Host($b), $($any::Host($arg)),*) => on!(@ $body, Host $(, $wrap)?),
            #[cfg(feature = "cuda")]
            (Chosen::Cuda($b), $($any::Cuda($arg)),*) => on!(@ $body, Cuda $(, $wrap)?),
            #[cfg(feature = "nvshmem")]
            (Chosen::Nvshmem($b), $($any::Nvshmem($arg)),*) => on!(@ $body, Nvshmem $(, $wrap)?),
            #[cfg(feature = "cuda")]
            #[allow(unreachable_patterns, reason = "unreachable where there is no argument")]
            _ => foreign!($self),
        }
    };
    (@ $body:expr, $v:ident) => { $body };
    (@ $body:expr, $v:ident, $wrap:ident) => { $body.map($wrap::$v) };
}

/// The answer to a value of another backend's world.
#[cfg(feature = "cuda")]
macro_rules! foreign {
    ($self:ident) => {
        Foreign::foreign($self.name())
    };
}

/// The values of one variant, or the error for a mixture.
macro_rules! regions {
    ($regions:expr, $v:ident) => {{
        let mut out = Vec::with_capacity($regions.len());
        for r in $regions {
            match r.mapping {
                AnyMapping::$v(mapping) => out.push(Region { pe: r.pe, mapping, offset: r.offset }),
                #[cfg(feature = "cuda")]
                _ => return Err(mixture()),
            }
        }
        out
    }};
}

macro_rules! status {
    ($status:expr, $v:ident) => {
        match $status {
            AnyStatus::$v(s) => s,
            #[cfg(feature = "cuda")]
            _ => return Err(mixture()),
        }
    };
}

macro_rules! bind {
    ($self:ident, $parts:ident, $method:ident, $wrap:ident, |$p:ident, $v:ident| $built:expr) => {
        match &$self.chosen {
            Chosen::Host(b) => {
                let $p = $parts;
                macro_rules! $v {
                    (regions $e:expr) => {
                        regions!($e, Host)
                    };
                    (status $e:expr) => {
                        status!($e, Host)
                    };
                }
                b.$method($built).map($wrap::Host)
            }
            #[cfg(feature = "cuda")]
            Chosen::Cuda(b) => {
                let $p = $parts;
                macro_rules! $v {
                    (regions $e:expr) => {
                        regions!($e, Cuda)
                    };
                    (status $e:expr) => {
                        status!($e, Cuda)
                    };
                }
                b.$method($built).map($wrap::Cuda)
            }
            #[cfg(feature = "nvshmem")]
            Chosen::Nvshmem(b) => {
                let $p = $parts;
                macro_rules! $v {
                    (regions $e:expr) => {
                        regions!($e, Nvshmem)
                    };
                    (status $e:expr) => {
                        status!($e, Nvshmem)
                    };
                }
                b.$method($built).map($wrap::Nvshmem)
            }
        }
    };
}

macro_rules! exchange {
    ($b:ident, $stream:ident, $context:ident, $x:ident, $v:ident) => {{
        let output = match &$x.output {
            None => None,
            Some(o) => match o.handle {
                AnyHandle::$v(handle) => {
                    Some(ExchangeOutput { handle, id: o.id, offset: o.offset, rows: o.rows })
                }
                #[cfg(feature = "cuda")]
                _ => return Err(mixture()),
            },
        };
        let exchange = $x.with_output(output);
        // SAFETY: the caller's promise, passed on.
        unsafe { $b.exchange($stream, $context, &exchange) }
    }};
}

// SAFETY: every method passes to one backend, whose own implementation carries the promise.
unsafe impl Backend for AnyBackend {
    type Segment = AnySegment;
    type Mapping = AnyMapping;
    type Stream = AnyStream;
    type Marker = AnyMarker;
    type Graph = AnyGraph;
    type Status = AnyStatus;
    type RawHandle = AnyHandle;
    type RawContext = AnyContext;

    fn init(boot: &Arc<dyn Bootstrap>, config: &Config) -> Result<Self> {
        AnyBackend::open(boot, config, Means::default())
    }

    fn name(&self) -> &'static str {
        each!(self, |b| b.name())
    }

    fn capabilities(&self) -> Capabilities {
        each!(self, |b| b.capabilities())
    }

    fn reach(&self, pe: Pe) -> Reach {
        each!(self, |b| b.reach(pe))
    }

    fn records(&self) -> symm_core::backend::Records {
        self.chosen.records(&self.why)
    }

    fn wake(&self) {
        each!(self, |b| b.wake())
    }

    fn allocate(&self, bytes: usize) -> Result<AnySegment> {
        on!(self, |b| b.allocate(bytes) => AnySegment)
    }

    fn base(&self, segment: &AnySegment) -> Addr {
        on!(self, |b, segment: AnySegment| b.base(segment))
    }

    fn export(&self, segment: &AnySegment) -> Result<Export> {
        on!(self, |b, segment: AnySegment| b.export(segment))
    }

    fn import(&self, from: Pe, export: &Export) -> Result<AnyMapping> {
        on!(self, |b| b.import(from, export) => AnyMapping)
    }

    fn own(&self, segment: &AnySegment) -> AnyMapping {
        match (&self.chosen, segment) {
            (Chosen::Host(b), AnySegment::Host(s)) => AnyMapping::Host(b.own(s)),
            #[cfg(feature = "cuda")]
            (Chosen::Cuda(b), AnySegment::Cuda(s)) => AnyMapping::Cuda(b.own(s)),
            #[cfg(feature = "nvshmem")]
            (Chosen::Nvshmem(b), AnySegment::Nvshmem(s)) => AnyMapping::Nvshmem(b.own(s)),
            #[cfg(feature = "cuda")]
            _ => unreachable!("a world's segments are all of its backend"),
        }
    }

    fn mapped(&self, mapping: &AnyMapping) -> Option<Addr> {
        on!(self, |b, mapping: AnyMapping| b.mapped(mapping))
    }

    unsafe fn zero(&self, segment: &AnySegment, offset: usize, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        on!(self, |b, segment: AnySegment| unsafe { b.zero(segment, offset, bytes) })
    }

    fn status(&self) -> Result<AnyStatus> {
        on!(self, |b| b.status() => AnyStatus)
    }

    fn clear_status(&self, status: &AnyStatus) -> Result<()> {
        on!(self, |b, status: AnyStatus| b.clear_status(status))
    }

    fn bind_handle(&self, parts: HandleParts<Self>) -> Result<AnyHandle> {
        bind!(self, parts, bind_handle, AnyHandle, |p, of| HandleParts {
            my_rank: p.my_rank,
            members: p.members,
            data: of!(regions p.data),
            data_bytes: p.data_bytes,
            pads: of!(regions p.pads),
            pad: p.pad,
            status: of!(status p.status),
        })
    }

    fn context_room(&self, members: &[Pe]) -> ContextRoom {
        each!(self, |b| b.context_room(members))
    }

    fn bind_context(&self, parts: ContextParts<Self>) -> Result<AnyContext> {
        bind!(self, parts, bind_context, AnyContext, |p, of| ContextParts {
            my_rank: p.my_rank,
            members: p.members,
            regions: of!(regions p.regions),
            layout: p.layout,
            status: of!(status p.status),
        })
    }

    fn device_ptrs(&self, handle: &AnyHandle) -> DevicePtrs {
        on!(self, |b, handle: AnyHandle| b.device_ptrs(handle))
    }

    fn multicast_ptr(&self, handle: &AnyHandle) -> Option<Addr> {
        on!(self, |b, handle: AnyHandle| b.multicast_ptr(handle))
    }

    fn context_epoch(&self, context: &AnyContext) -> Result<u64> {
        on!(self, |b, context: AnyContext| b.context_epoch(context))
    }

    unsafe fn reset_context(&self, context: &AnyContext, epoch: u64) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        on!(self, |b, context: AnyContext| unsafe { b.reset_context(context, epoch) })
    }

    fn stream(&self) -> Result<AnyStream> {
        on!(self, |b| b.stream() => AnyStream)
    }

    unsafe fn stream_from_raw(&self, raw: *mut c_void) -> Result<AnyStream> {
        // SAFETY: the caller's promise, passed on.
        on!(self, |b| unsafe { b.stream_from_raw(raw) } => AnyStream)
    }

    fn synchronize(&self, stream: &AnyStream) -> Result<()> {
        on!(self, |b, stream: AnyStream| b.synchronize(stream))
    }

    fn mark(&self) -> Result<AnyMarker> {
        on!(self, |b| b.mark() => AnyMarker)
    }

    fn passed(&self, marker: &AnyMarker) -> Result<bool> {
        on!(self, |b, marker: AnyMarker| b.passed(marker))
    }

    fn begin_capture(&self, stream: &AnyStream) -> Result<()> {
        on!(self, |b, stream: AnyStream| b.begin_capture(stream))
    }

    fn end_capture(&self, stream: &AnyStream) -> Result<AnyGraph> {
        on!(self, |b, stream: AnyStream| b.end_capture(stream) => AnyGraph)
    }

    fn is_capturing(&self, stream: &AnyStream) -> Result<bool> {
        on!(self, |b, stream: AnyStream| b.is_capturing(stream))
    }

    fn keep(&self, stream: &AnyStream, kept: Kept) -> Result<()> {
        on!(self, |b, stream: AnyStream| b.keep(stream, kept))
    }

    fn released(&self) -> Vec<Kept> {
        each!(self, |b| b.released())
    }

    unsafe fn launch(&self, graph: &AnyGraph, stream: &AnyStream) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        on!(self, |b, graph: AnyGraph, stream: AnyStream| unsafe { b.launch(graph, stream) })
    }

    unsafe fn copy_in(&self, stream: &AnyStream, dst: Addr, src: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        on!(self, |b, stream: AnyStream| unsafe { b.copy_in(stream, dst, src) })
    }

    unsafe fn copy_out(&self, stream: &AnyStream, src: Addr, dst: &mut [u8]) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        on!(self, |b, stream: AnyStream| unsafe { b.copy_out(stream, src, dst) })
    }

    unsafe fn fill(&self, stream: &AnyStream, dst: Addr, value: u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        on!(self, |b, stream: AnyStream| unsafe { b.fill(stream, dst, value, bytes) })
    }

    unsafe fn memset32(&self, stream: &AnyStream, dst: Addr, value: u32, count: usize) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        on!(self, |b, stream: AnyStream| unsafe { b.memset32(stream, dst, value, count) })
    }

    unsafe fn write_value32(&self, stream: &AnyStream, dst: Addr, value: u32) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        on!(self, |b, stream: AnyStream| unsafe { b.write_value32(stream, dst, value) })
    }

    unsafe fn copy(&self, stream: &AnyStream, dst: Addr, src: Addr, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        on!(self, |b, stream: AnyStream| unsafe { b.copy(stream, dst, src, bytes) })
    }

    unsafe fn put(&self, stream: &AnyStream, handle: &AnyHandle, put: &Put) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        on!(self, |b, stream: AnyStream, handle: AnyHandle| unsafe { b.put(stream, handle, put) })
    }

    unsafe fn get(&self, stream: &AnyStream, handle: &AnyHandle, get: &Get) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        on!(self, |b, stream: AnyStream, handle: AnyHandle| unsafe { b.get(stream, handle, get) })
    }

    fn put_signal(&self, stream: &AnyStream, handle: &AnyHandle, signal: &PadSignal) -> Result<()> {
        on!(self, |b, stream: AnyStream, handle: AnyHandle| b.put_signal(stream, handle, signal))
    }

    fn wait_signal(&self, stream: &AnyStream, handle: &AnyHandle, signal: &PadSignal) -> Result<()> {
        on!(self, |b, stream: AnyStream, handle: AnyHandle| b.wait_signal(stream, handle, signal))
    }

    fn wait_until(&self, stream: &AnyStream, handle: &AnyHandle, wait: &WaitUntil) -> Result<()> {
        on!(self, |b, stream: AnyStream, handle: AnyHandle| b.wait_until(stream, handle, wait))
    }

    fn barrier(&self, stream: &AnyStream, handle: &AnyHandle, channel: usize, limit: Duration) -> Result<()> {
        on!(self, |b, stream: AnyStream, handle: AnyHandle| b.barrier(stream, handle, channel, limit))
    }

    fn fence(&self, stream: &AnyStream) -> Result<()> {
        on!(self, |b, stream: AnyStream| b.fence(stream))
    }

    fn quiet(&self, stream: &AnyStream, status: &AnyStatus, limit: Duration) -> Result<()> {
        on!(self, |b, stream: AnyStream, status: AnyStatus| b.quiet(stream, status, limit))
    }

    fn scratch_bytes(&self, form: Form, ranks: usize, bytes: usize) -> usize {
        each!(self, |b| b.scratch_bytes(form, ranks, bytes))
    }

    fn without_plans(&self, context: &AnyContext) -> Option<&'static str> {
        on!(self, |b, context: AnyContext| b.without_plans(context))
    }

    unsafe fn exchange(
        &self,
        stream: &AnyStream,
        context: &AnyContext,
        x: &Exchange<'_, Self>,
    ) -> Result<()> {
        match (&self.chosen, stream, context) {
            (Chosen::Host(b), AnyStream::Host(s), AnyContext::Host(c)) => exchange!(b, s, c, x, Host),
            #[cfg(feature = "cuda")]
            (Chosen::Cuda(b), AnyStream::Cuda(s), AnyContext::Cuda(c)) => exchange!(b, s, c, x, Cuda),
            #[cfg(feature = "nvshmem")]
            (Chosen::Nvshmem(b), AnyStream::Nvshmem(s), AnyContext::Nvshmem(c)) => {
                exchange!(b, s, c, x, Nvshmem)
            }
            #[cfg(feature = "cuda")]
            _ => Err(mixture()),
        }
    }

    fn finalize(&self) -> Result<()> {
        on!(self, |b| b.finalize())
    }
}
