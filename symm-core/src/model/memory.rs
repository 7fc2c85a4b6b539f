//! Memory of this PE and its imports of other PEs' segments.

use std::collections::{BTreeSet, HashMap};

use super::pool::{Block, Pool};
use crate::backend::{Backend, Export};
use crate::error::Result;
use crate::pe::Pe;

/// Which pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Users' symmetric allocations.
    Data,
    /// Pads and contexts.
    Internal,
    /// Memory that is never exported.
    Local,
}

/// Size of the segments that hold pads and contexts, in bytes.
pub(crate) const INTERNAL_SEGMENT: usize = 1 << 20;

/// Pools of this PE.
#[derive(Debug)]
pub(crate) struct Memory<B: Backend> {
    data: Pool<B>,
    internal: Pool<B>,
    local: Pool<B>,
    last_segment: u64,
}

impl<B: Backend> Memory<B> {
    pub(crate) fn new(pool_bytes: usize) -> Self {
        Memory {
            data: Pool::new(pool_bytes),
            internal: Pool::new(INTERNAL_SEGMENT),
            local: Pool::new(pool_bytes),
            last_segment: 0,
        }
    }

    fn pool(&mut self, r#use: Use) -> &mut Pool<B> {
        match r#use {
            Use::Data => &mut self.data,
            Use::Internal => &mut self.internal,
            Use::Local => &mut self.local,
        }
    }

    pub(crate) fn take(&mut self, backend: &B, r#use: Use, bytes: usize) -> Result<Block<B>> {
        let mut last = self.last_segment;
        let block = self.pool(r#use).take(backend, bytes, &mut last);
        self.last_segment = last;
        block
    }

    pub(crate) fn give(&mut self, r#use: Use, block: Block<B>) {
        self.pool(r#use).give(block);
    }
}

/// Segments sent to and received from other PEs. Each segment is sent to a PE once, ever.
#[derive(Debug)]
pub(crate) struct Imports<B: Backend> {
    mappings: HashMap<(Pe, u64), B::Mapping>,
    /// Received but not mapped: an import failed and may be tried again.
    pending: HashMap<(Pe, u64), Export>,
    sent: BTreeSet<(Pe, u64)>,
}

impl<B: Backend> Imports<B> {
    pub(crate) fn new() -> Self {
        Imports { mappings: HashMap::new(), pending: HashMap::new(), sent: BTreeSet::new() }
    }

    /// Whether the segment has still to be sent to `pe`; marks it as sent.
    pub(crate) fn mark_sent(&mut self, pe: Pe, segment: u64) -> bool {
        self.sent.insert((pe, segment))
    }

    /// Takes back a mark whose message could not be sent.
    pub(crate) fn unmark_sent(&mut self, pe: Pe, segment: u64) {
        self.sent.remove(&(pe, segment));
    }

    pub(crate) fn get(&self, pe: Pe, segment: u64) -> Option<B::Mapping> {
        self.mappings.get(&(pe, segment)).cloned()
    }

    pub(crate) fn is_pending(&self, pe: Pe, segment: u64) -> bool {
        self.pending.contains_key(&(pe, segment))
    }

    pub(crate) fn received(&mut self, pe: Pe, segment: u64, export: Export) {
        self.pending.insert((pe, segment), export);
    }

    /// Maps a received segment, or returns its mapping.
    pub(crate) fn map(&mut self, backend: &B, pe: Pe, segment: u64) -> Result<Option<B::Mapping>> {
        if let Some(m) = self.get(pe, segment) {
            return Ok(Some(m));
        }
        let Some(export) = self.pending.get(&(pe, segment)) else { return Ok(None) };
        let mapping = backend.import(pe, export)?;
        self.pending.remove(&(pe, segment));
        self.mappings.insert((pe, segment), mapping.clone());
        Ok(Some(mapping))
    }

    /// Forgets a peer's dedicated segment, whose only allocation was retired here.
    pub(crate) fn forget(&mut self, pe: Pe, segment: u64) {
        self.mappings.remove(&(pe, segment));
        self.pending.remove(&(pe, segment));
    }

    /// Forgets all segments of a peer that has ended; handles that were made of them hold their own mappings.
    pub(crate) fn forget_peer(&mut self, pe: Pe) {
        self.mappings.retain(|(owner, _), _| *owner != pe);
        self.pending.retain(|(owner, _), _| *owner != pe);
        self.sent.retain(|(to, _)| *to != pe);
    }

    /// Forgets that an own dedicated segment, freed now, was sent.
    pub(crate) fn forget_sent(&mut self, segment: u64) {
        self.sent.retain(|(_, s)| *s != segment);
    }
}
