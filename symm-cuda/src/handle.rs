//! What operations are given: handles and contexts with their addresses, as numbers here and as tables on the GPU.

use std::sync::{Arc, Mutex, Weak};

use symm_core::backend::{ContextParts, DevicePtrs, HandleParts, Region};
use symm_core::layout::{ContextLayout, PadLayout};
use symm_core::{Addr, Error, Pe, Result};
use symm_kernels::params::{ContextLocal, MAX_RANKS};

use crate::arena::{Block, Kind};
use crate::backend::Cuda;
use crate::result::BACKEND;
use crate::shared::Shared;
use crate::status::Status;
use crate::stream::{Stream, StreamInner};

/// A handle: every rank's data area and pad.
#[derive(Debug)]
pub struct RawHandle {
    pub(crate) rank: usize,
    pub(crate) members: Vec<Pe>,
    /// Address of each rank's data area.
    pub(crate) buffers: Vec<u64>,
    /// Address of each rank's pad.
    pub(crate) pads: Vec<u64>,
    pub(crate) data_bytes: usize,
    pub(crate) pad: PadLayout,
    pub(crate) status: Status,
    /// `u64[3][W]`: data areas, pads, PE numbers.
    table: Block,
    /// Keeps the memory mapped.
    _regions: Vec<Region<Cuda>>,
}

/// A context: every rank's copy of it, and this PE's scratch.
#[derive(Debug)]
pub struct RawContext {
    pub(crate) rank: usize,
    pub(crate) members: Vec<Pe>,
    /// Address of each rank's copy.
    pub(crate) regions: Vec<u64>,
    /// Address of this PE's copy.
    pub(crate) mine: u64,
    pub(crate) layout: ContextLayout,
    pub(crate) status: Status,
    /// `u64[2][W]`: copies of the context, PE numbers.
    table: Block,
    /// `ContextLocal`, then `i64[max_splits]`.
    local: Block,
    /// Stream of the last eager operation: one on another stream waits for it.
    last: Mutex<Weak<StreamInner>>,
    /// Keeps the memory mapped.
    _regions: Vec<Region<Cuda>>,
}

fn addresses(regions: &[Region<Cuda>]) -> Vec<u64> {
    regions.iter().map(|r| r.mapping.0.base + r.offset as u64).collect()
}

fn numbers(members: &[Pe]) -> impl Iterator<Item = u64> {
    members.iter().map(|pe| u64::from(pe.0))
}

impl RawHandle {
    pub(crate) fn bind(shared: &Arc<Shared>, parts: HandleParts<Cuda>) -> Result<Self> {
        let (buffers, pads) = (addresses(&parts.data), addresses(&parts.pads));
        let words: Vec<u64> = buffers.iter().chain(&pads).copied().chain(numbers(&parts.members)).collect();
        let table = Block::new(shared, Kind::Device, size_of_val(words.as_slice()))?;
        shared.upload(table.gpu(), &words)?;
        Ok(RawHandle {
            rank: parts.my_rank,
            members: parts.members,
            buffers,
            pads,
            data_bytes: parts.data_bytes,
            pad: parts.pad,
            status: parts.status,
            table,
            _regions: parts.data.into_iter().chain(parts.pads).collect(),
        })
    }

    /// Addresses of the tables on the GPU.
    pub(crate) fn device_ptrs(&self) -> DevicePtrs {
        let row = 8 * self.members.len();
        let table = Addr(self.table.gpu());
        let status = self.status.params();
        DevicePtrs {
            buffers: table,
            pads: table.offset(row),
            members: Addr(self.members_ptr()),
            status: Addr(status.device),
            status_host: Addr(status.host),
        }
    }

    /// Address of the members' PE numbers on the GPU.
    pub(crate) fn members_ptr(&self) -> u64 {
        self.table.gpu() + 16 * self.members.len() as u64
    }
}

impl RawContext {
    pub(crate) fn bind(shared: &Arc<Shared>, parts: ContextParts<Cuda>) -> Result<Self> {
        let w = parts.members.len();
        if w > MAX_RANKS {
            let why = format!("a team of {w} members; kernels keep what they know of {MAX_RANKS}");
            return Err(Error::Unsupported { backend: BACKEND, capability: "context", why });
        }
        let regions = addresses(&parts.regions);
        let words: Vec<u64> = regions.iter().copied().chain(numbers(&parts.members)).collect();
        let table = Block::new(shared, Kind::Device, size_of_val(words.as_slice()))?;
        shared.upload(table.gpu(), &words)?;
        let local =
            Block::new(shared, Kind::Device, size_of::<ContextLocal>() + 8 * parts.layout.max_splits)?;
        Ok(RawContext {
            rank: parts.my_rank,
            members: parts.members,
            mine: regions[parts.my_rank],
            regions,
            layout: parts.layout,
            status: parts.status,
            table,
            local,
            last: Mutex::new(Weak::new()),
            _regions: parts.regions,
        })
    }

    pub(crate) fn regions_ptr(&self) -> u64 {
        self.table.gpu()
    }

    pub(crate) fn members_ptr(&self) -> u64 {
        self.table.gpu() + 8 * self.members.len() as u64
    }

    pub(crate) fn local_ptr(&self) -> u64 {
        self.local.gpu()
    }

    /// Orders an eager operation on `stream` after the context's last one if that was on another stream.
    pub(crate) fn order(&self, stream: &Stream) -> Result<()> {
        let mut last = crate::result::lock(&self.last);
        if let Some(before) = last.upgrade().map(Stream)
            && !Arc::ptr_eq(&before.0, &stream.0)
            && !before.is_capturing()
        {
            stream.follow(&before)?;
        }
        *last = Arc::downgrade(&stream.0);
        Ok(())
    }

    /// Clears the flags and makes `epoch` the number of operations begun and ended.
    pub(crate) fn reset(&self, shared: &Shared, epoch: u64) -> Result<()> {
        let l = &self.layout;
        // Ticket, completed, then everything up to the slots: arrivals, done flags, aborted pairs.
        shared.upload(self.mine + ContextLayout::TICKET as u64, &[epoch])?;
        shared.upload(self.mine + ContextLayout::COMPLETED as u64, &[epoch])?;
        shared.zero(self.mine + l.arrival as u64, l.slots - l.arrival)?;
        // Elements that an operation that failed has not taken: kernels know new ones from zeros alone.
        shared.zero(self.mine + l.room as u64, l.bytes - l.room)?;
        shared.zero(self.local.gpu(), size_of::<ContextLocal>())
    }
}
