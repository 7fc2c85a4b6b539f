//! Symmetric allocations and the tensors that are views of them.

use std::collections::{BTreeSet, HashMap};
use std::panic::Location;
use std::sync::Arc;

use super::handle::{Handle, HandleCore};
use super::lock::Lock;
use super::log::Digest;
use super::memory::Use;
use super::pool::Block;
use super::retire::{AllocationId, Retired};
use super::span::Span;
use super::team::{Team, TeamInner};
use crate::backend::{Addr, Backend};
use crate::dtype::DType;
use crate::error::{Error, LogEntry, Result};
use crate::pe::Pe;

/// One symmetric allocation of this PE. Retired when the last tensor, handle and span on it is dropped.
pub(crate) struct Allocation<B: Backend> {
    pub(crate) team: Arc<TeamInner<B>>,
    pub(crate) id: AllocationId,
    pub(crate) digest: Digest,
    pub(crate) bytes: usize,
    pub(crate) addr: Addr,
    block: Option<Block<B>>,
    /// Handles by team, with the pad of each.
    pub(crate) bound: Lock<Bound<B>>,
}

pub(crate) struct Bound<B: Backend> {
    pub(crate) cores: HashMap<u64, Arc<HandleCore<B>>>,
    pub(crate) pads: Vec<Block<B>>,
    /// Members of all teams that held a handle, this PE excepted.
    pub(crate) peers: BTreeSet<Pe>,
    /// Peers' segments that hold nothing else.
    pub(crate) dedicated: Vec<(Pe, u64)>,
}

impl<B: Backend> std::fmt::Debug for Allocation<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocation").field("id", &self.id).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<B: Backend> Allocation<B> {
    pub(crate) fn block(&self) -> &Block<B> {
        self.block.as_ref().expect("a live allocation should have its block")
    }
}

impl<B: Backend> Drop for Allocation<B> {
    fn drop(&mut self) {
        let world = &self.team.world;
        let mut bound = self.bound.lock();
        let mut blocks: Vec<_> = self.block.take().into_iter().map(|b| (Use::Data, b)).collect();
        blocks.extend(bound.pads.drain(..).map(|b| (Use::Internal, b)));
        // Every handle held this allocation, so these are the last owners; only `recover` may look at one just now, and it
        // does so while the streams are idle.
        let raws = bound.cores.drain().filter_map(|(_, c)| Arc::into_inner(c)).map(|c| c.raw).collect();
        let Ok(marker) = world.backend.mark() else {
            // Without a marker nothing says when streams are through: kept until the world ends.
            std::mem::forget((blocks, raws));
            return;
        };
        let peers = std::mem::take(&mut bound.peers);
        world.retirement.lock().retire(Retired {
            id: self.id,
            marker: Some(marker),
            blocks,
            raws,
            context: None,
            dedicated: std::mem::take(&mut bound.dedicated),
            tell: peers.clone(),
            awaiting: peers,
        });
    }
}

/// A contiguous symmetric tensor, or a view of one. Clones are the same tensor.
#[doc(alias = "nvshmem_free")]
#[derive(Debug)]
pub struct Tensor<B: Backend> {
    allocation: Arc<Allocation<B>>,
    /// First byte inside the allocation.
    offset: usize,
    sizes: Vec<usize>,
    dtype: DType,
}

impl<B: Backend> Clone for Tensor<B> {
    fn clone(&self) -> Self {
        Tensor {
            allocation: self.allocation.clone(),
            offset: self.offset,
            sizes: self.sizes.clone(),
            dtype: self.dtype,
        }
    }
}

pub(crate) fn elements(op: &'static str, sizes: &[usize], dtype: DType) -> Result<usize> {
    let product = sizes.iter().try_fold(1usize, |n, s| n.checked_mul(*s));
    let fits = product.filter(|n| n.checked_mul(dtype.size()).is_some_and(|b| b <= isize::MAX as usize));
    let expected = || format!("a product of {dtype} elements that fits the address space");
    fits.ok_or_else(|| Error::argument(op, "sizes", format!("{sizes:?}"), expected()))
}

impl<B: Backend> Tensor<B> {
    #[track_caller]
    pub(crate) fn empty(team: &Team<B>, label: &str, sizes: &[usize], dtype: DType) -> Result<Self> {
        let at = Location::caller();
        let inner = &team.inner;
        inner.world.check_open("empty")?;
        let bytes = elements("empty", sizes, dtype)? * dtype.size();
        let block = inner.world.take(Use::Data, bytes)?;
        let digest = inner.log.lock().push(LogEntry {
            label: label.to_owned(),
            bytes: bytes as u64,
            dtype: dtype.name().to_owned(),
            at: format!("{}:{}", at.file(), at.line()),
        });
        let id = (inner.group.id(), digest.len);
        inner.world.retirement.lock().born(id);
        let allocation = Allocation {
            team: inner.clone(),
            id,
            digest,
            bytes,
            addr: inner.world.backend.base(&block.segment).offset(block.offset),
            block: Some(block),
            bound: Lock::new(Bound {
                cores: HashMap::new(),
                pads: Vec::new(),
                peers: BTreeSet::new(),
                dedicated: Vec::new(),
            }),
        };
        Ok(Tensor { allocation: Arc::new(allocation), offset: 0, sizes: sizes.to_vec(), dtype })
    }

    /// Sizes of the dimensions, row-major.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Byte offset of this view in its allocation.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// This PE's elements.
    pub fn span(&self) -> Span<B> {
        let addr = self.allocation.addr.offset(self.offset);
        Span::of_allocation(&self.allocation, addr, self.dtype, self.len())
    }

    /// A view of `sizes` elements from element `start` on; a handle of it has the same pads and a larger offset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the view is not inside.
    pub fn view(&self, start: usize, sizes: &[usize]) -> Result<Tensor<B>> {
        let n = elements("view", sizes, self.dtype)?;
        if start.checked_add(n).is_none_or(|end| end > self.len()) {
            let got = format!("{n} elements from {start}");
            return Err(Error::argument(
                "view",
                "sizes",
                got,
                format!("a range inside {} elements", self.len()),
            ));
        }
        let offset = self.offset + start * self.dtype.size();
        Ok(Tensor { allocation: self.allocation.clone(), offset, sizes: sizes.to_vec(), dtype: self.dtype })
    }

    /// Turns the allocation into a handle over `team`; cached per (allocation, team), views share it.
    ///
    /// # Collective
    /// Over `team`, a subset of the allocation's own team, unless the handle is cached (then on every member). Blocks the
    /// host; not part of any stream. After it every member may write every other's memory and pads.
    ///
    /// # Errors
    /// [`Error::NotSymmetric`] on every member if the allocation logs differ; [`Error::Setup`] on every member with the first
    /// failing PE and stage; [`Error::Timeout`] naming members that did not come; [`Error::PeerFailed`]. A failure that is set on the
    /// team, and [`Error::Setup`] on members where it is not.
    #[doc(alias = "ncclCommWindowRegister")]
    pub fn rendezvous(&self, team: &Team<B>) -> Result<Handle<B>> {
        let core = super::rendezvous::rendezvous(&self.allocation, team)?;
        Ok(Handle::new(self.allocation.clone(), core, self.offset, self.len(), self.dtype))
    }
}
