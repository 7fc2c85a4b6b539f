//! Kernels for members that NVSHMEM's transports reach. They are relocatable: the host links them at start with the
//! `libnvshmem_device.a` of the NVSHMEM that it runs with, so both are always of one release.

use std::ffi::CStr;

use crate::image::{LINKED, image};

/// A kernel of the linked image; each takes one struct of [`params`](crate::params) by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum NetEntry {
    /// `put` and `put_with_signal`: [`NetCopyParams`](crate::params::NetCopyParams), [`THREADS`].
    Put,
    /// `get`: [`NetCopyParams`](crate::params::NetCopyParams), [`THREADS`].
    Get,
    /// `put_signal` and `wait_signal`: [`NetPadSignalParams`](crate::params::NetPadSignalParams), one warp.
    PadSignal,
    /// `wait_until`: [`NetWaitParams`](crate::params::NetWaitParams), one warp.
    WaitUntil,
    /// `barrier` of a handle: [`NetBarrierParams`](crate::params::NetBarrierParams), one warp.
    Barrier,
    /// Collectives that move rows: [`NetExchangeParams`](crate::params::NetExchangeParams), [`THREADS`].
    Exchange,
    /// Broadcast and reductions: [`NetReduceParams`](crate::params::NetReduceParams), [`THREADS`].
    Reduce,
    /// Forms that take: [`NetTakeParams`](crate::params::NetTakeParams), [`THREADS`].
    Take,
}

/// Threads of a block of the kernels that move bytes.
pub const THREADS: u32 = 512;

/// Every kernel, in the order of [`NetEntry`].
pub const NET_ENTRIES: [NetEntry; 8] = [
    NetEntry::Put,
    NetEntry::Get,
    NetEntry::PadSignal,
    NetEntry::WaitUntil,
    NetEntry::Barrier,
    NetEntry::Exchange,
    NetEntry::Reduce,
    NetEntry::Take,
];

impl NetEntry {
    /// Symbol of the kernel in the linked image.
    pub const fn symbol(self) -> &'static CStr {
        match self {
            NetEntry::Put => c"symm_net_put",
            NetEntry::Get => c"symm_net_get",
            NetEntry::PadSignal => c"symm_net_pad_signal",
            NetEntry::WaitUntil => c"symm_net_wait_until",
            NetEntry::Barrier => c"symm_net_barrier",
            NetEntry::Exchange => c"symm_net_exchange",
            NetEntry::Reduce => c"symm_net_reduce",
            NetEntry::Take => c"symm_net_take",
        }
    }
}

/// The images to link for NVSHMEM 3.`minor`, with names for messages; `None` in a build without nvcc.
///
/// The device library changed its functions' parameters in 3.5 and in 3.8, so the code that calls it exists once for each.
pub fn relocatable(minor: u32) -> Option<[(&'static str, &'static [u8]); 2]> {
    let shim = match minor {
        0..5 => "nvshmem_shim_34",
        5..8 => "nvshmem_shim_35",
        8.. => "nvshmem_shim_38",
    };
    Some([("nvshmem", image("nvshmem")?), (shim, image(shim)?)])
}

/// The kernels linked at build time for `sm_<sm>` with NVSHMEM's device library, with that library's major and minor number; `None` in
/// a build without the feature `link-nvshmem`, or without that target.
pub fn linked(sm: u32) -> Option<((u32, u32), &'static [u8])> {
    Some((LINKED?, image(&format!("nvshmem_linked_{sm}"))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::built;

    #[test]
    fn a_build_has_the_images_of_every_release_or_none() {
        for minor in [4, 5, 6, 7, 8, 9] {
            assert_eq!(relocatable(minor).is_some(), built(), "3.{minor}");
        }
    }

    #[test]
    fn kernels_and_host_have_the_same_blocks() {
        let header = include_str!("../cu/nvshmem/net.cuh");
        assert!(header.contains(&format!("constexpr int THREADS = {THREADS};")));
    }
}
