//! `symm plan`: what a MoE layer takes of each PE's memory, before anything is allocated.

mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use symm::moe::{Layer, Room};
use symm::{Config, DType, Error};

use crate::cli::args::{bytes, number};
use crate::cli::error::{Class, Failure};
use crate::cli::say::{Json, complain, print};
use crate::cli::{EXIT_NO, memory};

/// Says what a MoE layer takes of each PE's memory, before anything is allocated
///
/// Each token of each PE chooses --topk different ones of --experts experts, which are spread over the PEs in order.
/// The dispatch output has room for whatever a router does; with --capacity-factor F only for F times the rows of an
/// even routing, and more rows than that are then an error of the dispatch. The settings (SYMM_POOL_BYTES,
/// SYMM_SIGNAL_PAD_BYTES, SYMM_SIGNALS) count as they will in the job. The library has the same as a function,
/// symm::moe::Layer::footprint.
///
/// Without --memory the memory of this machine is compared as well, but only told: a plan is often for another one.
///
/// Exit status: 0; 1 if the layer does not fit the memory that --memory names; 2 for bad input.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of PEs
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pes: String,
    /// Tokens that one PE brings at most
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    tokens: String,
    /// Elements of a row
    #[arg(long, value_name = "H", allow_hyphen_values = true)]
    hidden: String,
    /// Experts that a token chooses
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    topk: String,
    /// Experts over all PEs
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    experts: String,
    /// Element type of a row: bf16, f16, f32, f8e4m3, …
    #[arg(long, value_name = "TYPE", default_value = "bf16")]
    dtype: String,
    /// Each expert's rows start at a multiple of A rows
    #[arg(long, value_name = "A", default_value = "1", allow_hyphen_values = true)]
    align: String,
    /// Room for F times the rows of an even routing; default: for any routing
    #[arg(long, value_name = "F", allow_hyphen_values = true)]
    capacity_factor: Option<String>,
    /// Memory of one PE, such as 80G: not to fit it is exit status 1; default: this machine's, shared by the PEs
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    memory: Option<String>,
    /// What memory is rounded to: host (pages) or gpu (2 MiB)
    #[arg(long, value_name = "KIND", default_value = "host")]
    on: String,
    /// Write the plan, or the error, as JSON to FILE; `-`: to standard output, alone
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// The arguments, read.
struct Request {
    layer: Layer,
    room: Room,
    granularity: u64,
    /// Bytes of one PE, and whether somebody named them.
    memory: Option<(u64, bool)>,
}

/// What NVIDIA's GPUs round physical memory to.
const GPU_GRANULARITY: u64 = 2 << 20;

pub(crate) fn run(args: &Args) -> ExitCode {
    let json = Json::new(args.json.as_deref());
    let done =
        json.check().and_then(|()| Config::from_env().map_err(Failure::from)).and_then(|mut config| {
            let request = args.request()?;
            config.backend = if args.on == "gpu" { "cuda" } else { "host" }.to_owned();
            let Request { layer, room, granularity, memory } = request;
            let footprint = layer.footprint(&config, room, granularity).map_err(of_option)?;
            let fitting = match memory {
                Some((bytes, _)) => layer.max_tokens(&config, room, granularity, bytes)?,
                None => None,
            };
            let report = report::Report::new(&request, footprint, fitting);
            json.write(&report.json())?;
            if !json.has_stdout() {
                print(&report.table())?;
            }
            Ok(report)
        });
    match done {
        Ok(report) if report.refused() => ExitCode::from(EXIT_NO),
        Ok(_) => ExitCode::SUCCESS,
        Err(mut f) => {
            // Every argument is the user's here, whoever looks at it.
            if f.error.kind == "InvalidArgument" {
                f.class = Class::Input;
            }
            if f.error.kind != "File" {
                // That the error cannot be written either changes nothing.
                let _ = json.write(&f.json());
            }
            complain("plan", &f);
            f.exit()
        }
    }
}

/// An argument of the library's is an option here.
fn of_option(e: Error) -> Failure {
    match e {
        Error::InvalidArgument { argument, got, expected, .. } => {
            Failure::argument(if argument == "top_k" { "topk" } else { argument }, got, expected)
        }
        e => e.into(),
    }
}

impl Args {
    fn request(&self) -> Result<Request, Failure> {
        let count =
            |name, text: &str, most| Ok::<_, Failure>(number(name, Some(text), 1, most)?.unwrap_or(1));
        let pes = count("pes", &self.pes, 1 << 20)?;
        let dtype = self
            .dtype
            .parse::<DType>()
            .map_err(|_| Failure::argument("dtype", &self.dtype, DType::ALL.map(DType::name).join(", ")))?;
        let experts = count("experts", &self.experts, symm::moe::MAX_EXPERTS)?;
        let layer = Layer {
            pes,
            tokens: count("tokens", &self.tokens, 1 << 40)?,
            hidden: count("hidden", &self.hidden, 1 << 40)?,
            top_k: count("topk", &self.topk, experts)?,
            experts,
            dtype,
            align: count("align", &self.align, i32::MAX as usize)?,
        };
        let room = match number("capacity-factor", self.capacity_factor.as_deref(), f64::MIN_POSITIVE, 1e12) {
            Ok(factor) => factor.map_or(Room::Worst, Room::Even),
            Err(_) => {
                let got = self.capacity_factor.as_deref().unwrap_or_default();
                return Err(Failure::argument("capacity-factor", got, "a number above 0, such as 1.25"));
            }
        };
        let granularity = match self.on.as_str() {
            "host" => rustix::param::page_size() as u64,
            "gpu" => GPU_GRANULARITY,
            other => return Err(Failure::argument("on", other, "host or gpu")),
        };
        let memory = match bytes("memory", self.memory.as_deref())? {
            Some(bytes) => Some((bytes, true)),
            // What this machine has says nothing of its GPUs.
            None if self.on == "gpu" => None,
            None => memory::available().map(|all| (all / pes as u64, false)),
        };
        Ok(Request { layer, room, granularity, memory })
    }
}
