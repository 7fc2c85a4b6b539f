//! `symm moe`: a whole MoE step over a routing trace, timed and verified.
//!
//! | file | what |
//! |---|---|
//! | `args`, `prepare`, `memory` | from the command line to a job that fits |
//! | `parent`, `channel` | starts PEs, hears from them |
//! | `pe`, `work`, `ceiling`, `compare` | what one PE does |
//! | `report`, `say`, `error` | what comes out |

mod args;
mod ceiling;
mod channel;
mod compare;
mod error;
mod memory;
mod parent;
mod pe;
mod prepare;
mod report;
mod say;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) use args::Args;

use channel::ToParent;
use error::{Class, Failure};
use say::Printer;

/// Says what is wrong with arguments that do not parse, as any other bad input; returns the exit code.
pub(crate) fn usage(e: &clap::Error) -> i32 {
    let text = e.to_string();
    let first: Vec<&str> = text.lines().take_while(|l| !l.trim().is_empty()).map(str::trim).collect();
    let message = first.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let failure = Failure::new(Class::Input, "Usage", format!("{message} (see symm moe --help)"));
    let mut printer = Printer::new(json_of(std::env::args_os()).as_deref());
    // The code of bad input, whatever became of the printing.
    let _ = pe::Output::end(&mut printer, 0, &Err(failure));
    2
}

/// The value of `--json` in arguments that did not parse as a whole.
fn json_of(args: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut args = args.skip_while(|a| a != "--json" && !a.as_encoded_bytes().starts_with(b"--json="));
    let flag = args.next()?;
    match flag.to_str().and_then(|f| f.strip_prefix("--json=")) {
        Some(value) => Some(PathBuf::from(value)),
        None => args.next().map(PathBuf::from),
    }
}

/// Runs the command: as the parent of the PEs, as one of its PEs, or as a PE of a launcher.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut printer = Printer::new(args.json.as_deref());
    let failed = |printer: &mut Printer, pe, f| pe::Output::end(printer, pe, &Err(f));
    let parent = match ToParent::from_env() {
        Ok(parent) => parent,
        Err(f) => return failed(&mut printer, 0, f),
    };
    let config = match prepare::settings(args) {
        Ok(config) => config,
        Err(f) => return failed(&mut printer, 0, f),
    };
    match parent {
        Some(mut parent) => {
            let trace = parent.trace.clone();
            pe::run(args, config, trace.as_deref(), &mut parent)
        }
        None => {
            let pe = config.pe;
            if let (None | Some(0), Err(f)) = (pe, printer.check()) {
                return failed(&mut printer, 0, f);
            }
            match pe {
                Some(_) => pe::run(args, config, None, &mut printer),
                None => parent::run(args, &config, &mut printer),
            }
        }
    }
}
