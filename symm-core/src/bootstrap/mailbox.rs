//! What one PE has received and knows of its peers; shared by every bootstrap.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{Liveness, Message, Presence, Tag};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

/// How a peer went.
#[derive(Clone, Debug)]
enum Gone {
    /// Said goodbye.
    Left,
    /// Without a goodbye, and how that was noticed.
    Failed(String),
}

#[derive(Default)]
struct State {
    /// Peers that are gone; a large world has few of them.
    gone: BTreeMap<Pe, Gone>,
    /// What peers said that are about to fail.
    parting: BTreeMap<Pe, String>,
    /// Peers whose end is proven.
    ended: BTreeSet<Pe>,
    messages: HashMap<(Pe, Tag), VecDeque<Message>>,
    observers: Vec<Arc<dyn Liveness>>,
    /// How far this PE is in each team's latest exchange: its number, and whom it waits for.
    progress: HashMap<u64, (u64, Vec<Pe>)>,
    /// Questions that were asked, and the answers that came.
    answers: HashMap<(Pe, Tag), Option<Presence>>,
    /// Why the world cannot be completed.
    broken: Option<Error>,
    /// Whether every PE has come, after which nothing breaks off its making.
    complete: bool,
    /// Why this PE's own end is closed.
    closed: Option<&'static str>,
}

/// Messages of one PE, keyed by sender and tag, and the state of its peers.
pub(super) struct Mailbox {
    n_pes: usize,
    state: Mutex<State>,
    changed: Condvar,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.lock();
        let waiting: usize = s.messages.values().map(VecDeque::len).sum();
        f.debug_struct("Mailbox")
            .field("gone", &s.gone)
            .field("messages", &waiting)
            .field("observers", &s.observers.len())
            .field("closed", &s.closed)
            .finish()
    }
}

