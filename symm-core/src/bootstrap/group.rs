//! Collectives over a [`Bootstrap`], for a subset of PEs with a counter of its own.
//!
//! Up to [`FLAT`] members send each other their parts directly: one message on the critical path, and who is late is seen
//! by everybody. Larger teams gather along a binomial tree and send the result back along it: 2·(W − 1) messages in all,
//! 2·⌈log2 W⌉ on the critical path, and connections only between neighbours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::tree::{self, Packed, Place};
use super::{Bootstrap, Message, Tag};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

/// Most members that send their parts to each other directly.
pub(crate) const FLAT: usize = 8;

/// How long messages of an exchange are still waited for once a member has failed, even one that had done its part: who
/// has heard of it before the exchange does not come to it.
const ON_ITS_WAY: Duration = Duration::from_millis(300);

/// The grace of an exchange with this deadline, from now on.
fn within(deadline: Deadline) -> Deadline {
    Deadline::after(ON_ITS_WAY.min(deadline.left()))
}

/// The members of a team as the bootstrap sees them.
#[derive(Debug)]
pub struct Group {
    boot: Arc<dyn Bootstrap>,
    id: u64,
    members: Vec<Pe>,
    my_rank: usize,
    seq: AtomicU64,
}

impl Group {
    /// A group of `members` in rank order, of which this PE must be one; `id` is equal on all of them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if this PE is no member, or a PE is repeated or outside the world.
    pub fn new(boot: Arc<dyn Bootstrap>, id: u64, members: Vec<Pe>) -> Result<Self> {
        let n = boot.n_pes();
        let mut seen = vec![false; n];
        for pe in &members {
            match seen.get_mut(pe.index()) {
                Some(s) if !*s => *s = true,
                Some(_) => {
                    return Err(Error::argument("team", "members", format!("PE {pe} twice"), "distinct PEs"));
                }
                None => {
                    return Err(Error::argument(
                        "team",
                        "members",
                        format!("PE {pe}"),
                        format!("PEs below {n}"),
                    ));
                }
            }
        }
        let me = boot.pe();
        let my_rank = members.iter().position(|pe| *pe == me).ok_or_else(|| {
            Error::argument("team", "members", format!("{members:?}"), format!("a list with this PE ({me})"))
        })?;
        Ok(Group { boot, id, members, my_rank, seq: AtomicU64::new(0) })
    }

    /// Members in rank order.
    pub fn members(&self) -> &[Pe] {
        &self.members
    }

