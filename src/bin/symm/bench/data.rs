//! What the buffers of a bench hold: small whole numbers, whose sums every element type holds or rounds alike.

use symm::Element;

/// Values are below this. A prime, so that no two sizes of a power of two see the same pattern.
const VALUES: usize = 97;

/// An element that a bench can make from a whole number. Sums are rounded once, to nearest even, as the contract says.
pub(crate) trait Value: Element + PartialEq {
    /// The element nearest to `n`.
    fn of(n: u64) -> Self;
}

macro_rules! values {
    ($($t:ty: |$n:ident| $of:expr),* $(,)?) => {$(
        impl Value for $t {
            #[allow(clippy::cast_possible_truncation, reason = "counts of this size fit, or wrap as sums do")]
            fn of($n: u64) -> Self {
                $of
            }
        }
    )*};
}

values! {
    f32: |n| n as f32, f64: |n| n as f64,
    half::f16: |n| half::f16::from_f32(n as f32), half::bf16: |n| half::bf16::from_f32(n as f32),
    i8: |n| n as i8, i16: |n| n as i16, i32: |n| n as i32, i64: |n| n as i64,
    u8: |n| n as u8, u16: |n| n as u16, u32: |n| n as u32, u64: |n| n,
}

/// Element `i` of rank `r`'s buffer is this plus `13·r`, modulo [`VALUES`].
fn spread(i: usize) -> usize {
    (7 * i + i / 251) % VALUES
}

/// Fills the part of rank `rank`'s buffer that begins with element `first`.
pub(crate) fn fill<T: Value>(rank: usize, first: usize, out: &mut [T]) {
    let table: [T; VALUES] = std::array::from_fn(|x| T::of(((x + 13 * rank) % VALUES) as u64));
    for (i, o) in out.iter_mut().enumerate() {
        *o = table[spread(first + i)];
    }
}

/// Counts the elements of `got` that are not those of rank `rank`'s buffer from element `first` on.
pub(crate) fn differ<T: Value>(rank: usize, first: usize, got: &[T]) -> u64 {
    let table: [T; VALUES] = std::array::from_fn(|x| T::of(((x + 13 * rank) % VALUES) as u64));
    count(got, |i| table[spread(first + i)])
}

/// Counts the elements of `got` that are not those of what `of` says: a rank's buffer, and an element of it.
pub(crate) fn differ_from<T: Value>(got: &[T], of: impl Fn(usize) -> (usize, usize)) -> u64 {
    let table: [T; VALUES] = std::array::from_fn(|x| T::of(x as u64));
    let expected = |i: usize| {
        let (rank, element) = of(i);
        table[(spread(element) + 13 * rank) % VALUES]
    };
    count(got, expected)
}

/// Counts the elements of `got` that are not the sums over `ranks` buffers of the element that `of` says.
pub(crate) fn differ_from_sums<T: Value>(ranks: usize, got: &[T], of: impl Fn(usize) -> usize) -> u64 {
    let table = sums::<T>(ranks);
    count(got, |i| table[spread(of(i))])
}

/// Counts the bytes of `got` that are not `byte`.
pub(crate) fn differ_from_byte<T: Value>(byte: u8, got: &[T]) -> u64 {
    bytemuck::cast_slice::<T, u8>(got).iter().filter(|b| **b != byte).count() as u64
}

/// Counts the elements of `got` that are not the sums over `ranks` buffers from element `first` on.
pub(crate) fn differ_from_sum<T: Value>(ranks: usize, first: usize, got: &[T]) -> u64 {
    differ_from_sums(ranks, got, |i| first + i)
}

/// The sums over `ranks` buffers, by what rank 0's element is.
fn sums<T: Value>(ranks: usize) -> [T; VALUES] {
    let sum = |x: usize| (0..ranks).map(|rank| ((x + 13 * rank) % VALUES) as u64).sum();
    std::array::from_fn(|x| T::of(sum(x)))
}

fn count<T: Value>(got: &[T], expected: impl Fn(usize) -> T) -> u64 {
    got.iter().enumerate().filter(|(i, g)| **g != expected(*i)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_is_counted_and_a_right_one_is_not() {
        let mut x = vec![0f32; 1000];
        fill(3, 500, &mut x);
        assert_eq!(x[7], ((7 * 507 + 507 / 251 + 3 * 13) % VALUES) as f32);
        assert_eq!(differ(3, 500, &x), 0);
        x[10] += 1.0;
        x[999] = f32::NAN;
        assert_eq!(differ(3, 500, &x), 2);
        assert!(differ(2, 500, &x) > 900 && differ(3, 501, &x) > 900);
        assert_eq!(differ_from(&x, |i| (3, 500 + i)), 2);
        assert!(differ_from(&x, |i| (2, 500 + i)) > 900);
        assert_eq!(differ_from_byte(0xff, &[u32::MAX, u32::MAX - 1]), 1);
    }

    #[test]
    fn sums_are_those_of_the_oracle() {
        let (ranks, n) = (200, 300);
        let inputs: Vec<Vec<half::bf16>> = (0..ranks)
            .map(|rank| {
                let mut x = vec![half::bf16::ZERO; n];
                fill(rank, 0, &mut x);
                x
            })
            .collect();
        let bytes: Vec<Vec<u8>> = inputs.iter().map(|x| bytemuck::cast_slice(x).to_vec()).collect();
        let sum = symm::oracle::sum(symm::DType::BF16, &bytes);
        assert_eq!(differ_from_sum::<half::bf16>(ranks, 0, bytemuck::cast_slice(&sum)), 0);
    }
}
