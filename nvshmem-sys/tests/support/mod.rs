//! What the tests of this crate share.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of this test, empty at the start and removed at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("nvshmem-sys-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether `SYMM_REQUIRE` names something, so that a test that lacks it fails.
pub(crate) fn required(what: &str) -> bool {
    std::env::var("SYMM_REQUIRE").is_ok_and(|list| list.split(',').any(|name| name == what))
}

/// The installations to test: `SYMM_NVSHMEM_PINNED` (the release of the committed headers) and `SYMM_NVSHMEM_NEWEST`.
///
/// None is a failure where `SYMM_REQUIRE` names `nvshmem`; else the caller has nothing to do, and this says so.
pub(crate) fn installations(test: &str) -> Vec<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let found: Vec<_> = ["SYMM_NVSHMEM_PINNED", "SYMM_NVSHMEM_NEWEST"].into_iter().filter_map(set).collect();
    if required("nvshmem") {
        assert_eq!(
            found.len(),
            2,
            "{test}: SYMM_REQUIRE names nvshmem: set SYMM_NVSHMEM_PINNED and SYMM_NVSHMEM_NEWEST"
        );
    }
    if found.is_empty() {
        eprintln!(
            "{test}: NOT RUN: neither SYMM_NVSHMEM_PINNED nor SYMM_NVSHMEM_NEWEST is set (ci/nvshmem sets them)"
        );
    }
    found
}

/// Runs a command and returns its output if it succeeded.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
