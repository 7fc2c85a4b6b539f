//! Host backend of symmetric memory: PEs are processes of one machine, or threads of one process.
//!
//! # Memory
//! A segment is a sealed memfd that peers map. PEs are *direct* to each other: a put is a copy into the peer's memory,
//! a signal an atomic store there. `SYMM_HOST_NODES=k` splits the PEs into k made-up nodes: between nodes no pointer
//! is handed out, and everything goes through a proxy thread that delays and reorders what the order rules leave open.
//! That is a test instrument for code that must run over a network, not a transport.
//!
//! # Streams
//! A stream is an in-order queue of tasks that are polled. An operation runs on the calling thread if it can; one
//! that must wait is queued. Whoever synchronises runs the queue; a worker thread takes what nobody runs.
//!
//! # Waiting
//! Spin, yield, then sleep on a futex in this PE's control segment, which writers of flags ring only if somebody
//! sleeps. More PEs than cores are fine. Every wait looks at its team's status, at peers that gave up, and at its
//! deadline.
//!
//! # Protocol
//! [`protocol`] is the part in which PEs meet: generic over atomics, so that a model checker runs the same code.
//!
//! | module | what |
//! |---|---|
//! | [`protocol`] | flags between PEs |
//! | `segment`, `available` | memfds and their mappings; how much memory this process may still take |
//! | `memory`, `copy` | areas and words in mapped memory; fast copies |
//! | `sum` | element-wise sums in rank order |
//! | `control`, `wait` | the control segment of a PE; spinning and sleeping |
//! | `stream` | queues, tasks, the worker |
//! | `proxy` | the stand-in for a network |
//! | `handle`, `context`, `ops` | what operations are given, and the operations |
//! | `backend` | [`Host`], the implementation of [`Backend`](symm_core::Backend) |

mod available;
mod backend;
mod context;
mod control;
mod copy;
mod core;
mod handle;
mod memory;
mod ops;
#[doc(hidden)]
pub mod protocol;
mod proxy;
mod segment;
mod stream;
mod sum;
mod wait;

pub use backend::{Graph, Host, Marker};
pub use context::RawContext;
pub use handle::{RawHandle, Status};
pub use segment::{Mapping, Segment};
pub use stream::Stream;

/// The backend's name.
pub(crate) const NAME: &str = "host";
