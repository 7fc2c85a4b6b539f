//! Start-up of NVSHMEM over an MPI communicator, and what must be so for it: NVSHMEM's plugin ends the process, or waits for ever,
//! where it is not.

use std::ffi::{CStr, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

/// NVSHMEM's plugin for MPI, as its own release names it.
const PLUGIN: &str = "nvshmem_bootstrap_mpi.so.3";
/// The variable by which NVSHMEM is told of another one.
const SETTING: &str = "NVSHMEM_BOOTSTRAP_MPI_PLUGIN";
/// `MPI_THREAD_SERIALIZED` of Open MPI and of MPICH.
const SERIALIZED: c_int = 2;

/// An MPI communicator, as NVSHMEM takes one (`NVSHMEMX_INIT_WITH_MPI_COMM`).
#[derive(Clone, Copy, Debug)]
pub struct MpiComm(&'static Place);

/// Memory that holds an `MPI_Comm`: a pointer in Open MPI, an integer in MPICH.
#[derive(Debug)]
struct Place(*mut c_void);

// SAFETY: the memory is never written again, and whoever made the value promised that MPI may be called from another thread.
unsafe impl Sync for Place {}

impl MpiComm {
    /// Of an `MPI_Comm`, whose C type is `T`. Its bytes are kept until the process ends: a start-up that does not end reads them.
    ///
    /// # Safety
    /// `T` is `MPI_Comm` of the MPI library that this process uses, and `comm` a communicator that lives until
    /// [`Nvshmem::init_over_mpi`](crate::Nvshmem::init_over_mpi) has returned. From then until the world is finalized, MPI is not.
    /// While the one or the other runs no other thread calls MPI, unless that was initialised with `MPI_THREAD_MULTIPLE`.
    pub unsafe fn new<T: Copy + 'static>(comm: T) -> Self {
        let place = Box::into_raw(Box::new(comm));
        MpiComm(Box::leak(Box::new(Place(place.cast()))))
    }

    /// Where the `MPI_Comm` is.
    pub(crate) fn place(self) -> *mut c_void {
        self.0.0
    }
}

/// Sees that NVSHMEM's plugin can be loaded, that it uses the MPI of this process, and that MPI is initialised and may be called by
/// a thread other than the one that did that.
///
/// # Errors
/// What is not so, with the setting to change.
pub(crate) fn check(library: &Path) -> Result<(), String> {
    check_plugin(&plugin(library, std::env::var_os(SETTING).map(PathBuf::from)))
}

fn check_plugin(plugin: &Path) -> Result<(), String> {
    let instead = format!(
        "{SETTING} names NVSHMEM's plugin for the MPI that this process uses; or start NVSHMEM by unique id, which needs no plugin \
         (Builder::init_over_mpi)"
    );
    // SAFETY: the plugin's initialisers, and MPI's, touch nothing but their own data.
    let opened = unsafe { Library::open(Some(plugin), RTLD_LAZY | RTLD_LOCAL) };
    let opened = opened.map_err(|e| format!("NVSHMEM's plugin for MPI cannot be loaded: {e}; {instead}"))?;
    if let Some(other) = other_mpi(&opened) {
        return Err(format!(
            "NVSHMEM's plugin {} is linked with {other}, which is not the MPI of this process; {instead}",
            plugin.display()
        ));
    }
    let ask = |name: &'static CStr| {
        // SAFETY: the three functions that are asked for take a place for an integer and return an error code.
        let found =
            unsafe { opened.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(name.to_bytes_with_nul()) };
        let call = found.map_err(|e| format!("NVSHMEM's plugin for MPI comes without MPI: {e}"))?;
        let mut value = 0;
        // SAFETY: a valid place; MPI_Initialized and MPI_Finalized may be called at any time, MPI_Query_thread between those.
        match unsafe { call(&raw mut value) } {
            0 => Ok(value),
            code => Err(format!("{} failed (code {code})", name.to_string_lossy())),
        }
    };
    if ask(c"MPI_Initialized")? == 0 || ask(c"MPI_Finalized")? != 0 {
        return Err(
            "MPI is not running: it is initialised before the world and finalized after it".to_owned()
        );
    }
    let level = ask(c"MPI_Query_thread")?;
    if level < SERIALIZED {
        return Err(format!(
            "MPI was initialised for thread level {level}; NVSHMEM calls it from a thread of its own, so MPI_Init_thread must ask for \
             MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE"
        ));
    }
    // NVSHMEM opens the plugin by itself. What MPI did when it was loaded is not undone.
    std::mem::forget(opened);
    Ok(())
}

/// The file that NVSHMEM loads: the one of the setting, or its own beside the host library.
fn plugin(library: &Path, set: Option<PathBuf>) -> PathBuf {
    if let Some(set) = set.filter(|s| !s.as_os_str().is_empty()) {
        return set;
    }
    let beside = library.parent().map(|folder| folder.join(PLUGIN)).filter(|file| file.is_file());
    beside.unwrap_or_else(|| PathBuf::from(PLUGIN))
}

/// The file of the plugin's MPI, if this process has an MPI and that is another one.
fn other_mpi(plugin: &Library) -> Option<String> {
    let address = |library: &Library| {
        // SAFETY: only the address is looked at.
        let found = unsafe { library.get::<*mut c_void>(b"MPI_Comm_dup\0") };
        found.map_or(std::ptr::null_mut(), |symbol| symbol.into_raw())
    };
    let (theirs, ours) = (address(plugin), address(&Library::this()));
    // An MPI that was loaded for one library alone (as Python does) is not seen here; then NVSHMEM's own word has to do.
    if ours.is_null() || theirs == ours {
        return None;
    }
    Some(
        nvshmem_sys::file_of(theirs.addr())
            .map_or_else(|| "no MPI".to_owned(), |file| file.display().to_string()),
    )
}

#[cfg(test)]
mod tests;
