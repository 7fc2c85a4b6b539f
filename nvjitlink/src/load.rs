//! Finding and opening the library, once a process.

use std::env;
use std::ffi::{OsString, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::Library;

/// Names of the library, by CUDA's major release, newest first.
const NAMES: [&str; 2] = ["libnvJitLink.so.13", "libnvJitLink.so.12"];

/// One place where the library was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// What was handed to the dynamic loader: a file, or a name that it searches for.
    pub file: PathBuf,
    /// Why this place was looked at, such as `CUDA_HOME`.
    pub because: &'static str,
    /// What was wrong with it.
    pub why: String,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.file.display(), self.because, self.why)
    }
}

/// The library is in none of the places, or what is there is not it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} was not found; set SYMM_NVJITLINK_LIB to the file, or CUDA_HOME to the folder that holds lib64/. Tried: {}",
    NAMES[0],
    tried.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
)]
pub struct LoadError {
    /// All places, in the order they were tried.
    pub tried: Vec<Attempt>,
}

/// An nvJitLink handle.
pub(crate) type Handle = *mut c_void;

/// The functions that linking takes, as `nvJitLink.h` declares them; every one returns a code, 0 for success.
///
/// The names without a release (`nvJitLinkCreate`, not `__nvJitLinkCreate_13_0`): every release exports them.
#[derive(Debug)]
pub(crate) struct Functions {
    pub(crate) version: unsafe extern "C" fn(*mut c_uint, *mut c_uint) -> c_int,
    pub(crate) create: unsafe extern "C" fn(*mut Handle, u32, *mut *const c_char) -> c_int,
    pub(crate) destroy: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub(crate) add_data: unsafe extern "C" fn(Handle, c_int, *const c_void, usize, *const c_char) -> c_int,
    pub(crate) add_file: unsafe extern "C" fn(Handle, c_int, *const c_char) -> c_int,
    pub(crate) complete: unsafe extern "C" fn(Handle) -> c_int,
    pub(crate) cubin_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    pub(crate) cubin: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    pub(crate) error_log_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    pub(crate) error_log: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
}

/// The process's device linker.
#[derive(Debug)]
pub struct NvJitLink {
    pub(crate) functions: Functions,
    file: PathBuf,
    because: &'static str,
    version: (u32, u32),
    /// Keeps the functions.
    _library: Library,
}

impl NvJitLink {
    /// Loads the library, or returns what the first call loaded.
    ///
    /// Places, in order: `SYMM_NVJITLINK_LIB` (the file; if set, no other place is tried), `CUDA_HOME` and `CUDA_PATH` (in
    /// `lib64` and `lib`), the wheels beside `near`, the wheels in `VIRTUAL_ENV` or `CONDA_PREFIX`, the dynamic loader's search
    /// path, the toolkit in `/usr/local/cuda`. `near` is the folder of a library that may have come as a wheel, such as
    /// NVSHMEM's: the wheels of one Python environment are neighbours. Linking needs a linker that is as new as the compiler
    /// of what it links.
    ///
    /// # Errors
    /// [`LoadError`], which says what was tried; a later call tries again.
    pub fn load(near: Option<&Path>) -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<NvJitLink> = OnceLock::new();
        static LOADING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = LOADED.get() {
            return Ok(loaded);
        }
        let opened = Self::open(&candidates(|name| env::var_os(name), near))?;
        Ok(LOADED.get_or_init(|| opened))
    }

    /// The library: a file, or the name by which the dynamic loader found it.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What led to it, such as `CUDA_HOME`.
    pub fn because(&self) -> &'static str {
        self.because
    }

    /// The CUDA release that it belongs to: major, minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    pub(crate) fn open(candidates: &[(PathBuf, &'static str)]) -> Result<Self, LoadError> {
        let mut tried = Vec::new();
        for (file, because) in candidates {
            match Self::try_one(file, because) {
                Ok(found) => return Ok(found),
                Err(why) => tried.push(Attempt { file: file.clone(), because, why }),
            }
        }
        Err(LoadError { tried })
    }

    fn try_one(file: &Path, because: &'static str) -> Result<Self, String> {
        // SAFETY: the initialisers of CUDA's linker touch nothing but its own data.
        let library = unsafe { Library::new(file) }.map_err(|e| reason(&e, file))?;
        // SAFETY: the library's functions of these names have these types (`nvJitLink.h`), and live as long as `library`.
        let functions = unsafe {
            Functions {
                version: symbol(&library, "nvJitLinkVersion")?,
                create: symbol(&library, "nvJitLinkCreate")?,
                destroy: symbol(&library, "nvJitLinkDestroy")?,
                add_data: symbol(&library, "nvJitLinkAddData")?,
                add_file: symbol(&library, "nvJitLinkAddFile")?,
                complete: symbol(&library, "nvJitLinkComplete")?,
                cubin_size: symbol(&library, "nvJitLinkGetLinkedCubinSize")?,
                cubin: symbol(&library, "nvJitLinkGetLinkedCubin")?,
                error_log_size: symbol(&library, "nvJitLinkGetErrorLogSize")?,
                error_log: symbol(&library, "nvJitLinkGetErrorLog")?,
            }
        };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: two valid places.
        match unsafe { (functions.version)(&raw mut major, &raw mut minor) } {
            0 => {}
            code => return Err(format!("nvJitLinkVersion failed (code {code})")),
        }
        Ok(Self { functions, file: file.to_owned(), because, version: (major, minor), _library: library })
    }
}

