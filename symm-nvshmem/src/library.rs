//! NVSHMEM's host library as this crate uses it: started once a process, never used before that or after its end.
//!
//! Several of its functions end the process instead of returning an error: finalize on any failure, and everything that
//! touches the heap before start-up has succeeded. So nothing here is called before [`Library::start`] has returned `Ok`.

use std::ffi::{c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};

use nvshmem_sys::{
    INIT_WITH_MPI_COMM, INIT_WITH_UNIQUEID, NVSHMEM_TEAM_CONFIG_INITIALIZER, NVSHMEM_TEAM_INVALID,
    NVSHMEM_TEAM_WORLD, NVSHMEMX_INIT_ATTR_INITIALIZER, NVSHMEMX_UNIQUEID_INITIALIZER, Nvshmem, Unavailable,
    Version, nvshmemx_init_attr_t, nvshmemx_uniqueid_t, uniqueid_from_bytes, uniqueid_to_bytes,
};
use symm_core::{Deadline, Pe, Result};
use symm_cuda::Cuda;

use crate::error::{BACKEND, unavailable};
use crate::mpi::MpiComm;
use crate::start::HINTS;
use crate::teams::Strided;

/// Bytes of a unique id.
pub(crate) const ID_BYTES: usize = size_of::<nvshmemx_uniqueid_t>();

/// `nvshmemx_init_status` of a library that nobody has started, and the lowest of one that runs.
const NOT_STARTED: c_int = 0;
const RUNS: c_int = 2;
/// Several PEs share a GPU without MPS, or with all of its threads each.
const LIMITED: c_int = 3;

/// Whether this process has started NVSHMEM by this crate; it cannot be started again.
static STARTED: AtomicBool = AtomicBool::new(false);

/// How NVSHMEM's PEs find each other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// PE 0's unique id.
    Id([u8; ID_BYTES]),
    /// An MPI communicator in which each PE's rank is its number.
    Mpi(MpiComm),
}

/// The library, loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library(&'static Nvshmem);

/// Settings of NVSHMEM's that take a way between PEs away, or ask for one.
const WAYS: [&str; 8] = [
    "NVSHMEM_DISABLE_P2P",
    "NVSHMEM_REMOTE_TRANSPORT",
    "NVSHMEM_DISABLE_CUDA_VMM",
    "NVSHMEM_HEAP_KIND",
    "NVSHMEM_IB_ENABLE_IBGDA",
    "NVSHMEM_HCA_LIST",
    "NVSHMEM_DISABLE_GDRCOPY",
    "NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF",
];

/// Which of them are set, for an error.
fn set_here(value: impl Fn(&str) -> Option<String>) -> String {
    let set =
        WAYS.iter().filter_map(|name| Some(format!("{name}={}", value(name).filter(|v| !v.is_empty())?)));
    let set: Vec<String> = set.collect();
    if set.is_empty() { String::new() } else { format!(" ({} set here)", set.join(", ")) }
}

fn missing(e: Unavailable) -> String {
    e.to_string()
}

fn numbered(pe: Pe) -> c_int {
    c_int::try_from(pe.0).unwrap_or(c_int::MAX)
}

impl Library {
    /// Loads the library and sees that nobody has started it.
    ///
    /// # Errors
    /// What is wrong, in words: not found, too old, too new, started by somebody else.
    pub(crate) fn load() -> Result<Self, String> {
        let library = Library(Nvshmem::load().map_err(|e| e.to_string())?);
        if STARTED.load(Ordering::Acquire) {
            return Err("NVSHMEM was started in this process before, and can be once only".to_owned());
        }
        let status = library.status()?;
        if status != NOT_STARTED {
            return Err(format!(
                "somebody else in this process has started NVSHMEM (status {status}), PyTorch's symmetric memory perhaps: \
                 two users of it cannot share a process; use SYMM_BACKEND=cuda, or another process"
            ));
        }
        Ok(library)
    }

    pub(crate) fn version(self) -> Version {
        self.0.version()
    }

    /// The device code that belongs to this host library.
    pub(crate) fn device_library(self) -> Option<PathBuf> {
        self.0.device_library()
    }

    fn status(self) -> Result<c_int, String> {
        // SAFETY: may be called at any time.
        unsafe { self.0.nvshmemx_init_status() }.map_err(missing)
    }

    /// Whether several PEs share a GPU in the way that has no NVSHMEM collectives.
    pub(crate) fn is_limited(self) -> bool {
        self.status() == Ok(LIMITED)
    }

    /// An id for a start-up; PE 0 asks for it and gives it to all.
    pub(crate) fn unique_id(self) -> Result<Vec<u8>, String> {
        let mut id = NVSHMEMX_UNIQUEID_INITIALIZER;
        // SAFETY: `id` is initialised and a valid place.
        let rc = unsafe { self.0.nvshmemx_get_uniqueid(&raw mut id) }.map_err(missing)?;
        if rc != 0 {
            return Err(format!("nvshmemx_get_uniqueid failed (code {rc})"));
        }
        Ok(uniqueid_to_bytes(&id).to_vec())
    }

