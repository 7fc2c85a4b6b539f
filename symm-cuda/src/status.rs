//! Status records: one in mapped host memory, which the host reads and writes, and a copy on the GPU for kernels.

use std::sync::{Arc, Mutex};

use cudarc::driver::sys;
use symm_core::Result;
use symm_core::status::StatusRecord;
use symm_kernels::params::StatusParams;

use crate::arena::{Block, Kind};
use crate::result::{check, lock};
use crate::shared::Shared;

/// Status of a team. Clones are the same record.
#[derive(Clone, Debug)]
pub struct Status(Arc<StatusInner>);

#[derive(Debug)]
pub(crate) struct StatusInner {
    shared: Arc<Shared>,
    mapped: Block,
    device: Block,
    /// Held while the copies change together: a failure passed on by `push` after a `clear` would stay on the GPU alone.
    both: Mutex<()>,
}

impl Status {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Self> {
        let bytes = size_of::<StatusRecord>();
        let inner = Arc::new(StatusInner {
            shared: shared.clone(),
            mapped: Block::new(shared, Kind::Mapped, bytes)?,
            device: Block::new(shared, Kind::Device, bytes)?,
            both: Mutex::new(()),
        });
        let mut all = lock(&shared.statuses);
        all.retain(|s| s.strong_count() > 0);
        all.push(Arc::downgrade(&inner));
        Ok(Status(inner))
    }

    pub(crate) fn of(inner: Arc<StatusInner>) -> Self {
        Status(inner)
    }

    pub(crate) fn params(&self) -> StatusParams {
        StatusParams { device: self.0.device.gpu(), host: self.0.mapped.gpu() }
    }

    /// Clears both copies. No kernel of the team runs.
    pub(crate) fn clear(&self) -> Result<()> {
        let _entered = self.0.shared.device.enter()?;
        let _both = lock(&self.0.both);
        // First the GPU's: should that fail, the failure is still set for the host.
        self.0.shared.zero(self.0.device.gpu(), size_of::<StatusRecord>())?;
        self.0.record().clear();
        Ok(())
    }
}

impl AsRef<StatusRecord> for Status {
    fn as_ref(&self) -> &StatusRecord {
        self.0.record()
    }
}

impl StatusInner {
    fn record(&self) -> &StatusRecord {
        let at = std::ptr::with_exposed_provenance::<StatusRecord>(self.mapped.place.host);
        // SAFETY: the block lives as long as `self`, is 256-byte aligned, began as zeroes, which is a valid record of
        // atomics, and is written by the host and by kernels through atomics only.
        unsafe { &*at }
    }

    /// Passes a failure that the host has set on to kernels: those that begin later do nothing, those that wait stop
    /// before they would look at host memory.
    pub(crate) fn push(&self) -> Result<()> {
        let _both = lock(&self.both);
        if self.record().is_ok() {
            return Ok(());
        }
        let (to, from) = (self.device.gpu(), std::ptr::with_exposed_provenance(self.mapped.place.host));
        let bytes = size_of::<StatusRecord>();
        // SAFETY: both blocks live until every stream, the backend's own among them, has passed the present point; the
        // record is not written again while it is set.
        let done = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, bytes, self.shared.own_stream()) };
        check("cuMemcpyHtoDAsync_v2", done)
    }
}
