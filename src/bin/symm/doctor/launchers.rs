//! Programs that start the processes of a job.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::probe;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Launcher {
    pub(super) name: String,
    /// `None`: not in PATH.
    pub(super) path: Option<PathBuf>,
    /// First line of `--version`, where it has one.
    pub(super) version: Option<String>,
}

pub(super) fn all() -> Vec<Launcher> {
    // The last has no --version.
    [("mpirun", true), ("mpiexec", true), ("prterun", true), ("srun", true), ("torchrun", false)]
        .into_iter()
        .map(|(name, tells)| {
            let path = find(name);
            let version = path.as_ref().filter(|_| tells).and_then(|path| {
                let mut command = Command::new(path);
                command.arg("--version");
                let said = probe::run(command, Duration::from_secs(10)).ok()?;
                said.lines().find(|l| !l.trim().is_empty()).map(|l| l.trim().to_owned())
            });
            Launcher { name: name.to_owned(), path, version }
        })
        .collect()
}

fn find(name: &str) -> Option<PathBuf> {
    let runs =
        |path: &PathBuf| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(runs)
}
