//! The public headers under nvcc: each compiles alone, two relocatable units that use them link, and so does every kernel of users'
//! that the repository has; programs of the benches compile, too. Without nvcc (`NVCC`, `CUDA_HOME`, `PATH`) there is nothing to test,
//! unless `SYMM_REQUIRE` has nvcc.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Ampere, Hopper, Blackwell.
const ARCHS: [u32; 3] = [80, 90, 100];

/// Users' kernels, from the repository's root.
const USERS: [&str; 5] = [
    "examples/cuda/own_kernel.cu",
    "benches/gpu/round_trip.cu",
    "benches/scale_out/scope.cu",
    "tests/stress/check.cu",
    "kernels/tests/headers/everything.cu",
];

/// Programs with hosts of their own, from the repository's root.
const PROGRAMS: [&str; 3] = ["benches/gpu/latency.cu", "benches/gpu/steps.cu", "benches/gpu/sums.cu"];

/// The compiler: `NVCC` as given, else below `CUDA_HOME`, else from `PATH`.
fn nvcc() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("NVCC")
        .or_else(|| set("CUDA_HOME").map(|home| home.join("bin/nvcc")).filter(|p| p.is_file()))
        .or_else(|| {
            let path = env::var_os("PATH")?;
            env::split_paths(&path).map(|dir| dir.join("nvcc")).find(|p| p.is_file())
        })
}

fn run(command: &mut Command) -> Result<(), String> {
    let done = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!(
        "{command:?}: {}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    ))
}

/// A relocatable object of `source` for all architectures.
fn compile(nvcc: &Path, source: &Path, object: &Path) -> Result<(), String> {
    let mut command = Command::new(nvcc);
    command.args(["-dc", "-std=c++17", "-Xcompiler", "-Wall", "-Werror", "all-warnings"]);
    command.arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"));
    for arch in ARCHS {
        command.arg("-gencode").arg(format!("arch=compute_{arch},code=sm_{arch}"));
    }
    run(command.arg(source).arg("-o").arg(object))
}

/// The compiler, or `None`, said, where there is none and none is required.
fn nvcc_or_skipped() -> Option<PathBuf> {
    let found = nvcc();
    if found.is_none() {
        let why = "no nvcc (NVCC, CUDA_HOME, PATH)";
        assert!(!env::var("SYMM_REQUIRE").is_ok_and(|r| r.split(',').any(|name| name == "nvcc")), "{why}");
        eprintln!("skipped: {why}");
    }
    found
}

#[test]
fn headers_compile_alone_and_link_together() {
    let Some(nvcc) = nvcc_or_skipped() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("headers");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder should be writable");

    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut sources: Vec<PathBuf> = USERS.iter().map(|file| root.join(file)).collect();
    let headers = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/include/symm"))
        .expect("the headers should be readable");
    for header in headers {
        let name = header.expect("an entry should be readable").file_name();
        let unit = folder.join(&name).with_extension("cu");
        fs::write(&unit, format!("#include \"symm/{}\"\n", name.display())).expect("it should be writable");
        sources.push(unit);
    }
    // All of them use handle.cuh, or parts of it, and are one program in the end.
    let objects: Vec<PathBuf> =
        (0..sources.len()).map(|i| folder.join(i.to_string()).with_extension("o")).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failures = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let (Some(source), Some(object)) = (sources.get(i), objects.get(i)) else { return failures };
            failures.extend(compile(&nvcc, source, object).err());
        }
    };
    let failures: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> =
            (0..thread::available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().expect("a worker should not panic")).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));

    for arch in ARCHS {
        let mut link = Command::new(&nvcc);
        link.arg("-dlink").arg("-gencode").arg(format!("arch=compute_{arch},code=sm_{arch}"));
        link.args(&objects).arg("-o").arg(folder.join(format!("linked-{arch}.o")));
        run(&mut link).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn programs_of_the_benches_compile() {
    let Some(nvcc) = nvcc_or_skipped() else { return };
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    for program in PROGRAMS {
        let object = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(Path::new(program).with_extension("o").file_name().expect("a file"));
        let mut command = Command::new(&nvcc);
        command.args(["-c", "-std=c++17", "-arch=sm_90", "-Xcompiler", "-Wall", "-Werror", "all-warnings"]);
        command.arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"));
        run(command.arg(root.join(program)).arg("-o").arg(object)).unwrap_or_else(|why| panic!("{why}"));
    }
}
