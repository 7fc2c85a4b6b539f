//! The collective behind `rendezvous` and contexts: offer, import, bind, agree.
//!
//! 1. Every member offers what it brings (digest of its log, places of its blocks, what it has retired) or its error.
//! 2. Segments that a member has not seen yet are sent to it once; it maps them.
//! 3. Every member binds the result and says whether that worked; all get it, or all get the first failure.
//!
//! Step 3 is also the barrier after which peers may write: blocks were zeroed before it.

use std::os::fd::AsFd;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::log::Digest;
use super::pool::Block;
use super::world::WorldInner;
use crate::backend::{Backend, Export, Region};
use crate::bootstrap::{Call, FLAT, Group, Tag};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

/// Team id under which segments travel; the sequence number is the segment's number on its owner.
const SEGMENT_TEAM: u64 = u64::from_le_bytes(*b"segments");

/// Longest wait for a segment without a look at whether another thread has received it.
const OTHER_RECEIVER: Duration = Duration::from_millis(1);

/// How long a member that makes no step of a large team waits for those below it in the tree.
const PASSED_ON: Duration = Duration::from_millis(300);

/// Where a block lies on its owner.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    pub(crate) dedicated: bool,
}

/// What a member brings to step 1.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// Error that kept this member from bringing anything: stage, text.
    pub(crate) failed: Option<(String, String)>,
    /// Whether this member makes no further step and has not heard the others: its team has failed there.
    pub(crate) absent: bool,
    /// What is set up: kind, allocation (team, index), bytes.
    pub(crate) subject: (u8, u64, u64, u64),
    pub(crate) digest: Digest,
    pub(crate) places: Vec<Place>,
    /// Allocations retired here that members of this team have not been told of.
    pub(crate) retired: Vec<(u64, u64)>,
}

impl Offer {
    /// Of a member on which the team has failed.
    pub(crate) fn absent(subject: (u8, u64, u64, u64), digest: Digest, why: &Error) -> Self {
        let failed = Some(absence(why));
        Offer { failed, absent: true, subject, digest, places: Vec::new(), retired: Vec::new() }
    }
}

/// Stage and text of the error that others get for a member on which the team has failed.
pub(crate) fn absence(why: &Error) -> (String, String) {
    ("team".to_owned(), format!("its team has failed: {why}"))
}

impl<B: Backend> Block<B> {
    pub(crate) fn place(&self) -> Place {
        Place { segment: self.segment_id, offset: self.offset as u64, dedicated: self.dedicated }
    }
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain structs should encode")
}

pub(crate) fn decode<'a, T: Deserialize<'a>>(op: &'static str, from: Pe, bytes: &'a [u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|e| Error::Bootstrap {
        call: op,
        why: format!("PE {from} sent a message that does not decode: {e}"),
    })
}

/// What is set up, for the steps' errors and messages.
pub(crate) struct Setup<'a, B: Backend> {
    pub(crate) world: &'a WorldInner<B>,
    pub(crate) group: &'a Group,
    pub(crate) op: &'static str,
    pub(crate) deadline: Deadline,
}

/// Steps in which all members' messages meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Step 1.
    Offer,
    /// The logs, after offers that differ.
    Log,
    /// Step 3.
    Agree,
}

