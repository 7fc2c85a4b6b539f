//! Free by retirement: memory that peers may still reach is reused only once all of them said they are through.
//!
//! Nothing here communicates. What was retired rides on the next collective set-up (rendezvous, team, context,
//! `reclaim`) of a team whose members have to know.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::memory::Use;
use super::pool::Block;
use crate::backend::Backend;
use crate::pe::Pe;

/// (team id, index of the allocation in the team): equal on all members.
pub(crate) type AllocationId = (u64, u64);

/// One retired allocation of this PE.
#[derive(Debug)]
pub(crate) struct Retired<B: Backend> {
    pub(crate) id: AllocationId,
    /// Point that all streams must pass before nothing here uses the allocation; `None` once passed.
    pub(crate) marker: Option<B::Marker>,
    /// The data block, then the pads. Taken out when they are freed.
    pub(crate) blocks: Vec<(Use, Block<B>)>,
    /// What operations of the handles were given, kept until the streams have passed. Not the handles themselves, which
    /// hold the world that this list belongs to: its last owner's drop would never come.
    pub(crate) raws: Vec<B::RawHandle>,
    /// The same of a context.
    pub(crate) context: Option<B::RawContext>,
    /// Peers' segments that held nothing but this allocation.
    pub(crate) dedicated: Vec<(Pe, u64)>,
    /// Peers that must hear that this PE is through.
    pub(crate) tell: BTreeSet<Pe>,
    /// Peers that may still write this PE's memory.
    pub(crate) awaiting: BTreeSet<Pe>,
}

/// All retired allocations, and reports about allocations that are still alive here.
#[derive(Debug)]
pub(crate) struct Retirement<B: Backend> {
    entries: Vec<Retired<B>>,
    alive: HashSet<AllocationId>,
    early: HashMap<AllocationId, BTreeSet<Pe>>,
}

impl<B: Backend> Retirement<B> {
    pub(crate) fn new() -> Self {
        Retirement { entries: Vec::new(), alive: HashSet::new(), early: HashMap::new() }
    }

    pub(crate) fn born(&mut self, id: AllocationId) {
        self.alive.insert(id);
    }

    pub(crate) fn retire(&mut self, mut entry: Retired<B>) {
        self.alive.remove(&entry.id);
        for pe in self.early.remove(&entry.id).unwrap_or_default() {
            entry.awaiting.remove(&pe);
        }
        self.entries.push(entry);
    }

    /// Allocations that this PE is through with and that some of `members` have not heard of.
    pub(crate) fn to_tell(&self, members: &[Pe]) -> Vec<AllocationId> {
        let news = |e: &&Retired<B>| e.marker.is_none() && members.iter().any(|pe| e.tell.contains(pe));
        self.entries.iter().filter(news).map(|e| e.id).collect()
    }

    /// `members` have heard of `ids`.
    pub(crate) fn told(&mut self, members: &[Pe], ids: &[AllocationId]) {
        for e in self.entries.iter_mut().filter(|e| ids.contains(&e.id)) {
            for pe in members {
                e.tell.remove(pe);
            }
        }
    }

    /// `pe` says that it is through with `ids`.
    pub(crate) fn reported(&mut self, pe: Pe, ids: &[AllocationId]) {
        for id in ids {
            if let Some(e) = self.entries.iter_mut().find(|e| e.id == *id) {
                e.awaiting.remove(&pe);
            } else if self.alive.contains(id) {
                self.early.entry(*id).or_default().insert(pe);
            }
        }
    }

    /// PEs of `ended` write and hear nothing any more.
    pub(crate) fn forget(&mut self, ended: &[Pe]) {
        for e in &mut self.entries {
            for pe in ended {
                e.tell.remove(pe);
                e.awaiting.remove(pe);
            }
        }
    }

    /// Looks at markers; returns blocks whose last user is through, and forgets finished entries.
    pub(crate) fn sweep(&mut self, passed: impl Fn(&B::Marker) -> bool) -> Swept<B> {
        let mut swept =
            Swept { blocks: Vec::new(), raws: Vec::new(), contexts: Vec::new(), imports: Vec::new() };
        for e in &mut self.entries {
            if e.marker.as_ref().is_some_and(&passed) {
                e.marker = None;
                swept.raws.append(&mut e.raws);
                swept.contexts.extend(e.context.take());
                swept.imports.append(&mut e.dedicated);
            }
            if e.marker.is_none() && e.awaiting.is_empty() {
                swept.blocks.append(&mut e.blocks);
            }
        }
        self.entries.retain(|e| e.marker.is_some() || !e.blocks.is_empty() || !e.tell.is_empty());
        swept
    }

    /// PEs that hold memory which this PE has retired.
    pub(crate) fn holders(&self) -> Vec<Pe> {
        let all: BTreeSet<Pe> = self.entries.iter().flat_map(|e| e.awaiting.iter().copied()).collect();
        all.into_iter().collect()
    }

    /// Entries not yet freed here.
    pub(crate) fn len(&self) -> usize {
        self.entries.iter().filter(|e| !e.blocks.is_empty()).count()
    }
}

/// What a sweep found.
pub(crate) struct Swept<B: Backend> {
    pub(crate) blocks: Vec<(Use, Block<B>)>,
    /// Dropped by the caller after it let go of the lock.
    pub(crate) raws: Vec<B::RawHandle>,
    pub(crate) contexts: Vec<B::RawContext>,
    pub(crate) imports: Vec<(Pe, u64)>,
}
