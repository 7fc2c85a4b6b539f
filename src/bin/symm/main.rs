//! The command line of symm-mem.

mod moe;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Symmetric memory for GPUs and hosts.
#[derive(Debug, Parser)]
#[command(name = "symm", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Moe(moe::Args),
}

fn main() -> ExitCode {
    env_logger::init();
    let cli = Cli::try_parse().unwrap_or_else(|e| {
        // What `symm moe` says of wrong arguments has its own form: one line, and JSON where that was asked for.
        if e.use_stderr() && std::env::args_os().nth(1).is_some_and(|a| a == "moe") {
            std::process::exit(moe::usage(&e));
        }
        e.exit()
    });
    let result = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Moe(args) => Ok(moe::run(&args)),
    };
    match result {
        Ok(code) => code,
        Err(e) => {
            eprintln!("symm: {e:#}");
            ExitCode::FAILURE
        }
    }
}
