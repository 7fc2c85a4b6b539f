//! The arithmetic of a step, and its result computed straight from the trace.
//!
//! A step: token i has a row x of `hidden` elements; each of its choices j sends x to expert e, which gives
//! `y = x·a_e + b_e`; the token's result is `Σ_j w_j·y_j` in the order of j. All in f32, a multiplication then an
//! addition (no FMA), y and the result each rounded once to the element type, to nearest even. So a backend that moves
//! rows correctly gives these bits exactly.

use std::ops::Range;

use super::Trace;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Element types that the MoE job computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// bfloat16.
    BF16,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
}

impl TryFrom<DType> for Float {
    type Error = Error;

    fn try_from(dtype: DType) -> Result<Self> {
        match dtype {
            DType::BF16 => Ok(Float::BF16),
            DType::F16 => Ok(Float::F16),
            DType::F32 => Ok(Float::F32),
            other => Err(Error::argument("moe", "dtype", other, "bf16, f16 or f32")),
        }
    }
}

impl From<Float> for DType {
    fn from(float: Float) -> DType {
        match float {
            Float::BF16 => DType::BF16,
            Float::F16 => DType::F16,
            Float::F32 => DType::F32,
        }
    }
}

impl Float {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Float::BF16 | Float::F16 => 2,
            Float::F32 => 4,
        }
    }

    /// The value of an element; exact. `bytes` has [`Float::size`] bytes, fewer read as zero.
    pub fn load(self, bytes: &[u8]) -> f32 {
        match (self, bytes) {
            (Float::BF16, &[a, b]) => half::bf16::from_ne_bytes([a, b]).to_f32(),
            (Float::F16, &[a, b]) => half::f16::from_ne_bytes([a, b]).to_f32(),
            (Float::F32, &[a, b, c, d]) => f32::from_ne_bytes([a, b, c, d]),
            _ => 0.0,
        }
    }

    /// Writes a value, rounded to nearest even, to a slice of [`Float::size`] bytes.
    pub fn store(self, value: f32, bytes: &mut [u8]) {
        match (self, bytes) {
            (Float::BF16, [a, b]) => [*a, *b] = half::bf16::from_f32(value).to_ne_bytes(),
            (Float::F16, [a, b]) => [*a, *b] = half::f16::from_f32(value).to_ne_bytes(),
            (Float::F32, [a, b, c, d]) => [*a, *b, *c, *d] = value.to_ne_bytes(),
            _ => {}
        }
    }

    /// A value rounded to this type.
    pub fn round(self, value: f32) -> f32 {
        match self {
            Float::BF16 => half::bf16::from_f32(value).to_f32(),
            Float::F16 => half::f16::from_f32(value).to_f32(),
            Float::F32 => value,
        }
    }
}

