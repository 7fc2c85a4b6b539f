//! `symm moe`: a whole MoE step over a routing trace, timed and verified.
//!
//! | file | what |
//! |---|---|
//! | `args`, `prepare`, `memory` | from the command line to a job that fits |
//! | `parent` | starts the PEs |
//! | `pe`, `work`, `ceiling`, `compare` | what one PE does |
//! | `report`, `picture`, `say` | what comes out |

mod args;
mod ceiling;
mod compare;
mod memory;
mod parent;
mod pe;
mod picture;
mod prepare;
mod report;
mod say;
mod work;

use std::process::ExitCode;

pub(crate) use args::Args;

use say::Printer;

use crate::cli::channel::ToParent;

/// Runs the command: as the parent of the PEs, as one of its PEs, or as a PE of a launcher.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut printer = Printer::new(args);
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
            let trace = parent.file.clone();
            pe::run(args, config, trace.as_deref(), &mut parent)
        }
        None => {
            if let (None | Some(0), Err(f)) = (config.pe, printer.check()) {
                return failed(&mut printer, 0, f);
            }
            match symm::is_started(&config) {
                Ok(true) => pe::run(args, config, None, &mut printer),
                Ok(false) => parent::run(args, &config, &mut printer),
                Err(e) => failed(&mut printer, 0, e.into()),
            }
        }
    }
}
