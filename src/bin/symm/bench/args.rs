//! The command line of `symm bench`, and what it asks for.

use std::path::PathBuf;

use symm::DType;

use super::op::Op;
use crate::cli::args::{bytes, number};
use crate::cli::error::Failure;

/// Measures an operation over sizes, and checks its results
///
/// Flags, names of types and columns are those of nccl-tests where it has them. The iterations (-n) are spread over at most 50 samples, which all PEs begin
/// together; "time" is the median over samples, "min" the shortest. A sample takes from the first PE's begin to the last
/// one's end on a host, and as long as on the slowest PE elsewhere. "of copy" is the time in which all PEs at once copy the
/// bytes that the operation moves, over the operation's, both in alternation: on a host with memcpy, where an operation
/// that reads more than it writes may exceed 100 %, on GPUs with the copy engines to the right neighbours. Results are
/// checked after the timed iterations, from fresh buffers; "#wrong" counts values that differ, over all PEs.
///
/// Without a launcher it starts its PEs itself; under `symm run`, `mpirun`, `srun` or `torchrun` each process is one PE.
///
/// Exit status: 0 if all values are right, 2 for bad input, 3 if a value differs, 4 for a failure.
// Numbers are taken as text and read in `Args::request`, so that a bad one is reported like all other bad input.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Operation
    #[arg(value_name = "OP")]
    pub(super) op: Op,
    /// Number of PEs; default: 2, or the launcher's
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pes: Option<String>,
    /// GPUs of each process, as nccl-tests has it: without a launcher the number of PEs, under one 1, since a process is one PE
    #[arg(short = 'g', long, value_name = "N", conflicts_with = "pes", allow_hyphen_values = true)]
    ngpus: Option<String>,
    /// Threads of each process, as nccl-tests has it: 1
    #[arg(short = 't', long, value_name = "N", default_value = "1", allow_hyphen_values = true)]
    nthreads: String,
    /// Smallest size, in bytes, or with K, M, G
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "8", allow_hyphen_values = true)]
    minbytes: String,
    /// Largest size; default: 64M, or what fits
    #[arg(short = 'e', long, value_name = "SIZE", allow_hyphen_values = true)]
    maxbytes: Option<String>,
    /// Factor from one size to the next
    #[arg(short = 'f', long, value_name = "F", default_value = "2", allow_hyphen_values = true)]
    stepfactor: String,
    /// Fixed step from one size to the next, instead of a factor
    #[arg(short = 'i', long, value_name = "SIZE", allow_hyphen_values = true)]
    stepbytes: Option<String>,
    /// Timed iterations; default: as many as take 0.1 s, from 20 to 20000
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true)]
    iters: Option<String>,
    /// Iterations before those
    #[arg(
        short = 'w',
        long = "warmup_iters",
        alias = "warmup-iters",
        value_name = "N",
        default_value = "5",
        allow_hyphen_values = true
    )]
    warmup_iters: String,
    /// Check the results: 1 or 0
    #[arg(short = 'c', long, value_name = "0|1", default_value = "1", allow_hyphen_values = true)]
    check: String,
    /// Element type: f32, f64, f16, bf16, i8 to i64, u8 to u64; or as nccl-tests names it: float, double, half, bfloat16, int8 to int64,
    /// uint8 to uint64
    #[arg(short = 'd', long, value_name = "TYPE", default_value = "f32")]
    datatype: String,
    /// Reduction; there is only sum
    #[arg(short = 'o', long = "op", value_name = "OP", default_value = "sum")]
    redop: String,
    /// Root of broadcast and tile_reduce
    #[arg(short = 'r', long, value_name = "RANK", default_value = "0", allow_hyphen_values = true)]
    root: String,
    /// Bytes of a row, where there are rows; smaller sizes are one row
    #[arg(long, value_name = "SIZE", default_value = "8K", allow_hyphen_values = true)]
    row: String,
    /// Experts a PE, in vdev_2d, combine and plan
    #[arg(long, value_name = "N", default_value = "8", allow_hyphen_values = true)]
    experts: String,
    /// Capture N operations once and replay the graph, so that launches cost nothing; needs a backend with graphs
    #[arg(short = 'G', long, alias = "cudagraph", value_name = "N", allow_hyphen_values = true)]
    graph: Option<String>,
    /// Blocks that an operation may occupy on a GPU
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_blocks: Option<String>,
    /// auto, host, cuda or nvshmem; default: SYMM_BACKEND, or auto
    #[arg(long, value_name = "B")]
    pub(super) backend: Option<String>,
    /// Write all rows, or the error, as JSON to FILE; `-`: to standard output, alone
    #[arg(long, value_name = "FILE|-")]
    pub(super) json: Option<PathBuf>,
}

