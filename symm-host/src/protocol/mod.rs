//! The protocol between PEs, generic over its atomic words.
//!
//! Everything here runs on [`std::sync::atomic`] when it ships and on a model checker's atomics in
//! `tests/loom_*.rs`: the same code, so the orders that the model needs are the orders that ship. A function that
//! moves data takes a closure for it, because the data are plain memory (an instrumented cell in the model).
//!
//! | module | words |
//! |---|---|
//! | [`cells`] | what an atomic word must offer |
//! | [`signal`] | user signals, pad slots, credits |
//! | [`barrier`] | a handle's barrier |
//! | [`exchange`] | tickets, arrivals, done flags and aborts of a context |
//! | [`doorbell`] | the eventcount that a waiter sleeps on |

pub mod barrier;
pub mod cells;
pub mod doorbell;
pub mod exchange;
pub mod signal;
