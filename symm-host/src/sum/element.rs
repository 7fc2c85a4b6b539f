//! Elements that can be added up, and the width in which that is done.

use half::{bf16, f16};

/// An element type of the reductions.
pub(super) trait Summand: Copy {
    /// What sums are kept in.
    type Wide: Copy;

    /// Whether sums are rounded back; else they are of the element's own type.
    const ROUNDS: bool = false;

    /// Exact.
    fn widen(self) -> Self::Wide;

    /// One addition.
    fn add(a: Self::Wide, b: Self::Wide) -> Self::Wide;

    /// One division by a number of summands.
    fn divide(sum: Self::Wide, by: u32) -> Self::Wide;

    /// Bits of the nearest element, ties to even. Only where sums are rounded.
    fn round(_sum: Self::Wide) -> u16 {
        0
    }
}

macro_rules! own_width {
    ($($t:ty: $add:expr, $divide:expr;)*) => {$(
        impl Summand for $t {
            type Wide = $t;

            #[inline(always)]
            fn widen(self) -> $t {
                self
            }

            #[inline(always)]
            fn add(a: $t, b: $t) -> $t {
                $add(a, b)
            }

            #[inline(always)]
            fn divide(sum: $t, by: u32) -> $t {
                $divide(sum, by)
            }
        }
    )*};
}

own_width! {
    f32: |a: f32, b: f32| a + b, |a: f32, by: u32| a / by as f32;
    f64: |a: f64, b: f64| a + b, |a: f64, by: u32| a / f64::from(by);
    // Nobody divides integers: the model refuses that.
    i32: i32::wrapping_add, |a: i32, _| a;
    i64: i64::wrapping_add, |a: i64, _| a;
}

// Both conversions are written without branches that the compiler could not turn into selections, so that the loops over
// them become vector code without a processor's own conversions.

impl Summand for bf16 {
    type Wide = f32;

    const ROUNDS: bool = true;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn add(a: f32, b: f32) -> f32 {
        a + b
    }

    #[inline(always)]
    fn divide(sum: f32, by: u32) -> f32 {
        sum / by as f32
    }

    #[inline(always)]
    fn round(sum: f32) -> u16 {
        let bits = sum.to_bits();
        let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
        let quiet = bits | 0x40_0000;
        ((if sum.is_nan() { quiet } else { nearest }) >> 16) as u16
    }
}

/// Position of f32's exponent.
const EXPONENT: u32 = 23;

/// Bits that f32's fraction has more than f16's.
const MORE: u32 = 23 - 10;

impl Summand for f16 {
    type Wide = f32;

    const ROUNDS: bool = true;

    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let sign = (bits & 0x8000) << 16;
        let magnitude = (bits & 0x7fff) << MORE;
        // As f32 the number has f16's exponent, 112 too small; a product with a power of two corrects that, and makes a
        // normal number of one whose exponent is 0.
        let scaled = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << EXPONENT)).to_bits();
        let special = magnitude | 0xff << EXPONENT;
        f32::from_bits(sign | if bits & 0x7c00 == 0x7c00 { special } else { scaled })
    }

    #[inline(always)]
    fn add(a: f32, b: f32) -> f32 {
        a + b
    }

    #[inline(always)]
    fn divide(sum: f32, by: u32) -> f32 {
        sum / by as f32
    }

    #[inline(always)]
    fn round(sum: f32) -> u16 {
        let bits = sum.to_bits();
        let sign = bits & 0x8000_0000;
        let magnitude = bits ^ sign;
        // Below f16's smallest normal number: an addition to a number whose last bit is f16's last one rounds.
        const SHIFTER: u32 = (127 - 15 + MORE + 1) << EXPONENT;
        let small = (f32::from_bits(magnitude) + f32::from_bits(SHIFTER)).to_bits().wrapping_sub(SHIFTER);
        // A carry out of the fraction goes into the exponent, as it must, and from the largest number to infinity.
        let normal =
            magnitude.wrapping_sub(112 << EXPONENT).wrapping_add(0xfff + (magnitude >> MORE & 1)) >> MORE;
        let finite = if magnitude < 113 << EXPONENT { small } else { normal };
        let too_large = if magnitude > 0xff << EXPONENT { 0x7e00 } else { 0x7c00 };
        let half = if magnitude >= (127 + 16) << EXPONENT { too_large } else { finite };
        (half | sign >> 16) as u16
    }
}
