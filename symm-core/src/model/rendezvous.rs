//! `rendezvous`: the collective that turns an allocation into a handle.

use std::sync::Arc;
use std::time::Instant;

use super::handle::HandleCore;
use super::log::{Excerpt, first_difference};
use super::memory::Use;
use super::pool::Block;
use super::setup::{Offer, Setup, Step};
use super::team::Team;
use super::tensor::Allocation;
use crate::backend::{Backend, HandleParts};
use crate::error::{Error, Result};
use crate::layout::PadLayout;

const OP: &str = "rendezvous";
/// First part of an offer's subject.
const KIND: u8 = 1;

pub(crate) fn rendezvous<B: Backend>(
    allocation: &Arc<Allocation<B>>,
    team: &Team<B>,
) -> Result<Arc<HandleCore<B>>> {
    let inner = &team.inner;
    inner.world.check_open(OP)?;
    let team_failed = inner.failure().err();
    if !Arc::ptr_eq(&inner.world, &allocation.team.world) {
        let refused = Error::argument(OP, "team", "a team of another world", "a team of the tensor's world");
        return Err(team_failed.unwrap_or(refused));
    }
    let own = allocation.team.group.members();
    if let Some(pe) = team.members().iter().find(|pe| !own.contains(pe)) {
        let expected = format!("a subset of the allocation's own team {own:?}");
        let refused = Error::argument(OP, "team", format!("a team with PE {pe}"), expected);
        return Err(team_failed.unwrap_or(refused));
    }
    let known = allocation.bound.lock().cores.get(&inner.group.id()).cloned();
    match (known, team_failed) {
        (Some(core), None) => return Ok(core),
        (None, None) => {}
        // Nobody exchanges anything for a handle that is known.
        (Some(_), Some(failed)) => return Err(failed),
        (None, Some(failed)) => {
            inner
                .setup(OP)
                .tell(Step::Offer, &Offer::absent(subject(allocation), allocation.digest, &failed));
            return Err(failed);
        }
    }
    let config = &inner.world.config;
    let pad = PadLayout::new(team.world_size(), config.signal_pad_bytes, config.signals);
    // A failure before the exchange is offered instead of blocks, so that nobody waits for this member.
    let taken = inner.world.take(Use::Internal, pad.bytes).and_then(|b| zeroed(inner, b));
    let (pad_block, failed) = match taken {
        Ok(b) => (Some(b), None),
        Err(e) => (None, Some(("signal pad".to_owned(), e.to_string()))),
    };
    let mut voted = false;
    let began = Instant::now();
    let result = exchange(allocation, team, pad, pad_block.as_ref(), (failed, &mut voted));
    inner.world.counters.rendezvous(began.elapsed());
    match result {
        Ok((core, dedicated)) => {
            let mut bound = allocation.bound.lock();
            bound.pads.extend(pad_block);
            let me = inner.world.boot.pe();
            bound.peers.extend(team.members().iter().copied().filter(|pe| *pe != me));
            bound.dedicated.extend(dedicated);
            bound.dedicated.sort_unstable();
            bound.dedicated.dedup();
            bound.cores.insert(inner.group.id(), core.clone());
            if own.len() == team.world_size() {
                allocation.team.log.lock().agreed(allocation.digest);
            }
            let mut handles = inner.handles.lock();
            handles.retain(|h| h.strong_count() > 0);
            handles.push(Arc::downgrade(&core));
            Ok(core)
        }
        // This member does not know what the others said, but they know what it said: some may have the handle. Pad and data
        // are reused as if this one had it too.
        Err(e) if voted && !matches!(e, Error::Setup { .. }) => {
            let mut bound = allocation.bound.lock();
            bound.pads.extend(pad_block);
            let me = inner.world.boot.pe();
            bound.peers.extend(team.members().iter().copied().filter(|pe| *pe != me));
            Err(e)
        }
        Err(e) => {
            // Where the exchange failed after peers learnt the pad's place, they have no handle that could use it: a
            // handle exists only once all agreed.
            if let Some(b) = pad_block {
                inner.world.give(Use::Internal, b);
            }
            Err(e)
        }
    }
}

fn subject<B: Backend>(allocation: &Allocation<B>) -> (u8, u64, u64, u64) {
    (KIND, allocation.id.0, allocation.id.1, allocation.bytes as u64)
}

fn zeroed<B: Backend>(inner: &super::team::TeamInner<B>, block: Block<B>) -> Result<Block<B>> {
    // SAFETY: the block was just taken, so no operation uses it, and it lies inside its segment.
    match unsafe { inner.world.backend.zero(&block.segment, block.offset, block.bytes) } {
        Ok(()) => Ok(block),
        Err(e) => {
            inner.world.give(Use::Internal, block);
            Err(e)
        }
    }
}

type Dedicated = Vec<(crate::pe::Pe, u64)>;

fn exchange<B: Backend>(
    allocation: &Arc<Allocation<B>>,
    team: &Team<B>,
    pad: PadLayout,
    pad_block: Option<&Block<B>>,
    (failed, voted): (Option<(String, String)>, &mut bool),
) -> Result<(Arc<HandleCore<B>>, Dedicated)> {
    let inner = &team.inner;
    let setup = inner.setup(OP);
    let data_block = allocation.block();
    let offer = Offer {
        failed,
        absent: false,
        subject: subject(allocation),
        digest: allocation.digest,
        places: pad_block.map(|p| vec![data_block.place(), p.place()]).unwrap_or_default(),
        retired: inner.world.to_tell(team.members()),
    };
    let offers = setup.offers(&offer)?;
    if offers.iter().any(|o| o.digest != offer.digest || o.subject != offer.subject) {
        return Err(not_symmetric(allocation, &setup)?);
    }
    setup.first_failure(&offers)?;
    let Some(pad_block) = pad_block else {
        return Err(Error::Bootstrap {
            call: OP,
            why: "this member had no pad and did not say so".to_owned(),
        });
    };
    let me = team.rank();
    let dedicated: Dedicated = setup.dedicated(&offers);
    let bound = setup.regions(&offers, &[data_block, pad_block]).and_then(|mut regions| {
        let pads = regions.pop().unwrap_or_default();
        let data = regions.pop().unwrap_or_default();
        let parts = HandleParts {
            my_rank: me,
            members: team.members().to_vec(),
            data,
            data_bytes: allocation.bytes,
            pads,
            pad,
            status: inner.status.clone(),
        };
        HandleCore::bind(inner, parts, pad_block)
    });
    *voted = bound.is_ok();
    let core = setup.agree("import", bound)?;
    Ok((Arc::new(core), dedicated))
}

/// Exchanges the logs and finds the first step that differs; every member comes here, since all saw the same digests.
fn not_symmetric<B: Backend>(allocation: &Allocation<B>, setup: &Setup<'_, B>) -> Result<Error> {
    let mine = allocation.team.log.lock().excerpt(allocation.digest);
    let excerpts: Vec<Excerpt> = setup.gather(Step::Log, &mine)?;
    let members = setup.group.members();
    Ok(match first_difference(&excerpts, setup.group.my_rank()) {
        Some((step, rank, theirs, ours)) => {
            let (theirs, ours) = (theirs.map(Box::new), ours.map(Box::new));
            Error::NotSymmetric { step, pe: members[rank], theirs, ours }
        }
        None => Error::argument(
            OP,
            "tensor",
            format!("allocation {} of its team", allocation.digest.len - 1),
            "the same allocation on every member",
        ),
    })
}
