//! Sums, and the copy from a root.
//!
//! 16-bit floats are decoded and rounded here by their definition, in exact arithmetic, so that what backends do with
//! bits is compared with something that does not.

use crate::DType;

/// A binary float of 16 bits: fraction bits and the exponent's bias.
#[derive(Clone, Copy)]
struct Half {
    fraction: u32,
    bias: i32,
}

const F16: Half = Half { fraction: 10, bias: 15 };
const BF16: Half = Half { fraction: 7, bias: 127 };

impl Half {
    /// The value of a magnitude (sign bit 0) as if the format had no infinities: exact, since f64 is wider in both parts.
    fn magnitude(self, bits: u16) -> f64 {
        let exponent = i32::from(bits >> self.fraction);
        let fraction = f64::from(bits & ((1 << self.fraction) - 1)) / f64::from(1u32 << self.fraction);
        if exponent == 0 {
            fraction * 2f64.powi(1 - self.bias)
        } else {
            (1.0 + fraction) * 2f64.powi(exponent - self.bias)
        }
    }

    /// Bits of infinity.
    fn infinity(self) -> u16 {
        (0x7fff >> self.fraction) << self.fraction
    }

    fn decode(self, bits: u16) -> f32 {
        let magnitude = bits & 0x7fff;
        let value = match magnitude.cmp(&self.infinity()) {
            std::cmp::Ordering::Less => self.magnitude(magnitude) as f32,
            std::cmp::Ordering::Equal => f32::INFINITY,
            std::cmp::Ordering::Greater => f32::NAN,
        };
        if bits & 0x8000 != 0 { -value } else { value }
    }

    /// The nearest, ties to the one whose last bit is 0. Infinity is where the next number would be.
    fn encode(self, value: f32) -> u16 {
        let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
        if value.is_nan() {
            return self.infinity() + 1;
        }
        let exact = f64::from(value).abs();
        let infinity = self.infinity();
        if exact >= self.magnitude(infinity) {
            return sign | infinity;
        }
        // The largest number that is not above the value.
        let (mut below, mut above) = (0, infinity);
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if self.magnitude(middle) <= exact {
                below = middle;
            } else {
                above = middle;
            }
        }
        let (down, up) = (exact - self.magnitude(below), self.magnitude(above) - exact);
        let nearest = match down.total_cmp(&up) {
            std::cmp::Ordering::Less => below,
            std::cmp::Ordering::Greater => above,
            std::cmp::Ordering::Equal => below + below % 2,
        };
        sign | nearest
    }
}

/// The elements of one input at one place, in rank order.
fn column<const N: usize>(inputs: &[Vec<u8>], at: usize) -> impl Iterator<Item = [u8; N]> {
    inputs.iter().map(move |input| std::array::from_fn(|i| input[at + i]))
}

/// First plus second plus third …, from the first on.
fn fold<T: Copy>(mut values: impl Iterator<Item = T>, add: impl Fn(T, T) -> T) -> T {
    let first = values.next().expect("an oracle should be given one input or more");
    values.fold(first, add)
}

/// The sum of all inputs, element by element, in rank order. 16-bit floats are added up as f32 and rounded once to
/// nearest even; integers wrap.
///
/// # Panics
/// For a type that has no sum, and for inputs that differ in length.
pub fn sum(dtype: DType, inputs: &[Vec<u8>]) -> Vec<u8> {
    divided(dtype, inputs, 1)
}

/// The sum, divided by the number of inputs before it is rounded.
///
/// # Panics
/// As [`sum`], and for integers.
pub fn average(dtype: DType, inputs: &[Vec<u8>]) -> Vec<u8> {
    assert!(!matches!(dtype, DType::I32 | DType::I64), "{dtype} has no average");
    divided(dtype, inputs, u32::try_from(inputs.len()).expect("ranks should fit u32"))
}

