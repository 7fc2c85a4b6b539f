//! Libraries that backends and launchers use: where they are found, and their versions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};

use libloading::Library as Loaded;
use serde::{Deserialize, Serialize};

use super::probe;

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Library {
    pub(super) name: String,
    /// What it is used for.
    pub(super) purpose: String,
    /// `None`: not found, or it cannot be loaded.
    pub(super) path: Option<PathBuf>,
    pub(super) version: Option<String>,
    /// What led to it, or why it is not there.
    pub(super) why: String,
}

/// How a library is found and asked.
struct Known {
    name: &'static str,
    purpose: &'static str,
    /// File names, the newest first.
    files: &'static [&'static str],
    /// Variables that name the folder above `lib`.
    homes: &'static [&'static str],
    /// Folders below `nvidia` in Python's packages.
    wheels: &'static [&'static str],
    /// A function of it, which tells which file was loaded.
    symbol: &'static CStr,
    version: fn(&Loaded) -> Option<String>,
}

const KNOWN: [Known; 6] = [
    Known {
        name: "cuda",
        purpose: "NVIDIA's driver: backends cuda and nvshmem",
        files: &["libcuda.so.1"],
        homes: &[],
        wheels: &[],
        symbol: c"cuDriverGetVersion",
        version: cuda,
    },
    Known {
        name: "nvshmem",
        purpose: "backend nvshmem",
        files: &[],
        homes: &[],
        wheels: &[],
        symbol: c"nvshmemx_hostlib_init_attr",
        version: |_| None,
    },
    Known {
        name: "nvJitLink",
        purpose: "links NVSHMEM's device code at start",
        files: &["libnvJitLink.so.13", "libnvJitLink.so.12"],
        homes: &["CUDA_HOME", "CUDA_PATH"],
        wheels: &["cu13", "nvjitlink"],
        symbol: c"nvJitLinkVersion",
        version: nvjitlink,
    },
    Known {
        name: "nccl",
        purpose: "to compare with",
        files: &["libnccl.so.2"],
        homes: &["NCCL_HOME"],
        wheels: &["nccl"],
        symbol: c"ncclGetVersion",
        version: nccl,
    },
    Known {
        name: "pmix",
        purpose: "start-up under mpirun, prterun and srun",
        files: &["libpmix.so.2"],
        homes: &["PMIX_HOME"],
        wheels: &[],
        symbol: c"PMIx_Get_version",
        version: pmix,
    },
    Known {
        name: "mpi",
        purpose: "start-up beside MPI in one process",
        files: &["libmpi.so.40", "libmpi.so.12", "libmpi.so"],
        homes: &["MPI_HOME", "OMPI_HOME"],
        wheels: &[],
        symbol: c"MPI_Get_library_version",
        version: mpi,
    },
];

pub(super) fn all() -> Vec<Library> {
    let ask = |known: &Known| {
        probe::ask(&format!("library:{}", known.name)).unwrap_or_else(|why| Library { why, ..known.blank() })
    };
    KNOWN.iter().map(ask).collect()
}

/// Loads a library in this process and asks it.
pub(super) fn look(name: &str) -> Option<Library> {
    let known = KNOWN.iter().find(|known| known.name == name)?;
    Some(if name == "nvshmem" { nvshmem(known) } else { known.look() })
}

fn nvshmem(known: &Known) -> Library {
    match nvshmem_sys::inspect() {
        Ok(found) => Library {
            path: Some(found.path),
            version: Some(found.version.to_string()),
            why: format!("by {}", found.because),
            ..known.blank()
        },
        Err(e) => Library { why: e.to_string().replace('\n', " "), ..known.blank() },
    }
}

impl Known {
    fn blank(&self) -> Library {
        Library { name: self.name.to_owned(), purpose: self.purpose.to_owned(), ..Library::default() }
    }

    /// Where it may be, and what says so.
    fn places(&self) -> Vec<(PathBuf, String)> {
        let mut places = Vec::new();
        for home in self.homes {
            let Some(folder) = std::env::var_os(home).filter(|v| !v.is_empty()) else { continue };
            for lib in ["lib", "lib64"] {
                for file in self.files {
                    places.push((Path::new(&folder).join(lib).join(file), format!("by {home}")));
                }
            }
        }
        places.extend(self.files.iter().map(|file| (PathBuf::from(file), "by the loader".to_owned())));
        for wheel in self.wheels {
            for packages in python_packages() {
                let lib = packages.join("nvidia").join(wheel).join("lib");
                places.extend(
                    self.files.iter().map(|file| (lib.join(file), "in Python's packages".to_owned())),
                );
            }
        }
        places
    }

    fn look(&self) -> Library {
        let mut why = String::new();
        for (file, because) in self.places() {
            let exists = file.components().count() == 1 || file.exists();
            if !exists {
                continue;
            }
            // SAFETY: runs the library's constructors. This process exists to find out whether they work, does nothing
            // else, and ends after this.
            match unsafe { Loaded::new(&file) } {
                Ok(loaded) => {
                    let path = self.file_of(&loaded).unwrap_or(file);
                    let version = (self.version)(&loaded);
                    return Library { path: Some(path), version, why: because, ..self.blank() };
                }
                // The first reason that is not "no such file" is the one that helps.
                Err(e) if why.is_empty() || why.contains("No such file") => why = reason(&e),
                Err(_) => {}
            }
        }
        Library { why, ..self.blank() }
    }

