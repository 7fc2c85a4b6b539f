//! What the backend does with drivers and GPUs that are not as it wants them: a CUDA driver in host memory (`libcuda.c`) stands in
//! for the real one. Each scenario is a process of its own, since a process loads one driver; its PEs are threads.
//!
//! ```text
//! cargo test -p symm-cuda --test driver              all of them
//! cargo test -p symm-cuda --test driver -- fabric    those whose name contains `fabric`
//! ```

mod devices;
mod scenarios;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Set in a scenario's process: its name.
const MARK: &str = "SYMM_DRIVER_SCENARIO";

/// Which libraries a scenario finds, if not the driver in host memory: `garbage` under the driver's names, or `none`.
pub(crate) const LIBRARIES: &str = "FAKE_LIBRARIES";
/// What a scenario's process ends with where the machine does not let it happen.
pub(crate) const NOT_HERE: i32 = 77;

/// A scenario: its name, the driver's settings, what is done with it.
pub(crate) type Scenario = (&'static str, &'static [(&'static str, &'static str)], fn());

/// Builds the driver into a folder for the library path; an error says why there is none.
fn driver() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake-driver");
    for part in ["", "garbage", "none"] {
        let part = folder.join(part);
        std::fs::create_dir_all(&part).map_err(|e| format!("{}: {e}", part.display()))?;
    }
    for name in ["libcuda.so", "libcuda.so.1", "libnvcuda.so"] {
        std::fs::write(folder.join("garbage").join(name), "no library")
            .map_err(|e| format!("{name}: {e}"))?;
    }
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver");
    for (library, source) in [("libcuda.so", "libcuda.c"), ("libnvidia-ml.so.1", "nvml.c")] {
        let built = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .arg(folder.join(library))
            .arg(sources.join(source))
            .output()
            .map_err(|e| format!("{compiler}: {e}"))?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into_owned());
        }
    }
    Ok(folder)
}

/// Whether the scenario did what it says.
fn passes((name, settings, _): &Scenario, folder: &Path) -> bool {
    let this = env::current_exe().expect("a running program should have a path");
    let mut command = Command::new(this);
    for (variable, _) in env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"SYMM_") {
            command.env_remove(variable);
        }
    }
    let libraries = settings.iter().find(|(n, _)| *n == LIBRARIES).map_or("", |(_, folder)| folder);
    let folder = folder.join(libraries);
    command.env(MARK, name).env("LD_LIBRARY_PATH", folder).envs(settings.iter().copied());
    let done = command.output().expect("the program should start again");
    let not_here = done.status.code() == Some(NOT_HERE);
    let fine = done.status.success() || not_here;
    let word = if not_here {
        "not here"
    } else if fine {
        "ok"
    } else {
        "FAILED"
    };
    println!("test {name} ... {word}");
    if !done.status.success() {
        println!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    }
    fine
}

fn all() -> impl Iterator<Item = &'static Scenario> {
    scenarios::ALL.iter().chain(devices::ALL)
}

fn main() -> ExitCode {
    if let Ok(name) = env::var(MARK) {
        let found = all().find(|(n, ..)| *n == name);
        let (.., body) = found.expect("the parent should name a scenario");
        body();
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = env::args().skip(1).filter(|w| !w.starts_with('-')).collect();
    if env::args().any(|w| w == "--list") {
        all().for_each(|(name, ..)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let folder = match driver() {
        Ok(folder) => folder,
        Err(why) => {
            println!("the driver cannot be built: {why}");
            return ExitCode::FAILURE;
        }
    };
    let chosen = all().filter(|(n, ..)| words.is_empty() || words.iter().any(|w| n.contains(w.as_str())));
    let results: Vec<bool> = chosen.map(|s| passes(s, &folder)).collect();
    let failed = results.iter().filter(|ok| !**ok).count();
    println!("{} passed, {failed} failed", results.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