fn divided(dtype: DType, inputs: &[Vec<u8>], by: u32) -> Vec<u8> {
    let bytes = inputs.first().map_or(0, Vec::len);
    assert!(inputs.iter().all(|input| input.len() == bytes), "inputs should be of one length");
    let mut out = Vec::with_capacity(bytes);
    for at in (0..bytes).step_by(dtype.size()) {
        let half = |h: Half| {
            let wide = column(inputs, at).map(|b| h.decode(u16::from_le_bytes(b)));
            h.encode(fold(wide, |a, b| a + b) / by as f32).to_le_bytes()
        };
        match dtype {
            DType::F32 => {
                let values = column(inputs, at).map(f32::from_le_bytes);
                out.extend((fold(values, |a, b| a + b) / by as f32).to_le_bytes());
            }
            DType::F64 => {
                let values = column(inputs, at).map(f64::from_le_bytes);
                out.extend((fold(values, |a, b| a + b) / f64::from(by)).to_le_bytes());
            }
            DType::F16 => out.extend(half(F16)),
            DType::BF16 => out.extend(half(BF16)),
            DType::I32 => {
                let values = column(inputs, at).map(i32::from_le_bytes);
                out.extend(fold(values, i32::wrapping_add).to_le_bytes());
            }
            DType::I64 => {
                let values = column(inputs, at).map(i64::from_le_bytes);
                out.extend(fold(values, i64::wrapping_add).to_le_bytes());
            }
            other => panic!("{other} has no sum"),
        }
    }
    out
}

/// `reduce_scatter`: the sum seen as a matrix of `lead` rows, whose columns are cut into W equal blocks; rank `r` gets
/// block `r`, dense. With `lead` 1 that is the r-th part of a plain array.
pub fn reduce_scatter(dtype: DType, lead: usize, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let all = sum(dtype, inputs);
    let block = all.len() / inputs.len() / lead;
    assert_eq!(block * inputs.len() * lead, all.len(), "the columns should be cut into equal blocks");
    let mut outs = vec![Vec::new(); inputs.len()];
    for (i, bytes) in all.chunks(block.max(1)).enumerate() {
        outs[i % inputs.len()].extend_from_slice(bytes);
    }
    outs
}

/// `broadcast`: the root's bytes become everybody's.
pub fn broadcast(root: usize, buffers: &mut [Vec<u8>]) {
    let bytes = buffers[root].clone();
    buffers.iter_mut().for_each(|buffer| buffer.copy_from_slice(&bytes));
}

