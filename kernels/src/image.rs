//! Images of the kernels.

mod images {
    include!(concat!(env!("OUT_DIR"), "/images.rs"));
}

use crate::geometry::{AHEAD_BYTES, AHEAD_OFFSET_BYTES, SMALL_BLOCK};

/// A kernel: the image it is in and its symbol there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Entry {
    /// `put`, and `put_with_signal`: [`CopyParams`](crate::params::CopyParams).
    Put,
    /// `get`: [`CopyParams`](crate::params::CopyParams).
    Get,
    /// `put_signal` and `wait_signal`: [`PadSignalParams`](crate::params::PadSignalParams), one thread.
    PadSignal,
    /// `wait_until`: [`WaitParams`](crate::params::WaitParams), one thread.
    WaitUntil,
    /// `barrier` of a handle: [`BarrierParams`](crate::params::BarrierParams), one warp.
    Barrier,
    /// Every collective of the exchange protocol, with any number of splits:
    /// [`ExchangeParams`](crate::params::ExchangeParams), at most [`EXCHANGE_THREADS`](crate::geometry::EXCHANGE_THREADS).
    Exchange,
    /// `barrier` of a context of at most [`FEW_RANKS`](crate::params::FEW_RANKS) members; as all below, otherwise as `Exchange`.
    ExchangeBarrier,
    /// `all_gather`.
    ExchangeAllGather,
    /// `all_to_all`.
    ExchangeAllToAll,
    /// `all_to_all_vdev`; this and those below with at most [`FEW_SPLITS`](crate::params::FEW_SPLITS) splits a member.
    ExchangeVdev,
    /// `all_to_all_vdev_2d`.
    ExchangeVdev2d,
    /// `all_to_all_vdev_2d_offset`.
    ExchangeVdev2dOffset,
    /// `all_gather` in blocks of more than [`SMALL_BLOCK`] threads; so are those below.
    ExchangeAllGatherLarge,
    /// `all_to_all`.
    ExchangeAllToAllLarge,
    /// `all_to_all_vdev`.
    ExchangeVdevLarge,
    /// `all_to_all_vdev_2d`.
    ExchangeVdev2dLarge,
    /// `all_to_all_vdev_2d_offset`.
    ExchangeVdev2dOffsetLarge,
    /// `all_to_all_vdev` of few bytes, in blocks of at most [`SMALL_BLOCK`] threads whose warps read their first rows before the others'
    /// notes are here; so are those below.
    ExchangeVdevAhead,
    /// `all_to_all_vdev_2d`.
    ExchangeVdev2dAhead,
    /// `all_to_all_vdev_2d_offset`.
    ExchangeVdev2dOffsetAhead,
    /// `broadcast`, and reductions that take part with an invalid argument: [`ReduceParams`](crate::params::ReduceParams),
    /// [`REDUCE_THREADS`](crate::geometry::REDUCE_THREADS).
    Broadcast,
    /// Reductions of f16, as the broadcast.
    ReduceF16,
    /// Of bf16.
    ReduceBf16,
    /// Of f32.
    ReduceF32,
    /// Of f64.
    ReduceF64,
    /// Of i32.
    ReduceI32,
    /// Of i64.
    ReduceI64,
    /// Forms that take and copy, and the first launch of all low-contention forms: [`TakeParams`](crate::params::TakeParams),
    /// [`REDUCE_THREADS`](crate::geometry::REDUCE_THREADS).
    TakeCopy,
    /// Forms that take and add up f16, as those that copy.
    TakeF16,
    /// Bf16.
    TakeBf16,
    /// F32.
    TakeF32,
    /// F64.
    TakeF64,
    /// I32.
    TakeI32,
    /// I64.
    TakeI64,
    /// The planned exchange: [`PlanParams`](crate::params::PlanParams), [`REDUCE_THREADS`](crate::geometry::REDUCE_THREADS).
    Plan,
    /// An all-reduce of f16 whose elements are pushed, between more than two members: [`PushedParams`](crate::params::PushedParams),
    /// [`geometry::pushed`](crate::geometry::pushed).
    PushedF16,
    /// Of bf16.
    PushedBf16,
    /// Of f32.
    PushedF32,
    /// Of f64.
    PushedF64,
    /// Of i32.
    PushedI32,
    /// Of i64.
    PushedI64,
    /// The same between two members, of f16.
    PushedF16Pair,
    /// Of bf16.
    PushedBf16Pair,
    /// Of f32.
    PushedF32Pair,
    /// Of f64.
    PushedF64Pair,
    /// Of i32.
    PushedI32Pair,
    /// Of i64.
    PushedI64Pair,
}

