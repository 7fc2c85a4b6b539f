//! Views: who is left of a team after deaths, numbered and decided by the lowest live member.
//!
//! A team and all teams made of it by [`without`](super::Team::without) share one *lineage*: its views are numbered from 0
//! (the team as it was made). Members that want the next view propose: the last view they know, and who has ended. The
//! lowest live PE of that view waits for every live member's proposal, leaves out whoever somebody knows to have ended, and
//! sends the decision. If it dies meanwhile, the members propose to the next.
//!
//! One member may have got a view, and gone on with it, that another missed because the PE that decided died between its
//! messages. Both still agree on the next view: what is proposed says which one was last, and the number after the
//! largest of those is taken. A PE is left out only when its end is proven ([`Bootstrap::ended`](crate::bootstrap::Bootstrap::ended)), so no two
//! PEs of one host can both be the lowest that lives, and nobody who is left out can still write anybody's memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lock::Lock;
use super::log::fnv;
use super::setup::{decode, encode};
use crate::bootstrap::{Bootstrap, Tag};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

const OP: &str = "without";
/// Mixed into the root team's id for proposals and decisions.
const VIEWS: u64 = u64::from_le_bytes(*b"views...");
/// Pause between looks at whether a closed connection's process is gone.
const LOOK: Duration = Duration::from_millis(1);
/// Longest wait for one PE's message without a look at the others.
const TURN: Duration = Duration::from_millis(20);

/// What a member sends to the one that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Proposal {
    /// Number of the last view that the member took.
    last: u64,
    /// Who is out: not in that view, or ended since as the member knows.
    ended: BTreeSet<u32>,
}

/// What the lowest live PE answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Decision {
    number: u64,
    members: Vec<u32>,
}

/// A numbered member list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) number: u64,
    /// In rank order.
    pub(crate) members: Vec<Pe>,
}

#[derive(Debug)]
struct Progress {
    view: View,
    /// Proposals that came and were not answered yet.
    heard: BTreeMap<Pe, Proposal>,
    /// Number of the last decision that this PE sent to each.
    answered: BTreeMap<Pe, u64>,
    /// The proposal that was sent last, and to whom: one that timed out is continued by the next call.
    proposed: Option<(Pe, Proposal)>,
}

/// The views of a team and of all teams made of it.
#[derive(Debug)]
pub(crate) struct Lineage {
    boot: Arc<dyn Bootstrap>,
    root: u64,
    /// Members of view 0.
    made: Vec<Pe>,
    progress: Lock<Progress>,
}

impl Lineage {
    /// Of the team `root` as it was made.
    pub(crate) fn new(boot: &Arc<dyn Bootstrap>, root: u64, members: &[Pe]) -> Self {
        let view = View { number: 0, members: members.to_vec() };
        let progress = Progress { view, heard: BTreeMap::new(), answered: BTreeMap::new(), proposed: None };
        Lineage { boot: boot.clone(), root, made: members.to_vec(), progress: Lock::new(progress) }
    }

    /// Members of the team as it was made.
    pub(crate) fn made(&self) -> &[Pe] {
        &self.made
    }

    /// The last view that this PE took.
    pub(crate) fn view(&self) -> View {
        self.progress.lock().view.clone()
    }

    /// Id of the team of a view, equal on all its members.
    pub(crate) fn team_id(&self, number: u64) -> u64 {
        fnv(fnv(self.root, &VIEWS.to_le_bytes()), &number.to_le_bytes())
    }

