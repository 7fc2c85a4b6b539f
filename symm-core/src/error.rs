//! Errors, by what the caller can do about them.

mod fault;

use std::fmt;
use std::time::Duration;

pub use fault::{Fault, Field};

use crate::pe::Pe;
use crate::{refused, status};

/// Result of every fallible call of this project.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One line of a team's allocation log, as `rendezvous` compares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Explicit label, empty when none was given.
    pub label: String,
    /// Bytes asked for.
    pub bytes: u64,
    /// Element type's name.
    pub dtype: String,
    /// Source line of the call; explains, is never compared.
    pub at: String,
}

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes, self.dtype)?;
        if !self.label.is_empty() {
            write!(f, " labelled {:?}", self.label)?;
        }
        write!(f, " at {}", self.at)
    }
}

fn entry(e: &Option<Box<LogEntry>>) -> String {
    e.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string)
}

/// A setting's value. An empty one counts as none.
fn value(got: &str) -> String {
    if got.is_empty() { "not set".to_owned() } else { format!("{got:?}") }
}

fn pes(pes: &[Pe]) -> String {
    let list: Vec<_> = pes.iter().map(ToString::to_string).collect();
    format!("PE {}", list.join(", "))
}

/// How a wait ended by a deadline, and whom it missed. A PE that waits for a signal cannot tell who owes it, and is not late itself.
fn missed(op: &str, phase: &str, late: &[Pe], (expected, got): (u64, u64), waited: Duration) -> String {
    let list = pes(late);
    if phase == status::phase_name(status::phase::GIVEN_UP) {
        return format!(
            "{waited:?} into this wait another member's deadline passed: {list} gave up a wait of its own, such as a wait_until, or \
             was late for that member"
        );
    }
    let whom = if op == "wait_until" {
        format!("on {list}, which any PE may signal")
    } else {
        format!("late: {list}")
    };
    format!("timeout in {phase} after {waited:?}, {whom} (expected {expected}, got {got})")
}

/// Every error that this project returns.
///
/// Cloneable, because a failure stays set on its team and each later call returns it again. `Debug` is the
/// [kind](Error::kind) and the message, since that is what a `main` that returns it prints.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument breaks a rule of the operation; nothing was written.
    #[error("{op}: {argument} is {got}, expected {expected}")]
    InvalidArgument {
        /// Operation.
        op: &'static str,
        /// Argument.
        argument: &'static str,
        /// Its value.
        got: String,
        /// What the rule asks for.
        expected: String,
    },
    /// A setting (environment variable or builder field) cannot be used.
    #[error("setting {name} is {}, expected {expected}", value(got))]
    Setting {
        /// Variable's name.
        name: &'static str,
        /// Value found; empty where it is not set.
        got: String,
        /// What is allowed.
        expected: String,
    },
    /// Settings that must be equal on all PEs differ; every PE gets this.
    #[error("setting {name} differs: PE {pe} has {theirs:?}, here {ours:?}")]
    SettingDiffers {
        /// Variable's name.
        name: &'static str,
        /// Lowest PE with another value than this PE's.
        pe: Pe,
        /// Its value.
        theirs: String,
        /// Value here.
        ours: String,
    },
    /// The PEs of a team did not allocate the same things in the same order; every member gets this.
    #[error("not symmetric: allocation {step} on PE {pe} is {}, here {}", entry(theirs), entry(ours))]
    NotSymmetric {
        /// First allocation of the team that differs, counted from 0.
        step: u64,
        /// Lowest PE that has something else there than this PE.
        pe: Pe,
        /// What that PE allocated, `None` if its log is shorter.
        theirs: Option<Box<LogEntry>>,
        /// What this PE allocated.
        ours: Option<Box<LogEntry>>,
    },
    /// A deadline passed.
    #[error("{op}: {}", missed(op, phase, late, (*expected, *got), *waited))]
    Timeout {
        /// Operation.
        op: &'static str,
        /// Phase of it, such as `arrival` or `done`; `given up` if the deadline that passed is not this operation's but another
        /// member's, which gave the team up.
        phase: &'static str,
        /// PEs that had not come. Of `wait_until`, the PE that waited: any PE may send it a signal. Of what was `given up`, the PE
        /// whose wait ended, or which was late for it.
        late: Vec<Pe>,
        /// Value (epoch, signal, count) waited for.
        expected: u64,
        /// Value seen last.
        got: u64,
        /// Time waited.
        waited: Duration,
    },
    /// A PE's process is gone.
    #[error("PE {pe} failed: {why}")]
    PeerFailed {
        /// The PE.
        pe: Pe,
        /// How it was noticed.
        why: String,
    },
    /// A PE brought something invalid into a collective; every member gets this and nothing was written.
    #[error("{op}: PE {pe}: {}", what.in_operation(op))]
    PeerInvalid {
        /// Operation.
        op: &'static str,
        /// PE at fault.
        pe: Pe,
        /// What is wrong.
        what: Fault,
    },
    /// A stage of a collective set-up failed on some PE; every member gets this.
    #[error("{op}: PE {pe} failed in {stage}: {why}")]
    Setup {
        /// The collective, such as `rendezvous`.
        op: &'static str,
        /// Lowest PE that failed.
        pe: Pe,
        /// Stage.
        stage: String,
        /// That PE's error.
        why: String,
    },
    /// The backend cannot do this.
    #[error("{backend}: {capability} is not supported: {why}")]
    Unsupported {
        /// Backend's name.
        backend: &'static str,
        /// Capability or operation.
        capability: &'static str,
        /// Reason, with what would change it.
        why: String,
    },
    /// A backend cannot run on this machine.
    #[error("backend {backend} is unavailable: {why}")]
    Unavailable {
        /// Backend's name.
        backend: String,
        /// Reason.
        why: String,
    },
    /// Memory ran out.
    #[error("out of symmetric memory: {requested} bytes: {why}{}", if holders.is_empty() { String::new() } else {
        format!("; retired here and still held by {}", pes(holders)) })]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// The failing call and its code, or the limit that was reached.
        why: String,
        /// PEs that still hold memory retired here.
        holders: Vec<Pe>,
    },
    /// Start-up or the exchange between processes failed.
    #[error("bootstrap: {call}: {why}")]
    Bootstrap {
        /// What was being done.
        call: &'static str,
        /// Reason.
        why: String,
    },
    /// A system call failed.
    #[error("{call} failed: {text} (errno {errno})")]
    System {
        /// The call.
        call: &'static str,
        /// Its error number.
        errno: i32,
        /// The system's text.
        text: String,
    },
    /// A call of a backend's library failed.
    #[error("{backend}: {call} failed: {text} (code {code})")]
    Backend {
        /// Backend's name.
        backend: &'static str,
        /// The library call.
        call: &'static str,
        /// Its raw code.
        code: i64,
        /// The library's text.
        text: String,
    },
    /// The world was finalized.
    #[error("{op}: the world was finalized")]
    Finalized {
        /// What was called.
        op: &'static str,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.kind())
    }
}

