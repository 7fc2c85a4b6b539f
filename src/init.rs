//! Start-up: who the PEs are, then the world.

use std::sync::Arc;
use std::time::Duration;

use symm_core::bootstrap::{Bootstrap, Family, Local};
use symm_core::config::Token;
use symm_core::{Config, Error, Result};

use crate::World;
#[cfg(feature = "mpi")]
use crate::over_mpi;
#[cfg(all(feature = "mpi", feature = "nvshmem"))]
use crate::{AnyBackend, select::Means};

/// Opens the world of this process: settings from the environment, PEs by whatever started them.
///
/// `symm run -n N PROGRAM`, Open MPI's and MPICH's `mpirun`, `srun` and `torchrun` are recognised, in the order of
/// [`Family`](symm_core::bootstrap::Family). A process that nobody started as one of several has a world of one PE.
///
/// # Collective
/// Over all PEs of the job, once in a process.
///
/// # Errors
/// [`Error::Setting`] for a setting that cannot be used, [`Error::SettingDiffers`] on every PE for one that differs,
/// [`Error::Timeout`] naming PEs that did not come, and what the backend reports.
#[doc(alias("init_process_group", "nvshmem_init", "ncclCommInitRank", "MPI_Init"))]
pub fn init() -> Result<World> {
    Builder::from_env()?.init()
}

/// Settings of a world before it is opened.
///
/// `init` does all start-up in one collective: it connects the PEs, compares settings, chooses the backend from what all
/// PEs found (`SYMM_BACKEND`, default `auto`), and makes the world's team with its context. Nothing starts later.
#[derive(Debug, Clone)]
pub struct Builder {
    config: Config,
}

impl Builder {
    /// The environment's settings ([`Config`] documents each variable).
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn from_env() -> Result<Self> {
        Ok(Builder { config: Config::from_env()? })
    }

    /// Settings made by hand.
    pub fn from_config(config: Config) -> Self {
        Builder { config }
    }

    /// This process's number and the number of PEs; `job` names the job on this host. Goes before whatever started the
    /// process.
    #[must_use]
    pub fn pe(mut self, pe: u32, n_pes: u32, job: &str) -> Self {
        self.config.pe = Some(pe);
        self.config.n_pes = Some(n_pes);
        self.config.job = Some(job.to_owned());
        self
    }

    /// `HOST:PORT` at which PE 0 listens while the PEs find each other: for PEs on several hosts.
    #[must_use]
    pub fn address(mut self, address: &str) -> Self {
        self.config.address = Some(address.to_owned());
        self
    }

    /// The job's secret, equal on all PEs; PEs prove that they have it, it is never sent. Needed over several hosts.
    #[must_use]
    pub fn secret(mut self, secret: &str) -> Self {
        self.config.token = Some(Token(secret.to_owned()));
        self
    }

    /// `auto`, `host`, `cuda` or `nvshmem`.
    #[doc(alias = "set_backend")]
    #[must_use]
    pub fn backend(mut self, name: &str) -> Self {
        self.config.backend = name.to_owned();
        self
    }

    /// The GPU of this PE, by its number among those that this process sees ([`Config::device`]): for programs that choose theirs
    /// themselves (`cudaSetDevice`). Without it every PE of a host gets one of its own, in PE order.
    #[doc(alias("set_device", "cudaSetDevice"))]
    #[must_use]
    pub fn device(mut self, ordinal: u32) -> Self {
        self.config.device = Some(ordinal);
        self
    }

