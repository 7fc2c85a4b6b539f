//! put and get.

use std::sync::Arc;
use std::task::Poll;

use symm_core::backend::{Get, Put, op};
use symm_core::status::phase;

use super::watch::{Late, Watch, bit};
use crate::copy;
use crate::handle::{HandleInner, Status};
use crate::protocol::signal;
use crate::proxy::{Fetch, Lane, Message, Reply, Update, Write};
use crate::stream::Task;

/// Copies in pieces until done or until the team has failed; returns whether all was copied.
///
/// Ranges of this PE's own memory may overlap: they are moved in one piece.
///
/// # Safety
/// Both ranges are valid for `bytes` bytes.
pub(super) unsafe fn copy_unless_over(
    dst: *mut u8,
    src: *const u8,
    bytes: usize,
    large: bool,
    over: impl Fn() -> bool,
) -> bool {
    if dst.addr().abs_diff(src.addr()) < bytes {
        // SAFETY: the caller's promise; this copy allows overlap.
        unsafe { std::ptr::copy(src, dst, bytes) };
        return true;
    }
    let mut at = 0;
    while at < bytes {
        if at > 0 && over() {
            return false;
        }
        let piece = copy::CHUNK.min(bytes - at);
        // SAFETY: `at + piece <= bytes`, so the caller's promise covers the piece; no overlap, as checked.
        unsafe { copy::copy(dst.add(at), src.add(at), piece, large) };
        at += piece;
    }
    true
}

/// Runs a put. Nothing in it waits: a network put is copied into a message.
///
/// # Safety
/// As [`Backend::put`](symm_core::Backend::put), until this returns.
pub(crate) unsafe fn put(handle: &HandleInner, lane: &Arc<Lane>, put: &Put) {
    if !handle.status.is_ok() {
        return;
    }
    let to = handle.members[put.rank];
    if !handle.direct[put.rank] {
        let data = (put.bytes > 0).then(|| {
            // SAFETY: the caller's promise: so many bytes are readable at the source.
            let bytes = unsafe { std::slice::from_raw_parts(put.src.as_ptr::<u8>(), put.bytes) };
            (handle.data[put.rank].place(put.offset, put.bytes), bytes.into())
        });
        let update = put.signal.map(|s| {
            let place = handle.pads[put.rank].place(handle.pad.signal(s.index), 8);
            (place, Update::Signal(s.op, s.value))
        });
        if let Some(proxy) = handle.core.proxy().filter(|_| data.is_some() || update.is_some()) {
            proxy.send(lane, Message::Put(Write { to, data, update }));
        }
        return;
    }
    let dst = handle.data[put.rank].ptr(put.offset, put.bytes);
    let large = put.bytes >= copy::LARGE;
    // SAFETY: the destination is inside the peer's data area, as `ptr` checked; the source is readable by the caller's
    // promise.
    let all = unsafe { copy_unless_over(dst, put.src.as_ptr(), put.bytes, large, || !handle.status.is_ok()) };
    if large {
        copy::drain();
    }
    if let Some(s) = put.signal.filter(|_| all) {
        // The copy came first, above; the word's release makes both visible in order.
        signal::put_with_signal(
            || {},
            handle.pads[put.rank].word64(handle.pad.signal(s.index)),
            s.op,
            s.value,
        );
        handle.core.ring(to);
    }
}

/// A get; one from a network peer waits for its reply.
#[derive(Debug)]
pub(crate) struct GetTask {
    handle: Arc<HandleInner>,
    lane: Arc<Lane>,
    get: Get,
    watch: Watch,
    reply: Option<Arc<Reply>>,
}

impl GetTask {
    pub(crate) fn new(handle: &Arc<HandleInner>, lane: &Arc<Lane>, get: &Get) -> Self {
        let watch = Watch::new(&handle.status, op::GET, get.limit);
        GetTask { handle: Arc::clone(handle), lane: Arc::clone(lane), get: *get, watch, reply: None }
    }

    fn load_direct(&self) {
        let src = self.handle.data[self.get.rank].ptr(self.get.offset, self.get.bytes);
        let large = self.get.bytes >= copy::LARGE;
        let over = || self.watch.is_over();
        // SAFETY: the source is inside the peer's data area, as `ptr` checked; the destination is writable until the
        // stream has passed this, by the promise of `Backend::get`.
        unsafe { copy_unless_over(self.get.dst.as_ptr(), src, self.get.bytes, large, over) };
        if large {
            copy::drain();
        }
    }
}

impl Task for GetTask {
    fn poll(&mut self, tick: bool) -> Poll<()> {
        if self.watch.is_over() {
            return Poll::Ready(());
        }
        let Get { rank, offset, dst, bytes, .. } = self.get;
        let Some(proxy) = self.handle.core.proxy().filter(|_| !self.handle.direct[rank] && bytes > 0) else {
            self.load_direct();
            return Poll::Ready(());
        };
        let from = self.handle.members[rank];
        let reply = self.reply.get_or_insert_with(|| {
            let reply = Arc::<Reply>::default();
            let place = self.handle.data[rank].place(offset, bytes);
            let fetch = Fetch { from, place, bytes, reply: Arc::clone(&reply) };
            proxy.send(&self.lane, Message::Get(fetch));
            reply
        });
        if let Some(data) = reply.take() {
            // SAFETY: the destination is writable for `bytes` bytes until the stream has passed this, by the promise of
            // `Backend::get`; the reply has as many.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), dst.as_ptr(), data.len().min(bytes)) };
            return Poll::Ready(());
        }
        let late = || Late { phase: phase::QUIET, pe: from, ranks: bit(rank), expected: 1, got: 0 };
        self.watch.wait(&self.handle.core, tick, late, Status::aborted)
    }
}