/// Element `column` of token `token`'s row: one of 1024 values between 0.25 and 4 in magnitude, each exact in every
/// [`Float`] (8 significant bits), spread by a hash so that rows of different tokens differ.
pub fn input_value(seed: u64, token: usize, column: usize) -> f32 {
    // SplitMix64's finaliser over distinct inputs: cheap, and every output bit depends on every input bit.
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let row = mix(seed ^ mix((token as u64).wrapping_add(0x9E37_79B9_7F4A_7C15)));
    let bits = mix(row.wrapping_add((column as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    let significand = 128 + (bits & 127) as i32;
    let scale = [1.0 / 512.0, 1.0 / 256.0, 1.0 / 128.0, 1.0 / 64.0][(bits >> 7 & 3) as usize];
    let sign = if bits >> 9 & 1 == 1 { -1.0 } else { 1.0 };
    sign * significand as f32 * scale
}

/// `a_e` and `b_e`: a pair of small dyadic numbers that no two experts share. Experts whose ids differ by less than 64
/// have factors at least 1/64 apart, those with the same factor have summands at least 1/4 apart, so that rows of 16
/// elements or more tell any two experts apart in bf16 too.
pub fn expert_constants(expert: usize) -> (f32, f32) {
    (1.0 + (expert % 64) as f32 / 64.0, (expert / 64) as f32 / 4.0 + 0.25)
}

/// One element through an expert, before rounding.
fn expert_value((a, b): (f32, f32), x: f32) -> f32 {
    let product = x * a;
    product + b
}

/// Writes token `token`'s row; `row` is any number of whole elements.
pub fn input_row(float: Float, seed: u64, token: usize, row: &mut [u8]) {
    for (column, element) in row.chunks_exact_mut(float.size()).enumerate() {
        float.store(input_value(seed, token, column), element);
    }
}

/// Applies expert `expert` to a row in place.
pub fn expert_apply(float: Float, expert: usize, row: &mut [u8]) {
    let constants = expert_constants(expert);
    for element in row.chunks_exact_mut(float.size()) {
        let y = expert_value(constants, float.load(element));
        float.store(y, element);
    }
}

/// Sums a token's rows with their weights, in the order given, into `out`; without choices `out` becomes zeros. Every
/// row has the length of `out`; elements that a shorter one lacks count as zero.
pub fn combine_row(float: Float, choices: &[(f32, &[u8])], out: &mut [u8]) {
    use half::{bf16, f16};
    match float {
        Float::BF16 => {
            combine(choices, out, |b| bf16::from_ne_bytes(b).to_f32(), |v| bf16::from_f32(v).to_ne_bytes());
        }
        Float::F16 => {
            combine(choices, out, |b| f16::from_ne_bytes(b).to_f32(), |v| f16::from_f32(v).to_ne_bytes());
        }
        Float::F32 => combine(choices, out, f32::from_ne_bytes, f32::to_ne_bytes),
    }
}

/// [`combine_row`] for elements of N bytes. Goes choice by choice through blocks of columns, whose sums stay near: that
/// a compiler can do in vectors, and each column is still added in the order of the choices.
fn combine<const N: usize>(
    choices: &[(f32, &[u8])],
    out: &mut [u8],
    load: impl Fn([u8; N]) -> f32,
    store: impl Fn(f32) -> [u8; N],
) {
    const COLUMNS: usize = 64;
    for (block, out) in out.chunks_mut(COLUMNS * N).enumerate() {
        let mut sums = [0.0f32; COLUMNS];
        for (weight, row) in choices {
            let columns = row.get(block * COLUMNS * N..).unwrap_or_default();
            for (sum, element) in sums.iter_mut().zip(columns.as_chunks::<N>().0) {
                let product = weight * load(*element);
                *sum += product;
            }
        }
        for (element, sum) in out.as_chunks_mut::<N>().0.iter_mut().zip(sums) {
            *element = store(sum);
        }
    }
}

/// The result of a step in one process, token by token and without any plan: what a job is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Reference<'a> {
    /// The routing.
    pub trace: &'a Trace,
    /// Element type.
    pub float: Float,
    /// Elements of a row.
    pub hidden: usize,
    /// Seed of the inputs.
    pub seed: u64,
}

impl Reference<'_> {
    /// Writes the result of one token, `hidden` elements. A token that is not in the trace made no choices.
    pub fn row(&self, token: usize, out: &mut [u8]) {
        let k = self.trace.top_k;
        let choices = || {
            let range = token.saturating_mul(k)..token.saturating_add(1).saturating_mul(k);
            let ids = self.trace.ids.get(range.clone()).unwrap_or_default();
            ids.iter().zip(self.trace.weights.get(range).unwrap_or_default())
        };
        for (column, element) in out.chunks_exact_mut(self.float.size()).take(self.hidden).enumerate() {
            let x = self.float.round(input_value(self.seed, token, column));
            let mut sum = 0.0f32;
            for (id, weight) in choices() {
                if let Ok(expert) = usize::try_from(*id) {
                    let y = self.float.round(expert_value(expert_constants(expert), x));
                    let product = weight * y;
                    sum += product;
                }
            }
            self.float.store(sum, element);
        }
    }

    /// The results of consecutive tokens, `[tokens, hidden]`.
    pub fn rows(&self, tokens: Range<usize>) -> Vec<u8> {
        let bytes = self.hidden * self.float.size();
        let mut out = vec![0; tokens.len() * bytes];
        if bytes > 0 {
            tokens.zip(out.chunks_exact_mut(bytes)).for_each(|(token, row)| self.row(token, row));
        }
        out
    }
}
