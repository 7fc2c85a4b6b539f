//! From arguments to a job: everything that can be refused before PEs meet.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use symm::Config;
use symm::moe::{Counts, Float, Trace};

use super::args::{Args, Request};
use super::memory::{self, Shape};
use crate::cli::error::{Class, Failure};
use crate::cli::memory::{available, check_pes, on_host};

/// The trace that the program carries; `data/README.md` says where it comes from.
static BUILT_IN: &[u8] = include_bytes!("../../../../data/routes/moe64_layer3.jsonl");
const BUILT_IN_NAME: &str = "moe64_layer3.jsonl (built in)";
/// Row length if neither the arguments nor the trace name one.
const DEFAULT_HIDDEN: usize = 1024;
const DEFAULT_PES: usize = 4;
/// Test hook, `PE,STEP`: that PE flips a bit of its first result in that step, so that tests can see a difference found.
const CORRUPT: &str = "SYMM_MOE_CORRUPT";

/// A job that can be run, equal on all PEs.
pub(super) struct Job {
    pub(super) trace: Trace,
    pub(super) trace_name: String,
    pub(super) counts: Counts,
    pub(super) pes: usize,
    pub(super) hidden: usize,
    pub(super) float: Float,
    pub(super) align: usize,
    pub(super) steps: Option<u64>,
    pub(super) seed: u64,
    /// Whether a picture of it is wanted.
    pub(super) picture: bool,
    /// PE and step of the test hook.
    pub(super) corrupt: Option<(usize, i64)>,
}

impl Job {
    pub(super) fn row_bytes(&self) -> usize {
        self.hidden * self.float.size()
    }
}

/// The environment's settings with the arguments' over them; [`prepare`] checks those.
pub(super) fn settings(args: &Args) -> Result<Config, Failure> {
    let mut config = Config::from_env()?;
    if let Some(backend) = &args.backend {
        config.backend.clone_from(backend);
    }
    Ok(config)
}

/// Reads the trace (from `trace_file` if there is one, instead of from where the arguments say) and checks that the
/// job fits this machine.
pub(super) fn prepare(
    args: &Args,
    request: &Request,
    config: &Config,
    trace_file: Option<&Path>,
) -> Result<Job, Failure> {
    config.check()?;
    let pes = number_of_pes(request, config)?;
    check_pes(config, pes, on_host(config))?;
    let name = args.routes.as_deref().map(|path| path.display().to_string());
    let trace = match args.routes.as_deref() {
        None => Trace::parse(BUILT_IN_NAME, BUILT_IN, request.layer)?,
        Some(path) => {
            let text = open(trace_file.unwrap_or(path)).map_err(|e| Failure::file(Class::Input, path, &e))?;
            Trace::parse(&path.display().to_string(), text, request.layer)?
        }
    };
    let counts = Counts::new(&trace, pes, request.align as u64)?;
    let hidden = fit(request, config, &trace, &counts, pes)?;
    Ok(Job {
        trace,
        trace_name: name.unwrap_or_else(|| BUILT_IN_NAME.to_owned()),
        counts,
        pes,
        hidden,
        float: request.float,
        align: request.align,
        steps: request.steps,
        seed: request.seed.unwrap_or(0),
        picture: args.wants_picture(),
        corrupt: corrupt()?,
    })
}

fn open(path: &Path) -> std::io::Result<impl BufRead> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(std::io::ErrorKind::IsADirectory.into());
    }
    Ok(BufReader::new(file))
}

fn number_of_pes(request: &Request, config: &Config) -> Result<usize, Failure> {
    let Some(n) = config.n_pes.map(|n| n as usize) else { return Ok(request.pes.unwrap_or(DEFAULT_PES)) };
    match request.pes {
        Some(pes) if pes != n => {
            let expected = format!("absent or {n}, the number of PEs that the launcher started (SYMM_N_PES)");
            Err(Failure::argument("pes", pes, expected))
        }
        _ => Ok(n),
    }
}

/// The row length, once it is known that the job fits.
fn fit(
    request: &Request,
    config: &Config,
    trace: &Trace,
    counts: &Counts,
    pes: usize,
) -> Result<usize, Failure> {
    let shape = Shape { trace, counts, pes, config, on_host: on_host(config) };
    let element = request.float.size();
    let hidden = request
        .hidden
        .unwrap_or_else(|| shape.default_hidden(trace.hidden.unwrap_or(DEFAULT_HIDDEN), element));
    let needed = shape.bytes((hidden as u64).saturating_mul(element as u64));
    let refuse = |there: String| {
        let rows = counts.rows;
        let what = format!("{rows} rows of {hidden} {} on {pes} PEs", symm::DType::from(request.float));
        let mut f = Failure::new(Class::Input, "Memory", format!("{what} need {needed} bytes, {there}"));
        f.error.field = Some(if request.hidden.is_some() { "hidden" } else { "pes" }.to_owned());
        f
    };
    if request.hidden.is_none() && request.pes.is_none() && needed > memory::DEFAULT_LIMIT {
        let limit = memory::DEFAULT_LIMIT;
        return Err(refuse(format!(
            "above the {limit} that are taken unasked: choose with --hidden and --pes"
        )));
    }
    match available() {
        Some(available) if needed > available => {
            Err(refuse(format!("this machine has {available} available")))
        }
        None if needed > isize::MAX as u64 => Err(refuse("beyond the address space".to_owned())),
        _ => Ok(hidden),
    }
}

fn corrupt() -> Result<Option<(usize, i64)>, Failure> {
    let Ok(text) = std::env::var(CORRUPT) else { return Ok(None) };
    let pair = text.split_once(',').and_then(|(pe, step)| Some((pe.parse().ok()?, step.parse().ok()?)));
    match pair {
        Some(pair) => Ok(Some(pair)),
        None => {
            let mut f =
                Failure::new(Class::Input, "Setting", format!("{CORRUPT} is {text:?}, expected PE,STEP"));
            f.error.field = Some(CORRUPT.to_owned());
            Err(f)
        }
    }
}
