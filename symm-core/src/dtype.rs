//! Element types: every type moves as bytes; some of them also reduce.

use std::fmt;

/// Element type of a tensor or span.
///
/// All of them are moved; [`DType::reduces`] says which the reductions take.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum DType {
    /// 8-bit float, 4 exponent bits (OCP E4M3).
    F8E4M3 = 0,
    /// 8-bit float, 5 exponent bits (OCP E5M2).
    F8E5M2 = 1,
    /// IEEE half.
    F16 = 2,
    /// bfloat16.
    BF16 = 3,
    /// IEEE single.
    F32 = 4,
    /// IEEE double.
    F64 = 5,
    /// Signed, 8 bits.
    I8 = 6,
    /// Signed, 16 bits.
    I16 = 7,
    /// Signed, 32 bits.
    I32 = 8,
    /// Signed, 64 bits; splits and offsets are of this type.
    I64 = 9,
    /// Unsigned, 8 bits; also opaque bytes.
    U8 = 10,
    /// Unsigned, 16 bits.
    U16 = 11,
    /// Unsigned, 32 bits.
    U32 = 12,
    /// Unsigned, 64 bits.
    U64 = 13,
    /// One byte, 0 or 1.
    Bool = 14,
}

impl DType {
    /// Every type, in the order of its code.
    pub const ALL: [DType; 15] = [
        DType::F8E4M3,
        DType::F8E5M2,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::F8E4M3 | DType::F8E5M2 | DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
        }
    }

    /// Whether reductions (sum) take this type: f32, f64, f16, bf16, i32, i64.
    pub const fn reduces(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16 | DType::I32 | DType::I64)
    }

    /// The code that headers carry on the wire and into kernels.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The type of a code, or `None` for one that this version does not know.
    pub fn from_code(code: u32) -> Option<DType> {
        DType::ALL.get(code as usize).copied()
    }

    /// Lower-case name as the command line takes it: `bf16`, `f8e4m3`, `i64`, …
    pub const fn name(self) -> &'static str {
        match self {
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for DType {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        DType::ALL
            .into_iter()
            .find(|d| d.name() == s)
            .ok_or_else(|| format!("unknown dtype {s:?}; known: {}", DType::ALL.map(DType::name).join(", ")))
    }
}

/// One E4M3 value as its bits; moved, not computed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct F8E4M3(pub u8);

/// One E5M2 value as its bits; moved, not computed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct F8E5M2(pub u8);

/// A bool as its byte (0 or 1): peers write these bytes, so they are never read as Rust's `bool`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Bool8(pub u8);

/// A Rust type whose values are elements of a [`DType`].
///
/// # Safety
/// - `size_of::<Self>() == Self::DTYPE.size()`.
/// - Every bit pattern is a valid value (guaranteed by `Pod`), since peers write them.
pub unsafe trait Element: bytemuck::Pod + Send + Sync {
    /// The element type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty => $d:ident),* $(,)?) => {$(
        const _: () = assert!(size_of::<$t>() == DType::$d.size());
        // SAFETY: the size is asserted above and the type is Pod.
        unsafe impl Element for $t { const DTYPE: DType = DType::$d; }
    )*};
}

elements! {
    F8E4M3 => F8E4M3, F8E5M2 => F8E5M2, half::f16 => F16, half::bf16 => BF16, f32 => F32, f64 => F64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, Bool8 => Bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_one_to_one() {
        for (i, d) in DType::ALL.into_iter().enumerate() {
            assert_eq!(d.code() as usize, i);
            assert_eq!(DType::from_code(d.code()), Some(d));
            assert_eq!(d.name().parse::<DType>(), Ok(d));
        }
        assert_eq!(DType::from_code(15), None);
        assert!("f7".parse::<DType>().is_err());
    }

    #[test]
    fn reducing_types_are_those_of_the_design() {
        let reducing: Vec<_> = DType::ALL.into_iter().filter(|d| d.reduces()).map(DType::name).collect();
        assert_eq!(reducing, ["f16", "bf16", "f32", "f64", "i32", "i64"]);
    }
}
