//! Copies beside what a stream does meanwhile.

use cudarc::driver::sys::{self, CUstream};
use symm_core::{Addr, Result};

use crate::capture::Relaxed;
use crate::result::check;
use crate::shared::create_stream;
use crate::stream::{Event, Stream, destroy, follow, wait_for};

impl Stream {
    /// Enqueues what `rest` does and, to run beside it from this stream's present end on, a copy; whatever comes after that comes
    /// after both. In a capture the copy is a branch of the graph. Outside, the GPU is at `rest` while the copy is enqueued.
    pub(crate) fn copy_beside(
        &self,
        dst: Addr,
        src: Addr,
        bytes: usize,
        rest: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let _entered = self.enter()?;
        let beside = self.beside()?;
        let here = Event::plain()?;
        here.record_on(self.cu_stream())?;
        rest()?;
        wait_for(beside, &here)?;
        // SAFETY: the caller of `Backend::copy`, or of what this is a part of, promises both ranges until this stream has passed it.
        let copied = check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(dst.0, src.0, bytes, beside) });
        // After an error, too: a capture must have no loose ends.
        copied.and(follow(self.cu_stream(), beside))
    }

    fn beside(&self) -> Result<CUstream> {
        if let Some(raw) = self.0.beside.get() {
            return Ok(*raw as CUstream);
        }
        let _entered = self.enter()?;
        let _relaxed = Relaxed::enter()?;
        let made = create_stream()? as usize;
        let kept = *self.0.beside.get_or_init(|| made);
        if kept != made {
            destroy(made as CUstream);
        }
        Ok(kept as CUstream)
    }
}