/// Every kernel, in the order of [`Entry`].
pub const ENTRIES: [Entry; 47] = [
    Entry::Put,
    Entry::Get,
    Entry::PadSignal,
    Entry::WaitUntil,
    Entry::Barrier,
    Entry::Exchange,
    Entry::ExchangeBarrier,
    Entry::ExchangeAllGather,
    Entry::ExchangeAllToAll,
    Entry::ExchangeVdev,
    Entry::ExchangeVdev2d,
    Entry::ExchangeVdev2dOffset,
    Entry::ExchangeAllGatherLarge,
    Entry::ExchangeAllToAllLarge,
    Entry::ExchangeVdevLarge,
    Entry::ExchangeVdev2dLarge,
    Entry::ExchangeVdev2dOffsetLarge,
    Entry::ExchangeVdevAhead,
    Entry::ExchangeVdev2dAhead,
    Entry::ExchangeVdev2dOffsetAhead,
    Entry::Broadcast,
    Entry::ReduceF16,
    Entry::ReduceBf16,
    Entry::ReduceF32,
    Entry::ReduceF64,
    Entry::ReduceI32,
    Entry::ReduceI64,
    Entry::TakeCopy,
    Entry::TakeF16,
    Entry::TakeBf16,
    Entry::TakeF32,
    Entry::TakeF64,
    Entry::TakeI32,
    Entry::TakeI64,
    Entry::Plan,
    Entry::PushedF16,
    Entry::PushedBf16,
    Entry::PushedF32,
    Entry::PushedF64,
    Entry::PushedI32,
    Entry::PushedI64,
    Entry::PushedF16Pair,
    Entry::PushedBf16Pair,
    Entry::PushedF32Pair,
    Entry::PushedF64Pair,
    Entry::PushedI32Pair,
    Entry::PushedI64Pair,
];