    /// The host library's file.
    pub(crate) fn path(self) -> &'static Path {
        self.0.path()
    }

    /// The start-up's arguments, and the flag that says which they are.
    fn arguments(self, pe: Pe, n_pes: usize, by: By) -> Result<(c_uint, nvshmemx_init_attr_t), String> {
        let mut attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
        let (call, flag, rc) = match by {
            By::Id(id) => {
                // The attributes point to the id. A start-up that never ends still reads it, so it is never freed.
                let id: &'static nvshmemx_uniqueid_t = Box::leak(Box::new(uniqueid_from_bytes(id)));
                let n = c_int::try_from(n_pes).unwrap_or(c_int::MAX);
                // SAFETY: the id lives for ever, and `attr` is initialised and a valid place.
                let rc =
                    unsafe { self.0.nvshmemx_set_attr_uniqueid_args(numbered(pe), n, id, &raw mut attr) };
                ("nvshmemx_set_attr_uniqueid_args", INIT_WITH_UNIQUEID, rc)
            }
            By::Mpi(comm) => {
                // SAFETY: the place of the communicator lives for ever, and `attr` is initialised and a valid place.
                let rc = unsafe { self.0.nvshmemx_set_attr_mpi_comm_args(comm.place(), &raw mut attr) };
                ("nvshmemx_set_attr_mpi_comm_args", INIT_WITH_MPI_COMM, rc)
            }
        };
        match rc.map_err(missing)? {
            0 => Ok((flag, attr)),
            rc => Err(format!("{call} failed (code {rc})")),
        }
    }

    /// Starts NVSHMEM. All PEs of the world call it, and it waits for them without a deadline: see [`bounded`].
    ///
    /// # Errors
    /// In words; NVSHMEM has then printed more to standard error.
    pub(crate) fn start(self, pe: Pe, n_pes: usize, by: By) -> Result<(), String> {
        if STARTED.swap(true, Ordering::AcqRel) {
            return Err("NVSHMEM was started in this process before, and can be once only".to_owned());
        }
        let (flag, mut attr) = self.arguments(pe, n_pes, by)?;
        // SAFETY: a context is current (the caller's duty); the attributes are complete, and every PE passes the same id or the same
        // communicator.
        let rc = unsafe { self.0.nvshmemx_hostlib_init_attr(flag, &raw mut attr) };
        let rc = rc.map_err(missing)?;
        // The return code alone says nothing: 3.4 returns 0 for a start-up that got no further than the bootstrap.
        let status = self.status()?;
        if status > NOT_STARTED {
            // SAFETY: both may be called once the PEs have found each other; they read variables.
            let (my_pe, n) = unsafe { (self.0.nvshmem_my_pe(), self.0.nvshmem_n_pes()) };
            let (my_pe, n) = (my_pe.map_err(missing)?, n.map_err(missing)?);
            if (my_pe, usize::try_from(n)) != (numbered(pe), Ok(n_pes)) {
                return Err(format!(
                    "NVSHMEM counts this as PE {my_pe} of {n}, the world as PE {pe} of {n_pes}: the communicator is another one"
                ));
            }
        }
        if status >= RUNS {
            return Ok(());
        }
        Err(format!(
            "nvshmemx_hostlib_init_attr ended with code {rc} and status {status}, needed is {RUNS} or more{}: it found no way between \
             some PEs, or no GPU that it can use. {HINTS}",
            set_here(|name| std::env::var(name).ok())
        ))
    }

    /// Takes symmetric memory. All PEs of the world call it with the same size, and it waits for them without a deadline.
    pub(crate) fn malloc(self, bytes: usize) -> Result<u64, String> {
        // SAFETY: NVSHMEM runs.
        let at = unsafe { self.0.nvshmem_malloc(bytes) }.map_err(missing)?;
        if at.is_null() {
            return Err(format!(
                "nvshmem_malloc found no {bytes} bytes; SYMM_HEAP sets how many are asked for, and with \
                 NVSHMEM_DISABLE_CUDA_VMM or NVSHMEM_HEAP_KIND=SYSMEM, NVSHMEM_SYMMETRIC_SIZE how many there are"
            ));
        }
        Ok(at.expose_provenance() as u64)
    }

    /// Where a peer's copy of symmetric memory is reached by load and store, if it is.
    pub(crate) fn peer(self, at: u64, pe: Pe) -> Result<Option<u64>, String> {
        let at = usize::try_from(at).map_err(|_| "an address beyond the address space".to_owned())?;
        // SAFETY: NVSHMEM runs; only the address is looked at.
        let found = unsafe { self.0.nvshmem_ptr(std::ptr::without_provenance(at), numbered(pe)) };
        let found = found.map_err(missing)?;
        Ok(if found.is_null() { None } else { Some(found.expose_provenance() as u64) })
    }

    /// Gives NVSHMEM's device code in a module its state.
    ///
    /// # Safety
    /// `module` is a loaded module of the current context that was linked with NVSHMEM's device library.
    pub(crate) unsafe fn adopt_module(self, module: *mut c_void) -> Result<(), String> {
        // SAFETY: NVSHMEM runs; the caller promises the module.
        let rc = unsafe { self.0.nvshmemx_cumodule_init(module.cast()) }.map_err(missing)?;
        if rc == 0 {
            return Ok(());
        }
        Err(format!(
            "nvshmemx_cumodule_init failed (code {rc}); it refuses device code of a release newer than the host library, which is {}",
            self.version()
        ))
    }

    /// Makes NVSHMEM's team of a subset of the world, in which this PE has `rank`. All PEs of the world call it, and it waits for them
    /// without a deadline; not where several PEs share a GPU without MPS, which ends the process.
    pub(crate) fn team(self, s: Strided, rank: Option<c_int>) -> Result<Option<c_int>, String> {
        let config = NVSHMEM_TEAM_CONFIG_INITIALIZER;
        let mut team = NVSHMEM_TEAM_INVALID;
        // SAFETY: NVSHMEM runs; the configuration is initialised and the place for the team valid.
        let rc = unsafe {
            let (start, stride, size) = (s.start, s.stride, s.size);
            self.0.nvshmem_team_split_strided(
                NVSHMEM_TEAM_WORLD,
                start,
                stride,
                size,
                &raw const config,
                0,
                &raw mut team,
            )
        };
        let rc = rc.map_err(missing)?;
        let Some(rank) = rank else { return Ok(None) };
        if rc != 0 || team == NVSHMEM_TEAM_INVALID {
            return Err(format!("code {rc}; NVSHMEM_MAX_TEAMS is how many teams there may be"));
        }
        // SAFETY: the team was made just now.
        let (my_pe, n) = unsafe { (self.0.nvshmem_team_my_pe(team), self.0.nvshmem_team_n_pes(team)) };
        let (my_pe, n) = (my_pe.map_err(missing)?, n.map_err(missing)?);
        if (my_pe, n) != (rank, s.size) {
            return Err(format!(
                "NVSHMEM's team has this PE as {my_pe} of {n}, expected {rank} of {}",
                s.size
            ));
        }
        Ok(Some(team))
    }

    /// Ends NVSHMEM. Every PE calls it, once; an error inside ends the process.
    ///
    /// # Safety
    /// Nothing uses the heap any more, and no PE has failed.
    pub(crate) unsafe fn finalize(self) {
        // SAFETY: NVSHMEM runs, and the caller promises the rest.
        if let Err(e) = unsafe { self.0.nvshmemx_hostlib_finalize() } {
            log::warn!("{}: {e}", symm_core::pe::here());
        }
    }
}

