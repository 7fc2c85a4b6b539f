//! What a person or a program gets to see.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

use super::channel::{Message, ToParent};
use super::error::{Class, Failure};
use super::pe::{Output, exit};
use super::report::Done;

/// Prints: the table or JSON to standard output, one line an error to standard error, a bar on a terminal.
#[derive(Debug)]
pub(super) struct Printer {
    json: Option<PathBuf>,
    bar: Option<ProgressBar>,
}

impl Printer {
    pub(super) fn new(json: Option<&Path>) -> Self {
        Printer { json: json.map(Path::to_owned), bar: None }
    }

    /// Finds out before the work whether the JSON file can be written; leaves what it holds until the end.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let Some(path) = self.json.as_deref().filter(|p| *p != Path::new("-")) else { return Ok(()) };
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened.map(drop).map_err(|e| Failure::file(Class::Input, path, &e))
    }

    /// Says what there is to say of a result.
    fn say(&self, result: &Result<Done, Failure>) -> Result<(), Failure> {
        let json = match result {
            Ok(done) => done.json(),
            Err(f) => f.json(),
        };
        let to_stdout = |text: &str| {
            let mut stdout = std::io::stdout().lock();
            let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
            written.map_err(|e| Failure::file(Class::Run, Path::new("standard output"), &e))
        };
        match self.json.as_deref() {
            Some(path) if path == Path::new("-") => return to_stdout(&json),
            Some(path) => std::fs::write(path, json).map_err(|e| Failure::file(Class::Run, path, &e))?,
            None => {}
        }
        match result {
            Ok(done) => to_stdout(&done.table()),
            Err(_) => Ok(()),
        }
    }
}

/// One line on standard error, in one piece: a launcher may end this process while it speaks.
fn complain(what: &dyn std::fmt::Display) {
    // There is nowhere to tell of a standard error that cannot be written.
    let _ = std::io::stderr().write_all(format!("symm moe: {what}\n").as_bytes());
}

impl Output for Printer {
    fn progress(&mut self, done: u64, of: u64) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        let style = || ProgressStyle::with_template("{wide_bar} {pos}/{len} steps, {eta} left");
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(of);
            style().map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
        });
        bar.set_position(done);
    }

    fn end(&mut self, pe: u32, result: &Result<Done, Failure>) -> ExitCode {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        // PE 0 speaks for all. What another PE alone knows is worth a line: PE 0 may only see that it is gone.
        if pe > 0 {
            if let Err(f) = result
                && f.class == Class::Run
            {
                complain(&format_args!("PE {pe}: {f}"));
            }
            return exit(result);
        }
        let said = self.say(result);
        match (result, &said) {
            (Err(f), _) => complain(f),
            (Ok(done), Ok(())) => {
                if let Some(mismatch) = &done.mismatch {
                    complain(mismatch);
                }
            }
            (Ok(_), Err(f)) => complain(f),
        }
        match (exit(result), said) {
            (code, Err(f)) if result.is_ok() => {
                if code == ExitCode::SUCCESS {
                    f.exit()
                } else {
                    code
                }
            }
            (code, _) => code,
        }
    }
}

impl Output for ToParent {
    fn progress(&mut self, done: u64, of: u64) {
        self.send(Message::Progress(done, of));
    }

    /// The parent decides what the result means; to it only a PE that failed has an exit status.
    fn end(&mut self, pe: u32, result: &Result<Done, Failure>) -> ExitCode {
        match result {
            Ok(done) => {
                if pe == 0 {
                    self.send(Message::Done(Box::new(done.clone())));
                }
                ExitCode::SUCCESS
            }
            Err(f) => {
                self.send(Message::Failed(pe, f.clone()));
                f.exit()
            }
        }
    }
}
