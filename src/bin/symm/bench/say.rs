//! What a person or a program gets to see.

use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::measure::Row;
use super::report::Setup;
use crate::cli::channel::{Message, ToParent};
use crate::cli::error::{Class, EXIT_DIFFERS, Failure};
use crate::cli::say::{Json, complain, print};

/// What PE 0 says while it works.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Said {
    Setup(Setup),
    Row(Row),
}

/// Who is told how a PE fares.
pub(super) trait Output {
    /// What there is to show; told by PE 0.
    fn say(&mut self, said: Said);
    /// The end: how many values are wrong over all PEs.
    fn end(&mut self, pe: u32, result: Result<u64, Failure>) -> ExitCode;
}

/// Prints each row as it comes, and all of them as JSON at the end.
pub(super) struct Printer {
    json: Json,
    setup: Option<Setup>,
    rows: Vec<Row>,
    failed: Option<Failure>,
}

impl Printer {
    pub(super) fn new(json: Option<&Path>) -> Self {
        Printer { json: Json::new(json), setup: None, rows: Vec::new(), failed: None }
    }

    /// Finds out before the work whether the JSON file can be written.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.json.check()
    }
}

impl Output for Printer {
    fn say(&mut self, said: Said) {
        let text = match said {
            Said::Setup(setup) => {
                let head = setup.head();
                self.setup = Some(setup);
                head
            }
            Said::Row(row) => {
                let line = self.setup.as_ref().map(|s| s.line(&row)).unwrap_or_default();
                self.rows.push(row);
                line
            }
        };
        if !self.json.has_stdout()
            && let Err(f) = print(&text)
        {
            self.failed.get_or_insert(f);
        }
    }

    fn end(&mut self, pe: u32, result: Result<u64, Failure>) -> ExitCode {
        let result = match self.failed.take() {
            Some(f) => result.and(Err(f)),
            None => result,
        };
        // PE 0 speaks for all. What another PE alone knows is worth a line: PE 0 may only see that it is gone.
        if pe > 0 {
            return match result {
                Ok(wrong) => exit(wrong),
                Err(f) => {
                    if f.class == Class::Run {
                        complain("bench", &format_args!("PE {pe}: {f}"));
                    }
                    f.exit()
                }
            };
        }
        let json = match (&result, &self.setup) {
            (Ok(_), Some(setup)) => setup.json(&self.rows),
            (Err(f), _) => f.json(),
            (Ok(_), None) => String::new(),
        };
        let written = self.json.write(&json);
        match result.and_then(|wrong| written.map(|()| wrong)) {
            Ok(wrong) => {
                if wrong > 0 {
                    complain("bench", &format_args!("{wrong} values are wrong"));
                }
                exit(wrong)
            }
            Err(f) => {
                complain("bench", &f);
                f.exit()
            }
        }
    }
}

fn exit(wrong: u64) -> ExitCode {
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DIFFERS) }
}

impl Output for ToParent {
    fn say(&mut self, said: Said) {
        self.send(Message::<_, u64>::Progress(said));
    }

    /// The parent decides what the result means; to it only a PE that failed has an exit status.
    fn end(&mut self, pe: u32, result: Result<u64, Failure>) -> ExitCode {
        match result {
            Ok(wrong) => {
                if pe == 0 {
                    self.send(Message::<Said, _>::Done(Box::new(wrong)));
                }
                ExitCode::SUCCESS
            }
            Err(f) => {
                let code = f.exit();
                self.send(Message::<Said, u64>::Failed(pe, f));
                code
            }
        }
    }
}
