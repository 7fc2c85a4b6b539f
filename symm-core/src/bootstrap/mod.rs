//! How the processes of a job find each other and exchange small messages before there is symmetric memory.
//!
//! A [`Bootstrap`] moves messages (with file descriptors where both ends are on one host) and tells of death.
//! Everything collective is built above it, in [`Group`], so a new bootstrap is five methods.

mod call;
mod group;
mod late;
mod local;
mod mailbox;
mod sockets;
mod start;
mod tree;

use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use call::{Call, FINALIZE};
pub(crate) use group::FLAT;
pub use group::Group;
pub use local::{Local, local};
#[doc(hidden)]
pub use sockets::read_noise;
pub use sockets::{Contacts, Identity, Secret, Sockets, Whereabouts};
pub use start::{Family, Unix, start};

use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

/// How long a PE whose start or end failed stays where others can reach it.
const LINGER: Duration = Duration::from_millis(200);

/// Gives up a start or an end (`what`) that failed on this PE with `error`. Most such errors are met by all PEs alike, each at its
/// own time: one that left at once would be what the others report, instead of the cause.
pub(crate) fn give_up(boot: &dyn Bootstrap, what: &str, error: &Error) {
    let own = matches!(error, Error::System { .. } | Error::Setting { .. } | Error::InvalidArgument { .. });
    if !own {
        std::thread::sleep(LINGER);
    }
    boot.abandon(&format!("its {what} failed: {error}"));
}

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

/// How far a PE is in an exchange of a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It has not come to it.
    NotYet,
    /// It is in it, and waits for messages of these PEs.
    WaitsFor(Vec<Pe>),
    /// It has been in it and is through, or gave up.
    Past,
}

/// Is told of PEs that are gone without a goodbye: their connection closed, or they gave the job up.
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
    /// [`PeerFailed`](crate::Error::PeerFailed) if `to` is gone, by failure or with a goodbye;
    /// [`Bootstrap`](crate::Error::Bootstrap) or [`System`](crate::Error::System) if the message cannot be sent.
    fn send(&self, to: Pe, tag: Tag, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()>;

    /// Takes the oldest message from `from` with `tag`, waiting for it until `deadline`.
    ///
    /// # Errors
    /// [`Timeout`](crate::Error::Timeout) naming `from`; [`PeerFailed`](crate::Error::PeerFailed) if `from` is gone and
    /// no such message is left.
    fn recv(&self, from: Pe, tag: Tag, deadline: Deadline) -> Result<Message>;

    /// As [`recv`](Self::recv), but also ends when one of `among` is gone without a goodbye, whatever it has sent:
    /// for those who wait on behalf of all of them.
    ///
    /// # Errors
    /// As `recv`, naming the lowest PE of `among` that is gone.
    fn recv_among(&self, from: Pe, tag: Tag, among: &[Pe], deadline: Deadline) -> Result<Message> {
        let _ = among;
        self.recv(from, tag, deadline)
    }

    /// Notes that this PE is in the exchange `tag` and waits for these PEs, for those who [`ask`](Self::ask).
    fn progress(&self, tag: Tag, waits_for: &[Pe]) {
        let _ = (tag, waits_for);
    }

    /// Asks PEs how far they are in the exchange `tag`, all at once; `None` for one that did not answer until the deadline.
    /// A PE's bootstrap answers by itself, whatever its program does.
    fn ask(&self, pes: &[Pe], tag: Tag, deadline: Deadline) -> Vec<Option<Presence>> {
        let _ = (tag, deadline);
        pes.iter().map(|_| None).collect()
    }

    /// Connections that were dropped because who made them did not belong to the job.
    fn strangers(&self) -> u64 {
        0
    }

    /// Returns once every one of `members` has called it as often as this PE, or has said goodbye, which is as good: the end of a
    /// job does not need those who left it. `None` where nobody leaves before that end, so that an exchange will do.
    ///
    /// # Errors
    /// [`Timeout`](crate::Error::Timeout) naming those who did not come, [`PeerFailed`](crate::Error::PeerFailed) for one that is
    /// gone without a goodbye and had not come.
    fn meet(&self, op: &'static str, members: &[Pe], deadline: Deadline) -> Option<Result<()>> {
        let _ = (op, members, deadline);
        None
    }

    /// Registers an observer; it is told at once of PEs that are gone already.
    fn watch(&self, observer: Arc<dyn Liveness>);

    /// PEs known to be gone without a goodbye, in ascending order.
    fn failed(&self) -> Vec<Pe>;

    /// How the failure of `pe` was noticed, or what it said of it; `None` if neither is known.
    fn failure(&self, pe: Pe) -> Option<String> {
        let _ = pe;
        None
    }

    /// PEs whose end is proven, with or without a goodbye, in ascending order: the connection is closed and, where the
    /// system shows it (a process of this host), the process is gone, and with it its mappings and device files. A child
    /// that inherited a connection, or a process that closed its own, is no proof.
    fn ended(&self) -> Vec<Pe> {
        self.failed()
    }

    /// Says goodbye to everybody and closes: peers do not report this PE as failed. Idempotent.
    ///
    /// A world says it at the end of a `finalize` to which all came, so nobody can still wait for this PE.
    fn close(&self);

    /// Closes without a goodbye: peers report this PE as failed, within a second, with `why`. Does not wait for anybody; messages
    /// that are not with the system yet are lost. The process may live on, so this proves no [end](Self::ended). Idempotent;
    /// nothing after [`close`](Self::close).
    fn abandon(&self, why: &str);
}
