//! What a person or a program gets to see.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::{Class, Failure};

/// One line on standard error, in one piece: a launcher may end this process while it speaks.
pub(crate) fn complain(command: &str, what: &dyn std::fmt::Display) {
    // There is nowhere to tell of a standard error that cannot be written.
    let _ = std::io::stderr().write_all(format!("symm {command}: {what}\n").as_bytes());
}

/// Text for standard output, in one piece.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|e| Failure::file(Class::Run, Path::new("standard output"), &e))
}

/// Where `--json` puts its text.
#[derive(Clone, Debug)]
pub(crate) struct Json {
    path: Option<PathBuf>,
}

impl Json {
    /// `-` is standard output, `None` nowhere.
    pub(crate) fn new(path: Option<&Path>) -> Self {
        Json { path: path.map(Path::to_owned) }
    }

    /// Whether standard output is the JSON's alone.
    pub(crate) fn has_stdout(&self) -> bool {
        self.path.as_deref() == Some(Path::new("-"))
    }

    /// Finds out before the work whether the file can be written; leaves what it holds until the end.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match &self.path {
            Some(path) if !self.has_stdout() => writable(path),
            _ => Ok(()),
        }
    }

    pub(crate) fn write(&self, json: &str) -> Result<(), Failure> {
        match &self.path {
            None => Ok(()),
            Some(_) if self.has_stdout() => print(json),
            Some(path) => std::fs::write(path, json).map_err(|e| Failure::file(Class::Run, path, &e)),
        }
    }
}

/// Whether a file can be written, without changing what it holds.
pub(crate) fn writable(path: &Path) -> Result<(), Failure> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(|e| Failure::file(Class::Input, path, &e))
}