/// Runs a call of NVSHMEM's that waits for other PEs without a deadline on a thread of its own, which is left behind if the
/// deadline passes.
///
/// # Errors
/// `Unavailable` once the deadline has passed; NVSHMEM does not say which PE is late.
pub(crate) fn bounded<T: Send + 'static>(
    cuda: &std::sync::Arc<Cuda>,
    op: &'static str,
    deadline: Deadline,
    call: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<Result<T, String>> {
    let (send, receive) = channel();
    let cuda = cuda.clone();
    let spawned = std::thread::Builder::new().name(op.to_owned()).spawn(move || {
        // A context is current for each thread apart.
        let done = cuda.enter().map_err(|e| e.to_string()).and_then(|()| call());
        // Nobody listens once the deadline has passed.
        drop(send.send(done));
    });
    if let Err(e) = spawned {
        return Ok(Err(format!("a thread cannot be started: {e}")));
    }
    match receive.recv_timeout(deadline.left()) {
        Ok(done) => Ok(done),
        Err(RecvTimeoutError::Timeout) => Err(unavailable(format!(
            "{op} has not returned after {:?} (SYMM_INIT_TIMEOUT_MS); it does not say for whom it waits, NVSHMEM_DEBUG=INFO how far it came",
            deadline.waited()
        ))),
        Err(RecvTimeoutError::Disconnected) => {
            Ok(Err(format!("{BACKEND}: the thread that called {op} ended early")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_take_ways_away_are_named() {
        assert_eq!(set_here(|_| None), "");
        let value = |name: &str| match name {
            "NVSHMEM_DISABLE_P2P" => Some("1".to_owned()),
            "NVSHMEM_REMOTE_TRANSPORT" => Some("none".to_owned()),
            "NVSHMEM_HEAP_KIND" => Some(String::new()),
            _ => None,
        };
        assert_eq!(set_here(value), " (NVSHMEM_DISABLE_P2P=1, NVSHMEM_REMOTE_TRANSPORT=none set here)");
    }
}
