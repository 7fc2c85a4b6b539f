//! How a wait passes its time: spin, offer the core, then sleep on this PE's doorbell.
//!
//! Spinning is right while the peer that will write the flag runs on another core, and wrong when it needs this one;
//! no count of PEs and cores tells which, since cores are shared with others and PEs may be pinned. So a spinning wait
//! offers its core now and then and measures the offer: one that returns at once found nobody who wanted the core, so
//! the wait may go on spinning; one that took long was accepted. After a few of those, or some time, it sleeps and is
//! woken by whoever writes a flag for it ([`Doorbell::ring`]). A flag may also be written by a user's own store
//! through a pointer, which rings nothing: every sleep is short enough to see it within [`NAP`].

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use rustix::thread::futex;

use crate::control::{self, DOORBELL, WAITERS};
use crate::protocol::cells::Hardware;
use crate::protocol::doorbell;
use crate::segment::Map;

/// Longest sleep without a look at the flag.
const NAP: Duration = Duration::from_millis(2);

/// Longest spin, while nobody else wants the core.
const SPIN: Duration = Duration::from_micros(60);

/// An offer of the core that took longer than this was accepted by somebody.
const ACCEPTED: Duration = Duration::from_micros(1);

/// Accepted offers after which a wait sleeps.
const OFFERS: u32 = 8;

/// How soon a wait first offers its core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Polls between two offers, which are also the looks at clocks, deadlines and aborts.
    polls: u32,
}

impl Patience {
    /// For `pes` PEs on a machine that gives this process `cores` cores.
    pub(crate) fn new(pes: usize, cores: usize) -> Self {
        // About 1 µs, so that the usual answer of a peer on another core comes without a system call; about 0.2 µs
        // where the peer waited for probably needs this core.
        Patience { polls: if pes <= cores { 64 } else { 12 } }
    }
}

/// What to do after a poll that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Poll again; `tick` says whether to look at clocks and aborts too.
    Poll {
        /// Whether this poll is one of the rarer, thorough ones.
        tick: bool,
    },
    /// Enlist at the doorbell, poll once more, sleep at most so long.
    Sleep(Duration),
}

/// Progress of one wait.
#[derive(Debug)]
pub(crate) struct Backoff {
    patience: Patience,
    polls: u32,
    accepted: u32,
    began: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(patience: Patience) -> Self {
        Backoff { patience, polls: 0, accepted: 0, began: None }
    }

    /// Passes a moment.
    pub(crate) fn next(&mut self) -> Next {
        if self.accepted >= OFFERS {
            return Next::Sleep(NAP);
        }
        std::hint::spin_loop();
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(self.patience.polls) {
            return Next::Poll { tick: false };
        }
        let offered = Instant::now();
        if offered.duration_since(*self.began.get_or_insert(offered)) >= SPIN {
            // From now on it only sleeps: a wait that is long does not become short.
            self.accepted = OFFERS;
            return Next::Sleep(NAP);
        }
        std::thread::yield_now();
        self.accepted += u32::from(offered.elapsed() >= ACCEPTED);
        Next::Poll { tick: true }
    }
}

/// The doorbell in a PE's control segment, its own or a peer's.
#[derive(Clone, Debug)]
pub(crate) struct Doorbell(Arc<Map>);

impl Doorbell {
    /// The doorbell of a control segment.
    pub(crate) fn of(control: Arc<Map>) -> Self {
        debug_assert!(control.bytes() >= control::BYTES);
        Doorbell(control)
    }

    fn sequence(&self) -> &AtomicU32 {
        // SAFETY: the control segment is longer than this offset, aligned to a page, mapped while self lives, and
        // this word is only ever used as an atomic.
        unsafe { &*self.0.base().add(DOORBELL).cast::<AtomicU32>() }
    }

    fn waiters(&self) -> &AtomicU32 {
        // SAFETY: as in `sequence`.
        unsafe { &*self.0.base().add(WAITERS).cast::<AtomicU32>() }
    }

    /// Wakes the PE's sleepers, if it has any, so that they look at their flags. Call after the flag was written.
    pub(crate) fn ring(&self) {
        if doorbell::ring::<Hardware>(self.sequence(), self.waiters()) {
            // Not PRIVATE: the sleeper may be another process. A failure means nobody sleeps there.
            let _ = futex::wake(self.sequence(), futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Enlists the calling thread; poll the flag once more before [`Enlisted::sleep`].
    pub(crate) fn enlist(&self) -> Enlisted<'_> {
        let key = doorbell::enlist::<Hardware>(self.sequence(), self.waiters());
        Enlisted { bell: self, key }
    }
}

/// A thread counted among the sleepers until dropped.
#[derive(Debug)]
pub(crate) struct Enlisted<'a> {
    bell: &'a Doorbell,
    key: u32,
}

impl Enlisted<'_> {
    /// Sleeps until the doorbell rings, at most `limit`; returns at once if it rang since this thread enlisted.
    pub(crate) fn sleep(&self, limit: Duration) {
        let timeout = rustix::thread::futex::Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        // Every outcome (woken, changed, timed out, interrupted) means: look again.
        let _ = futex::wait(self.bell.sequence(), futex::Flags::empty(), self.key, Some(&timeout));
    }
}

impl Drop for Enlisted<'_> {
    fn drop(&mut self) {
        doorbell::leave(self.bell.waiters());
    }
}
