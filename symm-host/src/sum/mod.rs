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

/// Sources that one pass over a block reads: the more, the fewer times the sums are read and written.
const FAN: usize = 4;

/// The running sums of a block that are wider than its elements, and the sums of a block that must not go to a target yet.
#[repr(C, align(64))]
struct Scratch {
    sums: [u64; BLOCK],
    out: [u64; BLOCK],
}

/// What is made of elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Their type.
    pub(crate) dtype: DType,
    /// What sums are divided by, before they are rounded; 1 leaves them.
    pub(crate) divisor: u32,
}

/// Adds up `n` elements of every source, divides by the number, and writes to `out`.
///
/// # Safety
/// Every source has `n` readable elements, which nobody writes; `n` is at most [`BLOCK`]. `out` has `n` elements, aligned,
/// which overlap no source.
type Kernel = unsafe fn(sources: &[*const u8], n: usize, divisor: u32, scratch: &mut Scratch, out: *mut u8);

/// Adds up `n` elements of a kind and writes the sums to every target; returns false if `over` said to stop, which is
/// asked now and then. `large`: as in [`copy::copy`], whose stores need [`copy::drain`] before a flag.
///
/// # Safety
/// Every source and target is valid for `n` elements, of any alignment. Nobody else writes a source meanwhile. A target
/// may be exactly a source; otherwise nothing overlaps.
pub(crate) unsafe fn sum(
    Kind { dtype, divisor }: Kind,
    sources: &[*const u8],
    targets: &[*mut u8],
    n: usize,
    large: bool,
    over: impl Fn() -> bool,
) -> bool {
    let Some(kernel) = kernel(dtype) else { return false };
    let size = dtype.size();
    let look = copy::CHUNK / size / BLOCK * BLOCK;
    let mut scratch = Scratch { sums: [0; BLOCK], out: [0; BLOCK] };
    let out: *mut u8 = scratch.out.as_mut_ptr().cast();
    let mut at_block = sources.to_vec();
    // One target that is no source and is written through the caches gets the sums at once.
    let at_once = match targets {
        [one] if !large && !sources.contains(&one.cast_const()) && one.addr().is_multiple_of(size) => {
            Some(*one)
        }
        _ => None,
    };
    let mut at = 0;
    while at < n {
        if at > 0 && at.is_multiple_of(look) && over() {
            return false;
        }
        let count = BLOCK.min(n - at);
        for (here, source) in at_block.iter_mut().zip(sources) {
            *here = source.wrapping_add(at * size);
        }
        let sums = at_once.map_or(out, |target| target.wrapping_add(at * size));
        // SAFETY: `at + count <= n`, so the caller's promise covers the block; the scratch has room for it.
        unsafe { kernel(&at_block, count, divisor, &mut scratch, sums) };
        for target in targets.iter().filter(|_| at_once.is_none()) {
            // SAFETY: as above for the target; `count` sums are in the scratch, which overlaps nothing.
            unsafe { copy::copy(target.wrapping_add(at * size), out, count * size, large) };
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

/// One pass over a block: N sources, at most [`FAN`], into the sums, or onto them unless they are the `FIRST`.
///
/// # Safety
/// Every source has as many readable elements as there are sums, and overlaps none of them.
#[inline(always)]
unsafe fn pass<T: Summand, const N: usize, const FIRST: bool>(sources: &[*const u8], sums: &mut [T::Wide]) {
    // By value: the compiler must see that no store to a sum changes where the sources are.
    let source = |k: usize| sources.get(k).copied().unwrap_or(std::ptr::null());
    let (a, b, c, d) = (source(0), source(1), source(2), source(3));
    for (i, sum) in sums.iter_mut().enumerate() {
        // SAFETY: the caller promises an element `i` at every source.
        let load = |source: *const u8| unsafe { source.cast::<T>().add(i).read_unaligned().widen() };
        let mut all = if FIRST { load(a) } else { T::add(*sum, load(a)) };
        if N > 1 {
            all = T::add(all, load(b));
        }
        if N > 2 {
            all = T::add(all, load(c));
        }
        if N > 3 {
            all = T::add(all, load(d));
        }
        *sum = all;
    }
}

/// The loops that all kinds of kernels are compiled from.
///
/// # Safety
/// As [`Kernel`].
#[inline(always)]
unsafe fn add_up<T: Summand>(
    sources: &[*const u8],
    n: usize,
    divisor: u32,
    scratch: &mut Scratch,
    out: *mut u8,
) {
    const { assert!(size_of::<T::Wide>() <= 8 && align_of::<T::Wide>() <= 8) };
    let at = if T::ROUNDS { scratch.sums.as_mut_ptr().cast::<T::Wide>() } else { out.cast() };
    // SAFETY: either the scratch, which has `BLOCK` times 8 bytes aligned to 8, or `out`, which has `n` elements of this
    // type, by the caller's promise; any bits are a number.
    let sums = unsafe { std::slice::from_raw_parts_mut(at, n) };
    let (mut first, rest) = sources.split_at(sources.len().min(FAN));
    let mut rest = rest.chunks(FAN);
    let mut begun = false;
    while !first.is_empty() {
        // SAFETY: the caller promises `n` elements at every source, and that `out` overlaps none.
        unsafe {
            match (first.len(), begun) {
                (1, false) => pass::<T, 1, true>(first, sums),
                (2, false) => pass::<T, 2, true>(first, sums),
                (3, false) => pass::<T, 3, true>(first, sums),
                (_, false) => pass::<T, FAN, true>(first, sums),
                (1, true) => pass::<T, 1, false>(first, sums),
                (2, true) => pass::<T, 2, false>(first, sums),
                (3, true) => pass::<T, 3, false>(first, sums),
                (_, true) => pass::<T, FAN, false>(first, sums),
            }
        }
        begun = true;
        first = rest.next().unwrap_or_default();
    }
    if divisor > 1 {
        sums.iter_mut().for_each(|sum| *sum = T::divide(*sum, divisor));
    }
    if T::ROUNDS {
        // SAFETY: `out` has `n` elements of 2 bytes, aligned, by the caller's promise.
        let rounded = unsafe { std::slice::from_raw_parts_mut(out.cast::<u16>(), n) };
        for (rounded, sum) in rounded.iter_mut().zip(sums) {
            *rounded = T::round(*sum);
        }
    }
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
            unsafe fn run<T: Summand>(
                sources: &[*const u8],
                n: usize,
                divisor: u32,
                scratch: &mut Scratch,
                out: *mut u8,
            ) {
                // SAFETY: the caller's promise.
                unsafe { add_up::<T>(sources, n, divisor, scratch, out) }
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
