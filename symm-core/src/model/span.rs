//! Typed spans of memory: what operations are given instead of slices.

use std::sync::Arc;

use super::memory::Use;
use super::pool::Block;
use super::retire::Retired;
use super::tensor::Allocation;
use super::world::WorldInner;
use crate::backend::{Addr, Backend};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// `len` elements of `dtype` at an address that this PE's streams can use.
///
/// Never a slice: peers may write these bytes at any time. A span of a tensor or of local memory keeps it alive.
#[derive(Debug)]
pub struct Span<B: Backend> {
    pub(crate) addr: Addr,
    pub(crate) dtype: DType,
    pub(crate) len: usize,
    keep: Keep<B>,
}

#[derive(Debug)]
enum Keep<B: Backend> {
    Caller,
    Allocation(#[allow(dead_code, reason = "held, never read")] Arc<Allocation<B>>),
    Local(#[allow(dead_code, reason = "held, never read")] Arc<LocalMemory<B>>),
}

impl<B: Backend> Clone for Span<B> {
    fn clone(&self) -> Self {
        let keep = match &self.keep {
            Keep::Caller => Keep::Caller,
            Keep::Allocation(a) => Keep::Allocation(a.clone()),
            Keep::Local(l) => Keep::Local(l.clone()),
        };
        Span { addr: self.addr, dtype: self.dtype, len: self.len, keep }
    }
}

impl<B: Backend> Span<B> {
    /// A span of the caller's own memory: host memory for the host backend, device memory for a GPU's.
    ///
    /// # Safety
    /// `addr` names `len` elements of `dtype`, readable (and writable, if an operation writes the span), until every
    /// stream that was given the span has passed the operation.
    pub unsafe fn from_raw(addr: Addr, dtype: DType, len: usize) -> Self {
        Span { addr, dtype, len, keep: Keep::Caller }
    }

    pub(crate) fn of_allocation(
        allocation: &Arc<Allocation<B>>,
        addr: Addr,
        dtype: DType,
        len: usize,
    ) -> Self {
        Span { addr, dtype, len, keep: Keep::Allocation(allocation.clone()) }
    }

    /// Address of the first element.
    pub fn addr(&self) -> Addr {
        self.addr
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.len * self.dtype.size()
    }

    /// `len` elements from element `start` on.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if they are not inside.
    pub fn slice(&self, start: usize, len: usize) -> Result<Span<B>> {
        let inside = start.checked_add(len).is_some_and(|end| end <= self.len);
        if !inside {
            let got = format!("{len} elements from {start}");
            return Err(Error::argument(
                "slice",
                "range",
                got,
                format!("a range inside {} elements", self.len),
            ));
        }
        Ok(Span { addr: self.addr.offset(start * self.dtype.size()), len, ..self.clone() })
    }
}

/// Memory of this PE that peers never reach; see [`World::local`](super::World::local). Clones are the same memory.
#[derive(Debug)]
pub struct Local<B: Backend> {
    memory: Arc<LocalMemory<B>>,
    dtype: DType,
    len: usize,
}

impl<B: Backend> Clone for Local<B> {
    fn clone(&self) -> Self {
        Local { memory: self.memory.clone(), dtype: self.dtype, len: self.len }
    }
}

#[derive(Debug)]
pub(crate) struct LocalMemory<B: Backend> {
    world: Arc<WorldInner<B>>,
    block: Option<Block<B>>,
    addr: Addr,
}

impl<B: Backend> Local<B> {
    pub(crate) fn new(world: &Arc<WorldInner<B>>, dtype: DType, len: usize) -> Result<Self> {
        let bytes = len.checked_mul(dtype.size()).ok_or_else(|| {
            Error::argument("local", "len", len, format!("a number of {dtype} that fits the address space"))
        })?;
        let block = world.take(Use::Local, bytes)?;
        let addr = world.backend.base(&block.segment).offset(block.offset);
        let memory = LocalMemory { world: world.clone(), block: Some(block), addr };
        Ok(Local { memory: Arc::new(memory), dtype, len })
    }

    /// All of it.
    pub fn span(&self) -> Span<B> {
        Span {
            addr: self.memory.addr,
            dtype: self.dtype,
            len: self.len,
            keep: Keep::Local(self.memory.clone()),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
}

impl<B: Backend> Drop for LocalMemory<B> {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        // Streams may still use it: it is reused once they have passed this point. Without a marker (the backend
        // failed to make one) it is kept until the world ends, which is safe.
        if let Ok(marker) = self.world.backend.mark() {
            self.world.retirement.lock().retire(Retired {
                id: (0, 0),
                marker: Some(marker),
                blocks: vec![(Use::Local, block)],
                raws: Vec::new(),
                context: None,
                dedicated: Vec::new(),
                tell: Default::default(),
                awaiting: Default::default(),
            });
        } else {
            std::mem::forget(block);
        }
    }
}
