//! What can go wrong in a subcommand: one error object, one exit status, one line.

use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use symm::Error;
use symm::moe::TraceError;

/// A value differs from what it must be.
pub(crate) const EXIT_DIFFERS: u8 = 3;

/// Whose fault it is, which decides the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Class {
    /// The input cannot be used: 2.
    Input,
    /// The run failed: 4.
    Run,
}

/// What `--json` writes under `error`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ErrorObject {
    /// A stable word: `Usage`, `Trace`, `File`, `Argument`, `Memory`, or the library's word.
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u64>,
    /// Field of the trace, or option.
    pub(crate) field: Option<String>,
    pub(crate) pe: Option<u32>,
}

/// An error and its class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) error: Box<ErrorObject>,
}

impl Failure {
    pub(crate) fn new(class: Class, kind: &str, message: impl Into<String>) -> Self {
        let (kind, message) = (kind.to_owned(), message.into());
        let error = ErrorObject { kind, message, file: None, line: None, field: None, pe: None };
        Failure { class, error: Box::new(error) }
    }

    /// An option that cannot be used.
    pub(crate) fn argument(
        name: &str,
        got: impl std::fmt::Display,
        expected: impl std::fmt::Display,
    ) -> Self {
        let mut f = Failure::new(Class::Input, "Argument", format!("--{name} is {got}, expected {expected}"));
        f.error.field = Some(name.to_owned());
        f
    }

    /// A file that cannot be read or written.
    pub(crate) fn file(class: Class, path: &Path, e: &std::io::Error) -> Self {
        let mut f = Failure::new(class, "File", e.to_string());
        f.error.file = Some(path.display().to_string());
        f
    }

    pub(crate) fn exit(&self) -> ExitCode {
        ExitCode::from(match self.class {
            Class::Input => 2,
            Class::Run => 4,
        })
    }

    /// The `--json` text.
    pub(crate) fn json(&self) -> String {
        format!("{}\n", serde_json::json!({ "error": self.error }))
    }
}

/// One line, whatever the message holds.
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let e = &self.error;
        let mut text = String::new();
        if let Some(file) = &e.file {
            text.push_str(file);
            if let Some(line) = e.line {
                text.push_str(&format!(":{line}"));
            }
            text.push_str(": ");
            if let Some(field) = &e.field {
                text.push_str(&format!("{field}: "));
            }
        }
        text.push_str(&e.message);
        f.write_str(&text.replace(['\n', '\r'], " "))
    }
}

impl From<TraceError> for Failure {
    fn from(e: TraceError) -> Self {
        let mut f = Failure::new(Class::Input, "Trace", e.message);
        f.error.file = Some(e.file);
        f.error.line = Some(e.line as u64);
        f.error.field = Some(e.field);
        f
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        // Settings are input; so are sizes for which a backend has no memory.
        let class = match &e {
            Error::Setting { .. } | Error::SettingDiffers { .. } | Error::OutOfMemory { .. } => Class::Input,
            _ => Class::Run,
        };
        let mut f = Failure::new(class, e.kind(), e.to_string());
        f.error.pe = e.pe().map(|pe| pe.0);
        if let Error::Setting { name, .. } | Error::SettingDiffers { name, .. } = &e {
            f.error.field = Some((*name).to_owned());
        }
        f
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_error_is_bad_input_on_one_line_with_its_place() {
        let e =
            TraceError { file: "a b".into(), line: 7, field: "topk_ids".into(), message: "no\ngood".into() };
        let f = Failure::from(e);
        assert_eq!(f.to_string(), "a b:7: topk_ids: no good");
        assert_eq!(f.class, Class::Input);
        let json: serde_json::Value = serde_json::from_str(&f.json()).unwrap();
        assert_eq!(json["error"]["line"], 7);
        assert!(json["error"]["pe"].is_null());
    }

    #[test]
    fn a_dead_peer_is_a_failure_that_names_it() {
        let f = Failure::from(Error::PeerFailed { pe: symm::Pe(3), why: "gone".into() });
        assert_eq!((f.class, f.error.pe, f.error.kind.as_str()), (Class::Run, Some(3), "PeerFailed"));
    }
}
