//! Finding, opening and checking the library, once a process.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::search::{Candidate, ONLY, candidates};
use crate::{Attempt, Functions, LoadError, SONAME};

/// A release of NVSHMEM's library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Changes with the library's name (`libnvshmem_host.so.3`).
    pub major: u32,
    /// Adds functions.
    pub minor: u32,
    /// Fixes.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Version {
    /// Whether these bindings describe it: a release of the same major number, no older than 3.4.
    ///
    /// Structs carry their version and the library keeps the functions of a major number, so later releases are taken.
    pub fn is_supported(self) -> bool {
        self.major == 3 && self.minor >= 4
    }
}

/// The process's NVSHMEM host library: its functions, and where they come from.
///
/// It stays loaded until the process ends: NVSHMEM has threads and exit handlers of its own, which must not lose their code.
#[derive(Debug)]
pub struct Nvshmem {
    functions: Functions,
    path: PathBuf,
    because: &'static str,
    version: Version,
    missing: Vec<&'static str>,
}

impl Deref for Nvshmem {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

impl Nvshmem {
    /// Loads the library, or returns what the first call loaded. Loading starts nothing: no thread, no connection, no GPU.
    ///
    /// Places, in order: a copy that the process already has (PyTorch's, say), `SYMM_NVSHMEM_LIB` (the file, or its folder;
    /// if set, no other place is tried), `NVSHMEM_HOME`, `NVSHMEM_PATH` (in `lib`, `lib64` and the folder itself), the wheel
    /// in `VIRTUAL_ENV` or `CONDA_PREFIX`, the dynamic loader's search path, the folders of distributions' packages. The
    /// first file that opens is taken.
    ///
    /// # Errors
    /// [`LoadError`], which says what was tried; nothing stays loaded then, and a later call tries again.
    pub fn load() -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<Nvshmem> = OnceLock::new();
        static LOADING: Mutex<()> = Mutex::new(());
        if let Some(loaded) = LOADED.get() {
            return Ok(loaded);
        }
        let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = LOADED.get() {
            return Ok(loaded);
        }
        let opened = Self::open(candidates(|name| std::env::var_os(name)))?;
        Ok(LOADED.get_or_init(|| opened))
    }

    /// The library's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What led to it: a variable's name, or a phrase such as `the dynamic loader's search path`.
    pub fn because(&self) -> &'static str {
        self.because
    }

    /// The library's release.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bound functions that this release does not export, sorted; calling one is [`Unavailable`](crate::Unavailable).
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// The device library that came with this host library: kernels are linked with it, so that both are of one release.
    ///
    /// `None` if it is not beside the host library, as in packages that hold no development files.
    pub fn device_library(&self) -> Option<PathBuf> {
        let file = self.path.parent()?.join("libnvshmem_device.a");
        file.is_file().then_some(file)
    }

    pub(crate) fn open(candidates: Vec<Candidate>) -> Result<Self, LoadError> {
        let loaded = copies();
        if loaded.len() > 1 {
            return Err(LoadError::Copies { loaded });
        }
        if let Some(library) = already() {
            let loaded = Self::check(library, Path::new(SONAME), ALREADY)?;
            return match candidates.as_slice() {
                [only] if only.because == ONLY && !same_file(&only.file, &loaded.path) => {
                    Err(LoadError::OtherCopy { loaded: loaded.path, asked: only.file.clone() })
                }
                _ => Ok(loaded),
            };
        }
        let mut tried = Vec::new();
        for Candidate { file, because } in candidates {
            // SAFETY: the initialisers of NVSHMEM's library touch nothing but its own data.
            match unsafe { Library::open(Some(&file), RTLD_NOW | RTLD_LOCAL) } {
                Ok(library) => return Self::check(library, &file, because),
                Err(error) => {
                    let why = reason(&error, &file);
                    tried.push(Attempt { file, because, why });
                }
            }
        }
        Err(LoadError::NotFound { tried })
    }

    /// Takes the functions out of an open library, if it is a release that is supported; then it is never closed.
    fn check(library: Library, file: &Path, because: &'static str) -> Result<Self, LoadError> {
        let symbol = |name: &'static str| {
            // SAFETY: only the address is taken; it gets its type where the table is filled.
            let found = unsafe { library.get::<*mut c_void>(name) };
            found.map_or(std::ptr::null_mut(), |symbol| symbol.into_raw())
        };
        let path =
            file_of(symbol("nvshmemx_vendor_get_version_info").addr()).unwrap_or_else(|| file.to_owned());
        // SAFETY: what the library exports under the name of an NVSHMEM function is that function. The table outlives the
        // library only in the error cases below, which drop it uncalled.
        let functions = unsafe { Functions::load(symbol) };
        let missing = Functions::NAMES.into_iter().filter(|name| symbol(name).is_null()).collect();
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: three places for integers; the function only reads constants and may be called at any time.
        let known = unsafe { functions.nvshmemx_vendor_get_version_info(&mut major, &mut minor, &mut patch) };
        if let Err(unavailable) = known {
            return Err(LoadError::NotNvshmem { path, unavailable });
        }
        let number = |part: i32| u32::try_from(part).unwrap_or(0);
        let version = Version { major: number(major), minor: number(minor), patch: number(patch) };
        if !version.is_supported() {
            return Err(LoadError::Version { path, found: version });
        }
        std::mem::forget(library);
        Ok(Self { functions, path, because, version, missing })
    }
}

const ALREADY: &str = "already loaded in this process";

/// The copy that this process has loaded, whoever loaded it.
fn already() -> Option<Library> {
    // SAFETY: nothing is loaded: the flag asks for what is there.
    unsafe { Library::open(Some(SONAME), libc::RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL) }.ok()
}

/// The files of all NVSHMEM host libraries in this process, of whatever release, in the order in which they were loaded.
fn copies() -> Vec<PathBuf> {
    unsafe extern "C" fn look(object: *mut libc::dl_phdr_info, _: libc::size_t, found: *mut c_void) -> c_int {
        // SAFETY: the dynamic loader's record of an object, whose name is a string or null, for the length of this call.
        let name = unsafe { (*object).dlpi_name };
        if !name.is_null() {
            // SAFETY: as above.
            let file = Path::new(std::ffi::OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
            if file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libnvshmem_host.so")) {
                // SAFETY: the list that the caller of the loop below owns.
                unsafe { &mut *found.cast::<Vec<PathBuf>>() }.push(file.to_owned());
            }
        }
        0
    }
    let mut found: Vec<PathBuf> = Vec::new();
    // SAFETY: the function takes what the loop gives it, and the list outlives the loop. It does not unwind but for lack of memory,
    // which ends the process.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

/// The file of the library that holds an address, in this process.
pub fn file_of(address: usize) -> Option<PathBuf> {
    let address = std::ptr::without_provenance(address);
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked about; the place for the answer is valid.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed is a valid `Dl_info`, and the call has filled it.
    let name = unsafe { info.assume_init() }.dli_fname;
    // SAFETY: the name is a string of the dynamic loader, which lives as long as the library.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })?;
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes()));
    Some(std::fs::canonicalize(&path).unwrap_or(path))
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (std::fs::canonicalize(a), std::fs::canonicalize(b)) {
        (Ok(a), Ok(b)) => a == b,
        // A bare name: what the dynamic loader finds for it is the copy that is loaded.
        _ => a.file_name() == Some(a.as_os_str()) && a.file_name() == b.file_name(),
    }
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
