//! What one PE has received and knows of its peers; shared by every bootstrap.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{Liveness, Message, Tag};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

/// What is known of a peer.
#[derive(Clone, Debug)]
enum Peer {
    Alive,
    /// Said goodbye.
    Left,
    /// Gone without a goodbye, and how that was noticed.
    Failed(String),
}

struct State {
    peers: Vec<Peer>,
    messages: HashMap<(Pe, Tag), VecDeque<Message>>,
    observers: Vec<Arc<dyn Liveness>>,
    /// Why this PE's own end is closed.
    closed: Option<&'static str>,
}

/// Messages of one PE, keyed by sender and tag, and the state of its peers.
pub(super) struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.lock();
        let waiting: usize = s.messages.values().map(VecDeque::len).sum();
        f.debug_struct("Mailbox")
            .field("peers", &s.peers)
            .field("messages", &waiting)
            .field("observers", &s.observers.len())
            .field("closed", &s.closed)
            .finish()
    }
}

impl Mailbox {
    pub(super) fn new(n_pes: usize) -> Self {
        let state = State {
            peers: vec![Peer::Alive; n_pes],
            messages: HashMap::new(),
            observers: Vec::new(),
            closed: None,
        };
        Mailbox { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state whole, so a panic elsewhere in its thread does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a message. What arrives after this PE closed, or after its sender is known to be gone, is dropped.
    pub(super) fn deliver(&self, from: Pe, tag: Tag, message: Message) {
        let mut s = self.lock();
        let alive = matches!(s.peers.get(from.index()), Some(Peer::Alive));
        if alive && s.closed.is_none() {
            s.messages.entry((from, tag)).or_default().push_back(message);
            drop(s);
            self.changed.notify_all();
        }
    }

    /// See [`Bootstrap::recv`](super::Bootstrap::recv).
    pub(super) fn recv(&self, from: Pe, tag: Tag, deadline: Deadline) -> Result<Message> {
        let mut s = self.lock();
        if from.index() >= s.peers.len() {
            return Err(outside("recv", "from", from, s.peers.len()));
        }
        loop {
            if let Some(why) = s.closed {
                return Err(Error::Bootstrap { call: "recv", why: why.to_owned() });
            }
            if let Some(queue) = s.messages.get_mut(&(from, tag))
                && let Some(message) = queue.pop_front()
            {
                if queue.is_empty() {
                    s.messages.remove(&(from, tag));
                }
                return Ok(message);
            }
            gone("recv", from, &s.peers[from.index()])?;
            let left = deadline.left();
            if left.is_zero() {
                return Err(Error::Timeout {
                    op: "recv",
                    phase: "message",
                    late: vec![from],
                    expected: 1,
                    got: 0,
                    waited: deadline.waited(),
                });
            }
            s = self.changed.wait_timeout(s, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a message can be sent to `to`.
    pub(super) fn check_send(&self, to: Pe) -> Result<()> {
        let s = self.lock();
        if let Some(why) = s.closed {
            return Err(Error::Bootstrap { call: "send", why: why.to_owned() });
        }
        match s.peers.get(to.index()) {
            Some(peer) => gone("send", to, peer),
            None => Err(outside("send", "to", to, s.peers.len())),
        }
    }

    /// Waits until `pe` is no longer held alive, and says how it went; `Ok` if the deadline passed first.
    pub(super) fn wait_gone(&self, call: &'static str, pe: Pe, deadline: Deadline) -> Result<()> {
        let mut s = self.lock();
        loop {
            if let Some(why) = s.closed {
                return Err(Error::Bootstrap { call, why: why.to_owned() });
            }
            gone(call, pe, &s.peers[pe.index()])?;
            let left = deadline.left();
            if left.is_zero() {
                return Ok(());
            }
            s = self.changed.wait_timeout(s, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Marks `pe` as gone without a goodbye and tells the observers, unless it left or failed before or this PE closed.
    pub(super) fn peer_failed(&self, pe: Pe, why: &str) {
        let mut s = self.lock();
        match s.peers.get_mut(pe.index()) {
            Some(peer @ Peer::Alive) => *peer = Peer::Failed(why.to_owned()),
            _ => return,
        }
        let observers = if s.closed.is_some() { Vec::new() } else { s.observers.clone() };
        drop(s);
        self.changed.notify_all();
        // Without the lock, so that an observer may ask the bootstrap.
        for o in observers {
            // A panic must not take the bootstrap's thread along, on which all messages depend.
            if catch_unwind(AssertUnwindSafe(|| o.failed(pe, why))).is_err() {
                log::error!("an observer panicked when it was told that PE {pe} failed");
            }
        }
    }

    /// Marks `pe` as having said goodbye.
    pub(super) fn peer_left(&self, pe: Pe) {
        let mut s = self.lock();
        if let Some(peer @ Peer::Alive) = s.peers.get_mut(pe.index()) {
            *peer = Peer::Left;
        }
        drop(s);
        self.changed.notify_all();
    }

    /// See [`Bootstrap::watch`](super::Bootstrap::watch).
    pub(super) fn watch(&self, observer: Arc<dyn Liveness>) {
        let mut s = self.lock();
        s.observers.push(Arc::clone(&observer));
        let gone = failures(&s);
        drop(s);
        for (pe, why) in gone {
            observer.failed(pe, &why);
        }
    }

    /// See [`Bootstrap::failed`](super::Bootstrap::failed).
    pub(super) fn failed(&self) -> Vec<Pe> {
        failures(&self.lock()).into_iter().map(|(pe, _)| pe).collect()
    }

    /// Closes this PE's own end, which also lets go of the observers; `false` if it was closed before.
    pub(super) fn close(&self, why: &'static str) -> bool {
        let mut s = self.lock();
        if s.closed.is_some() {
            return false;
        }
        s.closed = Some(why);
        let messages = std::mem::take(&mut s.messages);
        let observers = std::mem::take(&mut s.observers);
        drop(s);
        self.changed.notify_all();
        // Dropped without the lock: an observer's drop may call back.
        drop((messages, observers));
        true
    }
}

fn failures(s: &State) -> Vec<(Pe, String)> {
    let all = s.peers.iter().enumerate();
    all.filter_map(|(i, p)| match p {
        Peer::Failed(why) => Some((Pe::from(i), why.clone())),
        Peer::Alive | Peer::Left => None,
    })
    .collect()
}

fn gone(call: &'static str, pe: Pe, peer: &Peer) -> Result<()> {
    match peer {
        Peer::Alive => Ok(()),
        Peer::Left => Err(Error::Bootstrap { call, why: format!("PE {pe} left the job (it said goodbye)") }),
        Peer::Failed(why) => Err(Error::PeerFailed { pe, why: why.clone() }),
    }
}

fn outside(op: &'static str, argument: &'static str, pe: Pe, n_pes: usize) -> Error {
    Error::argument(op, argument, format!("PE {pe}"), format!("a PE below {n_pes}"))
}
