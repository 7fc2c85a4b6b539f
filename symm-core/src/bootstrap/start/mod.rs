//! Start-up: how a process learns who it is, and how the PEs find each other.
//!
//! | file | family of variables |
//! |---|---|
//! | `family` | which one this process was started with |
//! | `symm` | `SYMM_*`, or the builder: one host, or a meeting point |
//! | `torchrun`, `slurm` | theirs |
//! | `pmix/` | PMIx, its library loaded at run time |
//! | `pmi` | MPICH's PMI, spoken over its descriptor |
//! | `meeting` | PE 0 listens at an address that all know |

mod family;
mod meeting;
mod pmi;
mod pmix;
mod slurm;
mod symm;
mod torchrun;

use std::sync::Arc;

pub use self::family::Family;

use super::{Bootstrap, Identity, Secret, Sockets, Whereabouts};
use crate::config::Config;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

/// Connects this process with the PEs of its job, by whatever started them.
///
/// Takes what `config` names, else the first [`Family`] of variables that is there; with none, a world of one PE.
///
/// # Collective
/// Over all PEs of the job.
///
/// # Errors
/// - [`Error::Setting`] naming the variable of a half-set family, or that must be set;
/// - those of [`Sockets::join`].
pub fn start(config: &Config) -> Result<Arc<dyn Bootstrap>> {
    config.check()?;
    let env = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    match Family::find(config, env)? {
        None => alone(),
        Some(Family::Symm) => symm::start(config),
        Some(Family::Pmix) => pmix::start(config),
        Some(Family::Pmi) => pmi::start(config, &env),
        Some(Family::Torchrun) => torchrun::start(config, &env),
        Some(Family::Slurm) => slurm::start(config, &env),
        Some(Family::Mpi) => Err(Error::Setting {
            name: "SYMM_BOOTSTRAP",
            got: "mpi".to_owned(),
            expected:
                "another family: this one needs symm-mem's feature `mpi`, and its `symm::init` or `Builder`"
                    .to_owned(),
        }),
    }
}

/// A world of one PE.
fn alone() -> Result<Arc<dyn Bootstrap>> {
    let identity = Identity { pe: Pe(0), n_pes: 1, job: "alone".to_owned(), secret: Secret::default() };
    let boot = Sockets::join(identity, Whereabouts::OneHost, Deadline::after(std::time::Duration::ZERO))?;
    Ok(boot)
}

/// The secret that `config` carries.
fn secret(config: &Config) -> Secret {
    config.token.as_ref().map_or_else(Secret::default, |token| Secret::new(token.0.as_bytes()))
}

/// Refuses a start over several hosts in which anybody could take part.
fn needs_secret(config: &Config) -> Result<()> {
    if config.token.is_some() || config.insecure {
        return Ok(());
    }
    Err(Error::Setting {
        name: "SYMM_TOKEN",
        got: String::new(),
        expected: "a secret, the same for all PEs, since they may be on several hosts (SYMM_INSECURE=1 goes without)"
            .to_owned(),
    })
}

/// A job name made of what the PEs of a job have in common.
fn job_name(family: &str, parts: &[&str]) -> String {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    format!("{family}-{hash:016x}")
}

/// PEs that are processes of one host and know their numbers: `SYMM_PE`, `SYMM_N_PES` and `SYMM_JOB`, whatever else is
/// set. [`start`] looks at what started them.
#[derive(Debug)]
pub enum Unix {}

impl Unix {
    /// Connects this process with all PEs of the job that `config` names (`pe`, `n_pes`, `job`).
    ///
    /// # Collective
    /// Over the world.
    ///
    /// # Errors
    /// [`Error::Setting`] if the settings do not fit together; those of [`Sockets::join`].
    pub fn join(config: &Config) -> Result<Arc<dyn Bootstrap>> {
        config.check()?;
        symm::on_one_host(config)
    }
}
