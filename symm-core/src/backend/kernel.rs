//! What kernels of users' are given of a handle.

use super::Addr;

/// Device arrays of a handle, for users' kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePtrs {
    /// Address of W addresses: each rank's data area, 0 where it is not direct.
    pub buffers: Addr,
    /// Address of W addresses: each rank's pad, 0 where it is not direct.
    pub pads: Addr,
    /// Address of W numbers (u64): each rank's PE.
    pub members: Addr,
    /// The team's [`StatusRecord`](crate::status::StatusRecord) in the memory of kernels.
    pub status: Addr,
    /// The one that the host reads and writes, as kernels reach it.
    pub status_host: Addr,
}

/// What a kernel of a user's is given: `symm::Handle` of `kernels/include/symm/handle.cuh`, passed by value.
///
/// [`Handle::kernel_handle`](crate::model::Handle::kernel_handle) makes one. Addresses are those of the GPU, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KernelHandle {
    /// Address of W addresses: first byte of each rank's allocation, 0 where it is not direct.
    pub buffers: u64,
    /// Address of W addresses: each rank's pad, 0 where it is not direct.
    pub pads: u64,
    /// Address of W PE numbers.
    pub members: u64,
    /// The team's [`StatusRecord`](crate::status::StatusRecord) in the memory of kernels.
    pub status: u64,
    /// The one that the host reads and writes.
    pub status_host: u64,
    /// Bytes from the allocation's first byte to the tensor's.
    pub offset: u64,
    /// Offset of user signal 0 in every pad.
    pub signals: u64,
    /// Offset of the barrier words in every pad.
    pub words: u64,
    /// Offset of the barrier counters.
    pub counters: u64,
    /// This PE's rank.
    pub rank: u64,
    /// W.
    pub ranks: u64,
}