    /// The file that was loaded.
    fn file_of(&self, loaded: &Loaded) -> Option<PathBuf> {
        // SAFETY: only the address is used.
        let symbol = unsafe { loaded.get::<*const c_void>(self.symbol.to_bytes_with_nul()) }.ok()?;
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: the place is valid, and any address may be asked about.
        let found = unsafe { libc::dladdr(symbol.try_as_raw_ptr()?, info.as_mut_ptr()) };
        if found == 0 {
            return None;
        }
        // SAFETY: `dladdr` succeeded, so it has filled it in; zeros are valid too.
        let name = unsafe { info.assume_init() }.dli_fname;
        if name.is_null() {
            return None;
        }
        // SAFETY: a C string that lives as long as the library is loaded.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        Some(std::fs::canonicalize(&name).unwrap_or_else(|_| name.into()))
    }
}

fn reason(e: &libloading::Error) -> String {
    match std::error::Error::source(e) {
        Some(source) => source.to_string(),
        None => e.to_string(),
    }
}

/// Folders in which Python keeps packages: the virtual environment's and the system's.
fn python_packages() -> Vec<PathBuf> {
    let mut packages = Vec::new();
    let environment = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    for root in environment.into_iter().chain(["/usr/local".into(), "/usr".into()]) {
        let versions = std::fs::read_dir(root.join("lib")).into_iter().flatten();
        for version in versions.filter_map(|e| Some(e.ok()?.path())) {
            if version.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"python3")) {
                packages.extend(["site-packages", "dist-packages"].map(|p| version.join(p)));
            }
        }
    }
    packages.sort();
    packages
}

/// A function of a library, by name and type.
macro_rules! function {
    ($loaded:expr, $name:literal, $type:ty) => {
        // SAFETY: the type is that of the library's header.
        unsafe { $loaded.get::<$type>($name.to_bytes_with_nul()) }.ok()?
    };
}

fn cuda(loaded: &Loaded) -> Option<String> {
    let ask = function!(loaded, c"cuDriverGetVersion", unsafe extern "C" fn(*mut c_int) -> c_int);
    let mut n = 0;
    // SAFETY: a valid place; the call needs no initialisation.
    let code = unsafe { ask(&raw mut n) };
    (code == 0).then(|| format!("CUDA {}.{}", n / 1000, n % 1000 / 10))
}

fn nvjitlink(loaded: &Loaded) -> Option<String> {
    let ask = function!(loaded, c"nvJitLinkVersion", unsafe extern "C" fn(*mut c_uint, *mut c_uint) -> c_int);
    let (mut major, mut minor) = (0, 0);
    // SAFETY: two valid places.
    let code = unsafe { ask(&raw mut major, &raw mut minor) };
    (code == 0).then(|| format!("{major}.{minor}"))
}

fn nccl(loaded: &Loaded) -> Option<String> {
    let ask = function!(loaded, c"ncclGetVersion", unsafe extern "C" fn(*mut c_int) -> c_int);
    let mut n = 0;
    // SAFETY: a valid place; the call needs no communicator.
    let code = unsafe { ask(&raw mut n) };
    (code == 0).then(|| format!("{}.{}.{}", n / 10_000, n / 100 % 100, n % 100))
}

fn pmix(loaded: &Loaded) -> Option<String> {
    let ask = function!(loaded, c"PMIx_Get_version", unsafe extern "C" fn() -> *const c_char);
    // SAFETY: may be called at any time.
    let text = unsafe { ask() };
    if text.is_null() {
        return None;
    }
    // SAFETY: a C string of the library's own.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned())
}

fn mpi(loaded: &Loaded) -> Option<String> {
    let ask =
        function!(loaded, c"MPI_Get_library_version", unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int);
    // The longest MPI_MAX_LIBRARY_VERSION_STRING is MPICH's, 8192.
    let mut text = vec![0 as c_char; 16 << 10];
    let mut len = 0;
    // SAFETY: room for the longest string there is; MPI-3 allows the call before MPI_Init.
    let code = unsafe { ask(text.as_mut_ptr(), &raw mut len) };
    if code != 0 {
        return None;
    }
    // SAFETY: the array was zero and is longer than what was written, so it ends in a zero.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
    Some(text.lines().next().unwrap_or_default().split(", ident").next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_says_why_and_what_is_has_a_path() {
        for name in KNOWN.iter().map(|k| k.name).filter(|n| *n != "nvshmem") {
            let absent =
                Known { files: &["libsymm-none.so.1"], ..*KNOWN.iter().find(|k| k.name == name).unwrap() };
            let found = absent.look();
            assert!(found.path.is_none() && found.why.contains("libsymm-none.so.1"), "{found:?}");
        }
        // Every process has this one.
        let libc =
            Known { files: &["libc.so.6"], symbol: c"malloc", version: |_| Some("x".to_owned()), ..KNOWN[0] };
        let found = libc.look();
        assert!(found.path.is_some_and(|p| p.is_absolute() && p.to_string_lossy().contains("libc")));
        assert_eq!((found.version.as_deref(), found.why.as_str()), (Some("x"), "by the loader"));
        assert!(look("nothing").is_none());
    }
}
