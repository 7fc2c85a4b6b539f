//! The command line of `symm moe`, and what it asks for.

use std::path::PathBuf;

use symm::DType;
use symm::moe::Float;

use crate::cli::args::number;
use crate::cli::error::Failure;

/// Moves the tokens of a routing trace to experts and back, and checks every value.
///
/// Each step sends all tokens of the trace to their experts (all_to_all_vdev_2d), computes x·a + b there with other
/// constants for each expert, brings the rows back (all_to_all_vdev_2d_offset), and adds them with the routing weights.
/// Each value of each step is compared with the result of one process, computed once for the inputs of even and once for
/// those of odd steps. The phases are timed one by one, each behind a wait for all PEs; then, where one takes no more than 5 ms, several
/// dispatches, and several combines, in a row, as in a model that runs.
///
/// Without a launcher it starts its PEs itself; under `symm run`, `mpirun`, `srun` or `torchrun` each process is one PE.
///
/// Exit status: 0 if all values are right, 2 for bad input, 3 if a value differs, 4 for a failure.
// Numbers are taken as text and read in `Args::request`, so that a bad one is reported like all other bad input.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Routing trace, JSON lines; default: the trace that the program carries
    #[arg(long, value_name = "FILE")]
    pub(super) routes: Option<PathBuf>,
    /// Layer of the trace; needed if it has several
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    layer: Option<String>,
    /// Number of PEs; default: 4, or the launcher's
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pes: Option<String>,
    /// Elements of a row; default: the trace's, or 1024, or as many as fit 2 GiB for the whole job
    #[arg(long, value_name = "H", allow_hyphen_values = true)]
    hidden: Option<String>,
    /// Element type: bf16, f16 or f32
    #[arg(long, value_name = "TYPE", default_value = "bf16")]
    dtype: String,
    /// Each expert's rows start at a multiple of A rows
    #[arg(long, value_name = "A", default_value = "1", allow_hyphen_values = true)]
    align: String,
    /// Timed steps; default: as many as take some 10 s
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    steps: Option<String>,
    /// Seed of the inputs, and of the reordering between made-up nodes; default: 0
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    seed: Option<String>,
    /// auto, host, cuda or nvshmem; default: SYMM_BACKEND, or auto
    #[arg(long, value_name = "B")]
    pub(super) backend: Option<String>,
    /// Write the result, or the error, as JSON to FILE; `-`: to standard output, alone
    #[arg(long, value_name = "FILE|-")]
    pub(super) json: Option<PathBuf>,
    /// Draw traffic, load and times into FILE, as SVG
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    /// Write the picture and the table into FILE, as HTML that needs no other file
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
}

impl Args {
    /// Whether a picture was asked for.
    pub(super) fn wants_picture(&self) -> bool {
        self.plot.is_some() || self.report.is_some()
    }
}

/// The arguments, read.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) layer: Option<i64>,
    pub(super) pes: Option<usize>,
    pub(super) hidden: Option<usize>,
    pub(super) float: Float,
    pub(super) align: usize,
    pub(super) steps: Option<u64>,
    pub(super) seed: Option<u64>,
}

impl Args {
    /// Reads the numbers and names.
    pub(super) fn request(&self) -> Result<Request, Failure> {
        let dtype = self.dtype.parse::<DType>().ok().and_then(|d| Float::try_from(d).ok());
        let expected = "bf16, f16 or f32";
        self.files()?;
        Ok(Request {
            layer: number("layer", self.layer.as_deref(), i64::MIN, i64::MAX)?,
            pes: number("pes", self.pes.as_deref(), 1, 1 << 20)?,
            hidden: number("hidden", self.hidden.as_deref(), 1, 1 << 48)?,
            float: dtype.ok_or_else(|| Failure::argument("dtype", &self.dtype, expected))?,
            align: number("align", Some(&self.align), 1, i32::MAX as usize)?.unwrap_or(1),
            steps: number("steps", self.steps.as_deref(), 1, u64::from(u32::MAX))?,
            seed: number("seed", self.seed.as_deref(), 0, u64::MAX)?,
        })
    }

    /// Files are written one after the other: of a name that is given twice only the last one would be left.
    fn files(&self) -> Result<(), Failure> {
        let files = [("json", &self.json), ("plot", &self.plot), ("report", &self.report)];
        for (i, (name, path)) in files.into_iter().enumerate() {
            let Some(path) = path else { continue };
            let is = |other: &str| path.as_os_str() == other;
            if is("-") && name != "json" {
                return Err(Failure::argument(
                    name,
                    "-",
                    "a file: only --json writes to the standard output",
                ));
            }
            let same = files[..i].iter().find(|(_, other)| other.as_ref() == Some(path));
            if let Some((other, _)) = same.filter(|_| !is("/dev/null")) {
                return Err(Failure::argument(
                    name,
                    path.display(),
                    format!("another file than --{other}'s"),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_number_names_its_option() {
        let with = |change: fn(&mut Args)| {
            let mut args = Args { dtype: "f32".to_owned(), align: "1".to_owned(), ..Args::default() };
            change(&mut args);
            args.request().map(|_| ()).map_err(|f| f.error.field.unwrap_or_default())
        };
        assert_eq!(with(|_| ()), Ok(()));
        assert_eq!(with(|a| a.pes = Some("0".into())), Err("pes".to_owned()));
        assert_eq!(with(|a| a.hidden = Some("-4".into())), Err("hidden".to_owned()));
        assert_eq!(with(|a| a.align = "0".into()), Err("align".to_owned()));
        assert_eq!(with(|a| a.steps = Some("x".into())), Err("steps".to_owned()));
        assert_eq!(with(|a| a.layer = Some("1.5".into())), Err("layer".to_owned()));
        assert_eq!(with(|a| a.dtype = "i32".into()), Err("dtype".to_owned()));
        assert_eq!(with(|a| a.layer = Some("-3".into())), Ok(()));
    }

    #[test]
    fn every_output_has_a_file_of_its_own() {
        let with = |json: &str, plot: &str, report: &str| {
            let path = |name: &str| (!name.is_empty()).then(|| PathBuf::from(name));
            let files = [json, plot, report].map(path);
            let [json, plot, report] = files;
            let args = Args { json, plot, report, ..Args::default() };
            args.files().map_err(|f| f.error.field.unwrap_or_default())
        };
        assert_eq!(with("-", "a.svg", "a.html"), Ok(()));
        assert_eq!(with("/dev/null", "/dev/null", ""), Ok(()));
        assert_eq!(with("", "a", "a"), Err("report".to_owned()));
        assert_eq!(with("a", "a", ""), Err("plot".to_owned()));
        assert_eq!(with("", "-", ""), Err("plot".to_owned()));
        assert_eq!(with("", "", "-"), Err("report".to_owned()));
    }
}
