//! The trait that every backend implements, and the descriptors of operations that it is given.
//!
//! The model ([`crate::model`]) validates arguments, keeps teams, allocations and their lifetimes, and calls a backend
//! with addresses that it has checked. A backend owns memory, streams and the protocol that moves bytes. Nothing
//! here is dynamic: library code is generic over [`Backend`], and the facade has one enum that implements it.

mod exchange;
mod kernel;
mod one_sided;
mod take;

use std::any::Any;
use std::ffi::c_void;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub use exchange::{Exchange, ExchangeOutput, Form};
pub use kernel::{DevicePtrs, KernelHandle};
pub use one_sided::{Cmp, Get, PadSignal, Put, SignalOp, SignalUpdate, WaitUntil};
pub use take::{MAX_TAKES, Take};

use crate::bootstrap::Bootstrap;
use crate::capability::Capabilities;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::layout::{ContextLayout, ContextRoom, PadLayout};
use crate::model::Waits;
use crate::pe::Pe;
use crate::status::StatusRecord;

/// An address in the memory that a backend's streams use: host memory, or a GPU's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(pub u64);

impl Addr {
    /// No address.
    pub const NULL: Addr = Addr(0);

    /// The address `bytes` further.
    #[must_use]
    pub fn offset(self, bytes: usize) -> Addr {
        Addr(self.0 + bytes as u64)
    }

    /// As a pointer, for backends whose memory the host can touch. The provenance is the exposed one of the mapping.
    pub fn as_ptr<T>(self) -> *mut T {
        // A 64-bit platform: `usize` and `u64` are the same width (checked below).
        std::ptr::with_exposed_provenance_mut(self.0 as usize)
    }

    /// The address of a pointer, whose provenance is exposed.
    pub fn of<T>(ptr: *const T) -> Addr {
        Addr(ptr.expose_provenance() as u64)
    }

    /// Whether this is no address.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }
}

const _: () = assert!(size_of::<usize>() == 8, "symm-mem needs a 64-bit platform");

impl Debug for Addr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// How a peer's memory is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// By load and store, proven by a test import on both sides.
    Direct,
    /// By messages of the backend only.
    Network,
}

/// What travels to a peer so that it can reach a segment: bytes, and descriptors where both are on one host.
#[derive(Debug, Default)]
pub struct Export {
    /// Backend-specific description.
    pub bytes: Vec<u8>,
    /// File descriptors, passed by SCM_RIGHTS.
    pub fds: Vec<OwnedFd>,
}

/// Part of a PE's segment as another PE (or it itself) reaches it.
#[derive(Debug)]
pub struct Region<B: Backend> {
    /// Whose memory.
    pub pe: Pe,
    /// The segment.
    pub mapping: B::Mapping,
    /// Offset of the region's first byte in the segment, in bytes: the *owner's* offset, never assumed equal.
    pub offset: usize,
}

impl<B: Backend> Clone for Region<B> {
    fn clone(&self) -> Self {
        Region { pe: self.pe, mapping: self.mapping.clone(), offset: self.offset }
    }
}

/// What a backend builds its form of a handle from. Index = rank.
#[derive(Debug)]
pub struct HandleParts<B: Backend> {
    /// This PE's rank.
    pub my_rank: usize,
    /// Members in rank order.
    pub members: Vec<Pe>,
    /// First byte of each rank's allocation data area.
    pub data: Vec<Region<B>>,
    /// Bytes of the data area, equal on all ranks.
    pub data_bytes: usize,
    /// First byte of each rank's pad for this handle, zeroed before any peer can write it.
    pub pads: Vec<Region<B>>,
    /// Layout of the pads.
    pub pad: PadLayout,
    /// Status of the team.
    pub status: B::Status,
}

/// What a backend builds its form of a context from. Index = rank.
#[derive(Debug)]
pub struct ContextParts<B: Backend> {
    /// This PE's rank.
    pub my_rank: usize,
    /// Members in rank order.
    pub members: Vec<Pe>,
    /// Each rank's copy of the context, zeroed before any peer can write it.
    pub regions: Vec<Region<B>>,
    /// Layout of the copies.
    pub layout: ContextLayout,
    /// Status of the team.
    pub status: B::Status,
}

/// A backend's part of [`Stats`](crate::model::Stats).
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Waits of this PE's operations, by the peer that was last; empty where kernels wait.
    pub waits: Vec<Waits>,
    /// What is done instead of something better, and why: one sentence each.
    pub fallbacks: Vec<String>,
}

/// Something that is only held, for its drop.
pub type Kept = Box<dyn Any + Send>;

