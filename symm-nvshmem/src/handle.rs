//! What operations are given: memory, handles and contexts, with the addresses that each kind of peer takes.

use std::sync::Arc;

use symm_core::backend::{ContextParts, HandleParts, Region};
use symm_core::layout::PadLayout;
use symm_core::{Backend, Pe, Result};
use symm_cuda::embed::Table;
use symm_cuda::{Cuda, Status};
use symm_kernels::params::{MAX_RANKS, near};

use crate::backend::Nvshmem;
use crate::error::unsupported;
use crate::heap::Range;

/// Part of this PE's heap. Given back with the last clone.
#[derive(Clone, Debug)]
pub struct Segment(pub(crate) Arc<Range>);

/// A segment, a peer's or one's own, as this PE reaches it.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Offset of the segment in its *owner's* heap.
    pub(crate) offset: usize,
    /// Where its first byte is reached by load and store, if it is.
    pub(crate) address: Option<u64>,
    /// One's own segment stays while operations use the mapping.
    pub(crate) _own: Option<Arc<Range>>,
}

impl Mapping {
    fn address_at(region: &Region<Nvshmem>) -> Option<u64> {
        Some(region.mapping.address? + region.offset as u64)
    }
}

/// Members that the network reaches, as a bit set.
pub(crate) type Bits = [u64; 2];

/// A handle: every rank's data area and pad.
#[derive(Debug)]
pub struct RawHandle {
    /// Addresses for load and store; 0 where there is none.
    pub(crate) direct: symm_cuda::RawHandle,
    /// Where some members are not direct, or the GPUs' atomics are too weak for signals.
    pub(crate) net: Option<NetHandle>,
}

/// The rest of a handle with members that are not direct.
#[derive(Debug)]
pub(crate) struct NetHandle {
    pub(crate) bits: Bits,
    pub(crate) rank: usize,
    pub(crate) members: Vec<Pe>,
    pub(crate) pad: PadLayout,
    pub(crate) status: Status,
    /// Address of each rank's data area: direct, or as NVSHMEM names it.
    pub(crate) buffers: Vec<u64>,
    /// Address of each rank's pad, as NVSHMEM names it; this PE's own is its address here.
    pub(crate) pads: Vec<u64>,
    /// `buffers`, for kernels.
    pub(crate) buffers_table: Table,
    /// `pads`, for kernels.
    pub(crate) pads_table: Table,
}

/// A context: every rank's copy of it, and this PE's scratch.
#[derive(Debug)]
pub struct RawContext {
    /// Addresses for load and store. For a member that is not direct: this PE's own copy, so that what a kernel stores for it
    /// lands where this PE has the same words anyway.
    pub(crate) direct: symm_cuda::RawContext,
    /// Where some members are not direct.
    pub(crate) net: Option<NetContext>,
}

/// The rest of a context with members that are not direct.
#[derive(Debug)]
pub(crate) struct NetContext {
    pub(crate) bits: Bits,
    pub(crate) ranks: usize,
    /// Each rank's copy of the context as NVSHMEM names it, for kernels.
    pub(crate) remote: Table,
}

impl NetHandle {
    /// Whether the network reaches `rank`.
    pub(crate) fn reaches(&self, rank: usize) -> bool {
        reaches(self.bits, rank)
    }

    /// The first addresses of [`buffers`](Self::buffers), for a kernel's parameters.
    pub(crate) fn near_buffers(&self) -> [u64; symm_kernels::params::NEAR_RANKS] {
        near(&self.buffers)
    }
}

/// Whether the network reaches `rank`.
pub(crate) fn reaches(bits: Bits, rank: usize) -> bool {
    bits[rank / 64] >> (rank % 64) & 1 == 1
}

/// The ranks whose region has no address here.
///
/// # Errors
/// `Unsupported` for a rank that the bit set does not have.
fn network(regions: &[Region<Nvshmem>]) -> Result<Option<Bits>> {
    let mut bits = [0; 2];
    let without = || regions.iter().enumerate().filter(|(_, r)| r.mapping.address.is_none());
    for (rank, _) in without() {
        if rank >= MAX_RANKS {
            let why = format!(
                "a team of {} members, of which some are not direct; {MAX_RANKS} at most",
                regions.len()
            );
            return Err(unsupported("NETWORK", why));
        }
        bits[rank / 64] |= 1 << (rank % 64);
    }
    Ok((without().next().is_some()).then_some(bits))
}

/// Regions for the kernels of `symm-cuda`; a member without an address gets `instead`.
fn direct(backend: &Nvshmem, regions: &[Region<Nvshmem>], instead: u64) -> Vec<Region<Cuda>> {
    let region = |r: &Region<Nvshmem>| {
        let address = Mapping::address_at(r).unwrap_or(instead);
        let mapping = backend.cuda.mapping(address, Arc::new(r.mapping.clone()));
        Region { pe: r.pe, mapping, offset: 0 }
    };
    regions.iter().map(region).collect()
}

/// Each region as NVSHMEM names it: my heap's base plus the owner's offset.
fn named(backend: &Nvshmem, regions: &[Region<Nvshmem>]) -> Vec<u64> {
    regions.iter().map(|r| backend.heap.base + (r.mapping.offset + r.offset) as u64).collect()
}

impl RawHandle {
    pub(crate) fn bind(backend: &Nvshmem, parts: HandleParts<Nvshmem>) -> Result<Self> {
        let instead = backend.weak_atomics.then_some([0; 2]);
        let net = match network(&parts.data)?.or(instead) {
            None => None,
            Some(bits) => {
                let names = named(backend, &parts.data).into_iter();
                let buffers: Vec<u64> = parts
                    .data
                    .iter()
                    .zip(names)
                    .map(|(r, name)| Mapping::address_at(r).unwrap_or(name))
                    .collect();
                let pads = named(backend, &parts.pads);
                Some(NetHandle {
                    bits,
                    rank: parts.my_rank,
                    members: parts.members.clone(),
                    pad: parts.pad,
                    status: parts.status.clone(),
                    buffers_table: backend.cuda.table(&buffers)?,
                    pads_table: backend.cuda.table(&pads)?,
                    buffers,
                    pads,
                })
            }
        };
        let direct = HandleParts {
            my_rank: parts.my_rank,
            members: parts.members,
            data: direct(backend, &parts.data, 0),
            data_bytes: parts.data_bytes,
            pads: direct(backend, &parts.pads, 0),
            pad: parts.pad,
            status: parts.status,
        };
        Ok(RawHandle { direct: backend.cuda.bind_handle(direct)?, net })
    }
}

impl RawContext {
    pub(crate) fn bind(backend: &Nvshmem, parts: ContextParts<Nvshmem>) -> Result<Self> {
        let net = match network(&parts.regions)? {
            None => None,
            Some(bits) => Some(NetContext {
                bits,
                ranks: parts.members.len(),
                remote: backend.cuda.table(&named(backend, &parts.regions))?,
            }),
        };
        let mine = Mapping::address_at(&parts.regions[parts.my_rank]).unwrap_or(0);
        let direct = ContextParts {
            my_rank: parts.my_rank,
            members: parts.members,
            regions: direct(backend, &parts.regions, mine),
            layout: parts.layout,
            status: parts.status,
        };
        Ok(RawContext { direct: backend.cuda.bind_context(direct)?, net })
    }
}
