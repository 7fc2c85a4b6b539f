//! Every value of a step against the single-process result.

use serde::{Deserialize, Serialize};
use symm::moe::Float;

/// Values that differ, and the first of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Difference {
    /// How many.
    pub(super) values: u64,
    /// Index of the first.
    pub(super) first: usize,
    pub(super) got: f32,
    pub(super) expected: f32,
}

/// Compares all values bit for bit; NaNs are equal as a class. `None` if there is no difference.
pub(super) fn compare(float: Float, got: &[u8], expected: &[u8]) -> Option<Difference> {
    if got == expected {
        return None;
    }
    let size = float.size();
    let mut found: Option<Difference> = None;
    let pairs = got.chunks(size).zip(expected.chunks(size)).enumerate();
    for (index, (g, e)) in pairs.filter(|(_, (g, e))| g != e) {
        let (got, expected) = (float.load(g), float.load(e));
        if got.is_nan() && expected.is_nan() {
            continue;
        }
        found.get_or_insert(Difference { values: 0, first: index, got, expected }).values += 1;
    }
    // A result of another length is wrong too, wherever its values end.
    if got.len() != expected.len() {
        let first = got.len().min(expected.len()) / size;
        let missing = (got.len().abs_diff(expected.len()) / size) as u64;
        found.get_or_insert(Difference { values: 0, first, got: f32::NAN, expected: f32::NAN }).values +=
            missing;
    }
    found
}

/// Where a PE's results first differed, and in how many values in all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mismatch {
    pub(super) pe: usize,
    /// Timed steps count from 0, those before are the warm-up.
    pub(super) step: i64,
    /// Number of the token in the trace.
    pub(super) token: usize,
    pub(super) column: usize,
    pub(super) got: String,
    pub(super) expected: String,
    pub(super) values: u64,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Mismatch { pe, step, token, column, got, expected, values } = self;
        let step = if *step < 0 { "a warm-up step".to_owned() } else { format!("step {step}") };
        write!(f, "{values} values differ on PE {pe}, first in {step}: token {token}, column {column} ")?;
        write!(f, "is {got}, expected {expected}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(float: Float, values: &[f32]) -> Vec<u8> {
        let mut out = vec![0; values.len() * float.size()];
        out.chunks_exact_mut(float.size()).zip(values).for_each(|(b, v)| float.store(*v, b));
        out
    }

    #[test]
    fn one_flipped_bit_anywhere_is_found() {
        for float in [Float::BF16, Float::F16, Float::F32] {
            let expected = bytes(float, &[1.0, -2.5, 0.0, 7.0]);
            assert_eq!(compare(float, &expected, &expected), None);
            for bit in 0..expected.len() * 8 {
                let mut got = expected.clone();
                got[bit / 8] ^= 1 << (bit % 8);
                let d = compare(float, &got, &expected).expect("a flipped bit should be found");
                assert_eq!((d.values, d.first), (1, bit / 8 / float.size()));
            }
        }
    }

    #[test]
    fn all_differences_are_counted_and_lengths_compared() {
        let expected = bytes(Float::F32, &[1.0, 2.0, 3.0]);
        let d = compare(Float::F32, &bytes(Float::F32, &[1.0, 5.0, 6.0]), &expected).unwrap();
        assert_eq!((d.values, d.first, d.got, d.expected), (2, 1, 5.0, 2.0));
        assert_eq!(compare(Float::F32, &expected[..4], &expected).map(|d| d.values), Some(2));
    }

    #[test]
    fn nans_are_one_class_and_signed_zeros_are_not() {
        let nans = [f32::from_bits(0x7fc0_0001), f32::NAN].map(|n| n.to_ne_bytes());
        assert_eq!(compare(Float::F32, &nans[0], &nans[1]), None);
        assert!(compare(Float::F32, &bytes(Float::F32, &[-0.0]), &bytes(Float::F32, &[0.0])).is_some());
        assert!(compare(Float::F32, &nans[0], &bytes(Float::F32, &[1.0])).is_some());
    }
}