/// Numbers of operations, as headers and status records carry them.
pub mod op {
    /// `put`
    pub const PUT: u64 = 1;
    /// `get`
    pub const GET: u64 = 2;
    /// `put_with_signal`
    pub const PUT_WITH_SIGNAL: u64 = 3;
    /// `put_signal`
    pub const PUT_SIGNAL: u64 = 4;
    /// `wait_signal`
    pub const WAIT_SIGNAL: u64 = 5;
    /// `wait_until`
    pub const WAIT_UNTIL: u64 = 6;
    /// `fence`
    pub const FENCE: u64 = 7;
    /// `quiet`
    pub const QUIET: u64 = 8;
    /// `barrier` of a handle
    pub const HANDLE_BARRIER: u64 = 9;
    /// `synchronize` of a stream
    pub const SYNCHRONIZE: u64 = 10;
}

/// The word for an operation's number.
pub fn op_name(op: u64) -> &'static str {
    match op {
        op::PUT => "put",
        op::GET => "get",
        op::PUT_WITH_SIGNAL => "put_with_signal",
        op::PUT_SIGNAL => "put_signal",
        op::WAIT_SIGNAL => "wait_signal",
        op::WAIT_UNTIL => "wait_until",
        op::FENCE => "fence",
        op::QUIET => "quiet",
        op::HANDLE_BARRIER => "barrier",
        op::SYNCHRONIZE => "synchronize",
        code => Form::from_code(code).map_or("operation", Form::name),
    }
}

