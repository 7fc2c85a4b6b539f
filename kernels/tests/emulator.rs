//! The collective kernels' sources, built by a C++ compiler and run on host threads against an oracle: protocol, places,
//! sums, verdict, deadlines. What it cannot show: the GPU's memory order, its caches and its speed.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const SEEDS: [&str; 2] = ["1", "2"];

/// Programs of hundreds of threads that spin: two at a time would make each other's deadlines pass.
static RUNS: Mutex<()> = Mutex::new(());

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A line that must be replaced, once: file of the folder `cu`, line, what takes its place.
type Change = (&'static str, &'static str, &'static str);

/// The only line that a host compiler cannot be given a meaning for.
const SHARED: (&str, &str) = ("__shared__ Shared s;", "Shared& s = *(Shared*)current_block->shared;");
/// The same where the kernels of a file keep different things.
const SHARED_FEW: (&str, &str) =
    ("__shared__ Shared<FEW> s;", "Shared<FEW>& s = *(Shared<FEW>*)current_block->shared;");

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &copy)?;
        } else {
            fs::copy(&path, &copy)?;
        }
    }
    Ok(())
}

/// Builds `tests/emulator/NAME/main.cpp`, which includes `NAME.cu`, with the changed sources and runs it with every seed
/// and `amount`: random teams of the exchange, random calls of the reductions.
fn emulate(name: &str, changes: &[Change], amount: &str) -> io::Result<()> {
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if Command::new(&compiler).arg("--version").output().is_err() {
        let why = format!("no C++ compiler {compiler} (CXX names another one)");
        if env::var("SYMM_REQUIRE").is_ok_and(|r| r.split(',').any(|name| name == "c++")) {
            return Err(io::Error::other(why));
        }
        eprintln!("skipped: {why}");
        return Ok(());
    }
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Folder(env::temp_dir().join(format!("symm-emulator-{name}-{}", std::process::id())));

    copy_folder(&crate_root.join("cu"), &folder.0)?;
    for &(file, line, instead) in changes {
        let path = folder.0.join(file);
        let source = fs::read_to_string(&path)?;
        assert_eq!(source.matches(line).count(), 1, "{file}: {line}");
        fs::write(&path, source.replace(line, instead))?;
    }

    let program = folder.0.join("emulator");
    let include = |path: &Path| format!("-I{}", path.display());
    let built = Command::new(&compiler)
        .args(["-std=c++17", "-O1", "-pthread"])
        // First, so that its symm/memory.cuh is found before the real one.
        .arg(include(&crate_root.join("tests/emulator")))
        .arg(include(&folder.0))
        .arg(include(&crate_root.join("include")))
        .arg(crate_root.join("tests/emulator").join(name).join("main.cpp"))
        .arg("-o")
        .arg(&program)
        .output()?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let _alone = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    for seed in SEEDS {
        let done = Command::new(&program).args([amount, seed]).output()?;
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("0 failures"), "seed {seed}: {}\n{said}", done.status);
    }
    Ok(())
}

#[test]
fn the_exchange_does_what_the_oracle_says() {
    emulate("exchange", &[("exchange.cu", SHARED_FEW.0, SHARED_FEW.1)], "4").unwrap();
}

#[test]
fn the_reductions_do_what_the_oracle_says() {
    // A block of the emulator has 64 threads.
    let threads = ("reduce/common.cuh", "constexpr int THREADS = 512;", "constexpr int THREADS = 64;");
    emulate("reduce", &[("reduce.cu", SHARED.0, SHARED.1), threads], "24").unwrap();
}

#[test]
fn the_forms_that_take_do_what_the_oracle_says() {
    let threads = ("reduce/common.cuh", "constexpr int THREADS = 512;", "constexpr int THREADS = 64;");
    let changes = [("take.cu", SHARED.0, SHARED.1), ("reduce.cu", SHARED.0, SHARED.1), threads];
    emulate("take", &changes, "24").unwrap();
}

#[test]
fn a_planned_exchange_moves_what_its_table_says() {
    let threads = ("reduce/common.cuh", "constexpr int THREADS = 512;", "constexpr int THREADS = 64;");
    emulate("plan", &[("plan.cu", SHARED.0, SHARED.1), threads], "24").unwrap();
}
