//! `recover`: from a failure that every member survived back to a working team.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::setup::{decode, encode};
use super::team::TeamInner;
use super::world::WorldInner;
use crate::backend::Backend;
use crate::bootstrap::{Group, Tag};
use crate::capability::Capabilities;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// Mixed into a team's id for the messages of its recoveries: calls of `recover` need not be as many on every member,
/// so they must not move the counter by which the team's other collectives are numbered.
const RECOVER: u64 = u64::from_le_bytes(*b"recover.");

/// How far a member is with the recovery under way. One that timed out is continued by the next call: what was sent is
/// not sent again, what came is kept, so a member that came late to the first call meets the second.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// Recoveries that this member has completed.
    completed: u64,
    /// The exchange of epochs, and the barrier after everything was zeroed.
    steps: [Step; 2],
    /// Pads and contexts were reset: once a recovery, since a member that the barrier let through writes them already.
    reset: bool,
}

#[derive(Debug, Default)]
struct Step {
    /// Ranks below have been sent to.
    sent: usize,
    /// What came, by rank.
    parts: Vec<Option<Vec<u8>>>,
}

impl Recovery {
    /// Gathers every member's bytes in step `step`, or continues to.
    fn gather(
        &mut self,
        group: &Group,
        step: usize,
        mine: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>> {
        let tag = Tag { team: group.id() ^ RECOVER, seq: 2 * self.completed + step as u64 };
        let Step { sent, parts } = &mut self.steps[step];
        parts.resize(group.len(), None);
        while *sent < group.len() {
            if *sent != group.my_rank() {
                group.bootstrap().send(group.members()[*sent], tag, mine, &[])?;
            }
            *sent += 1;
        }
        parts[group.my_rank()] = Some(mine.to_vec());
        let mut late = Vec::new();
        for (part, pe) in parts.iter_mut().zip(group.members()) {
            if part.is_none() {
                match group.bootstrap().recv_among(*pe, tag, group.members(), deadline) {
                    Ok(message) => *part = Some(message.payload),
                    Err(Error::Timeout { .. }) => late.push(*pe),
                    Err(e) => return Err(e),
                }
            }
        }
        if !late.is_empty() {
            let (expected, got) = (group.len() as u64, (group.len() - late.len()) as u64);
            let (op, phase, waited) = ("recover", "exchange", deadline.waited());
            return Err(Error::Timeout { op, phase, late, expected, got, waited });
        }
        Ok(parts.iter().flatten().cloned().collect())
    }

    fn complete(&mut self) {
        *self = Recovery { completed: self.completed + 1, ..Recovery::default() };
    }
}

/// Waits until the streams of this PE have passed what they were given, where the backend can then say that nothing of
/// it writes any peer's memory. `needs`: what the caller needs of the backend, and its name.
pub(crate) fn idle<B: Backend>(
    world: &WorldInner<B>,
    op: &'static str,
    (needs, capability): (Capabilities, &'static str),
    deadline: Deadline,
) -> Result<()> {
    world.check_open(op)?;
    if !world.backend.capabilities().contains(needs) {
        let why = "a peer's writes cannot be proven to have ended".to_owned();
        return Err(Error::Unsupported { backend: world.backend.name(), capability, why });
    }
    let marker = world.backend.mark()?;
    while !world.backend.passed(&marker)? {
        if deadline.passed() {
            let late = vec![world.boot.pe()];
            let (phase, waited) = ("streams", deadline.waited());
            return Err(Error::Timeout { op, phase, late, expected: 1, got: 0, waited });
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

pub(crate) fn recover<B: Backend>(team: &TeamInner<B>) -> Result<()> {
    let world = &team.world;
    let deadline = Deadline::after(world.config.init_timeout);
    idle(world, "recover", (Capabilities::RECOVER, "RECOVER"), deadline)?;
    // Contexts are made by all members in one order; those dropped everywhere or here only are told apart by position.
    let contexts: Vec<_> = team.contexts.lock().iter().map(Weak::upgrade).collect();
    let mut epochs = Vec::with_capacity(contexts.len());
    for c in &contexts {
        epochs.push(c.as_ref().map_or(Ok(0), |c| world.backend.context_epoch(c.raw()))?);
    }
    let mut recovery = team.recovery.lock();
    let mine = encode(&(&epochs, team.group.count()));
    let all = recovery.gather(&team.group, 0, &mine, deadline).inspect_err(|e| world.counters.note(e))?;
    let mut next = epochs;
    for (bytes, pe) in all.iter().zip(team.group.members()) {
        let (theirs, count): (Vec<u64>, u64) = decode("recover", *pe, bytes)?;
        // A rendezvous that timed out was counted only by those who came to it.
        team.group.catch_up(count);
        if theirs.len() != next.len() {
            let why = format!("PE {pe} made {} contexts of the team, this PE {}", theirs.len(), next.len());
            return Err(Error::Bootstrap { call: "recover", why });
        }
        for (mine, theirs) in next.iter_mut().zip(theirs) {
            *mine = (*mine).max(theirs);
        }
    }
    if !recovery.reset {
        // Everybody's streams are idle, so nobody writes these words until the barrier below.
        let handles: Vec<_> = team.handles.lock().iter().filter_map(Weak::upgrade).collect();
        for handle in handles {
            handle.zero_pad(world)?;
        }
        for (context, epoch) in contexts.iter().zip(next) {
            if let Some(c) = context {
                // SAFETY: every member has said that none of its streams has an operation left.
                unsafe { world.backend.reset_context(c.raw(), epoch + 1)? };
            }
        }
        recovery.reset = true;
    }
    recovery.gather(&team.group, 1, &[], deadline).inspect_err(|e| world.counters.note(e))?;
    recovery.complete();
    // Only now: after a timeout above the failure is still there. What a faster peer does from here on writes memory
    // of this PE, never its status.
    // Counted if nobody has looked at it.
    let _ = team.failure();
    world.backend.clear_status(&team.status)?;
    team.noted.store(false, Ordering::Release);
    if let Some(failed) = world.failed_of(team.group.members()) {
        failed.pe().into_iter().for_each(|pe| world.peer_failed(pe));
        return Err(failed);
    }
    world.counters.recovered();
    Ok(())
}
