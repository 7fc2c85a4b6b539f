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
    /// What `--version` says, where it has one.
    pub(super) version: Option<String>,
}

pub(super) fn all() -> Vec<Launcher> {
    // The last has no --version.
    let names = [
        ("mpirun", true),
        ("mpirun.mpich", true),
        ("mpiexec", true),
        ("prterun", true),
        ("srun", true),
        ("torchrun", false),
    ];
    names
        .into_iter()
        .map(|(name, tells)| {
            let path = find(name);
            let version = path.as_ref().filter(|_| tells).and_then(|path| {
                let mut command = Command::new(path);
                command.arg("--version");
                version(&probe::run(command, Duration::from_secs(10)).ok()?)
            });
            Launcher { name: name.to_owned(), path, version }
        })
        .collect()
}

/// The first line that says something. MPICH's Hydra begins with a heading, its release is in a line below.
fn version(said: &str) -> Option<String> {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next()?;
    let release = lines.find_map(|line| line.strip_prefix("Version:"));
    Some(match release.filter(|_| first.starts_with("HYDRA")) {
        Some(release) => format!("MPICH's Hydra {}", release.trim()),
        None => first.to_owned(),
    })
}

fn find(name: &str) -> Option<PathBuf> {
    let runs =
        |path: &PathBuf| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(runs)
}