    /// Deadline of operations that name none.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.config.timeout = limit;
        self
    }

    /// Deadline of `init`, `rendezvous` and team creation.
    #[must_use]
    pub fn init_timeout(mut self, limit: Duration) -> Self {
        self.config.init_timeout = limit;
        self
    }

    /// The settings as they stand, to change any other of them.
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Opens the world. See [`init`].
    ///
    /// # Errors
    /// As [`init`].
    #[doc(alias = "nvshmemx_init_attr")]
    pub fn init(self) -> Result<World> {
        let boot = start(&self.config)?;
        self.init_over(boot)
    }

    /// Opens the world over a bootstrap of the caller's, which says who the PEs are.
    ///
    /// # Errors
    /// As [`init`].
    pub fn init_over(mut self, boot: Arc<dyn Bootstrap>) -> Result<World> {
        settle(&mut self.config, &*boot);
        World::init(boot, self.config)
    }

    /// Opens the world over an MPI communicator: PE = rank. MPI is used to find the others and for nothing else; the
    /// communicator is duplicated and may be freed afterwards.
    ///
    /// # Collective
    /// Over `comm`. No other thread calls MPI meanwhile, unless MPI was initialised with `MPI_THREAD_MULTIPLE`.
    ///
    /// # Errors
    /// As [`init`]; [`Error::Backend`] with `backend` = `mpi` for a call of MPI that failed.
    #[cfg(feature = "mpi")]
    pub fn init_over_mpi(self, comm: &impl mpi::traits::Communicator) -> Result<World> {
        let boot = over_mpi::over(comm, &self.config)?;
        self.init_over(boot)
    }

    /// As [`init_over_mpi`](Self::init_over_mpi); and where the backend is `nvshmem`, NVSHMEM too starts over the communicator
    /// (`NVSHMEMX_INIT_WITH_MPI_COMM`) instead of a unique id and its sockets.
    ///
    /// # Collective
    /// Over `comm`. No other thread calls MPI meanwhile, or while [`World::finalize`] runs, unless MPI was initialised with
    /// `MPI_THREAD_MULTIPLE`.
    ///
    /// # Errors
    /// As [`init_over_mpi`](Self::init_over_mpi); `Unavailable` on every PE where NVSHMEM's plugin for MPI is missing or linked with
    /// another MPI than this process (`NVSHMEM_BOOTSTRAP_MPI_PLUGIN` names it), or MPI was initialised for less than
    /// `MPI_THREAD_SERIALIZED`.
    ///
    /// # Safety
    /// With the backend `nvshmem`, MPI is not finalized before [`World::finalize`] has returned: NVSHMEM goes on using a duplicate of
    /// the communicator until then.
    #[cfg(all(feature = "mpi", feature = "nvshmem"))]
    #[doc(alias("NVSHMEMX_INIT_WITH_MPI_COMM", "nvshmemx_set_attr_mpi_comm_args"))]
    pub unsafe fn init_nvshmem_over_mpi(mut self, comm: &impl mpi::traits::Communicator) -> Result<World> {
        let boot = over_mpi::over(comm, &self.config)?;
        settle(&mut self.config, &*boot);
        // SAFETY: the communicator lives for the borrow, which is as long as the start-up; the caller promises the rest.
        let means = Means { mpi: Some(unsafe { symm_nvshmem::MpiComm::new(comm.as_raw()) }) };
        World::init_with(boot, self.config, |boot, config| AnyBackend::open(boot, config, means))
    }

    /// Runs `body` on `n` PEs that are threads of this process, each with a world of its own, and returns when all have
    /// ended. A PE whose `body` panics or returns an error has failed: the others get [`Error::PeerFailed`], in running
    /// waits too, as they do when a process ends. One whose `body` returns `Ok` has done its part, with or without
    /// [`World::finalize`], and is no failure to the others.
    ///
    /// # Errors
    /// Of several PEs' errors the one that explains the others: [`Error::PeerFailed`] naming a PE that panicked, else the
    /// first in PE order that is neither a [`Error::PeerFailed`] nor a [`Error::Timeout`], else the first.
    pub fn threads<F>(self, n: usize, body: F) -> Result<()>
    where
        F: Fn(World) -> Result<()> + Send + Sync,
    {
        let ends: Vec<std::thread::Result<Result<()>>> = std::thread::scope(|scope| {
            let start = |boot: Arc<Local>| {
                let (body, builder) = (&body, self.clone());
                scope.spawn(move || {
                    let world = builder.init_over(boot.clone())?;
                    // This clone keeps the world until the outcome is known.
                    let outcome = body(world.clone());
                    match &outcome {
                        Ok(()) => boot.close(),
                        Err(e) => boot.abandon(&format!("its thread returned an error: {e}")),
                    }
                    outcome
                })
            };
            let threads: Vec<_> = Local::world(n).into_iter().map(start).collect();
            threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        if let Some(pe) = ends.iter().position(std::thread::Result::is_err) {
            return Err(Error::PeerFailed { pe: pe.into(), why: "its thread panicked".to_owned() });
        }
        let mut errors: Vec<Error> = ends.into_iter().flatten().filter_map(Result::err).collect();
        let consequence = |e: &Error| matches!(e, Error::PeerFailed { .. } | Error::Timeout { .. });
        errors.sort_by_key(consequence);
        errors.into_iter().next().map_or(Ok(()), Err)
    }
}

/// Connects the PEs of the job, by what `config` names or whatever started this process; what [`Builder::init`] does first.
///
/// # Collective
/// Over all PEs of the job, once in a process.
///
/// # Errors
/// Those of [`bootstrap::start`](symm_core::bootstrap::start).
pub fn start(config: &Config) -> Result<Arc<dyn Bootstrap>> {
    #[cfg(feature = "mpi")]
    if over_mpi::is_meant(config)? {
        return over_mpi::start(config);
    }
    symm_core::bootstrap::start(config)
}

/// Whether `config`, or whatever started this process, makes it one PE of a job; else its world has itself alone.
///
/// # Errors
/// [`Error::Setting`] for a half-set family of variables.
pub fn is_started(config: &Config) -> Result<bool> {
    #[cfg(feature = "mpi")]
    if over_mpi::is_meant(config)? {
        return Ok(true);
    }
    let env = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    Ok(Family::find(config, env)?.is_some())
}

/// Writes into the settings who the PEs of a bootstrap are, as [`Builder::init_over`] does.
pub fn settle(config: &mut Config, boot: &dyn Bootstrap) {
    config.pe = Some(boot.pe().0);
    config.n_pes = Some(boot.n_pes() as u32);
    // Its name was needed to find the others, and is not any more.
    config.job.get_or_insert_with(|| "started".to_owned());
}

/// [`Builder::threads`] with the environment's settings, `SYMM_PE` and its family left out.
///
/// # Errors
/// As [`Builder::threads`].
pub fn threads<F>(n: usize, body: F) -> Result<()>
where
    F: Fn(World) -> Result<()> + Send + Sync,
{
    let family = ["SYMM_PE", "SYMM_N_PES", "SYMM_JOB", "SYMM_ADDR", "SYMM_BOOTSTRAP"];
    let outside = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    let config = Config::from_lookup(|name| if family.contains(&name) { None } else { outside(name) })?;
    Builder::from_config(config).threads(n, body)
}
