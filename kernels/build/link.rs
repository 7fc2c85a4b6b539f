//! Feature `link-nvshmem`: the relocatable kernels linked with the device library of the NVSHMEM that `NVSHMEM_HOME` names, for users
//! whose clusters have no nvJitLink, or an NVSHMEM without `libnvshmem_device.a`.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release of an installation, by its header.
fn release(home: &Path) -> Result<(u32, u32), String> {
    let header = home.join("include/non_abi/nvshmem_version.h");
    let text = fs::read_to_string(&header).map_err(|e| format!("{}: {e}", header.display()))?;
    let number = |name: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix("#define ")?.trim_start().strip_prefix(name));
        let value = line.and_then(|rest| rest.trim().parse().ok());
        value.ok_or_else(|| format!("{} has no {name}", header.display()))
    };
    Ok((number("NVSHMEM_VENDOR_MAJOR_VERSION")?, number("NVSHMEM_VENDOR_MINOR_VERSION")?))
}

/// Links for each of `archs` and returns the entries of the image list, and the release as Rust has it.
pub(crate) fn images(nvcc: &Path, out: &Path, archs: &[u32]) -> Result<(String, String), String> {
    println!("cargo:rerun-if-env-changed=NVSHMEM_HOME");
    let home = env::var_os("NVSHMEM_HOME").filter(|v| !v.is_empty()).map(PathBuf::from);
    let home = home
        .ok_or("the feature link-nvshmem needs NVSHMEM_HOME, the folder with include/ and lib/ of NVSHMEM")?;
    let folders = ["lib", "lib64"].map(|sub| home.join(sub));
    let archive = folders.iter().map(|folder| folder.join("libnvshmem_device.a")).find(|file| file.is_file());
    let archive = archive.ok_or_else(|| format!("{} has no lib/libnvshmem_device.a", home.display()))?;
    println!("cargo:rerun-if-changed={}", archive.display());
    let (major, minor) = release(&home)?;
    // As symm_kernels::network::relocatable.
    let shim = match (major, minor) {
        (3, 4) => "nvshmem_shim_34",
        (3, 5..8) => "nvshmem_shim_35",
        (3, 8..) => "nvshmem_shim_38",
        _ => {
            return Err(format!(
                "{} is NVSHMEM {major}.{minor}, expected 3.4 or a later 3.x",
                home.display()
            ));
        }
    };
    // Beside the compiler in every installation of CUDA.
    let nvlink = nvcc.with_file_name("nvlink");
    let mut list = String::new();
    for arch in archs {
        let name = format!("nvshmem_linked_{arch}.cubin");
        let mut command = Command::new(&nvlink);
        command.arg(format!("-arch=sm_{arch}"));
        command.args(["nvshmem", shim].map(|image| out.join(image).with_extension("fatbin")));
        command.arg(&archive).arg("-o").arg(out.join(&name));
        let done = command.output().map_err(|e| format!("{}: {e}", nvlink.display()))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).replace('\n', " | ");
            return Err(format!("nvlink for sm_{arch} with {}: {said}", archive.display()));
        }
        let _ = write!(
            list,
            "(\"nvshmem_linked_{arch}\", include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}\"))), "
        );
    }
    Ok((list, format!("Some(({major}, {minor}))")))
}
