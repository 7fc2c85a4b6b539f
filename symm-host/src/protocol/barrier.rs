//! The barrier of a handle on one channel: one epoch word a member, each with one writer.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::cells::Word;

/// Begins a barrier: counts it on the owner's counter and returns its epoch, from 1.
pub fn begin(counter: &impl Word<u64>) -> u64 {
    counter.fetch_add(1, Relaxed) + 1
}

/// Tells one peer of this PE's arrival.
pub fn announce(word: &impl Word<u64>, epoch: u64) {
    word.store(epoch, Release);
}

/// Whether a peer has arrived; the error is the epoch seen. A peer may be one barrier ahead.
pub fn arrived(word: &impl Word<u64>, epoch: u64) -> Result<(), u64> {
    let seen = word.load(Acquire);
    if seen >= epoch { Ok(()) } else { Err(seen) }
}
