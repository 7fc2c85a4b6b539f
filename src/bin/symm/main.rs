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
    let result = match Cli::parse().command {
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
