//! Compiles the kernels to fat images with nvcc where it is found; without it the crate builds without images.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[path = "build/link.rs"]
mod link;

/// One image for each file of `cu/`.
const MODULES: [&str; 8] = ["copy", "signal", "barrier", "exchange", "reduce", "take", "plan", "pushed"];

/// Relocatable images, which the host links with NVSHMEM's device library at start: name, file, macro.
const RELOCATABLE: [(&str, &str, &str); 4] = [
    ("nvshmem", "nvshmem/kernels", "SYMM_NVSHMEM"),
    ("nvshmem_shim_34", "nvshmem/shim", "SYMM_NVSHMEM_ABI=34"),
    ("nvshmem_shim_35", "nvshmem/shim", "SYMM_NVSHMEM_ABI=35"),
    ("nvshmem_shim_38", "nvshmem/shim", "SYMM_NVSHMEM_ABI=38"),
];

/// Registers of a thread in relocatable code, which is compiled before anybody knows that 512 threads call it.
const RELOCATABLE_REGISTERS: &str = "-maxrregcount=128";

/// Ampere, Hopper, Blackwell.
const DEFAULT_ARCHS: &str = "80,90,100";

fn main() {
    for name in ["NVCC", "CUDA_HOME", "SYMM_CUDA_ARCHS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    for path in ["build.rs", "build", "cu", "include"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo should set OUT_DIR"));
    let (list, linked) = match nvcc() {
        Some(nvcc) => match all_images(&nvcc, &out) {
            Ok(made) => made,
            // A compiler that is there and fails is an error: an image left out silently would surface on a cluster.
            Err(why) => {
                println!("cargo::error={why}");
                return;
            }
        },
        None => {
            println!("cargo:warning=no nvcc (NVCC, CUDA_HOME, PATH): built without GPU kernels");
            (String::new(), "None".to_owned())
        }
    };
    let text = format!(
        "pub(crate) static IMAGES: &[(&str, &[u8])] = &[{list}];\n\
         pub(crate) const LINKED: Option<(u32, u32)> = {linked};\n"
    );
    fs::write(out.join("images.rs"), text).expect("OUT_DIR should be writable");
}

/// The entries of the image list, and the release of NVSHMEM with which some of them are linked.
fn all_images(nvcc: &Path, out: &Path) -> Result<(String, String), String> {
    let archs = archs()?;
    let list = images(nvcc, out, &archs)?;
    if env::var_os("CARGO_FEATURE_LINK_NVSHMEM").is_none() {
        return Ok((list, "None".to_owned()));
    }
    let (more, linked) = link::images(nvcc, out, &archs)?;
    Ok((list + &more, linked))
}

/// The compiler: `NVCC` as given, else below `CUDA_HOME`, else from `PATH`.
fn nvcc() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(nvcc) = set("NVCC") {
        return Some(nvcc);
    }
    let below = set("CUDA_HOME").map(|home| home.join("bin/nvcc")).filter(|p| p.is_file());
    below.or_else(|| {
        let path = env::var_os("PATH")?;
        env::split_paths(&path).map(|dir| dir.join("nvcc")).find(|p| p.is_file())
    })
}

/// The targets.
fn archs() -> Result<Vec<u32>, String> {
    let archs = env::var("SYMM_CUDA_ARCHS")
        .ok()
        .filter(|a| !a.is_empty())
        .unwrap_or_else(|| DEFAULT_ARCHS.to_owned());
    archs
        .split(',')
        .map(|a| {
            a.trim()
                .parse()
                .map_err(|_| format!("SYMM_CUDA_ARCHS has {a:?}, expected numbers such as 80,90,100"))
        })
        .collect()
}

/// Compiles every module, as many at once as cargo runs jobs, and returns the entries of the image list.
fn images(nvcc: &Path, out: &Path, archs: &[u32]) -> Result<String, String> {
    let newest = archs.iter().max().ok_or("SYMM_CUDA_ARCHS is empty")?;
    let linked = MODULES.map(|name| (name, name, None));
    let relocatable = RELOCATABLE.map(|(name, file, define)| (name, file, Some(define)));
    // The one that takes longest is the first of those.
    let modules: Vec<_> = relocatable.into_iter().chain(linked).collect();
    let jobs = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1).clamp(1, modules.len());
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), String> {
        while let Some((name, file, define)) = modules.get(next.fetch_add(1, Ordering::Relaxed)) {
            let image = out.join(name).with_extension("fatbin");
            compile(nvcc, &image, file, *define, (archs, *newest)).inspect_err(|_| {
                // The others begin no more.
                next.store(modules.len(), Ordering::Relaxed);
            })?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|w| w.join().map_err(|_| "a thread that ran nvcc ended".to_owned())?)
    })?;
    let mut list = String::new();
    for (name, ..) in &modules {
        let _ = write!(list, "({name:?}, include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.fatbin\"))), ");
    }
    Ok(list)
}

/// Compiles `cu/{file}.cu` to a fat image for `archs`, with PTX of the newest, which the driver compiles for GPUs that came later.
fn compile(
    nvcc: &Path,
    image: &Path,
    file: &str,
    define: Option<&str>,
    (archs, newest): (&[u32], u32),
) -> Result<(), String> {
    let mut command = Command::new(nvcc);
    command.args([
        "-fatbin",
        "-O3",
        "-std=c++17",
        "-Xcompiler",
        "-Wall",
        "-Werror",
        "all-warnings",
        "-Iinclude",
    ]);
    if let Some(define) = define {
        command.args(["-rdc=true", RELOCATABLE_REGISTERS]).arg(format!("-D{define}"));
    }
    for arch in archs {
        command.arg("-gencode").arg(format!("arch=compute_{arch},code=sm_{arch}"));
    }
    command.arg("-gencode").arg(format!("arch=compute_{newest},code=compute_{newest}"));
    command.arg(format!("cu/{file}.cu")).arg("-o").arg(image);
    let done = command.output().map_err(|e| format!("{}: {e}", nvcc.display()))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("nvcc {file}.cu: {}", String::from_utf8_lossy(&done.stderr).replace('\n', " | ")))
}