    /// Agrees on a view after the last one, without the PEs of `gone` and whoever else has ended.
    ///
    /// # Errors
    /// [`Error::Timeout`] naming PEs of `gone`, or others that failed, that have not ended; else members that did not call it;
    /// [`Error::PeerFailed`] naming this PE if the others go on without it.
    pub(crate) fn next(&self, gone: &[Pe], deadline: Deadline) -> Result<View> {
        self.try_next(gone, deadline).map_err(|e| match e {
            // Whoever decides waits for them, and the others wait for whoever decides.
            Error::Timeout { .. } => {
                let (view, ended) = (self.view(), self.boot.ended());
                let failed = self.boot.failed().into_iter();
                let alive: Vec<Pe> =
                    failed.filter(|pe| view.members.contains(pe) && !ended.contains(pe)).collect();
                if alive.is_empty() {
                    e
                } else {
                    timeout("end of process", alive, view.members.len(), deadline)
                }
            }
            e => e,
        })
    }

    fn try_next(&self, gone: &[Pe], deadline: Deadline) -> Result<View> {
        let mut progress = self.progress.lock();
        let me = self.boot.pe();
        self.await_end(gone, deadline)?;
        let before = progress.view.number;
        loop {
            let ended = self.ended(&progress.view);
            let Some(lowest) = progress.view.members.iter().filter(|pe| !ended.contains(&pe.0)).min() else {
                return Err(left_out(me, progress.view.number));
            };
            let lowest = *lowest;
            let proposal = Proposal { last: progress.view.number, ended: self.outside(&progress.view) };
            if lowest == me {
                self.decide(&mut progress, deadline)?;
            } else if !self.propose(&mut progress, lowest, proposal, deadline)? {
                continue;
            }
            let view = &progress.view;
            if !view.members.contains(&me) {
                return Err(left_out(me, view.number));
            }
            let ended = self.ended(view);
            if view.number > before && ended.is_empty() {
                return Ok(view.clone());
            }
        }
    }

    /// Members of the view whose end is proven.
    fn ended(&self, view: &View) -> BTreeSet<u32> {
        self.boot.ended().into_iter().filter(|pe| view.members.contains(pe)).map(|pe| pe.0).collect()
    }

    /// PEs of the team as it was made that are not in the view, or whose end is proven.
    fn outside(&self, view: &View) -> BTreeSet<u32> {
        let outside = self.made.iter().filter(|pe| !view.members.contains(pe)).map(|pe| pe.0);
        self.ended(view).into_iter().chain(outside).collect()
    }

    /// Waits until each of `gone` has ended.
    fn await_end(&self, gone: &[Pe], deadline: Deadline) -> Result<()> {
        loop {
            let ended = self.boot.ended();
            let late: Vec<Pe> = gone.iter().copied().filter(|pe| !ended.contains(pe)).collect();
            if late.is_empty() {
                return Ok(());
            }
            if deadline.passed() {
                return Err(timeout("end of process", late, gone.len(), deadline));
            }
            std::thread::sleep(LOOK.min(deadline.left()));
        }
    }

    fn tag(&self, decision: bool) -> Tag {
        Tag { team: self.root ^ VIEWS, seq: u64::from(decision) }
    }

    /// Takes the proposals of all live members and decides.
    fn decide(&self, p: &mut Progress, deadline: Deadline) -> Result<()> {
        let me = self.boot.pe();
        let ended = loop {
            let mut ended = self.outside(&p.view);
            p.heard.values().for_each(|proposal| ended.extend(&proposal.ended));
            let missing = |pe: &Pe| *pe != me && !ended.contains(&pe.0) && !p.heard.contains_key(pe);
            let pending: Vec<Pe> = p.view.members.iter().copied().filter(missing).collect();
            let Some(first) = pending.first() else { break ended };
            if deadline.passed() {
                return Err(timeout("proposal", pending, p.view.members.len(), deadline));
            }
            let mut turn = deadline.left().min(TURN);
            for pe in &pending {
                match self.hear(p, *pe, Deadline::after(turn)) {
                    Ok(proposal) => drop(p.heard.insert(*pe, proposal)),
                    Err(Error::Timeout { .. }) => {}
                    // Its connection is closed, with or without a goodbye: it is out once its end is proven.
                    Err(Error::PeerFailed { .. } | Error::Bootstrap { .. }) if pe == first => {
                        std::thread::sleep(LOOK);
                    }
                    Err(Error::PeerFailed { .. } | Error::Bootstrap { .. }) => {}
                    Err(e) => return Err(e),
                }
                turn = Duration::ZERO;
            }
        };
        let heard = std::mem::take(&mut p.heard);
        let number = heard.values().fold(p.view.number, |n, proposal| n.max(proposal.last)) + 1;
        let before = std::mem::take(&mut p.view.members);
        let members: Vec<Pe> = before.iter().copied().filter(|pe| !ended.contains(&pe.0)).collect();
        let decision = encode(&Decision { number, members: members.iter().map(|pe| pe.0).collect() });
        // Also to those outside, which some member has seen end: one that lives all the same hears why.
        for pe in before.into_iter().filter(|pe| *pe != me) {
            p.answered.insert(pe, number);
            // Who cannot be sent to has ended, or is about to be seen so.
            let _ = self.boot.send(pe, self.tag(true), &decision, &[]);
        }
        p.view = View { number, members };
        Ok(())
    }

