//! A handle for kernels of users'.

use super::handle::Handle;
use crate::backend::{Backend, DevicePtrs, KernelHandle};

impl<B: Backend> Handle<B> {
    /// The two arrays in the memory of kernels, 0 where a rank is not direct.
    #[doc(alias("buffer_ptrs_dev", "signal_pad_ptrs_dev"))]
    pub fn device_ptrs(&self) -> DevicePtrs {
        self.core.team.world.backend.device_ptrs(&self.core.raw)
    }

    /// This handle for a kernel of yours that includes `symm/handle.cuh`: passed by value, it serves put, get, signals, slots and the
    /// barrier there. Its addresses hold while the handle lives; what the kernel does is ordered with nothing here but its stream.
    ///
    /// # Shapes
    /// `symm::buffer` in the kernel is the tensor: of a view, the view. Only ranks that are [direct](Self::is_direct) are reached.
    pub fn kernel_handle(&self) -> KernelHandle {
        let (device, pad) = (self.device_ptrs(), self.pad_layout());
        KernelHandle {
            buffers: device.buffers.0,
            pads: device.pads.0,
            members: device.members.0,
            status: device.status.0,
            status_host: device.status_host.0,
            offset: self.offset() as u64,
            signals: pad.signal(0) as u64,
            words: pad.barrier_word(0, 0) as u64,
            counters: pad.barrier_counter(0) as u64,
            rank: self.rank() as u64,
            ranks: self.world_size() as u64,
        }
    }
}
