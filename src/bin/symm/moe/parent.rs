//! The process that starts the PEs, as its direct children, and tells the result.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use symm::Config;

use crate::cli::channel::FromPes;
use crate::cli::error::{Class, Failure};
use crate::cli::{job, memory};

use super::args::Args;
use super::pe;
use super::prepare::prepare;
use super::report::Done;
use super::say::Printer;

/// A trace may take one part in so many of the memory that is available, since it is copied once and read by every PE.
const TRACE_SHARE: u64 = 8;

/// Starts the PEs, waits for them, and prints what they say.
pub(super) fn run(args: &Args, config: &Config, printer: &mut Printer) -> ExitCode {
    let result = start(args, config, printer);
    pe::Output::end(printer, 0, &result)
}

fn start(args: &Args, config: &Config, printer: &mut Printer) -> Result<Done, Failure> {
    let request = args.request()?;
    let text = match &args.routes {
        None => None,
        Some(path) => {
            let limit = memory::available().unwrap_or(u64::MAX) / TRACE_SHARE;
            Some(read(path, limit).map_err(|e| Failure::file(Class::Input, path, &e))?)
        }
    };
    let ends = FromPes::new(text.as_deref())?;
    drop(text);
    // What the PEs would refuse is refused before there are any.
    let pes = prepare(args, &request, config, ends.file_path().as_deref())?.pes;
    job::run(pes, ends, |(done, of)| pe::Output::progress(printer, done, of))
}

/// All bytes of a file, if there are no more than `limit`: a device may have no end.
fn read(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(limit.saturating_add(1)).read_to_end(&mut text)?;
    if text.len() as u64 > limit {
        let message =
            format!("longer than {limit} bytes, the part of this machine's memory that a trace may take");
        return Err(std::io::Error::other(message));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_without_end_is_not_read_to_it() {
        let zeros = Path::new("/dev/zero");
        assert!(read(zeros, 1000).unwrap_err().to_string().contains("longer than 1000 bytes"));
        assert_eq!(read(Path::new("/dev/null"), 0).unwrap(), b"");
    }
}
