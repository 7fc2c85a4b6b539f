//! What can go wrong before NVSHMEM itself has been called.

use std::fmt;
use std::path::PathBuf;

use crate::Version;

/// The loaded release does not export a function that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the loaded NVSHMEM library does not export {symbol}")]
pub struct Unavailable {
    /// The function's name.
    pub symbol: &'static str,
}

/// One place where the library was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// What was handed to the dynamic loader: a file, or a name that it searches for.
    pub file: PathBuf,
    /// Why this place was looked at, such as `NVSHMEM_HOME`.
    pub because: &'static str,
    /// What was wrong with it.
    pub why: String,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.file.display(), self.because, self.why)
    }
}

/// The library could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is in none of the places.
    #[error(
        "{} was not found; set SYMM_NVSHMEM_LIB to the file, or NVSHMEM_HOME to the folder that holds lib/. Tried: {}",
        crate::SONAME,
        list(tried)
    )]
    NotFound {
        /// All places, in the order they were tried.
        tried: Vec<Attempt>,
    },
    /// What was found is not a release that these bindings describe.
    #[error("{} is NVSHMEM {found}, expected {}", path.display(), crate::SUPPORTED)]
    Version {
        /// The file.
        path: PathBuf,
        /// Its release.
        found: Version,
    },
    /// What was found does not export what every release exports.
    #[error("{} is not an NVSHMEM host library: {unavailable}", path.display())]
    NotNvshmem {
        /// The file.
        path: PathBuf,
        /// What it lacks.
        unavailable: Unavailable,
    },
    /// The process already has another copy, such as the one that came with PyTorch. Two copies cannot share a GPU's
    /// symmetric heap, and both would take part in the other's bootstrap.
    #[error(
        "this process has already loaded NVSHMEM from {}, SYMM_NVSHMEM_LIB names {}: unset it, or let it name the same file",
        loaded.display(),
        asked.display()
    )]
    OtherCopy {
        /// The copy in the process.
        loaded: PathBuf,
        /// The copy that `SYMM_NVSHMEM_LIB` names.
        asked: PathBuf,
    },
    /// The process already has several copies, of one release or of different ones, so somebody else's two users of it.
    #[error(
        "this process has loaded several NVSHMEM host libraries, {}; all its users must share one",
        paths(loaded)
    )]
    Copies {
        /// Their files, in the order in which they were loaded.
        loaded: Vec<PathBuf>,
    },
}

fn paths(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" and ")
}

fn list(tried: &[Attempt]) -> String {
    tried.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
