//! What every object of the backend shares: the device, its arenas, its streams.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use cudarc::driver::sys::{self, CUstream, CUstream_flags};
use symm_core::Result;

use crate::arena::{Arena, Kind};
use crate::capture::{Departed, Relaxed};
use crate::device::Device;
use crate::result::{check, lock};
use crate::share::Handles;
use crate::status::StatusInner;
use crate::stream::{Event, Marker, StreamInner};
use crate::vmm::Orphan;

/// Shared by streams, segments, handles; lives as long as any of them. The arenas' chunks, a few MiB, and the retained
/// context stay until the process ends: giving them back would wait for the GPU, and drop never waits.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Device,
    /// What memory is exported as, once the PEs have agreed.
    pub(crate) handles: OnceLock<Handles>,
    device_arena: Arena,
    mapped_arena: Arena,
    /// The backend's own stream, for what must not wait behind a user's operation; a `CUstream` as a number.
    own: usize,
    pub(crate) streams: Mutex<Vec<Weak<StreamInner>>>,
    /// Last points of streams that were dropped with work left.
    pub(crate) departed: Mutex<Vec<Arc<Event>>>,
    pub(crate) statuses: Mutex<Vec<Weak<StatusInner>>>,
    /// Mappings that are to go.
    pub(crate) orphans: Mutex<Vec<(Marker, Orphan)>>,
    /// What graphs that are gone had kept.
    pub(crate) released: Mutex<Vec<Departed>>,
}

impl Shared {
    pub(crate) fn new(device: Device) -> Result<Arc<Self>> {
        let entered = device.enter()?;
        let own = create_stream()? as usize;
        drop(entered);
        Ok(Arc::new(Shared {
            own,
            device,
            handles: OnceLock::new(),
            device_arena: Arena::new(Kind::Device),
            mapped_arena: Arena::new(Kind::Mapped),
            streams: Mutex::new(Vec::new()),
            departed: Mutex::new(Vec::new()),
            statuses: Mutex::new(Vec::new()),
            orphans: Mutex::new(Vec::new()),
            released: Mutex::new(Vec::new()),
        }))
    }

    pub(crate) fn arena(&self, kind: Kind) -> &Arena {
        match kind {
            Kind::Device => &self.device_arena,
            Kind::Mapped => &self.mapped_arena,
        }
    }

    /// The backend's own stream.
    pub(crate) fn own_stream(&self) -> CUstream {
        self.own as CUstream
    }

    /// Zeroes GPU memory and waits for it.
    pub(crate) fn zero(&self, at: u64, bytes: usize) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: callers name memory of this backend that no operation uses.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(at, 0, bytes, self.own_stream()) })?;
        self.settle()
    }

    /// Copies words to the GPU and waits for it.
    pub(crate) fn upload(&self, at: u64, words: &[u64]) -> Result<()> {
        let _entered = self.device.enter()?;
        let bytes = size_of_val(words);
        // SAFETY: the source is a live slice; callers name at least as many bytes of this backend's memory.
        let done = unsafe { sys::cuMemcpyHtoDAsync_v2(at, words.as_ptr().cast(), bytes, self.own_stream()) };
        check("cuMemcpyHtoDAsync_v2", done)?;
        self.settle()
    }

    /// Copies words from the GPU and waits for it.
    pub(crate) fn download(&self, at: u64, words: &mut [u64]) -> Result<()> {
        let _entered = self.device.enter()?;
        let bytes = size_of_val(words);
        // SAFETY: the destination is a live slice; callers name at least as many bytes of memory that this GPU can read.
        let done =
            unsafe { sys::cuMemcpyDtoHAsync_v2(words.as_mut_ptr().cast(), at, bytes, self.own_stream()) };
        check("cuMemcpyDtoHAsync_v2", done)?;
        self.settle()
    }

    fn settle(&self) -> Result<()> {
        // SAFETY: the stream lives as long as this struct.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.own_stream()) })
    }

    /// Marks the present end of every stream. That of a stream that is being captured is where its capture began.
    pub(crate) fn mark(&self) -> Result<Marker> {
        let _entered = self.device.enter()?;
        let _relaxed = Relaxed::enter()?;
        let live: Vec<Arc<StreamInner>> = {
            let mut streams = lock(&self.streams);
            streams.retain(|s| s.strong_count() > 0);
            streams.iter().filter_map(Weak::upgrade).collect()
        };
        let mut events = {
            let mut departed = lock(&self.departed);
            departed.retain(|e| !e.passed().unwrap_or(false));
            departed.clone()
        };
        for stream in live {
            // Held while the event is recorded, so that a capture cannot begin in between.
            let capture = lock(&stream.capture);
            if let Some(before) = &*capture {
                events.push(before.clone());
            } else {
                events.extend(stream.end()?.map(Arc::new));
            }
        }
        Ok(Marker { events })
    }
}

/// A stream that does not wait for the legacy default stream.
pub(crate) fn create_stream() -> Result<CUstream> {
    let mut raw: CUstream = std::ptr::null_mut();
    let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: `raw` is a valid place, and a context is current.
    check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut raw, flags) })?;
    Ok(raw)
}