/// # Safety
/// `T` is the type of the library's function of that name, which is not called after the library is closed.
unsafe fn symbol<T: Copy>(library: &Library, name: &'static str) -> Result<T, String> {
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<T>(name) };
    found.map(|symbol| *symbol).map_err(|_| format!("it does not export {name}"))
}

/// The dynamic loader's message, without the file that it starts with; short where the file is not there.
fn reason(error: &libloading::Error, file: &Path) -> String {
    let text = match error {
        libloading::Error::DlOpen { source } => source.to_string(),
        other => other.to_string(),
    };
    let prefix = format!("{}: ", file.display());
    match text.strip_prefix(&prefix).unwrap_or(&text) {
        "cannot open shared object file: No such file or directory" => "no such file".to_owned(),
        why => why.to_owned(),
    }
}

/// All places, in order, with what led to them. `variable` is the environment.
pub(crate) fn candidates(
    variable: impl Fn(&str) -> Option<OsString>,
    near: Option<&Path>,
) -> Vec<(PathBuf, &'static str)> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = set("SYMM_NVJITLINK_LIB") {
        return vec![(file, "SYMM_NVJITLINK_LIB")];
    }
    let mut folders: Vec<(PathBuf, &'static str)> = Vec::new();
    for because in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(home) = set(because) {
            folders.extend(["lib64", "lib"].map(|sub| (home.join(sub), because)));
        }
    }
    // A wheel's folder is site-packages/nvidia/nvshmem/lib; all wheels are below the same nvidia/.
    let wheels = near.and_then(|lib| lib.parent()?.parent()).filter(|folder| folder.ends_with("nvidia"));
    folders
        .extend(wheels.into_iter().flat_map(|nvidia| in_wheels(nvidia, "a wheel of the same environment")));
    for because in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(prefix) = set(because) {
            let packages = site_packages(&prefix).into_iter();
            folders.extend(packages.flat_map(|packages| in_wheels(&packages.join("nvidia"), because)));
            folders.push((prefix.join("lib"), because));
        }
    }
    // An empty folder: the bare name, for which the dynamic loader searches.
    folders.push((PathBuf::new(), "the dynamic loader's search path"));
    folders.push((PathBuf::from("/usr/local/cuda/lib64"), "the toolkit's usual folder"));
    folders.into_iter().flat_map(|(folder, because)| NAMES.map(|name| (folder.join(name), because))).collect()
}

/// CUDA 13's wheels share a folder, CUDA 12's have one each.
fn in_wheels(nvidia: &Path, because: &'static str) -> [(PathBuf, &'static str); 2] {
    ["cu13", "nvjitlink"].map(|wheel| (nvidia.join(wheel).join("lib"), because))
}

/// `lib/python3.*/site-packages` below a prefix.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path().join("site-packages"))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(environment: &[(&str, &str)]) -> Vec<(PathBuf, &'static str)> {
        let near = Path::new("/env/site-packages/nvidia/nvshmem/lib");
        candidates(
            |n| environment.iter().find(|(name, _)| *name == n).map(|(_, value)| value.into()),
            Some(near),
        )
    }

    #[test]
    fn the_order_names_one_place() {
        let asked = places(&[("SYMM_NVJITLINK_LIB", "/a.so"), ("CUDA_HOME", "/c")]);
        assert_eq!(asked, [(PathBuf::from("/a.so"), "SYMM_NVJITLINK_LIB")]);
    }

    #[test]
    fn a_named_toolkit_comes_before_the_loader_and_newer_before_older() {
        let found = places(&[("CUDA_HOME", "/c")]);
        let at = |file: &str| found.iter().position(|(f, _)| f == Path::new(file)).unwrap();
        assert_eq!(at("/c/lib64/libnvJitLink.so.13"), 0);
        assert!(at("/c/lib64/libnvJitLink.so.12") < at("libnvJitLink.so.13"));
        let wheel = at("/env/site-packages/nvidia/cu13/lib/libnvJitLink.so.13");
        assert!(at("/c/lib/libnvJitLink.so.12") < wheel && wheel < at("libnvJitLink.so.13"));
        assert!(at("libnvJitLink.so.12") < at("/usr/local/cuda/lib64/libnvJitLink.so.13"));
    }

    #[test]
    fn what_is_wrong_with_each_place_is_said() {
        // libc is a library, but not this one.
        let places = [(PathBuf::from("/nowhere/x.so"), "CUDA_HOME"), (PathBuf::from("libc.so.6"), "a test")];
        let text = NvJitLink::open(&places).unwrap_err().to_string();
        assert!(text.contains("/nowhere/x.so (CUDA_HOME): no such file;"), "{text}");
        assert!(text.ends_with("libc.so.6 (a test): it does not export nvJitLinkVersion"), "{text}");
    }
}
