//! Areas of mapped memory, with the words and places in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use symm_core::backend::Region;
use symm_core::{Error, Result};

use crate::backend::Host;
use crate::segment::Map;

/// Bytes of a PE's segment, as this PE reaches them.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    map: Arc<Map>,
    offset: usize,
    bytes: usize,
}

impl Area {
    /// The first `bytes` bytes of a region, which must be inside its mapping and aligned for words.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(crate) fn of(region: &Region<Host>, bytes: usize) -> Result<Self> {
        let map = Arc::clone(&region.mapping.map);
        let inside = region.offset.checked_add(bytes).is_some_and(|end| end <= map.bytes());
        if !inside || !region.offset.is_multiple_of(8) {
            return Err(Error::argument(
                "bind",
                "region",
                format!(
                    "{bytes} bytes at {} of a segment of {} on PE {}",
                    region.offset,
                    map.bytes(),
                    region.pe
                ),
                "a range inside the segment, aligned to 8 bytes",
            ));
        }
        Ok(Area { map, offset: region.offset, bytes })
    }

    /// First byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.map.base().wrapping_add(self.offset)
    }

    /// The byte at `at`, of `bytes` that must be inside.
    pub(crate) fn ptr(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(
            at.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "a checked range should be inside its area"
        );
        self.base().wrapping_add(at)
    }

    /// The 32-bit word at `at`.
    pub(crate) fn word32(&self, at: usize) -> &AtomicU32 {
        let word = self.ptr(at, 4).cast::<AtomicU32>();
        assert!(word.is_aligned(), "a word's offset should be a multiple of its size");
        // SAFETY: inside the area, as `ptr` checked, which stays mapped while self lives; aligned; words of pads and
        // contexts are only used as atomics while operations run.
        unsafe { &*word }
    }

    /// The 64-bit word at `at`.
    pub(crate) fn word64(&self, at: usize) -> &AtomicU64 {
        let word = self.ptr(at, 8).cast::<AtomicU64>();
        assert!(word.is_aligned(), "a word's offset should be a multiple of its size");
        // SAFETY: as in `word32`.
        unsafe { &*word }
    }

    /// The place at `at`, of `bytes` that must be inside, as a message carries it.
    pub(crate) fn place(&self, at: usize, bytes: usize) -> Place {
        Place(Area { map: Arc::clone(&self.map), offset: self.offset + at, bytes: self.checked(at, bytes) })
    }

    fn checked(&self, at: usize, bytes: usize) -> usize {
        let _ = self.ptr(at, bytes);
        bytes
    }
}

/// An area that a message owns: the memory stays mapped until it is delivered.
#[derive(Debug)]
pub(crate) struct Place(Area);

impl Place {
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.0.base()
    }

    pub(crate) fn word32(&self) -> &AtomicU32 {
        self.0.word32(0)
    }

    pub(crate) fn word64(&self) -> &AtomicU64 {
        self.0.word64(0)
    }
}
