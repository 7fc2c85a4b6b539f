//! A bootstrap that counts: how many messages, and the longest chain of them.
//!
//! Each PE has a clock. Sending takes one step, and the message carries the clock after it; whoever receives one is at
//! least that far. So messages that a PE sends one after another, and those that wait for others, follow each other; the
//! largest clock at the end is the number of messages on the critical path.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use symm::bootstrap::{Bootstrap, Liveness, Message, Presence, Tag};
use symm::{Error, Pe, Result};
use symm_core::Deadline;

#[derive(Debug)]
pub(crate) struct Counting {
    inner: Arc<dyn Bootstrap>,
    clock: AtomicU64,
    sent: AtomicU64,
}

impl Counting {
    pub(crate) fn new(inner: Arc<dyn Bootstrap>) -> Arc<Self> {
        Arc::new(Counting { inner, clock: AtomicU64::new(0), sent: AtomicU64::new(0) })
    }

    /// Messages sent here, and how far the clock is.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.clock.load(Ordering::Relaxed))
    }

    fn opened(&self, message: Result<Message>) -> Result<Message> {
        let Message { mut payload, fds } = message?;
        let body = payload.split_off(payload.len().min(8));
        let clock = payload.try_into().map(u64::from_le_bytes);
        let clock = clock.map_err(|_| Error::argument("recv", "payload", "short", "8 bytes or more"))?;
        self.clock.fetch_max(clock, Ordering::Relaxed);
        Ok(Message { payload: body, fds })
    }
}

impl Bootstrap for Counting {
    fn pe(&self) -> Pe {
        self.inner.pe()
    }

    fn n_pes(&self) -> usize {
        self.inner.n_pes()
    }

    fn passes_fds(&self, pe: Pe) -> bool {
        self.inner.passes_fds(pe)
    }

    fn send(&self, to: Pe, tag: Tag, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let clock = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        self.inner.send(to, tag, &[&clock.to_le_bytes(), payload].concat(), fds)
    }

    fn recv(&self, from: Pe, tag: Tag, deadline: Deadline) -> Result<Message> {
        self.opened(self.inner.recv(from, tag, deadline))
    }

    fn recv_among(&self, from: Pe, tag: Tag, among: &[Pe], deadline: Deadline) -> Result<Message> {
        self.opened(self.inner.recv_among(from, tag, among, deadline))
    }

    fn progress(&self, tag: Tag, waits_for: &[Pe]) {
        self.inner.progress(tag, waits_for);
    }

    fn ask(&self, pes: &[Pe], tag: Tag, deadline: Deadline) -> Vec<Option<Presence>> {
        self.inner.ask(pes, tag, deadline)
    }

    fn watch(&self, observer: Arc<dyn Liveness>) {
        self.inner.watch(observer);
    }

    fn failed(&self) -> Vec<Pe> {
        self.inner.failed()
    }

    fn failure(&self, pe: Pe) -> Option<String> {
        self.inner.failure(pe)
    }

    fn close(&self) {
        self.inner.close();
    }

    fn abandon(&self, why: &str) {
        self.inner.abandon(why);
    }
}
