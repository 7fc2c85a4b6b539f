//! Streams: in-order queues of operations.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::lock::Lock;
use super::span::Span;
use super::team::TeamInner;
use super::world::WorldInner;
use crate::backend::{Addr, Backend};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};

/// An in-order queue of operations. Clones are the same queue.
///
/// Operations on it return when they are enqueued; `Ok` says nothing about their end. A failure shows up in
/// [`Team::status`](super::Team::status), in [`synchronize`](Stream::synchronize), and in the next call on that team.
#[derive(Debug)]
pub struct Stream<B: Backend> {
    pub(crate) world: Arc<WorldInner<B>>,
    pub(crate) raw: B::Stream,
    /// Teams whose operations were enqueued here, whose failures `synchronize` returns.
    used: Arc<Lock<Vec<Weak<TeamInner<B>>>>>,
}

impl<B: Backend> Clone for Stream<B> {
    fn clone(&self) -> Self {
        Stream { world: self.world.clone(), raw: self.raw.clone(), used: self.used.clone() }
    }
}

impl<B: Backend> Stream<B> {
    pub(crate) fn new(world: &Arc<WorldInner<B>>) -> Result<Self> {
        Ok(Stream::over(world, world.backend.stream()?))
    }

    pub(crate) fn over(world: &Arc<WorldInner<B>>, raw: B::Stream) -> Self {
        Stream { world: world.clone(), raw, used: Arc::new(Lock::new(Vec::new())) }
    }

    /// Checks that the stream and the team are of one world and remembers the team.
    pub(crate) fn enter(&self, op: &'static str, team: &Arc<TeamInner<B>>) -> Result<()> {
        if !Arc::ptr_eq(&self.world, &team.world) {
            return Err(Error::argument(
                op,
                "stream",
                "a stream of another world",
                "a stream of the team's world",
            ));
        }
        let mut used = self.used.lock();
        if !used.iter().any(|t| std::ptr::eq(t.as_ptr(), Arc::as_ptr(team))) {
            used.retain(|t| t.strong_count() > 0);
            used.push(Arc::downgrade(team));
        }
        Ok(())
    }

