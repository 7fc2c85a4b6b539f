//! Small memory of the backend's own: pointer tables, launch records, status records.
//!
//! Blocks are powers of two of at least 256 bytes, cut from chunks that live as long as the backend. Freeing a block makes
//! no driver call that waits: it is set aside with a marker and reused once every stream has passed that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys;
use symm_core::Result;

use crate::result::{check, check_memory, check_pinned, lock};
use crate::shared::Shared;
use crate::stream::Marker;

/// Smallest block in bytes; blocks are aligned to it.
const SMALLEST: usize = 256;
/// Smallest chunk in bytes.
const CHUNK: usize = 1 << 20;

/// Where an arena's memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// GPU memory.
    Device,
    /// Host memory that the GPU reaches.
    Mapped,
}

/// Two addresses of the same byte: as the GPU and as the host reach it (0 for GPU memory).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) gpu: u64,
    pub(crate) host: usize,
}

impl Place {
    fn offset(self, bytes: usize) -> Place {
        Place { gpu: self.gpu + bytes as u64, host: if self.host == 0 { 0 } else { self.host + bytes } }
    }
}

/// Memory of one kind.
#[derive(Debug)]
pub(crate) struct Arena {
    kind: Kind,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: Classes,
    /// Freed blocks that a stream may still use.
    limbo: Vec<(Marker, usize, Place)>,
}

/// Free blocks by size.
#[derive(Debug, Default)]
struct Classes(BTreeMap<usize, Vec<Place>>);

impl Classes {
    /// Size of the block that holds `bytes` bytes.
    fn size(bytes: usize) -> usize {
        bytes.max(SMALLEST).next_power_of_two()
    }

    /// Takes a free block of `size` bytes, cutting a larger one if there is none.
    fn take(&mut self, size: usize) -> Option<Place> {
        let have = *self.0.iter().find(|(have, blocks)| **have >= size && !blocks.is_empty())?.0;
        let place = self.0.get_mut(&have)?.pop()?;
        let mut rest = have;
        while rest > size {
            rest /= 2;
            self.give(rest, place.offset(rest));
        }
        Some(place)
    }

    fn give(&mut self, size: usize, place: Place) {
        self.0.entry(size).or_default().push(place);
    }
}

/// A block in use; set aside for reuse when it is dropped.
#[derive(Debug)]
pub(crate) struct Block {
    shared: Arc<Shared>,
    kind: Kind,
    size: usize,
    pub(crate) place: Place,
}

impl Arena {
    pub(crate) fn new(kind: Kind) -> Self {
        Arena { kind, state: Mutex::new(State::default()) }
    }

    fn find(&self, size: usize) -> Result<Place> {
        let mut state = lock(&self.state);
        let waiting = std::mem::take(&mut state.limbo);
        for (marker, size, place) in waiting {
            if marker.passed().unwrap_or(false) {
                state.free.give(size, place);
            } else {
                state.limbo.push((marker, size, place));
            }
        }
        if let Some(place) = state.free.take(size) {
            return Ok(place);
        }
        let chunk = size.max(CHUNK);
        let place = match self.kind {
            Kind::Device => device_chunk(chunk)?,
            Kind::Mapped => mapped_chunk(chunk)?,
        };
        state.free.give(chunk, place);
        Ok(state.free.take(size).expect("a new chunk should hold the block it was made for"))
    }
}

impl Block {
    /// A block of at least `bytes` bytes, all zero. Waits for the zeroing: never called between the beginning and the
    /// end of a capture.
    ///
    /// # Errors
    /// `OutOfMemory`; the driver's.
    pub(crate) fn new(shared: &Arc<Shared>, kind: Kind, bytes: usize) -> Result<Self> {
        let _entered = shared.device.enter()?;
        let size = Classes::size(bytes);
        let arena = shared.arena(kind);
        let place = arena.find(size)?;
        let block = Block { shared: shared.clone(), kind, size, place };
        match kind {
            Kind::Device => shared.zero(place.gpu, size)?,
            // SAFETY: the block is `size` bytes of host memory that nobody else uses.
            Kind::Mapped => unsafe {
                std::ptr::with_exposed_provenance_mut::<u8>(place.host).write_bytes(0, size)
            },
        }
        Ok(block)
    }

    /// Address for kernels.
    pub(crate) fn gpu(&self) -> u64 {
        self.place.gpu
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // Without a marker nobody knows when the streams are through; the block is then never reused.
        match self.shared.mark() {
            Ok(marker) => {
                let arena = self.shared.arena(self.kind);
                lock(&arena.state).limbo.push((marker, self.size, self.place));
            }
            Err(e) => log::warn!("{}: {} bytes are lost: {e}", symm_core::pe::here(), self.size),
        }
    }
}

fn device_chunk(bytes: usize) -> Result<Place> {
    let mut gpu = 0;
    // SAFETY: `gpu` is a valid place.
    let made = unsafe { sys::cuMemAlloc_v2(&raw mut gpu, bytes) };
    check_memory("cuMemAlloc_v2", bytes, made)?;
    Ok(Place { gpu, host: 0 })
}

fn mapped_chunk(bytes: usize) -> Result<Place> {
    let mut host = std::ptr::null_mut();
    let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
    // SAFETY: `host` is a valid place.
    let made = unsafe { sys::cuMemHostAlloc(&raw mut host, bytes, flags) };
    check_pinned("cuMemHostAlloc", bytes, made)?;
    let mut gpu = 0;
    // SAFETY: `host` was allocated just now, as device-mapped memory.
    let found = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut gpu, host, 0) };
    check("cuMemHostGetDevicePointer_v2", found)?;
    Ok(Place { gpu, host: host.expose_provenance() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_disjoint_and_come_back() {
        let mut c = Classes::default();
        c.give(4096, Place { gpu: 0x10000, host: 0x90000 });
        let mut taken: Vec<Place> = Vec::new();
        while let Some(p) = c.take(256) {
            taken.push(p);
        }
        taken.sort_by_key(|p| p.gpu);
        let expected: Vec<u64> = (0..16).map(|i| 0x10000 + 256 * i).collect();
        assert_eq!(taken.iter().map(|p| p.gpu).collect::<Vec<_>>(), expected);
        assert!(taken.iter().all(|p| p.host as u64 - 0x90000 == p.gpu - 0x10000));
        c.give(256, taken[3]);
        assert_eq!(c.take(512), None);
        assert_eq!(c.take(256), Some(taken[3]));
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!([0, 1, 256, 257, 1 << 20].map(Classes::size), [256, 256, 256, 512, 1 << 20]);
    }
}