    /// This PE's rank.
    pub fn my_rank(&self) -> usize {
        self.my_rank
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// A group is never empty: this PE is a member.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The team's id, equal on all members.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The bootstrap underneath.
    pub fn bootstrap(&self) -> &Arc<dyn Bootstrap> {
        &self.boot
    }

    /// Takes the next tag; every member takes the same one when all make the same calls in the same order.
    pub fn next_tag(&self) -> Tag {
        Tag { team: self.id, seq: self.seq.fetch_add(1, Ordering::Relaxed) }
    }

    /// Tags taken so far.
    pub fn count(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    /// Makes [`count`](Self::count) at least `count`: for members that agree on where to go on after calls that not all
    /// of them made.
    pub fn catch_up(&self, count: u64) {
        self.seq.fetch_max(count, Ordering::Relaxed);
    }

    /// Gathers every member's bytes, in rank order. Lengths may differ.
    ///
    /// # Collective
    /// Over the group, in the same order on every member.
    ///
    /// # Errors
    /// [`Error::Timeout`] naming the members that had not come, every one of them unless more than a thousand are late;
    /// the bootstraps are asked for that, so it takes up to half a second longer than the deadline in a large group.
    /// [`Error::PeerFailed`] for one that is gone.
    pub fn all_gather(&self, op: &'static str, mine: &[u8], deadline: Deadline) -> Result<Vec<Vec<u8>>> {
        let tag = self.next_tag();
        match self.members.len() {
            0..=FLAT => self.gather_flat(op, tag, mine, deadline),
            _ => Ok(self.gather_by_tree(op, tag, Some(mine), deadline)?.parts()),
        }
    }

    /// As [`all_gather`](Self::all_gather), in one piece of memory.
    pub(super) fn all_gather_packed(
        &self,
        op: &'static str,
        mine: &[u8],
        deadline: Deadline,
    ) -> Result<Packed> {
        let tag = self.next_tag();
        if self.members.len() > FLAT {
            return self.gather_by_tree(op, tag, Some(mine), deadline);
        }
        let mut packed = Vec::new();
        self.gather_flat(op, tag, mine, deadline)?.iter().for_each(|part| tree::pack(&mut packed, part));
        Packed::read(op, self.boot.pe(), packed, self.members.len())
    }

    fn gather_flat(
        &self,
        op: &'static str,
        tag: Tag,
        mine: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>> {
        let w = self.members.len();
        // Each rank starts with its right neighbour, so that no receiver is everybody's first.
        let others = (1..w).map(|step| self.members[(self.my_rank + step) % w]);
        self.send_all(others, tag, mine)?;
        let mut parts: Vec<Option<Vec<u8>>> = vec![None; w];
        parts[self.my_rank] = Some(mine.to_vec());
        let (mut late, mut grace) = (Vec::new(), None);
        for step in 1..w {
            let rank = (self.my_rank + w - step) % w;
            let from = self.members[rank];
            if parts[rank].is_some() {
                continue;
            }
            let received = match self.boot.recv_among(from, tag, &self.members, deadline) {
                Err(gone @ Error::PeerFailed { pe, .. }) if pe != from => {
                    // What one that is gone has not sent never comes: an error at once, since the others may have met
                    // it earlier and come no more.
                    let dead = self.members.iter().position(|m| *m == pe).filter(|r| parts[*r].is_none());
                    if let Some(dead) = dead {
                        let now = Deadline::after(Duration::ZERO);
                        parts[dead] = Some(self.boot.recv(pe, tag, now)?.payload);
                    }
                    self.on_its_way(from, tag, gone, grace.get_or_insert_with(|| within(deadline)))
                }
                other => other,
            };
            match received {
                Ok(m) => parts[rank] = Some(m.payload),
                Err(Error::Timeout { .. }) => late.push(from),
                Err(e) => return Err(e),
            }
        }
        if late.is_empty() {
            Ok(parts.into_iter().flatten().collect())
        } else {
            Err(self.timeout(op, late, deadline))
        }
    }

    /// The part of `from` if it comes within `grace`, else `gone`, the death of another member.
    fn on_its_way(&self, from: Pe, tag: Tag, gone: Error, grace: &Deadline) -> Result<Message> {
        self.boot.recv(from, tag, *grace).map_err(|_| gone)
    }

    /// Sends to all of them, also behind one that is gone: they may need no more than this PE's part.
    fn send_all(&self, to: impl Iterator<Item = Pe>, tag: Tag, payload: &[u8]) -> Result<()> {
        let mut sent = Ok(());
        for pe in to {
            sent = sent.and(self.boot.send(pe, tag, payload, &[]));
        }
        sent
    }

    /// Without a part of its own (`None` on every member) nothing but the arrival is gathered, and messages are empty.
    fn gather_by_tree(
        &self,
        op: &'static str,
        tag: Tag,
        mine: Option<&[u8]>,
        deadline: Deadline,
    ) -> Result<Packed> {
        let place = self.place(self.my_rank);
        let mut waits_for: Vec<Pe> = place.children().map(|rank| self.members[rank]).collect();
        self.boot.progress(tag, &waits_for);
        let mut grace = None;
        let mut receive = |from: Pe, waits_for: &[Pe]| {
            let received = match self.boot.recv_among(from, tag, &self.members, deadline) {
                Err(gone @ Error::PeerFailed { pe, .. }) if pe != from => {
                    self.on_its_way(from, tag, gone, grace.get_or_insert_with(|| within(deadline)))
                }
                other => other,
            };
            match received {
                Err(Error::Timeout { .. }) => Err(self.timeout(op, self.find_late(tag, waits_for), deadline)),
                other => other,
            }
        };
        let mut packed = Vec::new();
        if let Some(mine) = mine {
            tree::pack(&mut packed, mine);
        }
        for child in place.children() {
            let below = receive(self.members[child], &waits_for)?.payload;
            packed.extend_from_slice(&below);
            waits_for.remove(0);
            self.boot.progress(tag, &waits_for);
        }
        let mut sender = self.members[self.my_rank];
        if let Some(parent) = place.parent() {
            sender = self.members[parent];
            self.boot.send(sender, tag, &packed, &[])?;
            self.boot.progress(tag, &[sender]);
            packed = receive(sender, &[sender])?.payload;
        }
        // Before anything is passed on: what does not decode here does not decode anywhere.
        let parts = mine.map_or(0, |_| self.members.len());
        let packed = Packed::read(op, sender, packed, parts)?;
        // The largest subtree has the longest way to go.
        self.send_all(place.children().rev().map(|child| self.members[child]), tag, packed.bytes())?;
        self.boot.progress(tag, &[]);
        Ok(packed)
    }

    /// Gathers what every member has found; if some have an error instead, all members get that of the lowest rank, as
    /// `error` words it. So a step that fails somewhere fails everywhere, and nobody waits for a member that gave up.
    ///
    /// # Collective
    /// Over the group.
    ///
    /// # Errors
    /// `error(pe, why)` of the first member with one; those of [`all_gather`](Self::all_gather).
    pub fn agree(
        &self,
        op: &'static str,
        mine: Result<Vec<u8>, String>,
        deadline: Deadline,
        error: impl Fn(Pe, &str) -> Error,
    ) -> Result<Vec<Vec<u8>>> {
        let bytes = match mine {
            Ok(mut bytes) => {
                bytes.insert(0, 0);
                bytes
            }
            Err(why) => std::iter::once(1).chain(why.into_bytes()).collect(),
        };
        let all = self.all_gather(op, &bytes, deadline)?;
        let mut results = Vec::with_capacity(all.len());
        for (pe, bytes) in self.members.iter().zip(all) {
            match bytes.split_first() {
                Some((0, rest)) => results.push(rest.to_vec()),
                Some((_, why)) => return Err(error(*pe, &String::from_utf8_lossy(why))),
                None => {
                    return Err(Error::Bootstrap { call: op, why: format!("an empty message from PE {pe}") });
                }
            }
        }
        Ok(results)
    }

    fn timeout(&self, op: &'static str, late: Vec<Pe>, deadline: Deadline) -> Error {
        let mut late = late;
        late.sort();
        let expected = self.members.len() as u64;
        let got = expected - late.len() as u64;
        Error::Timeout { op, phase: "exchange", late, expected, got, waited: deadline.waited() }
    }

    pub(super) fn place(&self, rank: usize) -> Place {
        Place::new(rank, self.members.len())
    }

    /// Returns once every member has called it.
    ///
    /// # Collective
    /// Over the group. Errors as [`all_gather`](Self::all_gather).
    pub fn barrier(&self, op: &'static str, deadline: Deadline) -> Result<()> {
        let tag = self.next_tag();
        match self.members.len() {
            0..=FLAT => self.gather_flat(op, tag, &[], deadline).map(drop),
            _ => self.gather_by_tree(op, tag, None, deadline).map(drop),
        }
    }
}
