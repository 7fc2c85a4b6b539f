//! The command line of symm-mem.

mod bench;
mod cli;
mod doctor;
mod moe;
mod plan;
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
    Bench(bench::Args),
    Plan(plan::Args),
    Doctor(doctor::Args),
}

fn main() -> ExitCode {
    // A variable that nothing reads is told of even if nobody asks for log lines; by whoever starts PEs for all of them.
    let told = if std::env::var_os("SYMM_PE").is_none() { "error,symm_core::misspelt=warn" } else { "error" };
    env_logger::init_from_env(env_logger::Env::default().default_filter_or(told));
    let cli = Cli::try_parse().unwrap_or_else(|e| {
        // Wrong arguments of these have a form of their own: one line, and JSON where that was asked for.
        let command = std::env::args_os().nth(1).and_then(|c| c.into_string().ok());
        match command.filter(|c| e.use_stderr() && ["bench", "doctor", "moe", "plan"].contains(&c.as_str())) {
            Some(command) => std::process::exit(cli::args::usage(&command, &e)),
            None => e.exit(),
        }
    });
    let result = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Moe(args) => Ok(moe::run(&args)),
        Command::Bench(args) => Ok(bench::run(&args)),
        Command::Plan(args) => Ok(plan::run(&args)),
        Command::Doctor(args) => Ok(doctor::run(&args)),
    };
    match result {
        Ok(code) => code,
        Err(e) => {
            eprintln!("symm: {e:#}");
            ExitCode::FAILURE
        }
    }
}