    /// While the stream is being captured: makes the graph keep what the operation about to be captured uses.
    pub(crate) fn keep<T: Send + 'static>(&self, used: impl FnOnce() -> T) -> Result<()> {
        if self.world.backend.is_capturing(&self.raw)? {
            self.world.backend.keep(&self.raw, Box::new(used()))?;
        }
        Ok(())
    }

    /// Whether both are clones of one stream.
    pub(crate) fn is(&self, other: &Stream<B>) -> bool {
        Arc::ptr_eq(&self.used, &other.used)
    }

    /// The backend's stream.
    pub fn raw(&self) -> &B::Stream {
        &self.raw
    }

    /// Returns when everything enqueued so far has ended.
    ///
    /// # Errors
    /// The failure that is set on a team whose operations this stream ran; the backend's.
    pub fn synchronize(&self) -> Result<()> {
        self.world.backend.synchronize(&self.raw)?;
        for team in self.used.lock().iter().filter_map(Weak::upgrade) {
            team.stream_failure()?;
        }
        Ok(())
    }

    /// Copies `src` to `dst` in stream order; returns when `src` may be reused.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the types or lengths differ.
    pub fn write<T: Element>(&self, dst: &Span<B>, src: &[T]) -> Result<()> {
        self.world.check_open("write")?;
        check_host("write", dst, T::DTYPE, src.len())?;
        // SAFETY: `dst` has as many bytes as `src` and is kept valid by its keeper or by its creator's promise.
        unsafe { self.world.backend.copy_in(&self.raw, dst.addr, bytemuck::cast_slice(src)) }
    }

    /// Copies `src` to the host in stream order and returns it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the types differ.
    pub fn read<T: Element>(&self, src: &Span<B>) -> Result<Vec<T>> {
        let mut dst = vec![T::zeroed(); src.len];
        self.read_into(src, &mut dst)?;
        Ok(dst)
    }

    /// Copies `src` to `dst` on the host in stream order; returns when it is there.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the types or lengths differ.
    pub fn read_into<T: Element>(&self, src: &Span<B>, dst: &mut [T]) -> Result<()> {
        self.world.check_open("read")?;
        check_host("read", src, T::DTYPE, dst.len())?;
        // SAFETY: `src` has as many bytes as `dst` and is kept valid by its keeper or by its creator's promise.
        unsafe { self.world.backend.copy_out(&self.raw, src.addr, bytemuck::cast_slice_mut(dst)) }
    }

    /// Enqueues filling every byte of `dst` with `value`.
    ///
    /// # Errors
    /// The backend's.
    pub fn fill(&self, dst: &Span<B>, value: u8) -> Result<()> {
        self.world.check_open("fill")?;
        self.keep(|| dst.clone())?;
        // SAFETY: the span names its bytes and is kept valid by its keeper or by its creator's promise.
        unsafe { self.world.backend.fill(&self.raw, dst.addr, value, dst.bytes()) }
    }

    /// Enqueues setting `count` words of `dst`, from word `offset` on, to `value`.
    ///
    /// # Shapes
    /// `dst`: u32, of this PE or of a direct peer; `count`: 1 or more.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another type, a count of 0 or words that are not inside; the backend's.
    #[doc(alias = "memset32_")]
    pub fn memset32(&self, dst: &Span<B>, offset: usize, value: u32, count: usize) -> Result<()> {
        self.world.check_open("memset32")?;
        let at = words("memset32", dst, offset, count)?;
        self.keep(|| dst.clone())?;
        // SAFETY: the words are inside the span, which is kept valid by its keeper or by its creator's promise, and aligned.
        unsafe { self.world.backend.memset32(&self.raw, at, value, count) }
    }

    /// Enqueues writing word `offset` of `dst`, ordered at system scope after everything that the stream wrote before:
    /// who sees the value sees that, too.
    ///
    /// # Shapes
    /// `dst`: u32, of this PE or of a direct peer; also slots of a signal pad.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another type or a word that is not inside; the backend's.
    #[doc(alias = "stream_write_value32_")]
    pub fn write_value32(&self, dst: &Span<B>, offset: usize, value: u32) -> Result<()> {
        self.world.check_open("write_value32")?;
        let at = words("write_value32", dst, offset, 1)?;
        self.keep(|| dst.clone())?;
        // SAFETY: as in `memset32`.
        unsafe { self.world.backend.write_value32(&self.raw, at, value) }
    }

    /// Enqueues a copy of `src` to `dst`, memory of this PE or of a direct peer.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the lengths in bytes differ or the ranges overlap.
    pub fn copy(&self, dst: &Span<B>, src: &Span<B>) -> Result<()> {
        self.world.check_open("copy")?;
        let n = src.bytes();
        if dst.bytes() != n {
            return Err(Error::argument(
                "copy",
                "dst",
                format!("{} bytes", dst.bytes()),
                format!("{n} bytes"),
            ));
        }
        let (d, s) = (dst.addr.0, src.addr.0);
        if n > 0 && d < s + n as u64 && s < d + n as u64 {
            return Err(Error::argument("copy", "dst", "a range that overlaps src", "disjoint ranges"));
        }
        self.keep(|| (dst.clone(), src.clone()))?;
        // SAFETY: equal lengths, no overlap (above); both are kept valid by their keepers or creators' promises.
        unsafe { self.world.backend.copy(&self.raw, dst.addr, src.addr, n) }
    }

    /// Enqueues a fence: puts of this stream enqueued before reach each peer before those enqueued after. Completes none.
    ///
    /// # Errors
    /// The backend's.
    #[doc(alias = "nvshmem_fence")]
    pub fn fence(&self) -> Result<()> {
        self.world.check_open("fence")?;
        self.world.backend.fence(&self.raw)
    }

    /// Enqueues a quiet: passed once every put of this stream enqueued before is delivered.
    ///
    /// # Errors
    /// The backend's. A deadline that passes sets [`Error::Timeout`] on `team`, whose puts are meant.
    #[doc(alias = "nvshmem_quiet")]
    pub fn quiet(&self, team: &super::Team<B>, timeout: Option<Duration>) -> Result<()> {
        team.inner.check("quiet")?;
        self.enter("quiet", &team.inner)?;
        let limit = timeout.unwrap_or_else(|| team.inner.timeout());
        self.world.backend.quiet(&self.raw, &team.inner.status, limit)
    }

    /// Starts capturing: operations enqueued from here on are recorded, not run.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without [`GRAPH`](crate::capability::Capabilities::GRAPH).
    pub fn begin_capture(&self) -> Result<()> {
        self.world.check_open("begin_capture")?;
        self.world.backend.begin_capture(&self.raw)
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// The backend's, if the capture was invalidated.
    pub fn end_capture(&self) -> Result<Graph<B>> {
        self.world.check_open("end_capture")?;
        Ok(Graph { raw: self.world.backend.end_capture(&self.raw)? })
    }

    /// Enqueues the operations of a captured graph. The graph keeps the handles, contexts and spans that it uses.
    ///
    /// # Safety
    /// What spans made by [`Span::from_raw`] name is still valid. Launches of one graph do not overlap, on whatever streams
    /// they are. Members replay graphs of one context in the same order.
    ///
    /// # Errors
    /// The backend's.
    pub unsafe fn launch(&self, graph: &Graph<B>) -> Result<()> {
        self.world.check_open("launch")?;
        // SAFETY: the caller promises what the backend asks for.
        unsafe { self.world.backend.launch(&graph.raw, &self.raw) }
    }
}

/// A captured sequence of operations.
#[derive(Debug)]
pub struct Graph<B: Backend> {
    raw: B::Graph,
}

/// Address of the word at `offset`, of `count` that must be inside.
fn words<B: Backend>(op: &'static str, dst: &Span<B>, offset: usize, count: usize) -> Result<Addr> {
    if dst.dtype != DType::U32 {
        return Err(Error::argument(op, "dst", dst.dtype, "u32"));
    }
    if !dst.addr.0.is_multiple_of(4) {
        let got = format!("address {:?}", dst.addr);
        return Err(Error::argument(op, "dst", got, "an address that is a multiple of 4 bytes"));
    }
    if count == 0 {
        return Err(Error::argument(op, "count", count, "1 or more"));
    }
    if offset.checked_add(count).is_none_or(|end| end > dst.len) {
        let got = format!("{count} from {offset}");
        return Err(Error::argument(op, "offset", got, format!("words inside {}", dst.len)));
    }
    Ok(dst.addr.offset(4 * offset))
}

fn check_host<B: Backend>(op: &'static str, span: &Span<B>, dtype: DType, len: usize) -> Result<()> {
    if span.dtype != dtype || span.len != len {
        let got = format!("{len} elements of {dtype}");
        return Err(Error::argument(op, "slice", got, format!("{} elements of {}", span.len, span.dtype)));
    }
    Ok(())
}