/// `memset32`: `count` words from word `offset` on become `value`.
pub fn memset32(words: &mut [u8], offset: usize, value: u32, count: usize) {
    for i in offset..offset + count {
        words[4 * i..4 * i + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// Makes every NaN one and the same: which of them a sum gives is left open.
pub fn canonical(dtype: DType, bytes: &mut [u8]) {
    let one = |bytes: &mut [u8], nan: fn(&[u8]) -> bool| {
        bytes.chunks_exact_mut(dtype.size()).filter(|e| nan(e)).for_each(|e| e.fill(0xff));
    };
    match dtype {
        DType::F32 => one(bytes, |e| f32::from_le_bytes(std::array::from_fn(|i| e[i])).is_nan()),
        DType::F64 => one(bytes, |e| f64::from_le_bytes(std::array::from_fn(|i| e[i])).is_nan()),
        DType::F16 => one(bytes, |e| F16.decode(u16::from_le_bytes([e[0], e[1]])).is_nan()),
        DType::BF16 => one(bytes, |e| BF16.decode(u16::from_le_bytes([e[0], e[1]])).is_nan()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_what_their_tables_say() {
        for (format, bits, value) in [
            (F16, 0x3c00, 1.0),
            (F16, 0x0001, 2f32.powi(-24)),
            (F16, 0x7bff, 65504.0),
            (F16, 0xfc00, f32::NEG_INFINITY),
            (F16, 0x8000, -0.0),
            (BF16, 0x3f80, 1.0),
            (BF16, 0x0001, f32::from_bits(1 << 16)),
            (BF16, 0x7f7f, 3.389_531_4e38),
            (BF16, 0x7f80, f32::INFINITY),
        ] {
            assert_eq!(format.decode(bits).to_bits(), f32::to_bits(value));
            assert_eq!(format.encode(value), bits);
        }
        // Ties: 2049 lies between 2048 and 2050, whose last bits are 0 and 1; 2051 between 2050 and 2052.
        assert_eq!([2049.0, 2051.0].map(|v| F16.decode(F16.encode(v))), [2048.0, 2052.0]);
        assert_eq!([65519.9, 65520.0, 1e30].map(|v| F16.encode(v)), [0x7bff, 0x7c00, 0x7c00]);
        assert!(F16.decode(F16.encode(f32::NAN)).is_nan() && BF16.decode(BF16.encode(f32::NAN)).is_nan());
        for bits in 0..=u16::MAX {
            for format in [F16, BF16] {
                let value = format.decode(bits);
                assert!(value.is_nan() || format.encode(value) == bits, "{bits:#x}");
            }
        }
    }

    #[test]
    fn sums_go_from_rank_0_up_and_round_once() {
        let f = |v: [f32; 3]| v.map(|x| x.to_le_bytes().to_vec());
        assert_eq!(sum(DType::F32, &f([1e8, 1.0, -1e8])), 0f32.to_le_bytes());
        assert_eq!(sum(DType::F32, &f([-1e8, 1e8, 1.0])), 1f32.to_le_bytes());
        assert_eq!(sum(DType::F32, &f([-0.0; 3])), (-0f32).to_le_bytes());
        // 2048 + 1 + 1 is 2050 in f32; rounded after each step it would stay 2048.
        let h = [2048.0, 1.0, 1.0].map(|x| F16.encode(x).to_le_bytes().to_vec());
        assert_eq!(sum(DType::F16, &h), F16.encode(2050.0).to_le_bytes());
        // 2049 / 3 is 683; the sum rounded first would be 2048, and a third of that 682.67.
        let h = [2048.0, 1.0, 0.0].map(|x| F16.encode(x).to_le_bytes().to_vec());
        assert_eq!(average(DType::F16, &h), F16.encode(683.0).to_le_bytes());
        assert_eq!(average(DType::F32, &f([1.0, 0.0, 0.0])), (1f32 / 3.0).to_le_bytes());
        let i = [i32::MAX, 1].map(|x| x.to_le_bytes().to_vec());
        assert_eq!(sum(DType::I32, &i), i32::MIN.to_le_bytes());
        let mut nan = sum(DType::F32, &f([f32::INFINITY, f32::NEG_INFINITY, 1.0]));
        canonical(DType::F32, &mut nan);
        assert_eq!(nan, [0xff; 4]);
    }

    #[test]
    fn scattered_columns() {
        // Two ranks, two rows of four columns.
        let input = |r: i32| (0..8).flat_map(|i| (10 * i + r).to_le_bytes()).collect::<Vec<u8>>();
        let read = |b: &[u8]| b.as_chunks::<4>().0.iter().map(|c| i32::from_le_bytes(*c)).collect::<Vec<_>>();
        let inputs = [input(0), input(1)];
        let whole = reduce_scatter(DType::I32, 1, &inputs);
        assert_eq!([read(&whole[0]), read(&whole[1])], [[1, 21, 41, 61], [81, 101, 121, 141]]);
        let rows = reduce_scatter(DType::I32, 2, &inputs);
        assert_eq!([read(&rows[0]), read(&rows[1])], [[1, 21, 81, 101], [41, 61, 121, 141]]);
        let none = reduce_scatter(DType::I32, 1, &[vec![], vec![]]);
        assert!(none.len() == 2 && none.iter().all(Vec::is_empty));
    }

    #[test]
    fn copies_and_fills() {
        let mut buffers = vec![vec![1, 2], vec![3, 4], vec![5, 6]];
        broadcast(1, &mut buffers);
        assert_eq!(buffers, [[3, 4]; 3]);
        let mut words = [0; 12];
        memset32(&mut words, 1, 0x0403_0201, 1);
        assert_eq!(words, [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0]);
    }
}
