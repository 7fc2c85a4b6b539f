//! The exchange kernel's source, built by a C++ compiler and run on host threads against an oracle: protocol, places,
//! verdict, deadlines. What it cannot show: the GPU's memory order, its caches and its speed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Random calls a seed, of up to four PEs with up to four blocks of 64 threads each.
const ITERATIONS: &str = "4";
const SEEDS: [&str; 2] = ["1", "2"];

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_kernel_does_what_the_oracle_says() {
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if Command::new(&compiler).arg("--version").output().is_err() {
        eprintln!("skipped: no C++ compiler {compiler} (CXX names another one)");
        return;
    }
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Folder(env::temp_dir().join(format!("symm-emulator-{}", std::process::id())));
    fs::create_dir_all(&folder.0).unwrap();

    // The only line that a host compiler cannot be given a meaning for.
    let source = fs::read_to_string(crate_root.join("cu/exchange.cu")).unwrap();
    let shared = "__shared__ Shared s;";
    assert_eq!(source.matches(shared).count(), 1);
    let source = source.replace(shared, "Shared& s = *(Shared*)current_block->shared;");
    fs::write(folder.0.join("exchange_under_test.h"), source).unwrap();

    let program = folder.0.join("emulator");
    let include = |path: &Path| format!("-I{}", path.display());
    let built = Command::new(&compiler)
        .args(["-std=c++17", "-O1", "-pthread"])
        // First, so that its symm/memory.cuh is found before the real one.
        .arg(include(&crate_root.join("tests/emulator")))
        .arg(include(&folder.0))
        .arg(include(&crate_root.join("cu")))
        .arg(include(&crate_root.join("include")))
        .arg(crate_root.join("tests/emulator/main.cpp"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    for seed in SEEDS {
        let done = Command::new(&program).args([ITERATIONS, seed]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("0 failures"), "seed {seed}: {}\n{said}", done.status);
    }
}
