//! Which backend a world gets: decided once, in `init`, from what all PEs found.

use std::sync::Arc;

use symm_core::backend::{Backend, Records};
use symm_core::bootstrap::Bootstrap;
use symm_core::{Config, Error, Result};

use crate::any::Chosen;

/// What a backend may start with, beside bootstrap and settings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Means {
    /// The communicator over which NVSHMEM starts, in place of a unique id.
    #[cfg(all(feature = "mpi", feature = "nvshmem"))]
    pub(crate) mpi: Option<symm_nvshmem::MpiComm>,
}

/// Opens the backend that the settings name, or that every PE can use. The reason comes with it.
pub(crate) fn choose(boot: &Arc<dyn Bootstrap>, config: &Config, means: Means) -> Result<(Chosen, String)> {
    let chosen = match config.backend.as_str() {
        "host" => host(boot, config, "host, because SYMM_BACKEND names it".to_owned()),
        "auto" => auto(boot, config, means),
        "cuda" => cuda(boot, config, "cuda, because SYMM_BACKEND names it".to_owned()),
        "nvshmem" => nvshmem(boot, config, means, "nvshmem, because SYMM_BACKEND names it".to_owned()),
        other => Err(Error::Unavailable {
            backend: other.to_owned(),
            why: "this version does not have it; SYMM_BACKEND=host works everywhere".to_owned(),
        }),
    };
    chosen.inspect(|(_, why)| log::debug!("PE {}: {why}", boot.pe()))
}

impl Chosen {
    /// The backend's records, with `why` it was chosen.
    pub(crate) fn records(&self, why: &str) -> Records {
        let mut records = match self {
            Chosen::Host(b) => b.records(),
            #[cfg(feature = "cuda")]
            Chosen::Cuda(b) => b.records(),
            #[cfg(feature = "nvshmem")]
            Chosen::Nvshmem(b) => b.records(),
        };
        records.fallbacks.insert(0, format!("backend: {why}"));
        records
    }
}

fn host(boot: &Arc<dyn Bootstrap>, config: &Config, why: String) -> Result<(Chosen, String)> {
    Ok((Chosen::Host(symm_host::Host::init(boot, config)?), why))
}

#[cfg(not(feature = "cuda"))]
fn auto(boot: &Arc<dyn Bootstrap>, config: &Config, _: Means) -> Result<(Chosen, String)> {
    host(boot, config, "host, because this build has no GPU backend (feature `cuda`)".to_owned())
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &Arc<dyn Bootstrap>, _: &Config, _: String) -> Result<(Chosen, String)> {
    Err(Error::Unavailable {
        backend: "cuda".to_owned(),
        why: "this build has no GPU backend: build with the feature `cuda`, or use SYMM_BACKEND=host"
            .to_owned(),
    })
}

#[cfg(feature = "cuda")]
fn cuda(boot: &Arc<dyn Bootstrap>, config: &Config, why: String) -> Result<(Chosen, String)> {
    Ok((Chosen::Cuda(symm_cuda::Cuda::init(boot, config)?), why))
}

#[cfg(feature = "nvshmem")]
fn nvshmem(
    boot: &Arc<dyn Bootstrap>,
    config: &Config,
    means: Means,
    why: String,
) -> Result<(Chosen, String)> {
    #[cfg(feature = "mpi")]
    if let Some(comm) = means.mpi {
        return Ok((Chosen::Nvshmem(symm_nvshmem::Nvshmem::init_over_mpi(boot, config, comm)?), why));
    }
    #[cfg(not(feature = "mpi"))]
    let Means {} = means;
    Ok((Chosen::Nvshmem(symm_nvshmem::Nvshmem::init(boot, config)?), why))
}

#[cfg(not(feature = "nvshmem"))]
fn nvshmem(_: &Arc<dyn Bootstrap>, _: &Config, _: Means, _: String) -> Result<(Chosen, String)> {
    Err(Error::Unavailable {
        backend: "nvshmem".to_owned(),
        why: "this build has no NVSHMEM backend: build with the feature `nvshmem`, or use SYMM_BACKEND=host"
            .to_owned(),
    })
}

/// Every PE has a GPU: `cuda` if all reach each other, else `nvshmem` where this build has it.
#[cfg(feature = "cuda")]
fn on_gpus(boot: &Arc<dyn Bootstrap>, config: &Config, means: Means) -> Result<(Chosen, String)> {
    match cuda(boot, config, "cuda, because every pair of PEs reached each other's GPU".to_owned()) {
        // On all PEs alike, since every step of that was agreed on.
        Err(Error::Unsupported { capability: "PEER_LOAD_STORE", why, .. }) if cfg!(feature = "nvshmem") => {
            nvshmem(boot, config, means, format!("nvshmem, because not all PEs reach each other: {why}"))
        }
        other => other,
    }
}

/// `host` if no PE has a GPU, `cuda` or `nvshmem` if all have one; a mixture is an error on all that names the PEs.
#[cfg(feature = "cuda")]
fn auto(boot: &Arc<dyn Bootstrap>, config: &Config, means: Means) -> Result<(Chosen, String)> {
    use symm_core::bootstrap::Group;
    use symm_core::{Deadline, Pe};
    const PROBE_TEAM: u64 = u64::from_le_bytes(*b"probe...");
    let everybody: Vec<Pe> = (0..boot.n_pes()).map(Pe::from).collect();
    let group = Group::new(boot.clone(), PROBE_TEAM, everybody)?;
    let devices = symm_cuda::device_count();
    let mine = [u8::from(devices.is_ok_and(|n| n > 0))];
    let all = group.all_gather("init", &mine, Deadline::after(config.init_timeout))?;
    let with: Vec<usize> = all.iter().enumerate().filter(|(_, v)| **v == [1]).map(|(pe, _)| pe).collect();
    match with.len() {
        0 => host(boot, config, "host, because no PE found a GPU".to_owned()),
        n if n == all.len() => on_gpus(boot, config, means),
        _ => Err(Error::Unavailable {
            backend: "auto".to_owned(),
            why: format!("only PEs {with:?} found a GPU; set SYMM_BACKEND=host to run without them"),
        }),
    }
}
