//! Flags of a context: tickets order this PE's operations, arrivals publish slots, done flags announce data.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::cells::Word;

/// Takes the next operation of the context; returns its epoch, from 1.
pub fn take_ticket(ticket: &impl Word<u64>) -> u64 {
    ticket.fetch_add(1, Relaxed) + 1
}

/// Whether every earlier operation of this PE on the context has ended; the error is the count seen.
pub fn my_turn(completed: &impl Word<u64>, epoch: u64) -> Result<(), u64> {
    let seen = completed.load(Acquire);
    if seen + 1 >= epoch { Ok(()) } else { Err(seen) }
}

/// Ends an operation. The count never falls: an operation that gives up may end before an earlier one.
pub fn complete(completed: &impl Word<u64>, epoch: u64) {
    completed.fetch_max(epoch, Release);
}

/// Writes a slot by `write`, then its arrival word.
pub fn publish(write: impl FnOnce(), arrival: &impl Word<u64>, epoch: u64) {
    write();
    arrival.store(epoch, Release);
}

/// Whether a flag (arrival or done) has reached `epoch`; the error is the value seen.
pub fn reached(flag: &impl Word<u64>, epoch: u64) -> Result<(), u64> {
    let seen = flag.load(Acquire);
    if seen >= epoch { Ok(()) } else { Err(seen) }
}

/// Moves data by `push`, then raises the done flag.
pub fn finish(push: impl FnOnce(), done: &impl Word<u64>, epoch: u64) {
    push();
    done.store(epoch, Release);
}

/// Gives up `epoch` towards one peer: the cause first, then the epoch, which the peer reads first.
pub fn abort(epoch_word: &impl Word<u64>, cause_word: &impl Word<u64>, epoch: u64, cause: u64) {
    cause_word.store(cause, Relaxed);
    epoch_word.store(epoch, Release);
}

/// The cause for which a peer has given up `epoch` or an earlier one.
pub fn aborted(epoch_word: &impl Word<u64>, cause_word: &impl Word<u64>, epoch: u64) -> Option<u64> {
    let given_up = epoch_word.load(Acquire);
    (given_up != 0 && given_up <= epoch).then(|| cause_word.load(Relaxed))
}
