//! What a person or a program gets to see.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

use super::args::Args;
use super::pe::{Output, exit};
use super::picture::page;
use super::report::Done;
use crate::cli::channel::{Message, ToParent};
use crate::cli::error::{Class, Failure};
use crate::cli::say::{self, Json, print};

/// Prints: the table or JSON to standard output, one line an error to standard error, a bar on a terminal.
#[derive(Debug)]
pub(super) struct Printer {
    json: Json,
    plot: Option<PathBuf>,
    report: Option<PathBuf>,
    bar: Option<ProgressBar>,
}

impl Printer {
    pub(super) fn new(args: &Args) -> Self {
        let (plot, report) = (args.plot.clone(), args.report.clone());
        Printer { json: Json::new(args.json.as_deref()), plot, report, bar: None }
    }

    /// Finds out before the work whether the files can be written.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.json.check()?;
        self.plot.iter().chain(&self.report).try_for_each(|path| say::writable(path))
    }

    /// Says what there is to say of a result.
    fn say(&self, result: &Result<Done, Failure>) -> Result<(), Failure> {
        match result {
            Err(f) => self.json.write(&f.json()),
            Ok(done) => {
                self.json.write(&done.json())?;
                self.draw(done)?;
                if self.json.has_stdout() { Ok(()) } else { print(&done.table()) }
            }
        }
    }
}

impl Printer {
    /// Writes the picture files.
    fn draw(&self, done: &Done) -> Result<(), Failure> {
        let Some(picture) = &done.picture else { return Ok(()) };
        let write = |path: &Path, text: String| {
            std::fs::write(path, text).map_err(|e| Failure::file(Class::Run, path, &e))
        };
        if let Some(path) = &self.plot {
            write(path, picture.svg(done))?;
        }
        if let Some(path) = &self.report {
            write(path, page(picture, done))?;
        }
        Ok(())
    }
}

fn complain(what: &dyn std::fmt::Display) {
    say::complain("moe", what);
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
        self.send(Message::<_, Done>::Progress((done, of)));
    }

    /// The parent decides what the result means; to it only a PE that failed has an exit status.
    fn end(&mut self, pe: u32, result: &Result<Done, Failure>) -> ExitCode {
        match result {
            Ok(done) => {
                if pe == 0 {
                    self.send(Message::<(u64, u64), _>::Done(Box::new(done.clone())));
                }
                ExitCode::SUCCESS
            }
            Err(f) => {
                self.send(Message::<(u64, u64), Done>::Failed(pe, f.clone()));
                f.exit()
            }
        }
    }
}