impl Entry {
    /// Name of the image that has the kernel.
    pub const fn module(self) -> &'static str {
        match self {
            Entry::Put | Entry::Get => "copy",
            Entry::PadSignal | Entry::WaitUntil => "signal",
            Entry::Barrier => "barrier",
            Entry::TakeCopy
            | Entry::TakeF16
            | Entry::TakeBf16
            | Entry::TakeF32
            | Entry::TakeF64
            | Entry::TakeI32
            | Entry::TakeI64 => "take",
            Entry::Plan => "plan",
            Entry::PushedF16
            | Entry::PushedBf16
            | Entry::PushedF32
            | Entry::PushedF64
            | Entry::PushedI32
            | Entry::PushedI64
            | Entry::PushedF16Pair
            | Entry::PushedBf16Pair
            | Entry::PushedF32Pair
            | Entry::PushedF64Pair
            | Entry::PushedI32Pair
            | Entry::PushedI64Pair => "pushed",
            Entry::Broadcast
            | Entry::ReduceF16
            | Entry::ReduceBf16
            | Entry::ReduceF32
            | Entry::ReduceF64
            | Entry::ReduceI32
            | Entry::ReduceI64 => "reduce",
            _ => "exchange",
        }
    }

    /// Whether the kernel begins with `wait_for_stream`, so that it may be launched before the one ahead of it has ended.
    pub const fn waits_for_stream(self) -> bool {
        matches!(
            self,
            Entry::Put
                | Entry::Get
                | Entry::PadSignal
                | Entry::WaitUntil
                | Entry::Barrier
                | Entry::Exchange
                | Entry::ExchangeBarrier
                | Entry::ExchangeAllGather
                | Entry::ExchangeAllToAll
                | Entry::ExchangeVdev
                | Entry::ExchangeVdev2d
                | Entry::ExchangeVdev2dOffset
                | Entry::ExchangeAllGatherLarge
                | Entry::ExchangeAllToAllLarge
                | Entry::ExchangeVdevLarge
                | Entry::ExchangeVdev2dLarge
                | Entry::ExchangeVdev2dOffsetLarge
                | Entry::ExchangeVdevAhead
                | Entry::ExchangeVdev2dAhead
                | Entry::ExchangeVdev2dOffsetAhead
                | Entry::Broadcast
                | Entry::ReduceF16
                | Entry::ReduceBf16
                | Entry::ReduceF32
                | Entry::ReduceF64
                | Entry::ReduceI32
                | Entry::ReduceI64
                | Entry::PushedF16
                | Entry::PushedBf16
                | Entry::PushedF32
                | Entry::PushedF64
                | Entry::PushedI32
                | Entry::PushedI64
                | Entry::PushedF16Pair
                | Entry::PushedBf16Pair
                | Entry::PushedF32Pair
                | Entry::PushedF64Pair
                | Entry::PushedI32Pair
                | Entry::PushedI64Pair
        )
    }

    /// The kernel for blocks of so many threads, and at most so many bytes of input: of most exchanges there are two or three.
    pub const fn for_launch(self, threads: u32, bytes: u64) -> Entry {
        match self {
            small if threads <= SMALL_BLOCK => match small {
                Entry::ExchangeVdev if bytes <= AHEAD_BYTES => Entry::ExchangeVdevAhead,
                Entry::ExchangeVdev2d if bytes <= AHEAD_BYTES => Entry::ExchangeVdev2dAhead,
                Entry::ExchangeVdev2dOffset if bytes <= AHEAD_OFFSET_BYTES => {
                    Entry::ExchangeVdev2dOffsetAhead
                }
                any => any,
            },
            Entry::ExchangeAllGather => Entry::ExchangeAllGatherLarge,
            Entry::ExchangeAllToAll => Entry::ExchangeAllToAllLarge,
            Entry::ExchangeVdev => Entry::ExchangeVdevLarge,
            Entry::ExchangeVdev2d => Entry::ExchangeVdev2dLarge,
            Entry::ExchangeVdev2dOffset => Entry::ExchangeVdev2dOffsetLarge,
            any => any,
        }
    }

    /// Symbol of the kernel in its image.
    pub const fn symbol(self) -> &'static std::ffi::CStr {
        match self {
            Entry::Put => c"symm_put",
            Entry::Get => c"symm_get",
            Entry::PadSignal => c"symm_pad_signal",
            Entry::WaitUntil => c"symm_wait_until",
            Entry::Barrier => c"symm_barrier",
            Entry::Exchange => c"symm_exchange",
            Entry::ExchangeBarrier => c"symm_exchange_barrier",
            Entry::ExchangeAllGather => c"symm_exchange_all_gather",
            Entry::ExchangeAllToAll => c"symm_exchange_all_to_all",
            Entry::ExchangeVdev => c"symm_exchange_vdev",
            Entry::ExchangeVdev2d => c"symm_exchange_vdev_2d",
            Entry::ExchangeVdev2dOffset => c"symm_exchange_vdev_2d_offset",
            Entry::ExchangeAllGatherLarge => c"symm_exchange_all_gather_large",
            Entry::ExchangeAllToAllLarge => c"symm_exchange_all_to_all_large",
            Entry::ExchangeVdevLarge => c"symm_exchange_vdev_large",
            Entry::ExchangeVdev2dLarge => c"symm_exchange_vdev_2d_large",
            Entry::ExchangeVdev2dOffsetLarge => c"symm_exchange_vdev_2d_offset_large",
            Entry::ExchangeVdevAhead => c"symm_exchange_vdev_ahead",
            Entry::ExchangeVdev2dAhead => c"symm_exchange_vdev_2d_ahead",
            Entry::ExchangeVdev2dOffsetAhead => c"symm_exchange_vdev_2d_offset_ahead",
            Entry::Broadcast => c"symm_broadcast",
            Entry::ReduceF16 => c"symm_reduce_f16",
            Entry::ReduceBf16 => c"symm_reduce_bf16",
            Entry::ReduceF32 => c"symm_reduce_f32",
            Entry::ReduceF64 => c"symm_reduce_f64",
            Entry::ReduceI32 => c"symm_reduce_i32",
            Entry::ReduceI64 => c"symm_reduce_i64",
            Entry::TakeCopy => c"symm_take_copy",
            Entry::TakeF16 => c"symm_take_f16",
            Entry::TakeBf16 => c"symm_take_bf16",
            Entry::TakeF32 => c"symm_take_f32",
            Entry::TakeF64 => c"symm_take_f64",
            Entry::TakeI32 => c"symm_take_i32",
            Entry::TakeI64 => c"symm_take_i64",
            Entry::Plan => c"symm_plan",
            Entry::PushedF16 => c"symm_pushed_f16",
            Entry::PushedBf16 => c"symm_pushed_bf16",
            Entry::PushedF32 => c"symm_pushed_f32",
            Entry::PushedF64 => c"symm_pushed_f64",
            Entry::PushedI32 => c"symm_pushed_i32",
            Entry::PushedI64 => c"symm_pushed_i64",
            Entry::PushedF16Pair => c"symm_pushed_f16_pair",
            Entry::PushedBf16Pair => c"symm_pushed_bf16_pair",
            Entry::PushedF32Pair => c"symm_pushed_f32_pair",
            Entry::PushedF64Pair => c"symm_pushed_f64_pair",
            Entry::PushedI32Pair => c"symm_pushed_i32_pair",
            Entry::PushedI64Pair => c"symm_pushed_i64_pair",
        }
    }
}

/// Whether this build carries images; without nvcc at build time it does not.
pub fn built() -> bool {
    !images::IMAGES.is_empty()
}

/// The fat image of a module, as `cuModuleLoadData` takes it; `None` in a build without nvcc.
pub fn image(module: &str) -> Option<&'static [u8]> {
    images::IMAGES.iter().find(|(name, _)| *name == module).map(|(_, bytes)| *bytes)
}

/// The release of NVSHMEM with which this build has linked kernels (feature `link-nvshmem`): major and minor number.
pub(crate) const LINKED: Option<(u32, u32)> = images::LINKED;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_has_all_images_or_none() {
        for entry in ENTRIES {
            assert_eq!(image(entry.module()).is_some(), built(), "{entry:?}");
        }
    }

    #[test]
    fn every_image_has_its_symbols() {
        for entry in ENTRIES {
            if let Some(image) = image(entry.module()) {
                let symbol = entry.symbol().to_bytes();
                // PTX may be compressed in a fat image, but the machine code's symbol table is not.
                assert!(image.windows(symbol.len()).any(|w| w == symbol), "{entry:?}");
            }
        }
    }
}