impl Error {
    /// An [`Error::System`] for a failed call.
    pub fn system(call: &'static str, error: rustix::io::Errno) -> Self {
        Error::System { call, errno: error.raw_os_error(), text: error.to_string() }
    }

    /// An [`Error::InvalidArgument`].
    pub fn argument(
        op: &'static str,
        argument: &'static str,
        got: impl ToString,
        expected: impl ToString,
    ) -> Self {
        let error =
            Error::InvalidArgument { op, argument, got: got.to_string(), expected: expected.to_string() };
        refused::note(&error);
        error
    }

    /// As the error of operation `op`, where one that it is made of refused an argument.
    pub(crate) fn of(self, op: &'static str) -> Self {
        match self {
            Error::InvalidArgument { argument, got, expected, .. } => {
                Error::argument(op, argument, got, expected)
            }
            e => e,
        }
    }

    /// What the other members are told where this kept a PE from taking part.
    pub(crate) fn refusal(&self) -> Fault {
        let Error::InvalidArgument { argument: name, got, .. } = self else { return Fault::REFUSED };
        Fault::Argument { name, got: got.parse().ok() }
    }

    /// Short, stable word for the kind of error, as `--json` prints it.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::InvalidArgument { .. } => "InvalidArgument",
            Error::Setting { .. } => "Setting",
            Error::SettingDiffers { .. } => "SettingDiffers",
            Error::NotSymmetric { .. } => "NotSymmetric",
            Error::Timeout { .. } => "Timeout",
            Error::PeerFailed { .. } => "PeerFailed",
            Error::PeerInvalid { .. } => "PeerInvalid",
            Error::Setup { .. } => "Setup",
            Error::Unsupported { .. } => "Unsupported",
            Error::Unavailable { .. } => "Unavailable",
            Error::OutOfMemory { .. } => "OutOfMemory",
            Error::Bootstrap { .. } => "Bootstrap",
            Error::System { .. } => "System",
            Error::Backend { .. } => "Backend",
            Error::Finalized { .. } => "Finalized",
        }
    }

    /// The PE that the error names, if it names one.
    pub fn pe(&self) -> Option<Pe> {
        match self {
            Error::SettingDiffers { pe, .. }
            | Error::NotSymmetric { pe, .. }
            | Error::PeerFailed { pe, .. }
            | Error::PeerInvalid { pe, .. }
            | Error::Setup { pe, .. } => Some(*pe),
            Error::Timeout { late, .. } => late.first().copied(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_main_that_returns_an_error_prints_what_people_can_read() {
        let e = Error::Timeout {
            op: "barrier",
            phase: "arrival",
            late: vec![Pe(1), Pe(3)],
            expected: 7,
            got: 6,
            waited: Duration::from_millis(1500),
        };
        assert_eq!(
            format!("Error: {e:?}"),
            "Error: Timeout: barrier: timeout in arrival after 1.5s, late: PE 1, 3 (expected 7, got 6)"
        );
    }

    #[test]
    fn what_another_member_gave_up_is_not_told_as_a_deadline_of_this_pe() {
        let (late, waited) = (vec![Pe(1)], Duration::from_millis(52));
        let e = Error::Timeout { op: "barrier", phase: "given up", late, expected: 1, got: 0, waited };
        assert_eq!(
            e.to_string(),
            "barrier: 52ms into this wait another member's deadline passed: PE 1 gave up a wait of its own, such as a wait_until, \
             or was late for that member"
        );
    }

    #[test]
    fn who_waits_for_a_signal_is_not_called_late() {
        let (late, waited) = (vec![Pe(1)], Duration::from_secs(3));
        let e = Error::Timeout { op: "wait_until", phase: "signal", late, expected: 2, got: 1, waited };
        assert_eq!(
            e.to_string(),
            "wait_until: timeout in signal after 3s, on PE 1, which any PE may signal (expected 2, got 1)"
        );
    }
}
