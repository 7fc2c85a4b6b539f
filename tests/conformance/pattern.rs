//! Bytes that every PE can compute for every PE, so that what arrives can be compared without asking the sender.

/// A small generator (SplitMix64): seeded, equal on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator whose numbers depend on every seed of the list.
    pub(crate) fn new(seeds: &[u64]) -> Self {
        let mut r = Random(0x243f_6a88_85a3_08d3);
        for seed in seeds {
            r.0 ^= *seed;
            r.0 = r.next();
        }
        r
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is 1 or more.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// One of a list.
    pub(crate) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// `len` bytes of PE `pe` for `seed`: two seeds, or two PEs, agree on no more bytes than chance makes them.
pub(crate) fn bytes(seed: u64, pe: usize, len: usize) -> Vec<u8> {
    let mut r = Random::new(&[seed, pe as u64]);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&r.next().to_le_bytes());
    }
    out.truncate(len);
    out
}

/// What destinations hold before an operation: of another family of seeds than inputs.
pub(crate) fn poison(seed: u64, pe: usize, len: usize) -> Vec<u8> {
    bytes(!seed, pe, len)
}

/// `n` f32 of one value, as bytes.
pub(crate) fn f32s(value: f32, n: usize) -> Vec<u8> {
    value.to_le_bytes().repeat(n)
}

/// i64 as bytes.
pub(crate) fn i64s(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}
