//! User signals (64 bits) and pad slots (32 bits, depth 1).

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use symm_core::backend::{Cmp, SignalOp};

use super::cells::Word;

/// Moves data by `copy`, then updates `signal`: whoever sees the update sees the data.
///
/// The word is updated by one atomic instruction, so adds of several PEs are never lost. A set is a release store, an
/// add continues the release sequence of the updates before it: a waiter for a sum sees the data of every addend.
pub fn put_with_signal(copy: impl FnOnce(), signal: &impl Word<u64>, op: SignalOp, value: u64) {
    copy();
    match op {
        SignalOp::Set => signal.store(value, Release),
        SignalOp::Add => {
            signal.fetch_add(value, Release);
        }
    }
}

/// Whether the signal compares with `value`; the error is the value seen.
pub fn compares(signal: &impl Word<u64>, cmp: Cmp, value: u64) -> Result<(), u64> {
    let seen = signal.load(Acquire);
    if cmp.holds(seen, value) { Ok(()) } else { Err(seen) }
}

/// Raises a pad slot if it is idle; returns whether it was.
///
/// Release: the receiver sees what the sender wrote before. Acquire: the sender may overwrite what the receiver read
/// before it consumed the previous signal.
pub fn raise(slot: &impl Word<u32>) -> bool {
    slot.compare_exchange(0, 1, AcqRel, Relaxed).is_ok()
}

/// Consumes a raised pad slot; returns whether it was raised. The orders mirror [`raise`].
pub fn consume(slot: &impl Word<u32>) -> bool {
    // A load first: a waiter that spins on a compare-and-swap would keep the line from the sender.
    slot.load(Relaxed) == 1 && slot.compare_exchange(1, 0, AcqRel, Relaxed).is_ok()
}

/// Takes the right to raise a slot that cannot be asked: the receiver must have consumed everything sent.
///
/// One compare-and-swap, so that two streams of the sender cannot both take it.
pub fn take_credit(credit: &impl Word<u32>, sent: &impl Word<u32>) -> Result<(), u32> {
    let consumed = credit.load(Acquire);
    sent.compare_exchange(consumed, consumed.wrapping_add(1), Relaxed, Relaxed).map(drop)
}

/// Counts one more consumed signal; returns the new count. Only the word's owner counts.
pub fn count(consumed: &impl Word<u32>) -> u32 {
    consumed.fetch_add(1, Relaxed).wrapping_add(1)
}

/// Writes the count of consumed signals into the sender's credit word: it may reuse the slot and what came with it.
pub fn give_credit(credit: &impl Word<u32>, consumed: u32) {
    credit.store(consumed, Release);
}

/// What arrives when a raised slot was sent as four bytes: a release store after the data before it.
pub fn deliver_raise(slot: &impl Word<u32>) {
    slot.store(1, Release);
}
