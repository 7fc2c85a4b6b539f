//! Contexts: the flags and slots of collectives, and how an operation is given up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use symm_core::backend::{ContextParts, Reach, SignalOp, op};
use symm_core::layout::ContextLayout;
use symm_core::status::{Failure, PEER_FAILED, PEER_INVALID, TIMEOUT, phase};
use symm_core::{Error, Pe, Result};

use crate::backend::Host;
use crate::core::Core;
use crate::handle::Status;
use crate::memory::Area;
use crate::ops::Scratch;
use crate::protocol::exchange as flags;
use crate::proxy::{Lane, Message, Update, Write};

/// A context as collectives are given it.
#[derive(Clone, Debug)]
pub struct RawContext(pub(crate) Arc<ContextInner>);

#[derive(Debug)]
pub(crate) struct ContextInner {
    pub(crate) core: Arc<Core>,
    pub(crate) my_rank: usize,
    pub(crate) members: Vec<Pe>,
    pub(crate) status: Status,
    pub(crate) layout: ContextLayout,
    /// By rank.
    pub(crate) areas: Vec<Area>,
    /// By rank: whether it is reached by load and store.
    pub(crate) direct: Vec<bool>,
    /// Aborts to network peers; ordered with nothing.
    lane: Arc<Lane>,
    /// Whether this PE has told its peers that it gave up, since the last recover.
    given_up: AtomicBool,
    /// Buffers that the last operation left for the next.
    pub(crate) scratch: Mutex<Option<Box<Scratch>>>,
}

/// The bits of the upper half of an aborted pair's second word that are the failure's kind.
const KIND: u64 = 0xff;
/// The bit beside them of a deadline for which the PE that is named was not late: it gave up a wait of its own.
const OWN: u64 = 0x100;

/// The second word of an aborted pair: the failure's kind in the upper half, the PE at fault plus one in the lower. `me`: this PE.
pub(crate) fn cause(failure: &Failure, me: Pe) -> u64 {
    // Nobody is known to owe what such a wait missed: a signal that any PE may send, puts of this PE, its turn in a context.
    let own = failure.op == op::WAIT_UNTIL || [phase::QUIET, phase::TICKET].contains(&failure.phase);
    let own = own && failure.pe == u64::from(me.0) || failure.phase == phase::GIVEN_UP;
    let kind = if failure.code == TIMEOUT && own { TIMEOUT | OWN } else { failure.code };
    kind << 32 | (failure.pe + 1) & u64::from(u32::MAX)
}

/// What an aborted pair's second word says: kind, PE, and for a timeout whether that PE gave up a wait of its own. Peers wrote it,
/// so any value is possible.
pub(crate) fn cause_parts(cause: u64) -> (u64, Pe, bool) {
    let upper = cause >> 32;
    let kind = upper & KIND;
    let pe = u32::try_from(cause & u64::from(u32::MAX)).unwrap_or(u32::MAX).saturating_sub(1);
    let kind = if [PEER_FAILED, PEER_INVALID].contains(&kind) { kind } else { TIMEOUT };
    (kind, Pe(pe), kind == TIMEOUT && upper & OWN != 0)
}

impl RawContext {
    pub(crate) fn bind(core: &Arc<Core>, parts: ContextParts<Host>) -> Result<Self> {
        let w = parts.members.len();
        if parts.regions.len() != w || parts.my_rank >= w || parts.layout.ranks != w {
            return Err(Error::argument(
                "bind_context",
                "parts",
                format!("{parts:?}"),
                "one region for each rank",
            ));
        }
        let areas = parts.regions.iter().map(|r| Area::of(r, parts.layout.bytes)).collect::<Result<_>>()?;
        let context = Arc::new(ContextInner {
            core: Arc::clone(core),
            my_rank: parts.my_rank,
            direct: parts.members.iter().map(|pe| core.reach(*pe) == Reach::Direct).collect(),
            members: parts.members,
            status: parts.status,
            layout: parts.layout,
            areas,
            lane: core.lane(),
            given_up: AtomicBool::new(false),
            scratch: Mutex::default(),
        });
        context.status.add_context(&context);
        core.add_context(&context);
        Ok(RawContext(context))
    }
}

