//! Shapes that others publish figures of, beside those of the speed table (`--workloads`): one list for this program and for
//! `benches/peers`, which reads the same file.

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::vdev::Shape;
use crate::{Bench, Target, equal, vdev};

/// `workloads.json`.
#[derive(Deserialize)]
struct Workloads {
    routed: Vec<Routed>,
    /// MiB a PE, of all_to_all.
    equal_mib: Vec<usize>,
}

#[derive(Deserialize)]
struct Routed {
    name: String,
    tokens: usize,
    hidden: usize,
    top_k: usize,
    /// In all, or, with `each`, of each PE.
    experts: usize,
    each: bool,
    align: usize,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<()> {
    let all: Workloads = serde_json::from_str(include_str!("workloads.json")).context("workloads.json")?;
    for r in all.routed {
        let experts = if r.each { r.experts * bench.timer.world.n_pes() } else { r.experts };
        let shape = Shape { tokens: r.tokens, hidden: r.hidden, top_k: r.top_k, experts, align: r.align };
        vdev::measure(bench, (&r.name, shape, 0, Target::None, Target::None))?;
    }
    for mib in all.equal_mib {
        equal::measure(bench, equal::By::Kernel, mib << 20, Target::None)?;
        equal::measure(bench, equal::By::CopyEngines, mib << 20, Target::None)?;
    }
    Ok(())
}
