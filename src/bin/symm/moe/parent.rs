//! The process that starts the PEs, as its direct children, and tells the result.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use symm::Config;
use symm::launch::{Launcher, Output, Status};

use super::args::Args;
use super::channel::{FromPes, Message};
use super::error::{Class, Failure};
use super::memory;
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
    let pes = prepare(args, &request, config, ends.trace_path().as_deref())?.pes;
    let program = std::env::current_exe().map_err(|e| Failure::new(Class::Run, "System", e.to_string()))?;
    let mut launcher = Launcher::new(pes, program);
    launcher.args = std::env::args_os().skip(1).collect();
    launcher.env = vec![ends.env()];
    launcher.output = Output::Inherited;
    let (messages, held) = ends.split();
    let (outcome, said) = std::thread::scope(|scope| {
        let listener = scope.spawn(move || listen(messages, printer));
        let outcome = launcher.run();
        // The PEs have ended; without this end the pipe has no writer and the listener finishes.
        drop(held);
        (outcome, listener.join())
    });
    let said =
        said.map_err(|_| Failure::new(Class::Run, "System", "the thread that listens to PEs ended"))?;
    let outcome = outcome?;
    judge(outcome.first_failed.map(|pe| (pe.0, outcome.statuses[pe.index()])), said)
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

/// Shows progress and keeps the rest.
fn listen(messages: impl Iterator<Item = Message>, printer: &mut Printer) -> Vec<Message> {
    let mut said = Vec::new();
    for message in messages {
        match message {
            Message::Progress(done, of) => pe::Output::progress(printer, done, of),
            other => said.push(other),
        }
    }
    said
}

/// The result, or the failure that is at the root of all others. `first` failed first, and how it ended.
fn judge(first: Option<(u32, Status)>, said: Vec<Message>) -> Result<Done, Failure> {
    let mut done = None;
    let mut failures = Vec::new();
    for message in said {
        match message {
            Message::Done(d) => done = Some(*d),
            Message::Failed(pe, failure) => failures.push((pe, failure)),
            Message::Progress(..) => {}
        }
    }
    match (first, done) {
        (None, Some(done)) => Ok(done),
        // Who was ended by a signal took the others along.
        (Some((pe, status @ Status::Signaled(_))), _) => Err(ended(pe, status)),
        (first, _) => {
            // That a peer is gone or late is what the others say of one that failed.
            let consequence = |f: &Failure| ["PeerFailed", "Timeout"].contains(&f.error.kind.as_str());
            let at = failures.iter().position(|(_, f)| !consequence(f));
            let at = at.or_else(|| failures.iter().position(|(pe, _)| first.is_some_and(|(p, _)| p == *pe)));
            match (at, first) {
                (Some(at), _) => Err(failures.swap_remove(at).1),
                (None, Some((pe, status))) => Err(ended(pe, status)),
                (None, None) => Err(Failure::new(Class::Run, "PeerFailed", "PE 0 ended without a result")),
            }
        }
    }
}

fn ended(pe: u32, status: Status) -> Failure {
    let mut f = Failure::new(Class::Run, "PeerFailed", format!("PE {pe} {status}"));
    f.error.pe = Some(pe);
    f
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(pe: u32, kind: &str) -> Message {
        Message::Failed(pe, Failure::new(Class::Run, kind, format!("{kind} of PE {pe}")))
    }

    fn message(first: Option<(u32, Status)>, said: Vec<Message>) -> String {
        judge(first, said).map_or_else(|f| f.error.message, |_| "a result".to_owned())
    }

    #[test]
    fn a_trace_without_end_is_not_read_to_it() {
        let zeros = Path::new("/dev/zero");
        assert!(read(zeros, 1000).unwrap_err().to_string().contains("longer than 1000 bytes"));
        assert_eq!(read(Path::new("/dev/null"), 0).unwrap(), b"");
    }

    #[test]
    fn the_root_of_a_failure_is_told_and_not_what_followed() {
        let exited = Some((1, Status::Exited(4)));
        let killed = Some((2, Status::Signaled(9)));
        let follows = || vec![failed(0, "PeerFailed"), failed(1, "Timeout")];
        assert_eq!(message(killed, follows()), "PE 2 was ended by signal 9 (SIGKILL)");
        let with_root = follows().into_iter().chain([failed(2, "OutOfMemory")]).collect();
        assert_eq!(message(exited, with_root), "OutOfMemory of PE 2");
        assert_eq!(message(exited, follows()), "Timeout of PE 1");
        assert_eq!(message(Some((3, Status::Exited(101))), follows()), "PE 3 exited with 101");
        assert_eq!(message(None, Vec::new()), "PE 0 ended without a result");
    }
}
