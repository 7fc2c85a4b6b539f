//! Times on real machines, from counts and stated constants.

use serde_json::{Value, json};

use crate::rounded;

/// One message between two hosts: TCP, both ends' thread woken, µs. Measured here on loopback it is less.
const MESSAGE_US: f64 = 100.0;
/// What one TCP connection carries, bytes/s: a fraction of 25 Gbit/s.
const BANDWIDTH: f64 = 1e9;
/// Bytes that a PE brings to one exchange of a rendezvous, with the length before them.
const PART: f64 = 128.0;
/// Exchanges of a rendezvous: offers, and whether all could bind.
const EXCHANGES: f64 = 2.0;

pub(crate) fn text() -> String {
    format!(
        "A rendezvous is {EXCHANGES} exchanges of {PART} bytes a PE. With L = ceil(log2 n), an exchange takes 2 L messages of \
         {MESSAGE_US} us one after another, the way up carries n parts in all into the root, and on the way back each of L \
         levels stores and forwards all n parts at {BANDWIDTH:e} bytes/s: EXCHANGES (2 L MESSAGE + (1 + L) n PART / \
         BANDWIDTH). The store's figures are those that PyTorch documents for its default, in groups of 72: 3.6 s at 10,000 \
         ranks, 36 s at 100,000."
    )
}

/// Seconds of a rendezvous among `n` PEs.
fn seconds(n: f64) -> f64 {
    let levels = n.log2().ceil();
    EXCHANGES * (2.0 * levels * MESSAGE_US * 1e-6 + (1.0 + levels) * n * PART / BANDWIDTH)
}

pub(crate) fn rows() -> Vec<Value> {
    let row = |(n, target, store): (f64, f64, f64)| {
        let ours = seconds(n);
        json!({ "pes": n, "rendezvous_s": rounded(ours), "target_s": target, "met": ours <= target, "store_s": store })
    };
    [(10_000.0, 0.2, 3.6), (100_000.0, 1.0, 36.0)].into_iter().map(row).collect()
}
