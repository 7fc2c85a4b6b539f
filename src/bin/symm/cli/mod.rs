//! What the subcommands have in common.
//!
//! | file | what |
//! |---|---|
//! | `error` | what can go wrong: one error object, one exit status, one line |
//! | `args` | numbers and sizes as people write them; arguments that do not parse |
//! | `say` | what goes to standard output, to standard error and into the `--json` file |
//! | `job`, `channel` | a command that starts its own PEs, and what they tell it |
//! | `meet` | PEs of one command, before they have a world |
//! | `machine`, `memory` | its processor, and how much memory there is |

pub(crate) mod args;
pub(crate) mod channel;
pub(crate) mod error;
pub(crate) mod job;
pub(crate) mod machine;
pub(crate) mod meet;
pub(crate) mod memory;
pub(crate) mod say;

/// Exit status of a command whose answer is no.
pub(crate) const EXIT_NO: u8 = 1;
