//! Copies into memory that other PEs read.
//!
//! Large amounts use non-temporal stores: an ordinary store of a whole line reads it first, a third of the traffic,
//! and would push the reader's working set out of the shared cache. The kind of vector is chosen once, at run time.

use std::sync::OnceLock;

/// From this many bytes an operation as a whole counts as large: more than a core's caches hold.
pub(crate) const LARGE: usize = 4 << 20;

/// Single pieces below this are copied ordinarily even inside a large operation: alignment would cost more.
const PIECE: usize = 2 << 10;

/// Bytes between two looks at whether the operation was given up: a fraction of a millisecond of copying.
pub(crate) const CHUNK: usize = 1 << 20;

type Stream = unsafe fn(*mut u8, *const u8, usize);

/// The widest non-temporal copy of this processor; `None` where there is none.
fn stream() -> Option<Stream> {
    static CHOICE: OnceLock<Option<Stream>> = OnceLock::new();
    *CHOICE.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            if std::is_x86_feature_detected!("avx512f") {
                return Some(x86::stream_avx512 as Stream);
            }
            if std::is_x86_feature_detected!("avx2") {
                return Some(x86::stream_avx2 as Stream);
            }
        }
        None
    })
}

/// Copies `bytes` bytes. `large` says that the operation moves much in total. Until [`drain`] the stores of a large
/// copy may be invisible to others even after a later release store.
///
/// # Safety
/// Both ranges are valid for `bytes` bytes and do not overlap.
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize, large: bool) {
    if large
        && bytes >= PIECE
        && let Some(stream) = stream()
    {
        // SAFETY: the caller's promise; the function was chosen for this processor.
        return unsafe { stream(dst, src, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) };
}

/// Makes the stores of large copies visible before any later store. Cheap; needed once before a flag is raised.
pub(crate) fn drain() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_loadu_si256, _mm256_stream_si256, _mm512_loadu_si512, _mm512_stream_si512,
    };

    /// Bytes of a cache line, the unit of a combined write.
    const LINE: usize = 64;

    /// Splits into an ordinary head up to the next line of `dst`, whole lines, and an ordinary tail.
    fn parts(dst: *mut u8, bytes: usize) -> (usize, usize) {
        let head = dst.align_offset(LINE).min(bytes);
        (head, (bytes - head) / LINE * LINE)
    }

    /// # Safety
    /// AVX-512F; both ranges valid for `bytes` bytes, not overlapping.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn stream_avx512(dst: *mut u8, src: *const u8, bytes: usize) {
        let (head, body) = parts(dst, bytes);
        // SAFETY: all three parts are inside the ranges; `dst + head` is aligned to a line when `body` is not 0.
        unsafe {
            std::ptr::copy_nonoverlapping(src, dst, head);
            let (d, s) = (dst.add(head), src.add(head));
            let mut at = 0;
            while at < body {
                let v = _mm512_loadu_si512(s.add(at).cast::<__m512i>());
                _mm512_stream_si512(d.add(at).cast::<__m512i>(), v);
                at += LINE;
            }
            std::ptr::copy_nonoverlapping(s.add(body), d.add(body), bytes - head - body);
        }
    }

    /// # Safety
    /// AVX2; both ranges valid for `bytes` bytes, not overlapping.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn stream_avx2(dst: *mut u8, src: *const u8, bytes: usize) {
        let (head, body) = parts(dst, bytes);
        // SAFETY: all three parts are inside the ranges; `dst + head` is aligned to a line when `body` is not 0.
        unsafe {
            std::ptr::copy_nonoverlapping(src, dst, head);
            let (d, s) = (dst.add(head), src.add(head));
            let mut at = 0;
            while at < body {
                let low = _mm256_loadu_si256(s.add(at).cast::<__m256i>());
                let high = _mm256_loadu_si256(s.add(at + 32).cast::<__m256i>());
                _mm256_stream_si256(d.add(at).cast::<__m256i>(), low);
                _mm256_stream_si256(d.add(at + 32).cast::<__m256i>(), high);
                at += LINE;
            }
            std::ptr::copy_nonoverlapping(s.add(body), d.add(body), bytes - head - body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Named = (&'static str, Stream);

    fn kinds() -> Vec<Named> {
        let mut kinds: Vec<Named> = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if std::is_x86_feature_detected!("avx512f") {
                kinds.push(("avx512", x86::stream_avx512));
            }
            if std::is_x86_feature_detected!("avx2") {
                kinds.push(("avx2", x86::stream_avx2));
            }
        }
        if let Some(best) = stream() {
            kinds.push(("chosen", best));
        }
        kinds
    }

    #[test]
    fn every_alignment_and_length_is_exact_and_stays_inside() {
        let src: Vec<u8> = (0..1024_u32).map(|i| (i * 7 + 3) as u8).collect();
        for (name, stream) in kinds() {
            for skip_dst in [0, 1, 31, 63] {
                for skip_src in [0, 1, 17] {
                    for n in [0, 1, 63, 64, 65, 127, 128, 500, 900] {
                        let mut dst = vec![0xEE_u8; 1024];
                        // SAFETY: both ranges are inside their vectors.
                        unsafe { stream(dst.as_mut_ptr().add(skip_dst), src.as_ptr().add(skip_src), n) };
                        drain();
                        assert_eq!(&dst[skip_dst..skip_dst + n], &src[skip_src..skip_src + n], "{name} {n}");
                        assert!(dst[..skip_dst].iter().all(|b| *b == 0xEE), "{name}");
                        assert!(dst[skip_dst + n..].iter().all(|b| *b == 0xEE), "{name}");
                    }
                }
            }
        }
    }

    #[test]
    fn large_and_small_copies_are_equal() {
        let src: Vec<u8> = (0..70_000_u32).map(|i| (i % 251) as u8).collect();
        for large in [false, true] {
            let mut dst = vec![0_u8; src.len()];
            // SAFETY: equal lengths, distinct vectors.
            unsafe { copy(dst.as_mut_ptr(), src.as_ptr(), src.len(), large) };
            drain();
            assert_eq!(dst, src);
        }
    }
}
