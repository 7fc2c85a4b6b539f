//! What captures need beside the operations themselves: a graph that keeps what it uses, and housekeeping of this
//! library that goes on while somebody captures.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUgraph, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus, CUuserObject, CUuserObject_flags,
    CUuserObjectRetain_flags,
};
use symm_core::backend::Kept;
use symm_core::{Error, Result};

use crate::result::{BACKEND, check, lock};
use crate::shared::Shared;

/// While this lives, the calling thread may allocate and look at events although a stream is being captured, by whomever:
/// such calls of this library touch no captured stream.
#[derive(Debug)]
pub(crate) struct Relaxed(CUstreamCaptureMode);

impl Relaxed {
    pub(crate) fn enter() -> Result<Self> {
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` is a valid place, which the driver swaps with the thread's mode.
        check("cuThreadExchangeStreamCaptureMode", unsafe {
            sys::cuThreadExchangeStreamCaptureMode(&raw mut mode)
        })?;
        Ok(Relaxed(mode))
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: a valid place, with the mode that the thread had.
        let back = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut self.0) };
        if let Err(e) = check("cuThreadExchangeStreamCaptureMode", back) {
            log::warn!("{}: {e}", symm_core::pe::here());
        }
    }
}

/// Whether operations given to the stream are captured. One that cannot be asked counts as captured: nothing is then
/// recorded on it or waited for.
pub(crate) fn is_capturing(stream: CUstream) -> bool {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is live and `status` a valid place.
    let asked = unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) };
    check("cuStreamIsCapturing", asked).is_err()
        || status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
}

/// Id of the capture that the stream is in, unique in the process, and the graph that is being made.
pub(crate) fn capture_of(stream: CUstream) -> Result<(u64, CUgraph)> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph): (u64, CUgraph) = (0, std::ptr::null_mut());
    let none = std::ptr::null_mut();
    // SAFETY: the stream is live, the places are valid, and what is not asked for may be null.
    let asked = unsafe {
        sys::cuStreamGetCaptureInfo_v3(
            stream,
            &raw mut status,
            &raw mut id,
            &raw mut graph,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            none,
        )
    };
    check("cuStreamGetCaptureInfo_v3", asked)?;
    if status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
        return Ok((id, graph));
    }
    let why = "the stream is in no valid capture: a call that a capture does not allow ended it".to_owned();
    Err(Error::Unsupported { backend: BACKEND, capability: "capture", why })
}

struct Held {
    shared: Arc<Shared>,
    kept: Kept,
}

/// Makes `graph`, and whatever is instantiated or cloned from it, keep `kept`.
pub(crate) fn keep(shared: &Arc<Shared>, graph: CUgraph, kept: Kept) -> Result<()> {
    let held = Box::into_raw(Box::new(Held { shared: shared.clone(), kept })).cast::<c_void>();
    let mut object: CUuserObject = std::ptr::null_mut();
    let flags = CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32;
    // SAFETY: `object` is a valid place; `release` takes what `held` is.
    let made = unsafe { sys::cuUserObjectCreate(&raw mut object, held, Some(release), 1, flags) };
    if let Err(e) = check("cuUserObjectCreate", made) {
        // SAFETY: the driver did not take it.
        drop(unsafe { Box::from_raw(held.cast::<Held>()) });
        return Err(e);
    }
    let moved = CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as u32;
    // SAFETY: graph and object are live; the one reference becomes the graph's.
    let retained = unsafe { sys::cuGraphRetainUserObject(graph, object, 1, moved) };
    if let Err(e) = check("cuGraphRetainUserObject", retained) {
        // SAFETY: the graph did not take the reference, which is the only one.
        let released = unsafe { sys::cuUserObjectRelease(object, 1) };
        return check("cuUserObjectRelease", released).and(Err(e));
    }
    Ok(())
}

/// Called by the driver, on a thread of its own, when the last graph is gone.
unsafe extern "C" fn release(held: *mut c_void) {
    // SAFETY: `keep` made it by `Box::into_raw`, and the driver calls this once.
    let Held { shared, kept } = *unsafe { Box::from_raw(held.cast::<Held>()) };
    // No call of the driver is allowed here, and the drop of what was kept makes some.
    lock(&shared.released).push(Departed(kept));
}

/// What graphs that are gone had kept.
pub(crate) struct Departed(pub(crate) Kept);

impl std::fmt::Debug for Departed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Departed")
    }
}