/// A place to keep memory, run operations and reach peers.
///
/// Operations are *enqueued*: `Ok` means that the stream will run them in order. A failure while one runs is written
/// to the status of the handle's or context's team ([`StatusRecord::set`], first failure stays), makes every later
/// operation on that team do nothing, and never blocks the stream.
///
/// # Safety
/// An implementor promises that
/// - a segment's bytes stay valid and at the same address until every clone of it is dropped, and a mapping's until
///   every clone of the mapping is dropped, whatever the owning PE does;
/// - an operation touches only the bytes its descriptor names, and none once its stream has passed it (with the
///   exception of network puts, which end at `quiet`);
/// - release/acquire: whoever sees a signal, barrier or completion also sees the bytes that it announces.
pub unsafe trait Backend: Debug + Send + Sync + Sized + 'static {
    /// Local memory that can be exported. Cheap to clone; freed with the last clone.
    type Segment: Clone + Debug + Send + Sync;
    /// A peer's segment, or one's own, as this PE reaches it. Cheap to clone; unmapped with the last clone.
    type Mapping: Clone + Debug + Send + Sync;
    /// In-order queue of operations. Cheap to clone; clones are the same queue.
    type Stream: Clone + Debug + Send + Sync;
    /// A point in every stream of this PE.
    type Marker: Debug + Send + Sync;
    /// A captured sequence of operations.
    type Graph: Debug + Send;
    /// Status record of a team, where this backend's operations can write it. Clones are the same record.
    type Status: Clone + Debug + Send + Sync + AsRef<StatusRecord>;
    /// This backend's form of a handle: what its operations (or kernels) are given.
    type RawHandle: Debug + Send + Sync;
    /// This backend's form of a context.
    type RawContext: Debug + Send + Sync;

    /// Opens the backend for this PE.
    ///
    /// # Collective
    /// Over the world, once. Imports a test page of every peer to find who is direct.
    ///
    /// # Errors
    /// `Unavailable` with the reason, `Unsupported` naming a pair that cannot reach each other; on all PEs alike.
    fn init(boot: &Arc<dyn Bootstrap>, config: &Config) -> Result<Self>;

    /// `host`, `cuda`, …
    fn name(&self) -> &'static str;

    /// What this backend can do here.
    fn capabilities(&self) -> Capabilities;

    /// How `pe` is reached; this PE itself is direct.
    fn reach(&self, pe: Pe) -> Reach;

    // ---- memory ----

    /// Allocates a segment of at least `bytes` bytes, all backed at once.
    ///
    /// # Errors
    /// `OutOfMemory` (with no holders: the model adds them).
    fn allocate(&self, bytes: usize) -> Result<Self::Segment>;

    /// First byte of a segment here.
    fn base(&self, segment: &Self::Segment) -> Addr;

    /// What a peer needs to import the segment.
    fn export(&self, segment: &Self::Segment) -> Result<Export>;

    /// Maps a peer's segment.
    fn import(&self, from: Pe, export: &Export) -> Result<Self::Mapping>;

    /// One's own segment as a mapping.
    fn own(&self, segment: &Self::Segment) -> Self::Mapping;

    /// Address of the mapped segment's first byte, `None` if it is not direct.
    fn mapped(&self, mapping: &Self::Mapping) -> Option<Addr>;

    /// Zeroes bytes of an own segment and returns when that is done and visible to every PE.
    ///
    /// # Safety
    /// No operation uses those bytes and `offset + bytes` is inside the segment.
    unsafe fn zero(&self, segment: &Self::Segment, offset: usize, bytes: usize) -> Result<()>;

    /// A status record for a team.
    fn status(&self) -> Result<Self::Status>;

    /// Clears a team's status, wherever copies of it are; `recover` calls it once every member's operations have ended.
    fn clear_status(&self, status: &Self::Status) -> Result<()> {
        status.as_ref().clear();
        Ok(())
    }

    /// Builds this backend's form of a handle.
    fn bind_handle(&self, parts: HandleParts<Self>) -> Result<Self::RawHandle>;

    /// Bytes of [room](crate::layout::ContextLayout::room) in a context of these members: the same on all of them.
    fn context_room(&self, _members: &[Pe]) -> ContextRoom {
        ContextRoom::default()
    }

    /// Builds this backend's form of a context.
    fn bind_context(&self, parts: ContextParts<Self>) -> Result<Self::RawContext>;

    /// Pointer arrays for users' kernels.
    fn device_ptrs(&self, handle: &Self::RawHandle) -> DevicePtrs;

    /// Multicast address of the data area's first byte.
    fn multicast_ptr(&self, handle: &Self::RawHandle) -> Option<Addr>;

    /// Operations begun on the context by this PE. Only while no operation of the context is in flight here.
    fn context_epoch(&self, context: &Self::RawContext) -> Result<u64>;

    /// Clears the context's flags here and makes `epoch` the number of operations begun and ended.
    ///
    /// # Safety
    /// No member has an operation of the context in flight.
    unsafe fn reset_context(&self, context: &Self::RawContext, epoch: u64) -> Result<()>;

    /// What this backend has counted and noted so far.
    fn records(&self) -> Records {
        Records::default()
    }

    /// Wakes waits so that they look at their status; called after the model has set a failure.
    fn wake(&self);

    // ---- streams ----

    /// A new stream.
    fn stream(&self) -> Result<Self::Stream>;

    /// A stream over one that the caller made with the library below the backend.
    ///
    /// # Safety
    /// See [`World::stream_from_raw`](crate::model::World::stream_from_raw).
    ///
    /// # Errors
    /// `Unsupported` where there are no such streams.
    unsafe fn stream_from_raw(&self, _raw: *mut c_void) -> Result<Self::Stream> {
        let why = "its streams are its own".to_owned();
        Err(Error::Unsupported { backend: self.name(), capability: "stream_from_raw", why })
    }

    /// Returns when everything enqueued has ended. Failures of operations are in their teams' status, not here.
    fn synchronize(&self, stream: &Self::Stream) -> Result<()>;

    /// Marks the present end of every stream of this PE.
    fn mark(&self) -> Result<Self::Marker>;

    /// Whether every stream has passed the marker.
    fn passed(&self, marker: &Self::Marker) -> Result<bool>;

    /// Starts capturing the stream's operations instead of running them.
    ///
    /// # Errors
    /// `Unsupported` without [`Capabilities::GRAPH`].
    fn begin_capture(&self, stream: &Self::Stream) -> Result<()>;

    /// Ends the capture.
    fn end_capture(&self, stream: &Self::Stream) -> Result<Self::Graph>;

    /// Whether operations given to the stream are being captured, by this library or by another.
    fn is_capturing(&self, _stream: &Self::Stream) -> Result<bool> {
        Ok(false)
    }

    /// Keeps what the operations of a capture use until the graph that the stream is captured into, and everything made
    /// of it, is gone. Called only while the stream is being captured.
    fn keep(&self, _stream: &Self::Stream, _kept: Kept) -> Result<()> {
        Ok(())
    }

    /// What graphs that are gone now had kept. The caller drops it, holding no lock.
    fn released(&self) -> Vec<Kept> {
        Vec::new()
    }

    /// Enqueues the captured operations.
    ///
    /// # Safety
    /// What was captured (handles, contexts, spans) is still valid.
    unsafe fn launch(&self, graph: &Self::Graph, stream: &Self::Stream) -> Result<()>;

    /// Copies host bytes to `dst` in stream order and returns when `src` may be reused.
    ///
    /// # Safety
    /// `dst` names `src.len()` bytes that this PE may write.
    unsafe fn copy_in(&self, stream: &Self::Stream, dst: Addr, src: &[u8]) -> Result<()>;

    /// Copies `dst.len()` bytes at `src` to the host in stream order and returns when they are there.
    ///
    /// # Safety
    /// `src` names that many bytes that this PE may read.
    unsafe fn copy_out(&self, stream: &Self::Stream, src: Addr, dst: &mut [u8]) -> Result<()>;

    /// Enqueues filling `bytes` bytes at `dst` with `value`.
    ///
    /// # Safety
    /// `dst` names that many bytes that this PE may write until the stream has passed this.
    unsafe fn fill(&self, stream: &Self::Stream, dst: Addr, value: u8, bytes: usize) -> Result<()>;

    /// Enqueues setting `count` words of 32 bits at `dst` to `value`.
    ///
    /// # Safety
    /// `dst` is aligned to 4 bytes and names that many words that this PE may write until the stream has passed this.
    unsafe fn memset32(&self, stream: &Self::Stream, dst: Addr, value: u32, count: usize) -> Result<()>;

    /// Enqueues writing one word of 32 bits, ordered at system scope after everything that the stream wrote before.
    ///
    /// # Safety
    /// `dst` is aligned to 4 bytes and names a word that this PE may write until the stream has passed this.
    unsafe fn write_value32(&self, stream: &Self::Stream, dst: Addr, value: u32) -> Result<()>;

    /// Enqueues a local copy; the ranges do not overlap.
    ///
    /// # Safety
    /// Both ranges are valid until the stream has passed this.
    unsafe fn copy(&self, stream: &Self::Stream, dst: Addr, src: Addr, bytes: usize) -> Result<()>;

    // ---- one-sided ----

    /// Enqueues a put, with a signal if the descriptor has one.
    ///
    /// # Completion
    /// When the stream has passed it the source may be reused. The data are delivered when a signal of this put, a
    /// `quiet` or a barrier of the same stream says so.
    ///
    /// # Safety
    /// The source is readable until then; offsets were checked against the handle.
    unsafe fn put(&self, stream: &Self::Stream, handle: &Self::RawHandle, put: &Put) -> Result<()>;

    /// Enqueues a get; the data are in `dst` when the stream has passed it.
    ///
    /// # Safety
    /// `dst` is writable until then; offsets were checked against the handle.
    unsafe fn get(&self, stream: &Self::Stream, handle: &Self::RawHandle, get: &Get) -> Result<()>;

    /// Enqueues `put_signal` of the pad: waits for the slot to be 0 there, then sets it to 1 (release).
    fn put_signal(&self, stream: &Self::Stream, handle: &Self::RawHandle, signal: &PadSignal) -> Result<()>;

    /// Enqueues `wait_signal` of the pad: waits for the slot to be 1 here, then sets it to 0 (acquire).
    fn wait_signal(&self, stream: &Self::Stream, handle: &Self::RawHandle, signal: &PadSignal) -> Result<()>;

    /// Enqueues a wait on a user signal of this PE's own pad (acquire).
    fn wait_until(&self, stream: &Self::Stream, handle: &Self::RawHandle, wait: &WaitUntil) -> Result<()>;

    /// Enqueues a barrier of the handle's team on `channel`; completes the stream's earlier puts first.
    ///
    /// # Collective
    /// Over the handle's team, on the same channel.
    fn barrier(
        &self,
        stream: &Self::Stream,
        handle: &Self::RawHandle,
        channel: usize,
        limit: Duration,
    ) -> Result<()>;

    /// Enqueues a fence: earlier puts of this stream reach each peer before later ones.
    fn fence(&self, stream: &Self::Stream) -> Result<()>;

    /// Enqueues a quiet: passes once every earlier put of this stream is delivered. A passed `limit` is written to `status`.
    fn quiet(&self, stream: &Self::Stream, status: &Self::Status, limit: Duration) -> Result<()>;

    // ---- collectives ----

    /// Bytes of this PE's memory that an operation of a form that [takes](Form::takes) needs beside its buffers, where it
    /// takes `bytes` bytes from each of `ranks` members.
    fn scratch_bytes(&self, _form: Form, _ranks: usize, _bytes: usize) -> usize {
        0
    }

    /// Why this context has no [planned form](Form::PlannedAllToAllVdev), as a clause; `None` where it has. Members may
    /// differ: where one lacks it, all exchange in the forms that publish their splits.
    fn without_plans(&self, _context: &Self::RawContext) -> Option<&'static str> {
        None
    }

    /// Enqueues one collective of the context ([`Form`]), in the protocol of `docs/MEMORY_MODEL.md`.
    ///
    /// # Collective
    /// Over the context's team. A descriptor with `invalid` set takes part, moves nothing, and makes every member
    /// report this PE; under capture it enqueues nothing.
    ///
    /// # Safety
    /// The addresses of the descriptor are valid, for the lengths that its form gives them, until the stream has
    /// passed the operation.
    unsafe fn exchange(
        &self,
        stream: &Self::Stream,
        context: &Self::RawContext,
        exchange: &Exchange<'_, Self>,
    ) -> Result<()>;

    /// Ends the backend's threads and outstanding transfers. Collective over the world; called once, after a barrier.
    fn finalize(&self) -> Result<()>;
}