/// The arguments, read.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) op: Op,
    pub(super) pes: Option<usize>,
    /// PEs of each process that a launcher starts, or of all where none did.
    pub(super) each: Option<usize>,
    pub(super) min: usize,
    /// `None`: whatever fits.
    pub(super) max: Option<usize>,
    pub(super) step: Step,
    pub(super) iterations: Option<u64>,
    pub(super) warm_up: u64,
    pub(super) check: bool,
    pub(super) dtype: DType,
    pub(super) root: usize,
    pub(super) row: usize,
    pub(super) experts: usize,
    /// Operations of a graph.
    pub(super) graph: Option<u64>,
    pub(super) max_blocks: Option<u32>,
}

/// From one size to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Factor(f64),
    Bytes(usize),
}

/// Types that the patterns of a bench can be made of.
const TYPES: [DType; 12] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
];

/// The name that this project has for a type of nccl-tests'.
fn ours(name: &str) -> &str {
    match name {
        "float" => "f32",
        "double" => "f64",
        "half" => "f16",
        "bfloat16" => "bf16",
        "int8" => "i8",
        "int32" => "i32",
        "int64" => "i64",
        "uint8" => "u8",
        "uint32" => "u32",
        "uint64" => "u64",
        name => name,
    }
}

impl Args {
    /// Reads the numbers and names.
    pub(super) fn request(&self) -> Result<Request, Failure> {
        let allowed: Vec<DType> = TYPES.into_iter().filter(|t| !self.op.reduces() || t.reduces()).collect();
        let dtype =
            ours(&self.datatype).parse::<DType>().ok().filter(|d| allowed.contains(d)).ok_or_else(|| {
                let names: Vec<&str> = allowed.iter().map(|d| d.name()).collect();
                Failure::argument("datatype", &self.datatype, names.join(", "))
            })?;
        if number::<u32>("nthreads", Some(&self.nthreads), 1, 1)?.is_none() {
            return Err(Failure::argument("nthreads", &self.nthreads, "1: a PE is a process"));
        }
        if self.redop != "sum" {
            return Err(Failure::argument("op", &self.redop, "sum"));
        }
        let size = |name, text: Option<&str>| {
            let bytes = bytes(name, text)?;
            let fits = bytes.map(|b| usize::try_from(b).ok().filter(|b| *b <= isize::MAX as usize));
            match fits {
                Some(None) => {
                    Err(Failure::argument(name, text.unwrap_or_default(), "a size that has an address"))
                }
                fits => Ok(fits.flatten()),
            }
        };
        let min = size("minbytes", Some(&self.minbytes))?.unwrap_or(0).max(dtype.size());
        let max = size("maxbytes", self.maxbytes.as_deref())?;
        // A barrier has no size.
        if let (Some(max), Some(text)) = (max, &self.maxbytes)
            && max < min
            && self.op != Op::Barrier
        {
            let expected = if max < dtype.size() {
                format!("{} (one {dtype}) or more", dtype.size())
            } else {
                format!("{} (--minbytes) or more", self.minbytes)
            };
            return Err(Failure::argument("maxbytes", text, expected));
        }
        let wrong_factor = || Failure::argument("stepfactor", &self.stepfactor, "a number above 1");
        let step = match size("stepbytes", self.stepbytes.as_deref())? {
            Some(0) => return Err(Failure::argument("stepbytes", 0, "1 or more")),
            Some(bytes) => Step::Bytes(bytes),
            None => {
                let factor = self.stepfactor.parse::<f64>().ok().filter(|f| *f > 1.0 && f.is_finite());
                Step::Factor(factor.ok_or_else(wrong_factor)?)
            }
        };
        let count = |name, text: &str, low, high| {
            Ok::<_, Failure>(number::<u64>(name, Some(text), low, high)?.unwrap_or(low))
        };
        let graph = number("graph", self.graph.as_deref(), 1, 10_000)?;
        if let (Some(n), Op::Signal) = (graph, self.op) {
            let expected = "another operation than signal, whose values change from one to the next";
            return Err(Failure::argument("graph", n, expected));
        }
        let row = size("row", Some(&self.row))?.unwrap_or(0);
        if row < dtype.size() {
            return Err(Failure::argument(
                "row",
                &self.row,
                format!("{} (one {dtype}) or more", dtype.size()),
            ));
        }
        Ok(Request {
            op: self.op,
            pes: number("pes", self.pes.as_deref(), 1, 1 << 20)?,
            each: number("ngpus", self.ngpus.as_deref(), 1, 1 << 20)?,
            min,
            max,
            step,
            iterations: number("iters", self.iters.as_deref(), 1, u64::from(u32::MAX))?,
            warm_up: count("warmup_iters", &self.warmup_iters, 0, u64::from(u32::MAX))?,
            check: count("check", &self.check, 0, 1)? == 1,
            dtype,
            root: count("root", &self.root, 0, 1 << 20)? as usize,
            row,
            experts: count("experts", &self.experts, 1, 1 << 20)? as usize,
            graph,
            max_blocks: number("max-blocks", self.max_blocks.as_deref(), 1, 1 << 16)?,
        })
    }
}

