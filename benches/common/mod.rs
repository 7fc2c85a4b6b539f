//! What the benches that run under criterion share.

pub(crate) mod lead;

use std::process::ExitCode;

use symm::launch::{Launcher, Output};

/// Starts this program as a job of each of these numbers of PEs.
pub(crate) fn start(name: &str, sizes: &[usize]) -> symm::Result<ExitCode> {
    let program = std::env::current_exe().expect("a running program should have a path");
    for n in sizes {
        let mut launcher = Launcher::new(*n, &program);
        launcher.args = std::env::args_os().skip(1).collect();
        launcher.output = Output::Inherited;
        let code = launcher.run()?.code();
        if code != 0 {
            eprintln!("{name}: the job of {n} PEs ended with {code}");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether one of these flags was given.
pub(crate) fn asks(flags: &[&str]) -> bool {
    std::env::args().any(|a| flags.contains(&a.as_str()))
}

/// What a bench's own process says of its end.
pub(crate) fn exit(name: &str, result: symm::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|e| {
        eprintln!("{name}: {e}");
        ExitCode::FAILURE
    })
}
