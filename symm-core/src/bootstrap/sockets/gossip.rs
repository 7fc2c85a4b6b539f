//! Who is gone, passed on: connections lie along a tree, so only its neighbours see a PE go.
//!
//! Whoever sees it or hears of it first tells all it is connected with. A PE that has lost the way to the root of the
//! tree connects to the next one above that lives, so that what happens later reaches it too.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::frame::Gone;
use super::io::Io;
use crate::bootstrap::group::FLAT;
use crate::error::Error;
use crate::pe::Pe;

/// How long a connection to a PE that others have seen go may still stand: until what it sent last has been read. And how
/// long the failure of one that gave up waits for what made it give up to be seen here.
pub(super) const SUSPICION: Duration = Duration::from_millis(200);

impl Io {
    /// A peer was found to be gone without a goodbye.
    pub(super) fn failed(&mut self, pe: Pe, why: &str) {
        if self.shared.mailbox.peer_failed(pe, why) {
            log::debug!("PE {}: PE {pe}: {why}", self.shared.pe);
            if !self.shared.complete.load(Ordering::Acquire) {
                // A world that misses one that came will never be complete, whatever the others wait for.
                self.shared.mailbox.break_off(Error::PeerFailed { pe, why: why.to_owned() });
            }
            self.tell_all(pe, &Gone { pe, failed: Some(why.to_owned()), ended: false });
            self.mend();
        }
    }

    /// A peer's end was proven.
    pub(super) fn ended(&mut self, pe: Pe) {
        if self.shared.mailbox.peer_ended(pe) {
            self.tell_all(pe, &Gone { pe, failed: None, ended: true });
        }
    }

    /// `from` says that a PE is gone.
    pub(super) fn hear_of(&mut self, from: Pe, gone: Gone) {
        let pe = gone.pe;
        if pe.index() >= self.shared.n_pes() {
            return;
        }
        if pe == self.shared.pe {
            log::warn!("PE {pe}: PE {from} lost the connection to this PE");
            return;
        }
        if let Some(why) = &gone.failed {
            if self.conns.get(&pe).is_some_and(|c| c.open) {
                // What it sent before is still to be read.
                if !self.suspects.iter().any(|(_, suspect, _)| *suspect == pe) {
                    self.suspects.push((
                        Instant::now() + SUSPICION,
                        pe,
                        format!("{why} (seen by PE {from})"),
                    ));
                }
                return;
            }
            self.dials.remove(&pe);
            self.shared.link(pe).end();
            self.failed(pe, why);
        }
        // Where this PE watches the process itself, it sees the end itself.
        if gone.ended && !self.conns.contains_key(&pe) {
            self.ended(pe);
        }
    }

    /// Ends connections to PEs that others lost: the world must agree on who is there.
    pub(super) fn end_suspects(&mut self) {
        let now = Instant::now();
        let all = std::mem::take(&mut self.suspects);
        let (due, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|(at, ..)| *at <= now);
        self.suspects = later;
        for (_, pe, why) in due {
            self.given_up(pe, &why);
        }
    }

    fn tell_all(&mut self, pe: Pe, gone: &Gone) {
        // Everybody has a connection to everybody in a small world.
        if self.shared.n_pes() <= FLAT {
            return;
        }
        let (header, payload) = gone.encode();
        for (to, _) in self.conns.iter().filter(|(to, c)| **to != pe && c.open) {
            self.shared.post(*to, &header, &payload);
        }
    }

    /// Tells a new neighbour who is gone.
    pub(super) fn tell_what_is_known(&mut self, to: Pe) {
        let ended = self.shared.mailbox.ended();
        for (pe, why) in self.shared.mailbox.failures() {
            let gone = Gone { pe, failed: Some(why), ended: ended.contains(&pe) };
            let (header, payload) = gone.encode();
            self.shared.post(to, &header, &payload);
        }
    }

    /// Connects to the nearest PE above this one that lives, if it has none: else deaths would be told in parts of the
    /// world only. Where all above are gone, to the lowest that lives.
    fn mend(&mut self) {
        let (me, n) = (self.shared.pe, self.shared.n_pes());
        if n <= FLAT {
            return;
        }
        let gone = self.shared.mailbox.failed();
        let mut above = std::iter::successors(Some(me.0), |pe| (*pe > 0).then(|| pe & (pe - 1))).skip(1);
        let lives = |pe: &u32| gone.binary_search(&Pe(*pe)).is_err();
        let up = above.find(lives).or_else(|| (0..n as u32).find(lives)).map(Pe);
        if let Some(up) = up.filter(|up| *up != me)
            && self.shared.link(up).want()
        {
            self.begin(up);
        }
    }
}
