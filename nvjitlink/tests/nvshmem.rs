//! Kernels that call NVSHMEM's device functions, compiled by nvcc and linked with the device library of an installation.
//! No GPU is needed: what is looked at is the image.
//!
//! Device code belongs to one release. Its headers have inline code that reads `nvshmemi_device_state_d` and calls internal
//! functions, and both change between minor releases; that shows as a link error and is asserted here.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use symm_nvjitlink::{Input, LinkError, NvJitLink};

/// What the tests need, from the environment: `CUDA_HOME`, and both releases of NVSHMEM. `None`, which is said, without;
/// a failure where `SYMM_REQUIRE` names `nvshmem`.
fn installed(test: &str) -> Option<(PathBuf, [PathBuf; 2])> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let found = (set("CUDA_HOME"), set("SYMM_NVSHMEM_PINNED"), set("SYMM_NVSHMEM_NEWEST"));
    if let (Some(cuda), Some(pinned), Some(newest)) = found {
        return Some((cuda, [pinned, newest]));
    }
    let required =
        std::env::var("SYMM_REQUIRE").is_ok_and(|list| list.split(',').any(|name| name == "nvshmem"));
    assert!(
        !required,
        "{test}: SYMM_REQUIRE names nvshmem: set CUDA_HOME, SYMM_NVSHMEM_PINNED, SYMM_NVSHMEM_NEWEST"
    );
    eprintln!(
        "{test}: NOT RUN: CUDA_HOME, SYMM_NVSHMEM_PINNED, SYMM_NVSHMEM_NEWEST are not all set (ci/nvshmem sets them)"
    );
    None
}

/// A relocatable fat image for sm_80 and sm_90, with the headers of one release.
fn compiled(cuda: &Path, nvshmem: &Path, name: &str) -> Vec<u8> {
    let out = std::env::temp_dir().join(format!("symm-nvjitlink-{name}-{}.fatbin", std::process::id()));
    let output = Command::new(cuda.join("bin/nvcc"))
        .args(["-rdc=true", "-fatbin", "-std=c++17", "-O3", "-diag-suppress=20012,20013,20015"])
        .args(["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90"])
        .arg("-I")
        .arg(nvshmem.join("include"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/remote.cu"))
        .arg("-o")
        .arg(&out)
        .output()
        .unwrap();
    assert!(output.status.success(), "nvcc: {}", String::from_utf8_lossy(&output.stderr));
    let image = std::fs::read(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    image
}

fn has(image: &[u8], name: &str) -> bool {
    image.windows(name.len()).any(|window| window == name.as_bytes())
}

#[test]
fn device_code_links_with_the_library_of_its_release_and_no_other() {
    let Some((cuda, homes)) = installed("device_code_links") else { return };
    let linker = NvJitLink::load(None).unwrap();
    assert!(linker.version() >= (12, 0), "{:?} of {}", linker.version(), linker.file().display());
    let libraries = homes.each_ref().map(|home| home.join("lib/libnvshmem_device.a"));
    let images = [compiled(&cuda, &homes[0], "pinned"), compiled(&cuda, &homes[1], "newest")];
    for (image, library) in images.iter().zip(&libraries) {
        let inputs = [Input::Fatbin { name: "remote", data: image }, Input::Library(library)];
        for arch in ["sm_80", "sm_90"] {
            let linked = linker.link(arch, &inputs).unwrap();
            assert_eq!(&linked[..4], b"\x7fELF");
            // The kernel, and what nvshmemx_cumodule_init looks for in a module.
            for name in ["remote", "nvshmemi_device_state_d", "nvshmemi_device_lib_version_d"] {
                assert!(has(&linked, name), "{arch}: {name} is not in the image");
            }
        }
        // An architecture that the fat image lacks.
        let error = linker.link("sm_100", &inputs).unwrap_err();
        assert!(error.code != 0 && error.to_string().contains("remote"), "{error}");
    }
    let mixed = [Input::Fatbin { name: "remote", data: &images[0] }, Input::Library(&libraries[1])];
    let error = linker.link("sm_90", &mixed).unwrap_err();
    assert!(error.log.contains("nvshmemi_") && error.log.contains("'remote"), "{error}");
}

#[test]
fn what_the_linker_refuses_is_said() {
    if installed("what_the_linker_refuses").is_none() {
        return;
    }
    let linker = NvJitLink::load(None).unwrap();
    let error: LinkError = linker.link("sm_1", &[]).unwrap_err();
    assert_eq!((error.call, &*error.input), ("nvJitLinkCreate", "sm_1"));
    // What is taken for known is known: for anything else the linker would end this process.
    for number in
        ["75", "80", "86", "87", "88", "89", "90", "90a", "100", "100a", "103a", "110", "120", "121"]
    {
        if let Err(error) = linker.link(&format!("sm_{number}"), &[]) {
            assert_ne!(error.call, "nvJitLinkCreate", "{error}");
        }
    }
    let missing = Path::new("/nowhere/libnvshmem_device.a");
    let error = linker.link("sm_90", &[Input::Library(missing)]).unwrap_err();
    assert_eq!(error.call, "nvJitLinkAddFile");
    assert!(error.to_string().contains("/nowhere/libnvshmem_device.a"), "{error}");
    let error = linker.link("sm_90", &[Input::Cubin { name: "noise", data: b"no image" }]).unwrap_err();
    assert_eq!((error.call, &*error.input), ("nvJitLinkAddData", "noise"));
    let error = linker.link("sm_90", &[Input::Cubin { name: "a\0b", data: b"" }]).unwrap_err();
    assert!(error.to_string().contains("zero byte"), "{error}");
}
