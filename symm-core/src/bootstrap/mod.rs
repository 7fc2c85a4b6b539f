//! How the processes of a job find each other and exchange small messages before there is symmetric memory.
//!
//! A [`Bootstrap`] moves messages (with file descriptors where both ends are on one host) and tells of death.
//! Everything collective is built above it, in [`Group`], so a new bootstrap is five methods.

mod group;
mod local;
mod mailbox;
mod unix;

use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use group::Group;
pub use local::{Local, local};
pub use unix::Unix;

use crate::deadline::Deadline;
use crate::error::Result;
use crate::pe::Pe;

/// Names one message between two PEs: the team it belongs to and a counter of that team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Team's id, equal on all its members.
    pub team: u64,
    /// The team's own counter; a team's exchange never moves another team's counter.
    pub seq: u64,
}

/// One received message.
#[derive(Debug)]
pub struct Message {
    /// Bytes.
    pub payload: Vec<u8>,
    /// File descriptors that came with it.
    pub fds: Vec<OwnedFd>,
}

/// Is told of PEs whose connection closed without a goodbye.
pub trait Liveness: Send + Sync {
    /// `pe` is gone. Called once for each PE, from a thread of the bootstrap; must not block.
    fn failed(&self, pe: Pe, why: &str);
}

/// Connections between the PEs of a job.
///
/// Messages between one pair are delivered in order for each tag, never lost while both live, and kept until asked for.
pub trait Bootstrap: Debug + Send + Sync {
    /// This process's number in the world.
    fn pe(&self) -> Pe;

    /// Processes in the world.
    fn n_pes(&self) -> usize;

    /// Whether `pe` can be sent file descriptors (same host, connected by a local socket or in this process).
    fn passes_fds(&self, pe: Pe) -> bool;

    /// Sends one message. Does not wait for the receiver to ask for it.
    ///
    /// # Errors
    /// [`PeerFailed`](crate::Error::PeerFailed) if `to` is gone; [`Bootstrap`](crate::Error::Bootstrap) or
    /// [`System`](crate::Error::System) if the message cannot be sent.
    fn send(&self, to: Pe, tag: Tag, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()>;

    /// Takes the oldest message from `from` with `tag`, waiting for it until `deadline`.
    ///
    /// # Errors
    /// [`Timeout`](crate::Error::Timeout) naming `from`; [`PeerFailed`](crate::Error::PeerFailed) if `from` is gone and
    /// no such message is left.
    fn recv(&self, from: Pe, tag: Tag, deadline: Deadline) -> Result<Message>;

    /// Registers an observer; it is told at once of PEs that are gone already.
    fn watch(&self, observer: Arc<dyn Liveness>);

    /// PEs known to be gone without a goodbye, in ascending order.
    fn failed(&self) -> Vec<Pe>;

    /// Says goodbye to everybody and closes: peers do not report this PE as failed. Idempotent.
    fn close(&self);
}