impl Request {
    /// All sizes up to `max`, the smallest in any case.
    pub(super) fn sizes(&self, max: usize) -> Vec<usize> {
        if self.op == Op::Barrier {
            return vec![0];
        }
        let mut sizes = vec![self.min];
        while let Some(last) = sizes.last() {
            let next = match self.step {
                // The cast saturates, and a factor close to 1 still goes on.
                Step::Factor(factor) => ((*last as f64 * factor) as usize).max(last + 1),
                Step::Bytes(bytes) => last.saturating_add(bytes),
            };
            if next > max {
                break;
            }
            sizes.push(next);
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn request(args: &[&str]) -> Result<Request, Failure> {
        let all = ["bench"].iter().chain(args);
        Cli::try_parse_from(all).expect("arguments that parse").args.request()
    }

    #[test]
    fn sizes_go_by_factor_or_by_step() {
        let of = |args: &[&str], max| request(args).map(|r| r.sizes(max)).unwrap_or_default();
        assert_eq!(of(&["put", "-b", "1K", "-f", "4"], 20_000), [1024, 4096, 16_384]);
        assert_eq!(of(&["put", "-b", "100", "-i", "50"], 200), [100, 150, 200]);
        assert_eq!(of(&["put", "-b", "4", "-f", "1.1"], 7), [4, 5, 6, 7]);
        assert_eq!(of(&["barrier"], 1 << 20), [0]);
        // Less than an element is one.
        assert_eq!(of(&["put", "-b", "1", "-d", "f64"], 8), [8]);
    }

    #[test]
    fn a_bad_argument_names_its_option() {
        for (args, field) in [
            (&["put", "-b", "x"][..], "minbytes"),
            (&["put", "-e", "4", "-b", "8"], "maxbytes"),
            (&["put", "-f", "1"], "stepfactor"),
            (&["put", "-i", "0"], "stepbytes"),
            (&["put", "-n", "0"], "iters"),
            (&["put", "-c", "2"], "check"),
            (&["put", "-d", "f8e4m3"], "datatype"),
            (&["all_reduce", "-d", "u8"], "datatype"),
            (&["all_reduce", "-o", "max"], "op"),
            (&["vdev", "--row", "2"], "row"),
            (&["vdev_2d", "--experts", "0"], "experts"),
            (&["put", "--pes", "0"], "pes"),
            (&["put", "-g", "0"], "ngpus"),
            (&["put", "-t", "2"], "nthreads"),
            (&["put", "-G", "0"], "graph"),
            (&["signal", "-G", "2"], "graph"),
        ] {
            assert_eq!(
                request(args).map(|_| ()).map_err(|f| f.error.field),
                Err(Some(field.to_owned())),
                "{args:?}"
            );
        }
        assert!(request(&["vdev", "-d", "u8"]).is_ok());
        // A line for nccl-tests.
        let theirs = [
            "all_reduce",
            "-b",
            "8",
            "-e",
            "128M",
            "-f",
            "2",
            "-g",
            "2",
            "-t",
            "1",
            "-d",
            "half",
            "-o",
            "sum",
            "-w",
            "5",
            "-n",
            "20",
            "-c",
            "1",
        ];
        assert!(request(&theirs).is_ok_and(|r| (r.each, r.dtype) == (Some(2), DType::F16)));
        assert!(Cli::try_parse_from(["bench", "put", "-g", "2", "--pes", "2"]).is_err());
        let said = |args: &[&str]| request(args).map(|_| ()).map_err(|f| f.error.message);
        let none = said(&["put", "-b", "0", "-e", "0", "-d", "f64"]).expect_err("no element");
        assert!(none.contains("is 0") && none.contains("8 (one f64)"), "{none}");
        let less = said(&["put", "-b", "2K", "-e", "1K"]).expect_err("fewer");
        assert!(less.contains("1K") && less.contains("2K (--minbytes)"), "{less}");
        assert_eq!(said(&["barrier", "-b", "0", "-e", "0"]), Ok(()));
    }
}
