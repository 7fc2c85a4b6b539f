//! One PE of the CUDA backend's spike: checks against the oracles, failures, then times. `ci/gpu-spike` starts the PEs.
//!
//! `SYMM_PE`, `SYMM_N_PES`, `SYMM_JOB` name the PE; `OUT` is a folder for `spike.json`, which PE 0 writes. Arguments name
//! the parts to run (`signals`, `vdev`, `graph`, `failures`, `times`); none means all. A check that fails ends the process
//! with an error.
#![allow(clippy::print_stdout, reason = "a program")]

mod failures;
mod graph;
mod pe;
mod signals;
mod times;
mod vdev;

use std::time::Instant;

use anyhow::Result;
use pe::Me;

use symm_core::{Backend, Config};

type Figures = serde_json::Map<String, serde_json::Value>;
type Part<B> = fn(&Me<B>, &mut Figures) -> Result<()>;

fn main() -> Result<()> {
    let config = Config::from_env()?;
    // The host backend runs the same checks on a machine without a GPU: a check of the checks.
    if config.backend == "host" {
        go::<symm_host::Host>(config, None)
    } else {
        go::<symm_cuda::Cuda>(config, Some(times::run))
    }
}

fn go<B: Backend>(config: Config, times: Option<Part<B>>) -> Result<()> {
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let me = Me::<B>::start(config)?;
    let mut figures = Figures::new();
    let mut all: Vec<(&str, Part<B>)> = vec![
        ("signals", signals::run),
        ("vdev", vdev::run),
        ("graph", graph::run),
        ("failures", failures::run),
    ];
    all.extend(times.map(|t| ("times", t)));
    for (name, part) in all {
        if !parts.is_empty() && !parts.iter().any(|p| p == name) {
            continue;
        }
        me.meet()?;
        let began = Instant::now();
        part(&me, &mut figures)?;
        me.meet()?;
        if me.pe() == 0 {
            println!("{name}: ok, {:.1} s", began.elapsed().as_secs_f64());
        }
    }
    if me.pe() == 0 {
        me.write(figures)?;
    }
    me.world.finalize()?;
    Ok(())
}
