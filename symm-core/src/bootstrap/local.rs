//! PEs that are threads of one process.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::mailbox::Mailbox;
use super::{Bootstrap, Liveness, Message, Presence, Tag};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

/// A world of `n` PEs that are threads of this process, in PE order. See [`Local`].
pub fn local(n: usize) -> Vec<Arc<dyn Bootstrap>> {
    Local::world(n).into_iter().map(|b| b as Arc<dyn Bootstrap>).collect()
}

/// How far the PEs are with the end of their job.
#[derive(Debug)]
struct Ends {
    /// Of each PE, in PE order: how often it has called [`Bootstrap::meet`], or `None` once it has said goodbye.
    met: Mutex<Vec<Option<u64>>>,
    changed: Condvar,
}

/// A PE that is a thread (or a few) of this process.
///
/// As with processes, an end that is dropped without [`close`](Bootstrap::close) or [`abandon`](Bootstrap::abandon) is a death: its peers get
/// [`Error::PeerFailed`], so a thread that panics takes nobody into a timeout.
#[derive(Debug)]
pub struct Local {
    pe: Pe,
    /// Every PE's mailbox, in PE order.
    boxes: Arc<[Mailbox]>,
    ends: Arc<Ends>,
    /// Gave the job up, so that its end is proven only when its last owner is gone: operations may still be queued.
    abandoned: AtomicBool,
}

impl Local {
    /// A world of `n` PEs, in PE order.
    pub fn world(n: usize) -> Vec<Arc<Local>> {
        let boxes: Arc<[Mailbox]> = (0..n).map(|_| Mailbox::new(n)).collect();
        let ends = Arc::new(Ends { met: Mutex::new(vec![Some(0); n]), changed: Condvar::new() });
        (0..n)
            .map(|i| {
                Arc::new(Local {
                    pe: Pe::from(i),
                    boxes: Arc::clone(&boxes),
                    ends: Arc::clone(&ends),
                    abandoned: AtomicBool::new(false),
                })
            })
            .collect()
    }

    /// Ends this PE as `kill -9` would: peers' observers are told, their `recv` of missing messages gives
    /// [`Error::PeerFailed`]. Own calls fail from now on. Idempotent; nothing after [`close`](Bootstrap::close).
    pub fn die(&self) {
        self.end("this PE died", |peer, me| {
            peer.peer_ended(me);
            peer.peer_failed(me, "it ended without a goodbye");
        });
    }

    fn mine(&self) -> &Mailbox {
        &self.boxes[self.pe.index()]
    }

    /// Closes this PE's own end and tells the others; `false` if it was closed before.
    fn end(&self, why: &'static str, tell: impl Fn(&Mailbox, Pe)) -> bool {
        let first = self.mine().close(why);
        if first {
            self.tell_all(tell);
            self.come(|met| met);
        }
        first
    }

    /// Changes how far this PE is, for those who wait for it in a meeting; they look at everything again.
    fn come(&self, change: impl FnOnce(Option<u64>) -> Option<u64>) {
        // Nothing between lock and unlock can panic.
        let mut met = self.ends.met.lock().unwrap_or_else(PoisonError::into_inner);
        met[self.pe.index()] = change(met[self.pe.index()]);
        self.ends.changed.notify_all();
    }

    fn meeting(&self, op: &'static str, members: &[Pe], deadline: Deadline) -> Result<()> {
        self.come(|met| met.map(|times| times + 1));
        let mut met = self.ends.met.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            self.mine().check_send(self.pe)?;
            let mine = met[self.pe.index()];
            let missing = |pe: &Pe| met.get(pe.index()).is_some_and(|times| times.is_some() && *times < mine);
            let late: Vec<Pe> = members.iter().copied().filter(missing).collect();
            if late.is_empty() {
                return Ok(());
            }
            if let Some(pe) = self.mine().failed().into_iter().find(|pe| late.contains(pe)) {
                let why = self.mine().failure(pe).unwrap_or_default();
                return Err(Error::PeerFailed { pe, why });
            }
            let left = deadline.left();
            if left.is_zero() {
                let expected = members.len() as u64;
                let (got, waited) = (expected - late.len() as u64, deadline.waited());
                return Err(Error::Timeout { op, phase: "exchange", late, expected, got, waited });
            }
            met = self.ends.changed.wait_timeout(met, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn tell_all(&self, tell: impl Fn(&Mailbox, Pe)) {
        let others = self.boxes.iter().enumerate().filter(|(i, _)| *i != self.pe.index());
        others.for_each(|(_, peer)| tell(peer, self.pe));
    }
}

impl Bootstrap for Local {
    fn pe(&self) -> Pe {
        self.pe
    }

    fn n_pes(&self) -> usize {
        self.boxes.len()
    }

    fn passes_fds(&self, pe: Pe) -> bool {
        pe.index() < self.boxes.len()
    }

    fn send(&self, to: Pe, tag: Tag, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        self.mine().check_send(to)?;
        let fds: Vec<OwnedFd> = fds
            .iter()
            .map(|fd| {
                rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(|e| Error::system("fcntl(F_DUPFD_CLOEXEC)", e))
            })
            .collect::<Result<_>>()?;
        self.boxes[to.index()].deliver(self.pe, tag, Message { payload: payload.to_vec(), fds });
        Ok(())
    }

    fn recv(&self, from: Pe, tag: Tag, deadline: Deadline) -> Result<Message> {
        self.mine().recv(from, tag, &[], deadline)
    }

    fn recv_among(&self, from: Pe, tag: Tag, among: &[Pe], deadline: Deadline) -> Result<Message> {
        self.mine().recv(from, tag, among, deadline)
    }

    fn progress(&self, tag: Tag, waits_for: &[Pe]) {
        self.mine().progress(tag, waits_for);
    }

    fn ask(&self, pes: &[Pe], tag: Tag, _deadline: Deadline) -> Vec<Option<Presence>> {
        pes.iter().map(|pe| self.boxes.get(pe.index()).map(|b| b.presence(tag))).collect()
    }

    fn meet(&self, op: &'static str, members: &[Pe], deadline: Deadline) -> Option<Result<()>> {
        Some(self.meeting(op, members, deadline))
    }

    fn watch(&self, observer: Arc<dyn Liveness>) {
        self.mine().watch(observer);
    }

    fn failed(&self) -> Vec<Pe> {
        self.mine().failed()
    }

    fn failure(&self, pe: Pe) -> Option<String> {
        self.mine().failure(pe)
    }

    // One that said goodbye may still have operations queued, and its process goes on.
    fn ended(&self) -> Vec<Pe> {
        self.mine().ended()
    }

    fn close(&self) {
        if self.end("the bootstrap is closed", |peer, me| peer.peer_left(me)) {
            self.come(|_| None);
        }
    }

    fn abandon(&self, why: &str) {
        if self.end("this PE gave the job up", |peer, me| {
            peer.peer_failed(me, why);
        }) {
            self.abandoned.store(true, Ordering::Release);
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.die();
        if self.abandoned.load(Ordering::Acquire) {
            self.tell_all(|peer, me| {
                peer.peer_ended(me);
            });
        }
    }
}
