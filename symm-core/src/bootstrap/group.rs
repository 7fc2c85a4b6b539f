//! Collectives over a [`Bootstrap`], for a subset of PEs with a counter of its own.
//!
//! Up to [`FLAT`] members send each other their parts directly: one message on the critical path, and who is late is seen
//! by everybody. Larger teams gather along a binomial tree and send the result back along it: 2·(W − 1) messages in all,
//! 2·⌈log2 W⌉ on the critical path, and connections only between neighbours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::call::{Call, Came, Stop};
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

/// One exchange.
#[derive(Clone, Copy, Debug)]
struct At {
    call: Call,
    tag: Tag,
    deadline: Deadline,
    /// Whether every member can be reached, so that those that this PE has not heard can be told that it gives up.
    known: bool,
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
        self.all_gather_in(op.into(), mine, deadline)
    }

    /// As [`all_gather`](Self::all_gather), as a step of a call.
    ///
    /// # Errors
    /// Those, and [`Error::Bootstrap`] on all if a member is in another call or step, with one that is.
    pub(crate) fn all_gather_in(&self, call: Call, mine: &[u8], deadline: Deadline) -> Result<Vec<Vec<u8>>> {
        let at = At { call, tag: self.next_tag(), deadline, known: true };
        match self.members.len() {
            0..=FLAT => self.gather_flat(at, mine),
            _ => Ok(self.gather_by_tree(at, Some(mine))?.parts()),
        }
    }

    /// As [`all_gather`](Self::all_gather), in one piece of memory, before this PE knows where all members are.
    pub(super) fn all_gather_packed(
        &self,
        op: &'static str,
        mine: &[u8],
        deadline: Deadline,
    ) -> Result<Packed> {
        let at = At { call: op.into(), tag: self.next_tag(), deadline, known: false };
        if self.members.len() > FLAT {
            return self.gather_by_tree(at, Some(mine));
        }
        let mut packed = Vec::new();
        self.gather_flat(at, mine)?.iter().for_each(|part| tree::pack(&mut packed, part));
        Packed::read(op, self.boot.pe(), packed, self.members.len())
    }

    fn gather_flat(&self, at: At, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        match self.exchange_flat(at, mine) {
            Ok(parts) => Ok(parts),
            Err(stop) => Err(match self.differs(at, stop, self.members.iter().copied()) {
                Stop::Differs(differs) => differs.error(at.call),
                Stop::Error(e) => e,
            }),
        }
    }

    fn exchange_flat(&self, at: At, mine: &[u8]) -> Result<Vec<Vec<u8>>, Stop> {
        let At { call, tag, deadline, .. } = at;
        let w = self.members.len();
        // Each rank starts with its right neighbour, so that no receiver is everybody's first.
        let others = (1..w).map(|step| self.members[(self.my_rank + step) % w]);
        self.send_all(others, tag, &call.part(mine))?;
        let mut parts: Vec<Option<Vec<u8>>> = vec![None; w];
        parts[self.my_rank] = Some(mine.to_vec());
        let (mut late, mut grace) = (Vec::new(), None);
        for step in 1..w {
            let rank = (self.my_rank + w - step) % w;
            let from = self.members[rank];
            if parts[rank].is_some() {
                continue;
            }
            let received = match self.part_among(at, from) {
                Err(Stop::Error(gone @ Error::PeerFailed { pe, .. })) if pe != from => {
                    // What one that is gone has not sent never comes: an error at once, since the others may have met
                    // it earlier and come no more.
                    let dead = self.members.iter().position(|m| *m == pe).filter(|r| parts[*r].is_none());
                    if let Some(dead) = dead {
                        let now = At { deadline: Deadline::after(Duration::ZERO), ..at };
                        parts[dead] = Some(self.part(now, pe)?);
                    }
                    let grace = *grace.get_or_insert_with(|| within(deadline));
                    self.on_its_way(At { deadline: grace, ..at }, from, gone)
                }
                other => other,
            };
            match received {
                Ok(part) => parts[rank] = Some(part),
                Err(Stop::Error(Error::Timeout { .. })) => late.push(from),
                Err(stop) => return Err(stop),
            }
        }
        if late.is_empty() {
            Ok(parts.into_iter().flatten().collect())
        } else {
            Err(self.timeout(call.op, late, deadline).into())
        }
    }

    /// The part of `from`; also ends when another member is gone.
    fn part_among(&self, at: At, from: Pe) -> Result<Vec<u8>, Stop> {
        self.part_by(at, from, || self.boot.recv_among(from, at.tag, &self.members, at.deadline))
    }

    /// The part of `from`, whatever becomes of others.
    fn part(&self, at: At, from: Pe) -> Result<Vec<u8>, Stop> {
        self.part_by(at, from, || self.boot.recv(from, at.tag, at.deadline))
    }

    fn part_by(&self, at: At, from: Pe, receive: impl Fn() -> Result<Message>) -> Result<Vec<u8>, Stop> {
        loop {
            // One that gave up in this very call is late, or waits for one that is, as before it said so.
            if let Came::Part(part) = at.call.read(self.boot.pe(), from, receive()?.payload)? {
                return Ok(part);
            }
        }
    }

    /// The part of `from` if it comes by the deadline, a short grace, else `gone`, the death of another member.
    fn on_its_way(&self, at: At, from: Pe, gone: Error) -> Result<Vec<u8>, Stop> {
        self.part(at, from).map_err(|stop| match stop {
            Stop::Error(_) => gone.into(),
            differs @ Stop::Differs(_) => differs,
        })
    }

    /// What ends the exchange early, or rather that members are in different calls, if what has come of these tells: that
    /// is the cause, and who is late or gone because of it is not.
    fn differs(&self, at: At, stop: Stop, of: impl Iterator<Item = Pe>) -> Stop {
        if matches!(stop, Stop::Differs(_)) {
            return stop;
        }
        let me = self.members[self.my_rank];
        let now = At { deadline: Deadline::after(Duration::ZERO), ..at };
        let seen = of.filter(|pe| *pe != me).map(|pe| self.part(now, pe).err());
        let differs = seen.flatten().find(|stop| matches!(stop, Stop::Differs(_)));
        differs.unwrap_or(stop)
    }

    /// Sends to all of them, also behind one that is gone: they may need no more than this PE's part.
    fn send_all(&self, to: impl Iterator<Item = Pe>, tag: Tag, payload: &[u8]) -> Result<()> {
        let mut sent = Ok(());
        for pe in to {
            sent = sent.and(self.boot.send(pe, tag, payload, &[]));
        }
        sent
    }

    /// Without a part of its own (`None` on every member) nothing but the arrival is gathered.
    fn gather_by_tree(&self, at: At, mine: Option<&[u8]>) -> Result<Packed> {
        let place = self.place(self.my_rank);
        let (parent, children) = (place.parent(), place.children());
        let mut untold: Vec<Pe> = parent.into_iter().chain(children).map(|rank| self.members[rank]).collect();
        let neighbours = untold.clone();
        let stop = match self.exchange_by_tree(at, mine, &mut untold) {
            Ok(packed) => return Ok(packed),
            Err(stop) => self.differs(at, stop, neighbours.into_iter()),
        };
        let (message, error) = match stop {
            Stop::Differs(differs) => (differs.encode(), differs.error(at.call)),
            Stop::Error(e) => (at.call.gave_up(), e),
        };
        if at.known
            && let Err(e) = self.send_all(untold.into_iter(), at.tag, &message)
        {
            log::debug!("{}: not everybody was told that {} ended early: {e}", crate::pe::here(), at.call);
        }
        Err(match error {
            // Asked only now: the neighbours need not wait for the answers.
            Error::Timeout { late, .. } => {
                self.timeout(at.call.op, self.find_late(at.tag, &late), at.deadline)
            }
            e => e,
        })
    }

    /// `untold`: the neighbours that still wait for a message of this PE.
    fn exchange_by_tree(&self, at: At, mine: Option<&[u8]>, untold: &mut Vec<Pe>) -> Result<Packed, Stop> {
        let At { call, tag, deadline, .. } = at;
        let place = self.place(self.my_rank);
        let mut waits_for: Vec<Pe> = place.children().map(|rank| self.members[rank]).collect();
        self.boot.progress(tag, &waits_for);
        let mut grace = None;
        let mut receive = |from: Pe, waits_for: &[Pe]| {
            let received = match self.part_among(at, from) {
                Err(Stop::Error(gone @ Error::PeerFailed { pe, .. })) if pe != from => {
                    let grace = *grace.get_or_insert_with(|| within(deadline));
                    self.on_its_way(At { deadline: grace, ..at }, from, gone)
                }
                other => other,
            };
            match received {
                Err(Stop::Error(Error::Timeout { .. })) => {
                    Err(self.timeout(call.op, waits_for.to_vec(), deadline).into())
                }
                other => other,
            }
        };
        let mut packed = Vec::new();
        if let Some(mine) = mine {
            tree::pack(&mut packed, mine);
        }
        for child in place.children() {
            let below = receive(self.members[child], &waits_for)?;
            packed.extend_from_slice(&below);
            waits_for.remove(0);
            self.boot.progress(tag, &waits_for);
        }
        let mut sender = self.members[self.my_rank];
        if let Some(parent) = place.parent() {
            sender = self.members[parent];
            untold.retain(|pe| *pe != sender);
            self.boot.send(sender, tag, &call.part(&packed), &[])?;
            self.boot.progress(tag, &[sender]);
            packed = receive(sender, &[sender])?;
        }
        // Before anything is passed on: what does not decode here does not decode anywhere.
        let parts = mine.map_or(0, |_| self.members.len());
        let packed = Packed::read(call.op, sender, packed, parts)?;
        untold.clear();
        // The largest subtree has the longest way to go.
        let down = place.children().rev().map(|child| self.members[child]);
        self.send_all(down, tag, &call.part(packed.bytes()))?;
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
        self.barrier_in(op.into(), deadline)
    }

    /// As [`barrier`](Self::barrier), as a step of a call; errors as [`all_gather_in`](Self::all_gather_in).
    pub(crate) fn barrier_in(&self, call: Call, deadline: Deadline) -> Result<()> {
        let at = At { call, tag: self.next_tag(), deadline, known: true };
        match self.members.len() {
            0..=FLAT => self.gather_flat(at, &[]).map(drop),
            _ => self.gather_by_tree(at, None).map(drop),
        }
    }
}