    /// The next proposal of a member that this PE has not answered.
    fn hear(&self, p: &Progress, pe: Pe, deadline: Deadline) -> Result<Proposal> {
        loop {
            let message = self.boot.recv(pe, self.tag(false), deadline)?;
            let proposal: Proposal = decode(OP, pe, &message.payload)?;
            // One from before this PE's answer belongs to a call that the answer has served.
            if p.answered.get(&pe).is_none_or(|number| *number <= proposal.last) {
                return Ok(proposal);
            }
        }
    }

    /// Asks `lowest` to decide; whether a decision came. It did not if `lowest` has ended.
    fn propose(&self, p: &mut Progress, lowest: Pe, proposal: Proposal, deadline: Deadline) -> Result<bool> {
        // An answer to an earlier call that gave up may be here.
        if self.answer(p, lowest, Deadline::after(Duration::ZERO))? == Answer::Taken {
            return Ok(true);
        }
        let now = (lowest, proposal);
        if p.proposed.as_ref() != Some(&now) {
            match self.boot.send(lowest, self.tag(false), &encode(&now.1), &[]) {
                Ok(()) => p.proposed = Some(now),
                Err(_) => return self.await_end(&[lowest], deadline).map(|()| false),
            }
        }
        loop {
            let turn = Deadline::after(deadline.left().min(TURN));
            match self.answer(p, lowest, turn)? {
                Answer::Taken => return Ok(true),
                Answer::Gone => return self.await_end(&[lowest], deadline).map(|()| false),
                Answer::None if deadline.passed() => {
                    return Err(timeout("decision", vec![lowest], 1, deadline));
                }
                Answer::None => {}
            }
        }
    }

    /// Takes the next decision of `lowest` that is new.
    fn answer(&self, p: &mut Progress, lowest: Pe, deadline: Deadline) -> Result<Answer> {
        loop {
            match self.boot.recv(lowest, self.tag(true), deadline) {
                Ok(message) => {
                    let Decision { number, members } = decode(OP, lowest, &message.payload)?;
                    if number > p.view.number {
                        p.view = View { number, members: members.into_iter().map(Pe).collect() };
                        p.heard.clear();
                        return Ok(Answer::Taken);
                    }
                }
                Err(Error::Timeout { .. }) => return Ok(Answer::None),
                Err(_) => return Ok(Answer::Gone),
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// A new view was taken.
    Taken,
    /// Nothing came.
    None,
    /// The connection is closed.
    Gone,
}

fn timeout(phase: &'static str, late: Vec<Pe>, of: usize, deadline: Deadline) -> Error {
    let (expected, got) = (of as u64, of.saturating_sub(late.len()) as u64);
    Error::Timeout { op: OP, phase, late, expected, got, waited: deadline.waited() }
}

fn left_out(me: Pe, number: u64) -> Error {
    Error::PeerFailed { pe: me, why: format!("the other members go on without this PE since view {number}") }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
