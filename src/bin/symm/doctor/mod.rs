//! `symm doctor`: what this machine has, what each backend could do here, and why not.
//!
//! | file | what |
//! |---|---|
//! | `machine` | processors, memory, limits, settings: read from the system |
//! | `probe` | what is asked in a process of its own, since a sick library must not take the doctor along |
//! | `libraries`, `backends`, `gpus` | the probes |
//! | `launchers` | programs that start PEs |
//! | `report` | the findings as text; as JSON they are the structs |

mod backends;
mod gpus;
mod launchers;
mod libraries;
mod machine;
mod probe;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::cli::EXIT_NO;
use crate::cli::error::Failure;
use crate::cli::say::{Json, complain, print};

/// Says what this machine has and what each backend could do here, or why not
///
/// Looks at processors, memory, limits, GPUs, libraries (with their versions and where they were found) and MPI; shares memory of
/// each GPU as file descriptor and as fabric handle; opens a small world on each backend; and says which one `auto` takes and
/// why. All of these are tried in processes of their own, so one that crashes or hangs is a finding.
///
/// Exit status: 0 if some backend can run, 1 if none can, 2 for bad input.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the findings, or the error, as JSON to FILE; `-`: to standard output, alone
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// For the doctor's own use: make one probe and print it
    #[arg(long, value_name = "NAME", hide = true)]
    probe: Option<String>,
}

/// Everything that was found.
#[derive(Debug, Serialize, Deserialize)]
struct Findings {
    /// Of symm-mem.
    version: String,
    /// What this build can have: backends' features.
    features: Vec<String>,
    machine: machine::Machine,
    limits: Vec<machine::Limit>,
    settings: Vec<machine::Setting>,
    gpus: gpus::Gpus,
    libraries: Vec<libraries::Library>,
    launchers: Vec<launchers::Launcher>,
    backends: Vec<backends::Backend>,
    /// What `auto` takes.
    auto: backends::Backend,
    /// Whether some backend can run.
    can_run: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if let Some(name) = &args.probe {
        return probe::answer(name);
    }
    let json = Json::new(args.json.as_deref());
    match json.check().map(|()| find()).and_then(|found| tell(&found, &json).map(|()| found)) {
        Ok(found) if found.can_run => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(EXIT_NO),
        Err(f) => {
            complain("doctor", &f);
            f.exit()
        }
    }
}

fn find() -> Findings {
    // Warns of names that are almost settings. A bad value is in what each backend says of itself.
    drop(symm::Config::from_env());
    let backends = backends::all();
    let auto = backends::auto(&backends);
    Findings {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        features: features().map(str::to_owned).collect(),
        machine: machine::Machine::look(),
        limits: machine::limits(),
        settings: machine::settings(),
        gpus: gpus::ask(),
        libraries: libraries::all(),
        launchers: launchers::all(),
        can_run: backends.iter().any(|b| b.runs),
        backends,
        auto,
    }
}

/// Features of this build that bring a backend or a way to start.
fn features() -> impl Iterator<Item = &'static str> {
    let all = [
        ("cuda", cfg!(feature = "cuda")),
        ("nvshmem", cfg!(feature = "nvshmem")),
        ("mpi", cfg!(feature = "mpi")),
    ];
    all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name)
}

fn tell(found: &Findings, json: &Json) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(found).expect("plain structs should encode");
    json.write(&format!("{text}\n"))?;
    if json.has_stdout() { Ok(()) } else { print(&report::text(found)) }
}