impl<B: Backend> Setup<'_, B> {
    /// Every member's message of a step, in rank order.
    ///
    /// Each carries its call and step. A member that gave up an earlier call has left messages behind, which must not be
    /// taken for those of another step: a handle on places that were given up would be the result.
    pub(crate) fn gather<T: DeserializeOwned>(&self, step: Step, mine: &impl Serialize) -> Result<Vec<T>> {
        let all = self.group.all_gather_in(self.call(step), &encode(mine), self.deadline);
        let all = all.inspect_err(|e| self.world.counters.note(e))?;
        all.iter().zip(self.group.members()).map(|(bytes, pe)| decode(self.op, *pe, bytes)).collect()
    }

    fn call(&self, step: Step) -> Call {
        let step = match step {
            Step::Offer => "Offer",
            Step::Log => "Log",
            Step::Agree => "Agree",
        };
        Call { op: self.op, step }
    }

    /// What this member has to say in place of a step that it cannot make, so that the others do not wait for it. Waits for nobody,
    /// but in a large team shortly for those whose messages pass through this PE with its own.
    pub(crate) fn tell(&self, step: Step, mine: &impl Serialize) {
        let wait = if self.group.len() > FLAT { PASSED_ON } else { Duration::ZERO };
        let all = self.group.all_gather_in(self.call(step), &encode(mine), Deadline::after(wait));
        if let Err(e) = all {
            log::debug!("{}: {} was told that this PE does not come: {e}", crate::pe::here(), self.op);
        }
    }

    /// Step 1. The offers in rank order.
    ///
    /// # Errors
    /// Those of the exchange, and `Setup` on all if there is a member that takes part no further.
    pub(crate) fn offers(&self, offer: &Offer) -> Result<Vec<Offer>> {
        let offers: Vec<Offer> = self.gather(Step::Offer, offer)?;
        let both = || offers.iter().zip(self.group.members());
        let heard: Vec<Pe> = both().filter(|(o, _)| !o.absent).map(|(_, pe)| *pe).collect();
        self.world.told(&heard, &offer.retired);
        for (offer, pe) in both() {
            self.world.reported(*pe, &offer.retired);
        }
        // Before anything else is compared: what follows would wait for it.
        both().filter(|(o, _)| o.absent).try_for_each(|(o, pe)| self.failure(o, *pe))?;
        Ok(offers)
    }

    fn failure(&self, offer: &Offer, pe: Pe) -> Result<()> {
        let Some((stage, why)) = &offer.failed else { return Ok(()) };
        let error = Error::Setup { op: self.op, pe, stage: stage.clone(), why: why.clone() };
        self.world.counters.note(&error);
        Err(error)
    }

    /// The first member's failure to offer anything, as the error for all.
    pub(crate) fn first_failure(&self, offers: &[Offer]) -> Result<()> {
        offers.iter().zip(self.group.members()).try_for_each(|(offer, pe)| self.failure(offer, *pe))
    }

    /// Step 2. Regions by place, then by rank: `regions[place][rank]`. `blocks` are this PE's own, in offer order.
    pub(crate) fn regions(&self, offers: &[Offer], blocks: &[&Block<B>]) -> Result<Vec<Vec<Region<B>>>> {
        let me = self.group.my_rank();
        for (rank, pe) in self.group.members().iter().enumerate() {
            if rank != me {
                self.send_segments(*pe, blocks)?;
            }
        }
        let mut regions: Vec<Vec<Region<B>>> =
            blocks.iter().map(|_| Vec::with_capacity(offers.len())).collect();
        for (rank, (offer, pe)) in offers.iter().zip(self.group.members()).enumerate() {
            if offer.places.len() != blocks.len() {
                let why = format!("PE {pe} offers {} blocks, {} expected", offer.places.len(), blocks.len());
                return Err(Error::Bootstrap { call: self.op, why });
            }
            for (i, place) in offer.places.iter().enumerate() {
                let mapping = if rank == me {
                    self.world.backend.own(&blocks[i].segment)
                } else {
                    self.segment_of(*pe, place.segment)?
                };
                let offset = usize::try_from(place.offset).unwrap_or(usize::MAX);
                regions[i].push(Region { pe: *pe, mapping, offset });
            }
        }
        Ok(regions)
    }

    /// Peers' segments that hold nothing but what they offer: forgotten with it.
    pub(crate) fn dedicated(&self, offers: &[Offer]) -> Vec<(Pe, u64)> {
        let me = self.group.my_rank();
        let peers = offers.iter().zip(self.group.members()).enumerate().filter(|(rank, _)| *rank != me);
        let places = peers.flat_map(|(_, (offer, pe))| offer.places.iter().map(|place| (*pe, place)));
        places.filter(|(_, place)| place.dedicated).map(|(pe, place)| (pe, place.segment)).collect()
    }

    fn send_segments(&self, pe: Pe, blocks: &[&Block<B>]) -> Result<()> {
        for block in blocks {
            if !self.world.imports.lock().mark_sent(pe, block.segment_id) {
                continue;
            }
            let sent = self.world.backend.export(&block.segment).and_then(|export| {
                let fds: Vec<_> = export.fds.iter().map(AsFd::as_fd).collect();
                let tag = Tag { team: SEGMENT_TEAM, seq: block.segment_id };
                self.group.bootstrap().send(pe, tag, &export.bytes, &fds)
            });
            if let Err(e) = sent {
                self.world.imports.lock().unmark_sent(pe, block.segment_id);
                return Err(e);
            }
        }
        Ok(())
    }

    fn segment_of(&self, pe: Pe, segment: u64) -> Result<B::Mapping> {
        let known = || {
            let imports = self.world.imports.lock();
            imports.get(pe, segment).is_some() || imports.is_pending(pe, segment)
        };
        while !known() {
            let tag = Tag { team: SEGMENT_TEAM, seq: segment };
            // A segment comes once, and another thread of this PE, in a set-up of another team, may be the one that takes
            // it: a receive that gets nothing looks again.
            let turn = Deadline::after(self.deadline.left().min(OTHER_RECEIVER));
            match self.group.bootstrap().recv_among(pe, tag, self.group.members(), turn) {
                Ok(m) => {
                    let export = Export { bytes: m.payload, fds: m.fds };
                    self.world.imports.lock().received(pe, segment, export);
                }
                Err(Error::Timeout { late, expected, got, .. }) if self.deadline.passed() => {
                    let (op, phase, waited) = (self.op, "segments", self.deadline.waited());
                    return Err(Error::Timeout { op, phase, late, expected, got, waited });
                }
                Err(Error::Timeout { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        let mapped = self.world.imports.lock().map(&self.world.backend, pe, segment)?;
        mapped.ok_or_else(|| Error::Bootstrap {
            call: self.op,
            why: format!("segment {segment} of PE {pe} vanished"),
        })
    }

    /// Step 3. Every member's result: mine if all succeeded, else the first failure, the same on all.
    pub(crate) fn agree<T>(&self, stage: &str, mine: Result<T>) -> Result<T> {
        let said = mine.as_ref().err().map(|e| (stage.to_owned(), e.to_string()));
        let all: Vec<Option<(String, String)>> = self.gather(Step::Agree, &said)?;
        for (said, pe) in all.into_iter().zip(self.group.members()) {
            if let Some((stage, why)) = said {
                let error = Error::Setup { op: self.op, pe: *pe, stage, why };
                self.world.counters.note(&error);
                return Err(error);
            }
        }
        mine
    }
}
