use super::*;

fn bits(seed: u64, i: usize) -> u64 {
    let mut z = seed ^ (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Every f16 and every bf16 widens to what `half` says.
#[test]
fn widening_is_exact() {
    for b in 0..=u16::MAX {
        let (h, w) = (f16::from_bits(b).widen(), f16::from_bits(b).to_f32());
        assert!(h.to_bits() == w.to_bits() || h.is_nan() && w.is_nan(), "f16 {b:#x}: {h} {w}");
        let (h, w) = (bf16::from_bits(b).widen(), bf16::from_bits(b).to_f32());
        assert!(h.to_bits() == w.to_bits() || h.is_nan() && w.is_nan(), "bf16 {b:#x}: {h} {w}");
    }
}

fn rounds_like_half(f: f32) {
    let (got, want) = (f16::from_bits(f16::round(f)), f16::from_f32(f));
    assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "f16 of {f:e}: {got} {want}");
    let (got, want) = (bf16::from_bits(bf16::round(f)), bf16::from_f32(f));
    assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "bf16 of {f:e}: {got} {want}");
}

/// Around every f16 and bf16 and every middle between two of them, and at random.
#[test]
fn rounding_is_to_nearest_even() {
    for b in 0..=u16::MAX {
        for exact in [f16::from_bits(b).to_f32(), bf16::from_bits(b).to_f32()] {
            let next = [f16::from_bits(b ^ 1).to_f32(), bf16::from_bits(b.wrapping_add(1)).to_f32()];
            for middle in next.map(|n| exact / 2.0 + n / 2.0).into_iter().chain([exact]) {
                for step in -2i32..=2 {
                    rounds_like_half(f32::from_bits(middle.to_bits().wrapping_add_signed(step)));
                }
            }
        }
    }
    for i in 0..400_000 {
        rounds_like_half(f32::from_bits(bits(7, i) as u32));
    }
}

/// Bits that make every kind of number likely: also NaN, infinities, denormals, zeros of both signs.
fn elements(seed: u64, n: usize, size: usize) -> Vec<u8> {
    (0..n)
        .flat_map(|i| {
            let b = bits(seed, i);
            let b = match b >> 60 {
                0 => 0,
                1 => u64::MAX << 63,
                2 => b & 0x000f_ffff_0000_000f,
                3 => b | 0x7ff0_0000_7f80_7f80,
                _ => b,
            };
            b.to_le_bytes()[8 - size..].to_vec()
        })
        .collect()
}

const TYPES: [DType; 6] = [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::I64];

#[test]
fn every_kind_of_vector_gives_the_oracles_bits() {
    for (kind, kernels) in kernels() {
        for (dtype, kernel) in TYPES.into_iter().zip(kernels) {
            let size = dtype.size();
            for w in [1, 2, 3, 4, 5, 6, 9, 17_usize] {
                for n in [1, 7, 8, 31, 64, 100, BLOCK] {
                    // Odd addresses, too.
                    let inputs: Vec<Vec<u8>> = (0..w).map(|r| elements(r as u64 + 1, n, size)).collect();
                    let moved: Vec<Vec<u8>> = inputs.iter().map(|v| [vec![0], v.clone()].concat()).collect();
                    let sources: Vec<*const u8> = moved.iter().map(|v| v[1..].as_ptr()).collect();
                    let mut scratch = Scratch { sums: [0; BLOCK], out: [0; BLOCK] };
                    let mut out = vec![0xEE_u64; BLOCK + 1];
                    // Averages of floats at every other length.
                    let average = n % 2 == 1 && !matches!(dtype, DType::I32 | DType::I64);
                    let divisor = if average { w as u32 } else { 1 };
                    // SAFETY: every source and the output have `n` elements.
                    unsafe { kernel(&sources, n, divisor, &mut scratch, out.as_mut_ptr().cast()) };
                    let out: &[u8] = bytemuck::cast_slice(&out);
                    let mut got = out[..n * size].to_vec();
                    let behind = 0xEE_u64.to_le_bytes();
                    assert!((n * size..out.len()).all(|i| out[i] == behind[i % 8]));
                    let oracle = if average { symm_core::oracle::average } else { symm_core::oracle::sum };
                    let mut want = oracle(dtype, &inputs);
                    symm_core::oracle::canonical(dtype, &mut got);
                    symm_core::oracle::canonical(dtype, &mut want);
                    assert_eq!(got, want, "{kind} {dtype} {w} sources of {n}");
                }
            }
        }
    }
}

#[test]
fn blocks_and_targets_are_joined_without_gaps() {
    for large in [false, true] {
        for n in [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 5] {
            let inputs: Vec<Vec<u8>> = (0..3).map(|r| elements(r + 9, n, 4)).collect();
            let want = symm_core::oracle::sum(DType::I32, &inputs);
            let mut own = inputs.clone();
            let mut other = vec![0xEE_u8; 4 * n + 8];
            let sources: Vec<*const u8> =
                [own[0].as_mut_ptr().cast_const(), inputs[1].as_ptr(), inputs[2].as_ptr()].to_vec();
            let targets = [own[0].as_mut_ptr(), other[4..].as_mut_ptr()];
            // SAFETY: all have `n` elements; the first target is exactly the first source.
            assert!(unsafe {
                sum(Kind { dtype: DType::I32, divisor: 1 }, &sources, &targets, n, large, || false)
            });
            copy::drain();
            assert_eq!(own[0], want);
            assert_eq!(other[4..4 * n + 4], want);
            assert!(other[..4].iter().chain(&other[4 * n + 4..]).all(|b| *b == 0xEE));
        }
    }
    // SAFETY: no elements are touched.
    assert!(unsafe { !sum(Kind { dtype: DType::U8, divisor: 1 }, &[], &[], 0, false, || false) });
}

#[test]
fn a_long_sum_stops_when_told() {
    let n = 3 * copy::CHUNK / 4;
    let input = vec![0_u8; 4 * n];
    let mut out = vec![0xEE_u8; 4 * n];
    let kind = Kind { dtype: DType::F32, divisor: 1 };
    // SAFETY: both have `n` elements.
    let all = unsafe { sum(kind, &[input.as_ptr()], &[out.as_mut_ptr()], n, false, || true) };
    assert!(!all && out[4 * n - 1] == 0xEE && out[0] == 0);
}
