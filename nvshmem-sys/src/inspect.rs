//! What a tool that explains an installation wants to know.

use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};

use crate::{LoadError, NVSHMEM_MAX_NAME_LEN, Nvshmem, Unavailable, Version};

/// An NVSHMEM installation, as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The host library's file.
    pub path: PathBuf,
    /// What led to it, such as `NVSHMEM_HOME`.
    pub because: &'static str,
    /// The host library's release.
    pub version: Version,
    /// The release from whose headers these bindings come.
    pub bindings: Version,
    /// The OpenSHMEM version that the library says it follows: major, minor.
    pub openshmem: (i32, i32),
    /// The name that the library gives itself.
    pub name: String,
    /// `nvshmemx_init_status`: 0 not started, 1 bootstrapped, 2 or more initialised (by whoever uses it in this process).
    pub status: i32,
    /// Bound functions that it does not export.
    pub missing: Vec<&'static str>,
    /// The device library of the same release, if it is beside the host library.
    pub device_library: Option<PathBuf>,
    /// Bootstraps that are beside it (`uid`, `mpi`, `pmix`, …).
    pub bootstraps: Vec<String>,
    /// Network transports that are beside it (`ibrc`, `ucx`, …).
    pub transports: Vec<String>,
}

/// The release from whose headers these bindings come.
pub const BINDINGS: Version = Version {
    major: crate::NVSHMEM_VENDOR_MAJOR_VERSION,
    minor: crate::NVSHMEM_VENDOR_MINOR_VERSION,
    patch: crate::NVSHMEM_VENDOR_PATCH_VERSION,
};

/// Loads the library as [`Nvshmem::load`] does and asks it what it is; starts nothing.
///
/// # Errors
/// [`LoadError`] as from [`Nvshmem::load`].
pub fn inspect() -> Result<Inspection, LoadError> {
    let library = Nvshmem::load()?;
    let not_nvshmem =
        |unavailable: Unavailable| LoadError::NotNvshmem { path: library.path().to_owned(), unavailable };
    let (mut major, mut minor) = (0, 0);
    // SAFETY: two places for integers; the function reads constants.
    unsafe { library.nvshmem_info_get_version(&mut major, &mut minor) }.map_err(not_nvshmem)?;
    let mut name = [0 as c_char; NVSHMEM_MAX_NAME_LEN as usize + 1];
    // SAFETY: the headers say that a name has at most NVSHMEM_MAX_NAME_LEN bytes.
    unsafe { library.nvshmem_info_get_name(name.as_mut_ptr()) }.map_err(not_nvshmem)?;
    // SAFETY: the array was zero and its last byte has not been written, so it ends in a zero.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    // SAFETY: reads a variable of the library; may be called at any time.
    let status = unsafe { library.nvshmemx_init_status() }.map_err(not_nvshmem)?;
    let folder = library.path().parent();
    Ok(Inspection {
        path: library.path().to_owned(),
        because: library.because(),
        version: library.version(),
        bindings: BINDINGS,
        openshmem: (major, minor),
        name,
        status,
        missing: library.missing().to_vec(),
        device_library: library.device_library(),
        bootstraps: plugins(folder, "nvshmem_bootstrap_"),
        transports: plugins(folder, "nvshmem_transport_"),
    })
}

/// Names of the plugins in a folder whose files are `PREFIXname.so.N`, sorted.
fn plugins(folder: Option<&Path>, prefix: &str) -> Vec<String> {
    let mut names: Vec<String> = folder
        .and_then(|folder| std::fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            Some(file.strip_prefix(prefix)?.split_once(".so")?.0.to_owned())
        })
        .collect();
    names.sort();
    names.dedup();
    names
}
