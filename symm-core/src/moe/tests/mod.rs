mod footprint;
mod plan;
mod reference;
mod trace;

use super::Trace;

/// A trace of `tokens` tokens with `k` different experts each, from a small generator; one choice in 16 is not made.
fn synthetic(tokens: usize, k: usize, experts: usize) -> Trace {
    let mut state = 7u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let mut ids = Vec::new();
    for _ in 0..tokens {
        let first = next() % experts;
        for j in 0..k {
            let id = if next() % 16 == 0 { -1 } else { ((first + 7 * j) % experts) as i32 };
            ids.push(id);
        }
    }
    let weights = ids.iter().map(|_| (next() % 1000) as f32 / 999.0).collect();
    Trace { tokens, top_k: k, experts, ids, weights, hidden: None, layer: 0 }
}
