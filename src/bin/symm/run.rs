//! `symm run`: PEs on this machine.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::builder::RangedU64ValueParser;
use symm::launch::{Launcher, Output, Status};
use symm::{Config, Error};

/// Start a program on several PEs of this machine
///
/// Every PE gets SYMM_PE, SYMM_N_PES, SYMM_JOB and SYMM_TOKEN, which symm::init reads. Lines of
/// output are passed on after "[PE k] "; PE 0 has the standard input. When a PE fails, the others
/// are ended.
///
/// Exit status:
///   0       all PEs exited with 0
///   K       the PE that failed first exited with K, or was ended by signal K - 128
///   128+S   signal S to "symm run" ended the job
///   126     the program cannot be started
///   127     the program is not found
// As written, because clap would join the lines of the table.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Number of PEs
    #[arg(short, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1 << 20))]
    n: usize,
    /// Let the other PEs go on when one fails
    #[arg(long)]
    keep_going: bool,
    /// Pass output on as it comes, without "[PE k] "
    #[arg(long)]
    no_prefix: bool,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_names = ["PROGRAM", "ARGS"])]
    program: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut words = args.program.into_iter();
    let program = words.next().unwrap_or_default();
    if program.as_encoded_bytes().starts_with(b"-") {
        eprintln!(
            "symm run: {}: no option of symm run, and no program (see symm run --help)",
            program.display()
        );
        return Ok(ExitCode::from(2));
    }
    let mut launcher = Launcher::new(args.n, program);
    launcher.args = words.collect();
    launcher.keep_going = args.keep_going;
    launcher.output = if args.no_prefix { Output::Inherited } else { Output::Prefixed };
    launcher.handle_signals = true;
    // The program may have no logger, so variables that are almost settings are told of here. What is wrong with the
    // others its PEs say, if they are PEs of this library.
    let _ = Config::from_env();
    let outcome = match launcher.run() {
        Ok(outcome) => outcome,
        // What shells return for a program that is not there, or that is no program.
        Err(Error::System { call: "spawn", errno, text })
            if [libc::ENOENT, libc::EACCES, libc::ENOEXEC].contains(&errno) =>
        {
            eprintln!("symm run: {text}");
            return Ok(ExitCode::from(if errno == libc::ENOENT { 127 } else { 126 }));
        }
        Err(e) => return Err(e.into()),
    };
    if let Some(signal) = outcome.signal {
        eprintln!("symm run: the job {}", Status::Signaled(signal));
    }
    if let Some(pe) = outcome.first_failed {
        let others = if args.n == 1 || args.keep_going { "" } else { "; the others were ended" };
        eprintln!("symm run: PE {pe} {}{others}", outcome.statuses[pe.index()]);
    }
    if args.keep_going {
        let failed = outcome.statuses.iter().enumerate().filter(|(_, s)| !s.success());
        for (pe, status) in failed.filter(|(pe, _)| outcome.first_failed.is_none_or(|f| f.index() != *pe)) {
            eprintln!("symm run: PE {pe} {status}");
        }
    }
    Ok(ExitCode::from(u8::try_from(outcome.code()).unwrap_or(1)))
}
