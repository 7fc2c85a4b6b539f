//! `srun` without PMIx, on one node.

use std::sync::Arc;

use super::family::number;
use super::secret;
use crate::bootstrap::{Bootstrap, Identity, Sockets, Whereabouts};
use crate::config::Config;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

pub(super) fn start(config: &Config, env: &impl Fn(&str) -> Option<String>) -> Result<Arc<dyn Bootstrap>> {
    let named = env("SLURM_STEP_NUM_NODES").is_some_and(|n| !n.is_empty());
    let nodes = if named { number(env, "SLURM_STEP_NUM_NODES", 1 << 20)? } else { 1 };
    if nodes > 1 {
        let expected = format!(
            "a number, since srun started this step on {nodes} nodes and told nobody how to find the others: use \
             srun --mpi=pmix or --mpi=pmi2, or set SYMM_PE, SYMM_N_PES, SYMM_ADDR and SYMM_TOKEN"
        );
        return Err(Error::Setting { name: "SYMM_N_PES", got: String::new(), expected });
    }
    let n_pes = number(env, "SLURM_STEP_NUM_TASKS", 1 << 20)?.max(1);
    let pe = Pe(number(env, "SLURM_PROCID", n_pes)? as u32);
    let id = |name| env(name).unwrap_or_default();
    let job: String =
        format!("slurm-{}.{}", id("SLURM_JOB_ID"), id("SLURM_STEP_ID")).chars().take(64).collect();
    let identity = Identity { pe, n_pes: n_pes as usize, job, secret: secret(config) };
    let boot = Sockets::join(identity, Whereabouts::OneHost, Deadline::after(config.init_timeout))?;
    Ok(boot)
}
