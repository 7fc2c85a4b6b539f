//! Sums of what several PEs hold: element by element in the order of the sources, so that every PE gets the same bits.
//!
//! Sums are made in blocks that stay in the first-level cache and are then copied to their targets, so that a buffer may
//! be a source and a target at once, and large amounts are written past the caches. 16-bit floats are added up as f32
//! and rounded once. The loops are plain Rust, compiled for several kinds of vector of which one is chosen at run time.

mod element;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use half::{bf16, f16};
use symm_core::DType;

use crate::copy;
use element::Summand;

/// Elements of a block: with 8 bytes each, and sources passing through, less than half of a first-level cache.
const BLOCK: usize = 2048;

/// Sources that one pass over a block reads.
const FAN: usize = 4;

/// The block's sums: one array for the running sums, one for the rounded ones.
#[repr(C, align(64))]
struct Scratch {
    sums: [u64; BLOCK],
    rounded: [u16; BLOCK],
}

/// Adds up `n` elements of every source and returns where their sums are.
///
/// # Safety
/// Every source has `n` readable elements, which nobody writes; `n` is at most [`BLOCK`].
type Kernel = unsafe fn(sources: &[*const u8], n: usize, scratch: &mut Scratch) -> *const u8;

/// Adds up `n` elements of `dtype` and writes the sums to every target; returns false if `over` said to stop, which is
/// asked now and then. `large`: as in [`copy::copy`], whose stores need [`copy::drain`] before a flag.
///
/// # Safety
/// Every source and target is valid for `n` elements, of any alignment. Nobody else writes a source meanwhile. A target
/// may be exactly a source; otherwise nothing overlaps.
pub(crate) unsafe fn sum(
    dtype: DType,
    sources: &[*const u8],
    targets: &[*mut u8],
    n: usize,
    large: bool,
    over: impl Fn() -> bool,
) -> bool {
    let Some(kernel) = kernel(dtype) else { return false };
    let size = dtype.size();
    let look = copy::CHUNK / size / BLOCK * BLOCK;
    let mut scratch = Scratch { sums: [0; BLOCK], rounded: [0; BLOCK] };
    let mut at_block = sources.to_vec();
    let mut at = 0;
    while at < n {
        if at > 0 && at.is_multiple_of(look) && over() {
            return false;
        }
        let count = BLOCK.min(n - at);
        for (here, source) in at_block.iter_mut().zip(sources) {
            *here = source.wrapping_add(at * size);
        }
        // SAFETY: `at + count <= n`, so the caller's promise covers the block.
        let sums = unsafe { kernel(&at_block, count, &mut scratch) };
        for target in targets {
            // SAFETY: as above for the target; `count` sums are in the scratch, which overlaps nothing.
            unsafe { copy::copy(target.wrapping_add(at * size), sums, count * size, large) };
        }
        at += count;
    }
    true
}

/// The kernel of a type for this processor; `None` for types that have no sum.
fn kernel(dtype: DType) -> Option<Kernel> {
    let index = match dtype {
        DType::F32 => 0,
        DType::F64 => 1,
        DType::F16 => 2,
        DType::BF16 => 3,
        DType::I32 => 4,
        DType::I64 => 5,
        _ => return None,
    };
    static CHOICE: OnceLock<[Kernel; 6]> = OnceLock::new();
    Some(CHOICE.get_or_init(|| kernels().pop().map_or(plain::KERNELS, |(_, best)| best))[index])
}

/// All kinds of kernels that this processor runs, the best last.
fn kernels() -> Vec<(&'static str, [Kernel; 6])> {
    let mut kinds = vec![("plain", plain::KERNELS)];
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx2") {
            kinds.push(("avx2", avx2::KERNELS));
        }
        if std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512vl")
        {
            kinds.push(("avx512", avx512::KERNELS));
        }
    }
    kinds
}

/// The loop that all kinds of kernels are compiled from.
///
/// # Safety
/// As [`Kernel`].
#[inline(always)]
unsafe fn add_up<T: Summand>(sources: &[*const u8], n: usize, scratch: &mut Scratch) -> *const u8 {
    const { assert!(size_of::<T::Wide>() <= 8 && align_of::<T::Wide>() <= 8) };
    // SAFETY: the array has `BLOCK` times 8 bytes, aligned to 8, so room for as many sums; any bits are a number. `n` is
    // at most `BLOCK`.
    let sums = unsafe { std::slice::from_raw_parts_mut(scratch.sums.as_mut_ptr().cast::<T::Wide>(), n) };
    let Some((first, rest)) = sources.split_first() else { return std::ptr::null() };
    // SAFETY: the caller promises `n` elements at every source; this and the passes below read no others.
    let load = |source: *const u8, i: usize| unsafe { source.cast::<T>().add(i).read_unaligned().widen() };
    for (i, sum) in sums.iter_mut().enumerate() {
        *sum = load(*first, i);
    }
    let (fans, single) = rest.as_chunks::<FAN>();
    for [a, b, c, d] in fans {
        for (i, sum) in sums.iter_mut().enumerate() {
            let two = T::add(T::add(*sum, load(*a, i)), load(*b, i));
            *sum = T::add(T::add(two, load(*c, i)), load(*d, i));
        }
    }
    for source in single {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = T::add(*sum, load(*source, i));
        }
    }
    if !T::ROUNDS {
        return scratch.sums.as_ptr().cast();
    }
    for (rounded, sum) in scratch.rounded[..n].iter_mut().zip(sums) {
        *rounded = T::round(*sum);
    }
    scratch.rounded.as_ptr().cast()
}

/// The kernels of one kind of vector.
macro_rules! kinds {
    ($($(#[$attribute:meta])* mod $name:ident $(: $feature:literal)?;)*) => {$(
        $(#[$attribute])*
        mod $name {
            use super::*;

            /// # Safety
            /// As [`Kernel`], and the processor has the features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn run<T: Summand>(sources: &[*const u8], n: usize, scratch: &mut Scratch) -> *const u8 {
                // SAFETY: the caller's promise.
                unsafe { add_up::<T>(sources, n, scratch) }
            }

            pub(super) const KERNELS: [Kernel; 6] =
                [run::<f32>, run::<f64>, run::<f16>, run::<bf16>, run::<i32>, run::<i64>];
        }
    )*};
}

kinds! {
    mod plain;
    #[cfg(target_arch = "x86_64")]
    mod avx2: "avx2";
    #[cfg(target_arch = "x86_64")]
    mod avx512: "avx512f,avx512bw,avx512vl";
}
