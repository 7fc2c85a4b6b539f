//! Contexts: the memory and the epochs of collectives. One operation of a context is in flight at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::log::Digest;
use super::memory::Use;
use super::pool::Block;
use super::retire::{AllocationId, Retired};
use super::setup::{Offer, Step};
use super::team::TeamInner;
use super::world::WorldInner;
use crate::backend::{Backend, ContextParts};
use crate::error::{Error, Result};
use crate::layout::ContextLayout;
use crate::pe::Pe;

/// First part of an offer's subject.
const KIND: u8 = 2;

pub(crate) struct ContextInner<B: Backend> {
    pub(crate) team: Arc<TeamInner<B>>,
    /// Taken out when the context is retired.
    raw: Option<B::RawContext>,
    pub(crate) layout: ContextLayout,
    /// Counted down from the largest number, so that it is never an allocation's.
    id: AllocationId,
    block: Option<Block<B>>,
    /// Peers' segments that hold nothing else.
    dedicated: Vec<(Pe, u64)>,
}

impl<B: Backend> std::fmt::Debug for ContextInner<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("raw", &self.raw).finish_non_exhaustive()
    }
}

impl<B: Backend> ContextInner<B> {
    pub(crate) fn raw(&self) -> &B::RawContext {
        self.raw.as_ref().expect("a live context should have the backend's form of it")
    }
}

impl<B: Backend> Drop for ContextInner<B> {
    fn drop(&mut self) {
        // A peer that gave up an operation may still write its `aborted` word here, and a late one its arrival: the block
        // is reused once every member has dropped the context, as an allocation is.
        let Some(block) = self.block.take() else { return };
        // Queued operations were given it: it goes once the streams have passed them.
        let context = self.raw.take();
        let world = &self.team.world;
        let Ok(marker) = world.backend.mark() else {
            std::mem::forget((block, context));
            return;
        };
        let me = world.boot.pe();
        let peers: BTreeSet<Pe> = self.team.group.members().iter().copied().filter(|pe| *pe != me).collect();
        world.retirement.lock().retire(Retired {
            id: self.id,
            marker: Some(marker),
            blocks: vec![(Use::Internal, block)],
            raws: Vec::new(),
            context,
            dedicated: std::mem::take(&mut self.dedicated),
            tell: peers.clone(),
            awaiting: peers,
        });
    }
}

/// A block that goes back to the pool unless it is kept.
struct Taken<'a, B: Backend> {
    world: &'a WorldInner<B>,
    block: Option<Block<B>>,
}

impl<B: Backend> Taken<'_, B> {
    fn block(&self) -> Option<&Block<B>> {
        self.block.as_ref()
    }

    fn keep(&mut self) -> Option<Block<B>> {
        self.block.take()
    }
}

impl<B: Backend> Drop for Taken<'_, B> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.world.give(Use::Internal, block);
        }
    }
}

/// Counters, flags, slots and room for the collectives of a team. Owned; clones are the same context.
#[derive(Debug)]
pub struct Context<B: Backend> {
    pub(crate) inner: Arc<ContextInner<B>>,
}

impl<B: Backend> Clone for Context<B> {
    fn clone(&self) -> Self {
        Context { inner: self.inner.clone() }
    }
}

impl<B: Backend> Context<B> {
    /// `op` is what the caller was asked for, as errors name it.
    pub(crate) fn create(team: &Arc<TeamInner<B>>, op: &'static str, max_splits: usize) -> Result<Self> {
        let world = &team.world;
        let room = world.backend.context_room(team.group.members());
        let layout = ContextLayout::new(team.group.len(), max_splits).with_room(room);
        world.check_open(op)?;
        let subject = (KIND, team.group.id(), max_splits as u64, layout.bytes as u64);
        let (setup, digest) = (team.setup(op), Digest { len: 0, hash: 0 });
        if let Err(failed) = team.failure() {
            setup.tell(Step::Offer, &Offer::absent(subject, digest, &failed));
            return Err(failed);
        }
        let taken = world.take(Use::Internal, layout.bytes).and_then(|block| {
            let taken = Taken { world, block: Some(block) };
            // SAFETY: the block was just taken, so no operation uses it, and it lies inside its segment.
            taken.block().map_or(Ok(()), |b| unsafe { world.backend.zero(&b.segment, b.offset, b.bytes) })?;
            Ok(taken)
        });
        let (taken, failed) = match taken {
            Ok(t) => (Some(t), None),
            Err(e) => (None, Some(("memory".to_owned(), e.to_string()))),
        };
        let offer = Offer {
            failed,
            absent: false,
            subject,
            digest,
            places: taken.as_ref().and_then(Taken::block).map(|b| vec![b.place()]).unwrap_or_default(),
            retired: world.to_tell(team.group.members()),
        };
        let offers = setup.offers(&offer)?;
        if let Some(rank) = offers.iter().position(|o| o.subject != offer.subject) {
            let pe: Pe = team.group.members()[rank];
            let expected = format!("what PE {pe} passed ({})", offers[rank].subject.2);
            return Err(Error::argument(op, "max_splits", max_splits, expected));
        }
        setup.first_failure(&offers)?;
        let missing =
            || Error::Bootstrap { call: op, why: "this member had no memory and did not say so".to_owned() };
        let mut taken = taken.ok_or_else(missing)?;
        let block = taken.block().ok_or_else(missing)?;
        let bound = setup.regions(&offers, &[block]).and_then(|mut regions| {
            world.backend.bind_context(ContextParts {
                my_rank: team.group.my_rank(),
                members: team.group.members().to_vec(),
                regions: regions.pop().unwrap_or_default(),
                layout,
                status: team.status.clone(),
            })
        });
        let raw = match setup.agree("import", bound) {
            Ok(raw) => raw,
            Err(e) => {
                // This member does not know what the others said, but they know what it said: some may have the context,
                // and write here. Only a failure that all know of gives the block back.
                if !matches!(e, Error::Setup { .. }) {
                    std::mem::forget(taken.keep());
                }
                return Err(e);
            }
        };
        let mut contexts = team.contexts.lock();
        let id = (team.group.id(), u64::MAX - contexts.len() as u64);
        world.retirement.lock().born(id);
        let inner = Arc::new(ContextInner {
            team: team.clone(),
            raw: Some(raw),
            layout,
            id,
            block: taken.keep(),
            dedicated: setup.dedicated(&offers),
        });
        contexts.push(Arc::downgrade(&inner));
        drop(contexts);
        Ok(Context { inner })
    }

    /// Splits that each PE may publish in an operation of this context.
    pub fn max_splits(&self) -> usize {
        self.inner.layout.max_splits
    }
}
