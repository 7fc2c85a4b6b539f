//! Errors, by what the caller can do about them.

use std::fmt;
use std::time::Duration;

use crate::backend::Form;
use crate::dtype::DType;
use crate::pe::Pe;

/// Result of every fallible call of this project.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a peer, or this PE, brought into a collective that makes it invalid for everybody.
///
/// All members compute the same fault from the same exchanged data, so all of them report the same PE.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The PE called another operation, or replays graphs in another order.
    Operation {
        /// What rank 0 of the team called: the code of a [`Form`].
        expected: u32,
        /// What the PE called.
        got: u32,
    },
    /// An argument that must be equal on all members differs from rank 0's.
    Differs {
        /// Which.
        what: Field,
        /// Rank 0's value; 0 for [`Field::Shape`].
        expected: u64,
        /// The PE's value; 0 for [`Field::Shape`].
        got: u64,
    },
    /// Arguments that are equal on all members, but do not belong together.
    Form,
    /// The output is another allocation than rank 0's, or another part of it where the operation asks for the same.
    Output,
    /// An argument was refused on that PE before anything was enqueued; the PE itself got what was expected.
    Argument {
        /// Its name; empty if the PE could not take part for a reason that is no argument's.
        name: &'static str,
        /// Its value there, where that is a number.
        got: Option<i128>,
    },
    /// A split is negative.
    NegativeSplit {
        /// Index in `in_splits`.
        index: u64,
        /// The value.
        value: i64,
    },
    /// Splits (or split plus offset) ask for more rows than the input has.
    InputRows {
        /// Rows asked for.
        needed: u64,
        /// Rows of the input.
        rows: u64,
    },
    /// The rows sent to this PE do not fit its output.
    OutputRows {
        /// Rows needed, padding included.
        needed: u64,
        /// Rows of the output.
        capacity: u64,
    },
}

impl Fault {
    /// That of a PE of which nothing is known but that it did not take part.
    pub const REFUSED: Fault = Fault::Argument { name: "", got: None };
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The forms are equal where only the epochs differ, as after graphs that were replayed in another order.
            Fault::Operation { expected, got } if expected == got => {
                write!(f, "called {} out of order: at another epoch than this operation's", operation(*got))
            }
            Fault::Operation { expected, got } => {
                write!(f, "called {} where rank 0 called {}", operation(*got), operation(*expected))
            }
            Fault::Differs { what: Field::DType, expected, got } => {
                write!(f, "dtype is {}, expected rank 0's {}", dtype(*got), dtype(*expected))
            }
            Fault::Differs { what: Field::Shape, .. } => write!(f, "{} differs from rank 0's", Field::Shape),
            Fault::Differs { what, expected, got } => write!(f, "{what} is {got}, expected rank 0's {expected}"),
            Fault::Form => {
                f.write_str(
                    "form: what all give alike (dtype, row size, length, root, experts a rank, major_align) does not belong together",
                )
            }
            Fault::Output => f.write_str("output: another allocation than rank 0's, or another place in it"),
            Fault::Argument { name: "", .. } => f.write_str("its part was refused there; its own error says why"),
            Fault::Argument { name, got: Some(got) } => {
                write!(f, "argument {name} is {got} there and was refused; its own error has what was expected")
            }
            Fault::Argument { name, got: None } => {
                write!(f, "argument {name} was refused there; its own error has the value and what was expected")
            }
            Fault::NegativeSplit { index, value } => {
                write!(f, "in_splits[{index}] is {value}, expected 0 or more")
            }
            Fault::InputRows { needed, rows } => {
                write!(f, "splits ask for {needed} rows, the input has {rows}")
            }
            Fault::OutputRows { needed, capacity } => {
                write!(f, "output needs {needed} rows, it has {capacity}")
            }
        }
    }
}

/// What must be equal on all members of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// Element type; the values are [`DType::code`]s.
    DType,
    /// Bytes of a row, or of an element where there are no rows.
    RowBytes,
    /// Experts a rank, from the length of `in_splits`.
    Experts,
    /// `major_align`, in rows.
    MajorAlign,
    /// Elements that take part.
    Length,
    /// Entries of `in_splits`.
    Splits,
    /// The root's rank.
    Root,
    /// Rows of `last_dim` elements, in `reduce_scatter_last_dim`.
    LeadingRows,
    /// Rows, columns, strides, dimensions, offsets, owners, tiles, roots or the reduction of an operation on blocks, or the plan
    /// of an exchange. They are compared as one number, which says nothing.
    Shape,
}

impl Field {
    /// All of them; a field's place here, counted from 1, is its code in a status record.
    pub(crate) const ALL: [Field; 9] = [
        Field::DType,
        Field::RowBytes,
        Field::Experts,
        Field::MajorAlign,
        Field::Length,
        Field::Splits,
        Field::Root,
        Field::LeadingRows,
        Field::Shape,
    ];
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::DType => "dtype",
            Field::RowBytes => "row, in bytes,",
            Field::Experts => "experts a rank (in_splits' length)",
            Field::MajorAlign => "major_align",
            Field::Length => "length in elements",
            Field::Splits => "in_splits' length",
            Field::Root => "root",
            Field::LeadingRows => "rows of last_dim",
            Field::Shape => "shape (rows, columns, strides, offsets, owners, tiles, roots, op) or plan",
        })
    }
}

/// The name of a type's code; one that has none stays a number.
fn dtype(code: u64) -> String {
    let known = u32::try_from(code).ok().and_then(DType::from_code);
    known.map_or_else(|| format!("code {code}"), |dtype| dtype.name().to_owned())
}

/// The name of a form's code; one that has none stays a number.
fn operation(code: u32) -> String {
    Form::from_code(code.into()).map_or_else(|| format!("form {code}"), |form| form.name().to_owned())
}

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

/// Whom a wait missed. A PE that waits for a signal cannot tell who owes it, and is not late itself.
fn whom(op: &str, late: &[Pe]) -> String {
    let list = pes(late);
    if op == "wait_until" { format!("on {list}, which any PE may signal") } else { format!("late: {list}") }
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
    #[error("{op}: timeout in {phase} after {waited:?}, {} (expected {expected}, got {got})", whom(op, late))]
    Timeout {
        /// Operation.
        op: &'static str,
        /// Phase of it, such as `arrival` or `done`.
        phase: &'static str,
        /// PEs that had not come. Of `wait_until`, the PE that waited: any PE may send it a signal.
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
    #[error("{op}: PE {pe}: {what}")]
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
        Error::InvalidArgument { op, argument, got: got.to_string(), expected: expected.to_string() }
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
    fn who_waits_for_a_signal_is_not_called_late() {
        let (late, waited) = (vec![Pe(1)], Duration::from_secs(3));
        let e = Error::Timeout { op: "wait_until", phase: "signal", late, expected: 2, got: 1, waited };
        assert_eq!(
            e.to_string(),
            "wait_until: timeout in signal after 3s, on PE 1, which any PE may signal (expected 2, got 1)"
        );
    }

    #[test]
    fn a_wrong_operation_is_named() {
        let code = |form: Form| form.code() as u32;
        let (expected, got) = (code(Form::AllToAllVdev2d), code(Form::Barrier));
        let text = |expected, got| Fault::Operation { expected, got }.to_string();
        assert_eq!(text(expected, got), "called barrier where rank 0 called all_to_all_vdev_2d");
        assert_eq!(text(got, got), "called barrier out of order: at another epoch than this operation's");
        assert_eq!(text(expected, 99), "called form 99 where rank 0 called all_to_all_vdev_2d");
    }
}
