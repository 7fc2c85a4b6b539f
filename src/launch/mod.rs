//! Starts the PEs of a job on this machine, relays their output and ends them together.
//!
//! `symm run` is this module with a command line; test suites use it with [`Output::Captured`].
//!
//! ```no_run
//! use symm::launch::{Launcher, Output};
//!
//! let mut launcher = Launcher::new(4, "./my-program");
//! launcher.output = Output::Prefixed;
//! let outcome = launcher.run()?;
//! std::process::exit(outcome.code());
//! # #[allow(unreachable_code)]
//! # Ok::<(), symm::Error>(())
//! ```

mod relay;
mod signals;
mod spawn;
mod supervise;

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use symm_core::{Error, Pe, Result};

/// What becomes of the PEs' standard output and error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Lines go to the launcher's own output and error, whole, each after `[PE k] `; bytes are passed as they are.
    /// A last line without an end gets one; a line above 64 KiB is broken into several.
    #[default]
    Prefixed,
    /// The PEs inherit the launcher's output and error.
    Inherited,
    /// Collected into [`Outcome::captured`].
    Captured,
}

/// What to start, and how to treat it. [`run`](Self::run) does it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Launcher {
    /// Number of PEs, 1 or more.
    pub n: usize,
    /// Program, looked up in `PATH` unless it has a slash.
    pub program: OsString,
    /// Its arguments, equal for all PEs.
    pub args: Vec<OsString>,
    /// Variables added to the inherited environment. `SYMM_PE`, `SYMM_N_PES`, `SYMM_JOB`
    /// and `SYMM_TOKEN` are always the launcher's, and `SYMM_ADDR` and `SYMM_BOOTSTRAP` are taken out.
    pub env: Vec<(OsString, OsString)>,
    /// Let the others go on when a PE fails. Default: they are ended.
    pub keep_going: bool,
    /// What becomes of the output.
    pub output: Output,
    /// After this time all PEs are killed. Default: none, since jobs may run for weeks.
    pub deadline: Option<Duration>,
    /// Time between SIGTERM and SIGKILL for PEs that are ended. Default 500 ms.
    pub grace: Duration,
    /// Take SIGINT, SIGTERM and SIGHUP of this process as the wish to end all PEs, while `run` runs; a second one
    /// kills them at once. Needs the other threads of the process to block these signals, so it is for programs whose
    /// main thread launches before it starts threads. Default: off.
    pub handle_signals: bool,
}

impl Launcher {
    /// A launcher of `n` PEs of `program` with everything else at its default.
    pub fn new(n: usize, program: impl Into<OsString>) -> Self {
        Launcher {
            n,
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            keep_going: false,
            output: Output::default(),
            deadline: None,
            grace: Duration::from_millis(500),
            handle_signals: false,
        }
    }

    /// Starts all PEs and returns once all have ended.
    ///
    /// The PEs are direct children of this process. They get `SYMM_PE`, `SYMM_N_PES`, and a `SYMM_JOB` and a
    /// `SYMM_TOKEN` that nobody can guess; PE 0 inherits standard input, the others have none. When one exits with another code than 0 or is ended by a
    /// signal, the rest get SIGTERM and, after [`grace`](Self::grace), SIGKILL, unless [`keep_going`](Self::keep_going).
    /// If the calling thread or the process dies, the PEs are killed by the system. Output of processes that PEs
    /// leave behind is not waited for.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for `n` = 0 or a number beyond 2^20; [`Error::System`] with `call` = `spawn` if
    /// the program cannot be started, or with another call for what else failed. No PE runs then any more.
    pub fn run(&self) -> Result<Outcome> {
        if self.n == 0 || self.n > 1 << 20 {
            return Err(Error::argument("launch", "n", self.n, "a number from 1 to 1048576"));
        }
        supervise::run(self)
    }
}

/// How a PE ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

impl Status {
    /// Whether it exited with 0.
    pub fn success(self) -> bool {
        self == Status::Exited(0)
    }

    /// The code as a shell counts: the exit code, or 128 plus the signal.
    pub fn code(self) -> i32 {
        match self {
            Status::Exited(code) => code,
            Status::Signaled(signal) => 128 + signal,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Exited(code) => write!(f, "exited with {code}"),
            Status::Signaled(signal) => match signals::name(*signal) {
                Some(name) => write!(f, "was ended by signal {signal} ({name})"),
                None => write!(f, "was ended by signal {signal}"),
            },
        }
    }
}

/// Output of one PE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// How each PE ended, in PE order; those that the launcher ended as well.
    pub statuses: Vec<Status>,
    /// The PE that failed first, if one did by itself. Of several noticed together, one ended by a signal goes
    /// first, then the lowest: the others probably failed because of it.
    pub first_failed: Option<Pe>,
    /// The signal to this process that ended the job, if one did.
    pub signal: Option<i32>,
    /// Whether the deadline ended the job.
    pub timed_out: bool,
    /// Output of each PE, in PE order; empty unless [`Output::Captured`].
    pub captured: Vec<Captured>,
}

impl Outcome {
    /// The job's code: 128 plus the signal that ended it; else that of the PE that failed first; 124 if the deadline ended
    /// it; else 0.
    pub fn code(&self) -> i32 {
        match (self.signal, self.first_failed) {
            (Some(signal), _) => 128 + signal,
            (None, Some(pe)) => self.statuses.get(pe.index()).map_or(1, |s| s.code()),
            (None, None) if self.timed_out => 124,
            (None, None) => 0,
        }
    }
}
