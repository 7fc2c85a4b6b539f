//! The eventcount of a PE: writers bump a sequence only when somebody waits.
//!
//! Both sides put a full fence between their store and their load, so at least one sees the other: a writer that sees
//! no waiter has published its flag before the waiter's last look.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::cells::{Fence, Word};

/// After a flag was written: returns whether somebody must be woken, having changed the sequence.
pub fn ring<F: Fence>(sequence: &impl Word<u32>, waiters: &impl Word<u32>) -> bool {
    F::full();
    if waiters.load(Relaxed) == 0 {
        return false;
    }
    sequence.fetch_add(1, Release);
    true
}

/// Before the last look at a flag: enlists a waiter and returns the sequence to sleep on.
pub fn enlist<F: Fence>(sequence: &impl Word<u32>, waiters: &impl Word<u32>) -> u32 {
    waiters.fetch_add(1, Relaxed);
    let key = sequence.load(Acquire);
    F::full();
    key
}

/// After waking, or after the last look found the flag.
pub fn leave(waiters: &impl Word<u32>) {
    waiters.fetch_add(u32::MAX, Relaxed);
}