impl Mailbox {
    pub(super) fn new(n_pes: usize) -> Self {
        Mailbox { n_pes, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn n_pes(&self) -> usize {
        self.n_pes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state whole, so a panic elsewhere in its thread does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a message. What arrives after this PE closed, or after its sender is known to be gone, is dropped.
    pub(super) fn deliver(&self, from: Pe, tag: Tag, message: Message) {
        let mut s = self.lock();
        if !s.gone.contains_key(&from) && s.closed.is_none() {
            s.messages.entry((from, tag)).or_default().push_back(message);
            drop(s);
            self.changed.notify_all();
        }
    }

    /// See [`Bootstrap::recv_among`](super::Bootstrap::recv_among); with nobody `among` it is a plain `recv`.
    pub(super) fn recv(&self, from: Pe, tag: Tag, among: &[Pe], deadline: Deadline) -> Result<Message> {
        self.check_pe("recv", "from", from)?;
        let mut s = self.lock();
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
            if let Some(e) = &s.broken {
                return Err(e.clone());
            }
            gone(&s, from)?;
            if !among.is_empty() {
                // One that said goodbye had done its part.
                let failed = |(pe, how): &(&Pe, &Gone)| matches!(how, Gone::Failed(_)) && among.contains(pe);
                s.gone.iter().find(failed).map_or(Ok(()), |(pe, _)| gone(&s, *pe))?;
            }
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

    fn check_pe(&self, op: &'static str, argument: &'static str, pe: Pe) -> Result<()> {
        if pe.index() < self.n_pes {
            return Ok(());
        }
        Err(Error::argument(op, argument, format!("PE {pe}"), format!("a PE below {}", self.n_pes)))
    }

    /// Whether a message can be sent to `to`.
    pub(super) fn check_send(&self, to: Pe) -> Result<()> {
        self.check_pe("send", "to", to)?;
        let s = self.lock();
        if let Some(why) = s.closed {
            return Err(Error::Bootstrap { call: "send", why: why.to_owned() });
        }
        match &s.broken {
            Some(e) => Err(e.clone()),
            None => gone(&s, to),
        }
    }

    /// Waits until `pe` is no longer held alive, and says how it went; `Ok` if the deadline passed first.
    pub(super) fn wait_gone(&self, call: &'static str, pe: Pe, deadline: Deadline) -> Result<()> {
        let mut s = self.lock();
        loop {
            if let Some(why) = s.closed {
                return Err(Error::Bootstrap { call, why: why.to_owned() });
            }
            gone(&s, pe)?;
            let left = deadline.left();
            if left.is_zero() {
                return Ok(());
            }
            s = self.changed.wait_timeout(s, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Marks `pe` as gone without a goodbye and tells the observers, unless it left or failed before or this PE closed.
    /// Returns whether this was new.
    pub(super) fn peer_failed(&self, pe: Pe, why: &str) -> bool {
        let mut s = self.lock();
        // Closed, this PE sees its own end of every connection closed, which says nothing of the others.
        if pe.index() >= self.n_pes || s.gone.contains_key(&pe) || s.closed.is_some() {
            return false;
        }
        s.gone.insert(pe, Gone::Failed(why.to_owned()));
        let observers = s.observers.clone();
        drop(s);
        self.changed.notify_all();
        // Without the lock, so that an observer may ask the bootstrap.
        for o in observers {
            // A panic must not take the bootstrap's thread along, on which all messages depend.
            if catch_unwind(AssertUnwindSafe(|| o.failed(pe, why))).is_err() {
                log::error!(
                    "{}: an observer panicked when it was told that PE {pe} failed",
                    crate::pe::here()
                );
            }
        }
        true
    }

    /// Marks `pe` as having said goodbye.
    pub(super) fn peer_left(&self, pe: Pe) {
        let mut s = self.lock();
        s.gone.entry(pe).or_insert(Gone::Left);
        drop(s);
        self.changed.notify_all();
    }

    /// The end of `pe` is proven. Returns whether this was new.
    pub(super) fn peer_ended(&self, pe: Pe) -> bool {
        self.lock().ended.insert(pe)
    }

    /// See [`Bootstrap::ended`](super::Bootstrap::ended).
    pub(super) fn ended(&self) -> Vec<Pe> {
        self.lock().ended.iter().copied().collect()
    }

    /// The world cannot be completed: every wait and send ends with this error. The first one stands.
    pub(super) fn break_off(&self, error: Error) {
        let mut s = self.lock();
        if !s.complete {
            s.broken.get_or_insert(error);
        }
        drop(s);
        self.changed.notify_all();
    }

    /// The world is complete; what may have broken off its making meanwhile does not matter any more.
    pub(super) fn completed(&self) {
        let mut s = self.lock();
        (s.complete, s.broken) = (true, None);
    }

    /// See [`Bootstrap::progress`](super::Bootstrap::progress).
    pub(super) fn progress(&self, tag: Tag, waits_for: &[Pe]) {
        self.lock().progress.insert(tag.team, (tag.seq, waits_for.to_vec()));
    }

    /// What this PE answers when it is asked about `tag`.
    pub(super) fn presence(&self, tag: Tag) -> Presence {
        match self.lock().progress.get(&tag.team) {
            Some((seq, waits_for)) if *seq == tag.seq => Presence::WaitsFor(waits_for.clone()),
            Some((seq, _)) if *seq > tag.seq => Presence::Past,
            _ => Presence::NotYet,
        }
    }

    /// Notes that `pe` is about to be asked about `tag`.
    pub(super) fn expect_answer(&self, pe: Pe, tag: Tag) {
        self.lock().answers.insert((pe, tag), None);
    }

    /// An answer came; one that nobody waits for is dropped.
    pub(super) fn answered(&self, pe: Pe, tag: Tag, presence: Presence) {
        if let Some(answer) = self.lock().answers.get_mut(&(pe, tag)) {
            *answer = Some(presence);
        }
        self.changed.notify_all();
    }

    /// The answers of `pes` about `tag`: waits until all have come or cannot come, or the deadline.
    pub(super) fn take_answers(&self, pes: &[Pe], tag: Tag, deadline: Deadline) -> Vec<Option<Presence>> {
        let mut s = self.lock();
        let open = |s: &State| {
            pes.iter().any(|pe| !s.gone.contains_key(pe) && matches!(s.answers.get(&(*pe, tag)), Some(None)))
        };
        while open(&s) && s.closed.is_none() && !deadline.passed() {
            s = self.changed.wait_timeout(s, deadline.left()).unwrap_or_else(PoisonError::into_inner).0;
        }
        pes.iter().map(|pe| s.answers.remove(&(*pe, tag)).flatten()).collect()
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
        self.failures().into_iter().map(|(pe, _)| pe).collect()
    }

    /// `pe` has said that it gives up, and why; it fails a little later.
    pub(super) fn peer_parts(&self, pe: Pe, why: &str) {
        self.lock().parting.insert(pe, why.to_owned());
    }

    /// See [`Bootstrap::failure`](super::Bootstrap::failure). Others may tell of a failure before it counts here.
    pub(super) fn failure(&self, pe: Pe) -> Option<String> {
        let s = self.lock();
        match s.gone.get(&pe) {
            Some(Gone::Failed(why)) => Some(why.clone()),
            _ => s.parting.get(&pe).cloned(),
        }
    }

    /// PEs that are gone without a goodbye, and how that was noticed.
    pub(super) fn failures(&self) -> Vec<(Pe, String)> {
        failures(&self.lock())
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
    let failed = s.gone.iter().filter_map(|(pe, gone)| match gone {
        Gone::Failed(why) => Some((*pe, why.clone())),
        Gone::Left => None,
    });
    failed.collect()
}

fn gone(s: &State, pe: Pe) -> Result<()> {
    match s.gone.get(&pe) {
        None => Ok(()),
        Some(Gone::Left) => Err(Error::PeerFailed { pe, why: "it left the job: it said goodbye".to_owned() }),
        Some(Gone::Failed(why)) => Err(Error::PeerFailed { pe, why: why.clone() }),
    }
}
