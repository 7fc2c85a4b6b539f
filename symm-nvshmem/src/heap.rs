//! The symmetric heap: one allocation of NVSHMEM's, equally long on every PE, carved up by each PE for itself.
//!
//! Carving never communicates, so ranges of one PE lie at other offsets than those of its peers: NVSHMEM, which names remote
//! memory by a local address, is given *my* base plus the *peer's* offset.

use std::fmt;
use std::sync::{Arc, Mutex};

use symm_core::{Addr, Backend, Error, Result};
use symm_cuda::{Cuda, Marker};

use crate::error::lock;
use crate::ranges::Ranges;

/// The heap of this PE.
#[derive(Debug)]
pub(crate) struct Heap {
    cuda: Arc<Cuda>,
    /// First byte here.
    pub(crate) base: u64,
    pub(crate) bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ranges: Ranges,
    /// Given back, but a stream may still use them.
    limbo: Vec<(Marker, usize, usize)>,
}

/// A range of the heap; given back with its drop.
pub(crate) struct Range {
    heap: Arc<Heap>,
    pub(crate) offset: usize,
    bytes: usize,
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "heap[{}..{}]", self.offset, self.offset + self.bytes)
    }
}

impl Heap {
    pub(crate) fn new(cuda: &Arc<Cuda>, base: u64, bytes: usize) -> Arc<Self> {
        let state = Mutex::new(State { ranges: Ranges::new(bytes), limbo: Vec::new() });
        Arc::new(Heap { cuda: cuda.clone(), base, bytes, state })
    }

    /// Takes at least `bytes` bytes.
    ///
    /// # Errors
    /// `OutOfMemory` with the setting to change.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Result<Range> {
        let mut state = lock(&self.state);
        let waiting = std::mem::take(&mut state.limbo);
        for (marker, offset, bytes) in waiting {
            if self.cuda.passed(&marker).unwrap_or(false) {
                state.ranges.give(offset, bytes);
            } else {
                state.limbo.push((marker, offset, bytes));
            }
        }
        let size = Ranges::rounded(bytes);
        if let Some((size, offset)) = size.and_then(|size| Some((size, state.ranges.take(size)?))) {
            return Ok(Range { heap: self.clone(), offset, bytes: size });
        }
        let (left, longest) = (state.ranges.left(), state.ranges.longest());
        let why = format!(
            "the symmetric heap of {} bytes has {left} left, {longest} of them in one piece; SYMM_HEAP sets its size, on all PEs",
            self.bytes
        );
        Err(Error::OutOfMemory { requested: bytes as u64, why, holders: Vec::new() })
    }
}

impl Range {
    /// First byte here.
    pub(crate) fn base(&self) -> Addr {
        Addr(self.heap.base + self.offset as u64)
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // Without a marker nobody knows when the streams are through; the range is then never used again.
        match self.heap.cuda.mark() {
            Ok(marker) => {
                let mut state = lock(&self.heap.state);
                if self.heap.cuda.passed(&marker).unwrap_or(false) {
                    state.ranges.give(self.offset, self.bytes);
                } else {
                    state.limbo.push((marker, self.offset, self.bytes));
                }
            }
            Err(e) => log::warn!(
                "{}: {} bytes of the symmetric heap are lost: {e}",
                symm_core::pe::here(),
                self.bytes
            ),
        }
    }
}
