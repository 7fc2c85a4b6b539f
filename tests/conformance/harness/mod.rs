//! What cases are made of, and how they are run.

pub(crate) mod expected;
mod group;
mod launched;
mod memory;
mod pe;
mod report;
mod select;

use std::panic::Location;
use std::process::ExitCode;
use std::time::Duration;

use symm::{Capabilities, Error};

pub(crate) use memory::{Guarded, Symmetric, same};
pub(crate) use pe::Ctx;

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It failed: what, and where in its source.
    Fail(String),
    /// It does not apply here, for this reason.
    Skip(String),
}

impl Stop {
    #[track_caller]
    pub(crate) fn fail(why: impl std::fmt::Display) -> Stop {
        let at = Location::caller();
        let file = at.file().rsplit('/').next().unwrap_or_default();
        Stop::Fail(format!("{why} ({file}:{})", at.line()))
    }

    pub(crate) fn skip(why: impl Into<String>) -> Stop {
        Stop::Skip(why.into())
    }
}

/// So that `?` on a library call fails the case with the error and the line of the call.
impl From<Error> for Stop {
    #[track_caller]
    fn from(e: Error) -> Stop {
        Stop::fail(format!("unexpected {}: {e}", e.kind()))
    }
}

/// What a case ends with on one PE.
pub(crate) type Outcome<T = ()> = Result<T, Stop>;

/// Fails the case unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err($crate::harness::Stop::fail(format!($($why)+)));
        }
    };
}

/// Fails the case unless two values are equal.
macro_rules! ensure_eq {
    ($got:expr, $want:expr, $($what:tt)+) => {
        // A `match`, so that temporaries of the arguments live long enough.
        match (&$got, &$want) {
            (got, want) => {
                if *got != *want {
                    let what = format!($($what)+);
                    return Err($crate::harness::Stop::fail(format!("{what}: got {got:?}, expected {want:?}")));
                }
            }
        }
    };
}

/// Fails the case unless a result is an error that matches a pattern.
macro_rules! ensure_err {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {
        match &$result {
            Err($pattern) $(if $guard)? => {}
            other => {
                let want = stringify!($pattern $(if $guard)?);
                return Err($crate::harness::Stop::fail(format!("got {other:?}, expected Err({want})")));
            }
        }
    };
}

pub(crate) use {ensure, ensure_eq, ensure_err};

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// `file::what`.
    pub(crate) name: &'static str,
    /// Capabilities without which it is skipped.
    pub(crate) needs: Capabilities,
    /// Fewest PEs that it makes sense with.
    pub(crate) min_pes: usize,
    /// Whether it runs with so many PEs, too, that the bootstrap's exchanges go along a tree: on the host backend, unless the
    /// command line says how many PEs.
    pub(crate) tree: bool,
    /// Environment of the group that it gets for itself; `None`: it shares one.
    pub(crate) own: Option<&'static [(&'static str, &'static str)]>,
    /// Whether the PE with the highest number ends without a goodbye after the case.
    pub(crate) dies: bool,
    /// Deadline.
    pub(crate) limit: Duration,
    /// The case, run on every PE at once.
    pub(crate) run: fn(&Ctx) -> Outcome,
}

impl Case {
    pub(crate) const fn new(name: &'static str, run: fn(&Ctx) -> Outcome) -> Self {
        let (needs, limit) = (Capabilities::empty(), Duration::from_secs(30));
        Case { name, needs, min_pes: 1, tree: false, own: None, dies: false, limit, run }
    }

    pub(crate) const fn pes(self, min_pes: usize) -> Self {
        Case { min_pes, ..self }
    }

    pub(crate) const fn tree(self) -> Self {
        Case { tree: true, ..self }
    }

    pub(crate) const fn needs(self, needs: Capabilities) -> Self {
        Case { needs, ..self }
    }

    pub(crate) const fn own(self, settings: &'static [(&'static str, &'static str)]) -> Self {
        Case { own: Some(settings), ..self }
    }

    pub(crate) const fn dies(self) -> Self {
        Case { dies: true, ..self.own(&[]) }
    }

    pub(crate) const fn limit(self, seconds: u64) -> Self {
        Case { limit: Duration::from_secs(seconds), ..self }
    }
}

/// Runs as a PE if a parent of this binary says so, else as that parent.
pub(crate) fn main(cases: &[Case]) -> ExitCode {
    if std::env::var_os(group::MARK).is_some() {
        if let Err(e) = launched::connect() {
            report::say(&format!("conformance: no connection to the parent: {e}"));
            return ExitCode::from(6);
        }
        return pe::serve(cases);
    }
    match select::Selection::from_args(std::env::args().skip(1)) {
        Ok(selection) => report::run_all(cases, &selection),
        Err(why) => {
            report::say(&format!("conformance: {why}"));
            ExitCode::from(2)
        }
    }
}
