//! `symm bench`: one operation over sizes, timed against copies of the same bytes, and checked.
//!
//! | file | what |
//! |---|---|
//! | `args` | from the command line to a request |
//! | `op`, `buffers`, `case`, `enqueue`, `check`, `splits`, `data` | the operations, what they start from, how they are called, what they must give; also used by `benches/` |
//! | `measure` | one row |
//! | `report`, `say` | what comes out |
//! | `pe` | one PE, from meeting the others to the end |

mod args;
mod buffers;
mod case;
mod check;
mod data;
mod enqueue;
mod measure;
mod op;
mod pe;
mod report;
mod say;
mod splits;

use std::process::ExitCode;

pub(crate) use args::Args;
use say::{Output, Printer};
use symm::Config;

use crate::cli::channel::{FromPes, ToParent};
use crate::cli::error::Failure;
use crate::cli::job;

/// Runs the command: as the parent of the PEs, as one of its PEs, or as a PE of a launcher.
pub(crate) fn run(args: &Args) -> ExitCode {
    let mut printer = Printer::new(args.json.as_deref());
    let begun = ToParent::from_env().and_then(|parent| {
        let mut config = Config::from_env()?;
        if let Some(backend) = &args.backend {
            config.backend.clone_from(backend);
        }
        if let (None, None | Some(0)) = (&parent, config.pe) {
            printer.check()?;
        }
        Ok((parent, config))
    });
    match begun {
        Err(f) => printer.end(0, Err(f)),
        Ok((Some(mut parent), config)) => pe::run(args, &config, &mut parent),
        Ok((None, config)) => match symm::is_started(&config) {
            Ok(true) => pe::run(args, &config, &mut printer),
            Ok(false) => {
                let result = start(args, &config, &mut printer);
                printer.end(0, result)
            }
            Err(e) => printer.end(0, Err(e.into())),
        },
    }
}

/// Starts the PEs, and shows what they say.
fn start(args: &Args, config: &Config, printer: &mut Printer) -> Result<u64, Failure> {
    // What the PEs would refuse is refused before there are any.
    let request = args.request()?;
    let pes = request.pes.or(request.each).unwrap_or(pe::DEFAULT_PES);
    pe::prepare(&request, config, pes)?;
    job::run(pes, FromPes::new(None)?, |said| printer.say(said))
}
