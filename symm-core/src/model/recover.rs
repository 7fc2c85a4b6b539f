//! `recover`: from a failure that every member survived back to a working team.

use std::sync::Weak;

use super::setup::{decode, encode};
use super::team::TeamInner;
use crate::backend::Backend;
use crate::capability::Capabilities;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

pub(crate) fn recover<B: Backend>(team: &TeamInner<B>) -> Result<()> {
    let world = &team.world;
    world.check_open("recover")?;
    if !world.backend.capabilities().contains(Capabilities::RECOVER) {
        let why = "a peer's writes cannot be proven to have ended".to_owned();
        return Err(Error::Unsupported { backend: world.backend.name(), capability: "RECOVER", why });
    }
    let deadline = Deadline::after(world.config.init_timeout);
    let marker = world.backend.mark()?;
    while !world.backend.passed(&marker)? {
        if deadline.passed() {
            let late = vec![world.boot.pe()];
            let (phase, waited) = ("streams", deadline.waited());
            return Err(Error::Timeout { op: "recover", phase, late, expected: 1, got: 0, waited });
        }
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
    // Contexts are made by all members in one order; those dropped everywhere or here only are told apart by position.
    let contexts: Vec<_> = team.contexts.lock().iter().map(Weak::upgrade).collect();
    let mut epochs = Vec::with_capacity(contexts.len());
    for c in &contexts {
        epochs.push(c.as_ref().map_or(Ok(0), |c| world.backend.context_epoch(&c.raw))?);
    }
    let all = team.group.all_gather("recover", &encode(&epochs), deadline)?;
    let mut next = epochs;
    for (bytes, pe) in all.iter().zip(team.group.members()) {
        let theirs: Vec<u64> = decode("recover", *pe, bytes)?;
        if theirs.len() != next.len() {
            let why = format!("PE {pe} made {} contexts of the team, this PE {}", theirs.len(), next.len());
            return Err(Error::Bootstrap { call: "recover", why });
        }
        for (mine, theirs) in next.iter_mut().zip(theirs) {
            *mine = (*mine).max(theirs);
        }
    }
    // Everybody's streams are idle, so nobody writes these words until the barrier below.
    let handles: Vec<_> = team.handles.lock().iter().filter_map(Weak::upgrade).collect();
    for handle in handles {
        handle.zero_pad(world)?;
    }
    for (context, epoch) in contexts.iter().zip(next) {
        if let Some(c) = context {
            // SAFETY: every member has said that none of its streams has an operation left.
            unsafe { world.backend.reset_context(&c.raw, epoch + 1)? };
        }
    }
    team.status.as_ref().clear();
    for pe in world.boot.failed() {
        if team.group.members().contains(&pe) {
            return Err(Error::PeerFailed { pe, why: "its connection closed".to_owned() });
        }
    }
    team.group.barrier("recover", deadline)
}