impl ContextInner {
    /// This PE's own copy.
    pub(crate) fn own(&self) -> &Area {
        &self.areas[self.my_rank]
    }

    /// Operations begun here.
    pub(crate) fn begun(&self) -> u64 {
        self.own().word64(ContextLayout::TICKET).load(Ordering::Acquire)
    }

    /// Takes the next operation; returns its epoch.
    pub(crate) fn take_ticket(&self) -> u64 {
        flags::take_ticket(self.own().word64(ContextLayout::TICKET))
    }

    /// Whether the operation before `epoch` has ended here; the error is the count of those that have.
    pub(crate) fn my_turn(&self, epoch: u64) -> Result<(), u64> {
        flags::my_turn(self.own().word64(ContextLayout::COMPLETED), epoch)
    }

    /// Ends an operation here.
    pub(crate) fn complete(&self, epoch: u64) {
        flags::complete(self.own().word64(ContextLayout::COMPLETED), epoch);
        // Another stream of this PE may wait for its turn.
        self.core.doorbell().ring();
    }

    /// Tells every peer that this PE gives up what it has not completed, for this failure. Once until the next recover.
    pub(crate) fn give_up(&self, failure: &Failure) {
        if self.given_up.swap(true, Ordering::AcqRel) {
            return;
        }
        let cause = cause(failure, self.members[self.my_rank]);
        let epoch = self.own().word64(ContextLayout::COMPLETED).load(Ordering::Acquire) + 1;
        let at = self.layout.aborted_pair(self.my_rank);
        for (rank, area) in self.areas.iter().enumerate().filter(|(rank, _)| *rank != self.my_rank) {
            let pe = self.members[rank];
            if self.direct[rank] {
                flags::abort(area.word64(at), area.word64(at + 8), epoch, cause);
                self.core.ring(pe);
            } else if let Some(proxy) = self.core.proxy() {
                let write = Write {
                    to: pe,
                    data: Some((area.place(at + 8, 8), Box::new(cause.to_ne_bytes()))),
                    update: Some((area.place(at, 8), Update::Signal(SignalOp::Set, epoch))),
                };
                proxy.send(&self.lane, Message::Put(write));
            }
        }
    }

    /// The cause for which some peer has given up `epoch` or an earlier one.
    pub(crate) fn aborted(&self, epoch: u64) -> Option<u64> {
        let own = self.own();
        (0..self.members.len()).filter(|rank| *rank != self.my_rank).find_map(|rank| {
            let at = self.layout.aborted_pair(rank);
            flags::aborted(own.word64(at), own.word64(at + 8), epoch)
        })
    }

    /// Clears the flags here and makes `epoch` the count of operations begun and ended.
    pub(crate) fn reset(&self, epoch: u64) {
        let own = self.own();
        for rank in 0..self.members.len() {
            let pair = self.layout.aborted_pair(rank);
            let flags = [
                self.layout.arrival_word(rank),
                self.layout.done_word(rank),
                self.layout.gathered_word(rank),
            ];
            for at in flags.into_iter().chain([pair, pair + 8]) {
                own.word64(at).store(0, Ordering::Relaxed);
            }
        }
        self.given_up.store(false, Ordering::Release);
        own.word64(ContextLayout::TICKET).store(epoch, Ordering::Release);
        own.word64(ContextLayout::COMPLETED).store(epoch, Ordering::Release);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Takes the buffers of the last operation.
    pub(crate) fn take_scratch(&self) -> Box<Scratch> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    /// Leaves buffers for the next operation.
    pub(crate) fn leave_scratch(&self, scratch: Box<Scratch>) {
        *self.scratch.lock().unwrap_or_else(PoisonError::into_inner) = Some(scratch);
    }
}
