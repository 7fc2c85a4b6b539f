//! `symm doctor`: real runs of the binary, on whatever machine this is, and beside libraries and programs made for it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn doctor(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_symm"));
    c.arg("doctor").args(args).stdin(Stdio::null());
    for name in ["SYMM_PE", "SYMM_N_PES", "SYMM_JOB", "SYMM_BACKEND", "SYMM_HOST_NODES", "RUST_LOG"] {
        c.env_remove(name);
    }
    c
}

fn run(mut c: Command) -> Output {
    c.output().expect("symm starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn found(mut c: Command, code: i32) -> Value {
    c.args(["--json", "-"]);
    let out = run(c);
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(code), String::new()), "{}", text(&out.stdout));
    serde_json::from_slice(&out.stdout).expect("JSON alone")
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let all = list.as_array().expect("a list");
    all.iter().find(|x| x["name"] == name).unwrap_or_else(|| panic!("no {name} in {list}"))
}

#[test]
fn the_host_backend_runs_and_everything_is_accounted_for() {
    let r = found(doctor(&[]), 0);
    assert_eq!(r["can_run"], true);
    let host = named(&r["backends"], "host");
    assert_eq!(host["runs"], true, "{host}");
    let capabilities = host["capabilities"].as_array().expect("a list");
    assert!(capabilities.contains(&"deterministic".into()), "{host}");
    for backend in ["cuda", "nvshmem"] {
        let b = named(&r["backends"], backend);
        assert!(b["runs"] == true || b["why"].as_str().is_some_and(|w| w.len() > 20), "{b}");
    }
    assert_eq!(r["auto"]["runs"], true, "{}", r["auto"]);
    assert!(r["machine"]["cores"].as_u64() > Some(0) && r["machine"]["memory"].as_u64() > Some(0));
    for library in ["cuda", "nvshmem", "nvJitLink", "nccl", "pmix", "mpi"] {
        let l = named(&r["libraries"], library);
        assert!(l["path"].is_string() || l["why"].as_str().is_some_and(|w| !w.is_empty()), "{l}");
    }
    for launcher in ["mpirun", "srun", "torchrun"] {
        named(&r["launchers"], launcher);
    }
    assert_eq!(named(&r["limits"], "open files")["low"], false);
}

#[test]
fn the_text_says_the_same() {
    let out = run(doctor(&[]));
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), String::new()));
    let said = text(&out.stdout);
    for part in [
        "machine\n",
        "limits\n",
        "GPUs\n",
        "libraries\n",
        "launchers\n",
        "backends\n",
        "ok host",
        "auto takes ",
    ] {
        assert!(said.contains(part), "{part:?} is missing in\n{said}");
    }
    let without_kernels = found(doctor(&[]), 0)["gpus"]["kernels"] == false;
    assert_eq!(said.contains("kernels: not in this build"), without_kernels, "{said}");
}

#[test]
fn it_may_be_asked_from_inside_a_job() {
    let mut c = doctor(&[]);
    c.envs([("SYMM_PE", "3"), ("SYMM_N_PES", "4"), ("SYMM_JOB", "other")]);
    let r = found(c, 0);
    assert_eq!(r["auto"]["runs"], true, "{}", r["auto"]);
    assert_eq!(named(&r["settings"], "SYMM_PE")["value"], "3");
}

#[test]
fn a_setting_that_no_backend_can_use_is_the_reason_and_exits_with_one() {
    let mut c = doctor(&[]);
    c.env("SYMM_SIGNAL_PAD_BYTES", "10");
    let r = found(c, 1);
    assert_eq!(r["can_run"], false);
    for backend in ["host", "cuda", "nvshmem"] {
        let b = named(&r["backends"], backend);
        assert!(b["why"].as_str().is_some_and(|w| w.contains("SYMM_SIGNAL_PAD_BYTES")), "{b}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let mut c = doctor(&[]);
    c.env("SYMM_TOKEN", "do-not-tell").env("NCCL_DEBUG", "WARN");
    let out = run(c);
    let said = text(&out.stdout);
    assert!(said.contains("NCCL_DEBUG=WARN") && said.contains("SYMM_TOKEN=(set"), "{said}");
    assert!(!said.contains("do-not-tell"));
}

/// A folder with a shared library made of this C text.
fn library(folder: &str, file: &str, source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&folder).expect("the test's folder can be written");
    let c = folder.join("library.c");
    std::fs::write(&c, source).expect("written");
    // Rust links with it, so it is there.
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(folder.join(file)).arg(&c).status();
    assert!(status.expect("cc starts").success());
    folder
}

/// Beside a driver and an NVML in host memory, those of symm-cuda's tests.
#[cfg(feature = "cuda")]
#[test]
fn gpus_and_their_links_are_listed() {
    let driver = include_str!("../symm-cuda/tests/driver/libcuda.c");
    let folder = library("driver", "libcuda.so", driver);
    library("driver", "libnvidia-ml.so.1", include_str!("../symm-cuda/tests/driver/nvml.c"));
    let asked = || {
        let mut c = doctor(&[]);
        c.env("LD_LIBRARY_PATH", &folder).env("FAKE_NVML", "1");
        c
    };
    let r = found(asked(), 0);
    let (gpus, links) = (&r["gpus"]["gpus"], &r["gpus"]["links"]);
    assert_eq!(named(gpus, "fake GPU 1")["free"], 3 << 28, "{gpus}");
    assert_eq!((gpus.as_array().map(Vec::len), links.as_array().map(Vec::len)), (Some(2), Some(2)));
    assert_eq!((&links[0]["kind"], &links[0]["nvlink"]), (&"load/store, atomics".into(), &true.into()));
    let said = text(&run(asked()).stdout);
    for part in [
        "0: fake GPU 0, 0000:00:00.0, compute capability 9.0, 1.00 GiB, 768 MiB free",
        "0 to 1: load/store, atomics (NVLink)",
        "IMEX channels: ",
    ] {
        assert!(said.contains(part), "{part:?} is missing in\n{said}");
    }
}

#[test]
fn a_library_is_found_with_its_version_and_a_sick_one_does_not_end_the_doctor() {
    let well = library("nccl-well", "libnccl.so.2", "int ncclGetVersion(int *v) { *v = 23004; return 0; }");
    let mut c = doctor(&[]);
    c.env("LD_LIBRARY_PATH", &well);
    let r = found(c, 0);
    let nccl = named(&r["libraries"], "nccl");
    assert_eq!(
        (&nccl["version"], nccl["path"].as_str()),
        (&"2.30.4".into(), well.join("libnccl.so.2").to_str())
    );

    let source = "#include <stdlib.h>\n__attribute__((constructor)) static void begin(void) { abort(); }";
    let mut c = doctor(&[]);
    c.env("LD_LIBRARY_PATH", library("nccl-sick", "libnccl.so.2", source));
    let r = found(c, 0);
    let nccl = named(&r["libraries"], "nccl");
    assert!(
        nccl["path"].is_null() && nccl["why"].as_str().is_some_and(|w| w.contains("signal: 6")),
        "{nccl}"
    );

    // By the variable that names its folder, before what the loader finds.
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nccl-home");
    library("nccl-home/lib", "libnccl.so.2", "int ncclGetVersion(int *v) { *v = 21805; return 0; }");
    let mut c = doctor(&[]);
    c.env("LD_LIBRARY_PATH", &well).env("NCCL_HOME", &home);
    let r = found(c, 0);
    let nccl = named(&r["libraries"], "nccl");
    assert_eq!((&nccl["version"], &nccl["why"]), (&"2.18.5".into(), &"by NCCL_HOME".into()));
}

/// GPUs of a driver in host memory: each kind of handle is tried on each of them, and the text says what came of it.
#[cfg(feature = "cuda")]
#[test]
fn handles_of_gpus_are_tried() {
    let driver = library("driver", "libcuda.so", include_str!("../symm-cuda/tests/driver/libcuda.c"));
    let with = |settings: &[(&str, &str)]| {
        let mut c = doctor(&[]);
        c.env("LD_LIBRARY_PATH", &driver).envs(settings.iter().copied());
        c
    };
    let r = found(with(&[("FAKE_FABRIC", "1")]), 0);
    let gpus = r["gpus"]["gpus"].as_array().expect("a list");
    assert_eq!(gpus.len(), 2, "{r}");
    for gpu in gpus {
        for kind in ["file descriptors", "fabric handles"] {
            let h = named(&gpu["handles"], kind);
            assert!(h["work"] == true && h["why"].is_null(), "{gpu}");
        }
    }
    let refused = [("FAKE_FABRIC", "1"), ("FAKE_FABRIC_FAIL", "cuMemExportToShareableHandle=800")];
    let said = text(&run(with(&refused)).stdout);
    let words = "    -- fabric handles: export of a fabric handle: cuda: cuMemExportToShareableHandle failed";
    assert!(said.contains("    ok file descriptors: exported, imported") && said.contains(words), "{said}");
    // One that hangs or dies is a finding, and so is one that cannot be opened.
    let said = text(&run(with(&[("FAKE_FAIL", "cuDevicePrimaryCtxRetain=999")])).stdout);
    assert!(
        said.contains("    -- file descriptors, fabric handles: cuda: cuDevicePrimaryCtxRetain"),
        "{said}"
    );
}

#[test]
fn launchers_are_found_in_path() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("launchers");
    std::fs::create_dir_all(&folder).expect("the test's folder can be written");
    let srun = folder.join("srun");
    std::fs::write(&srun, "#!/bin/sh\necho slurm 24.05.1\n").expect("written");
    std::fs::set_permissions(&srun, std::fs::Permissions::from_mode(0o755)).expect("changed");
    std::fs::write(folder.join("torchrun"), "not a program").expect("written");
    let mpich = folder.join("mpirun.mpich");
    let said = "HYDRA build details:\n    Version:                 4.0.2\n    CC:  gcc\n";
    std::fs::write(&mpich, format!("#!/bin/sh\ncat <<'END'\n{said}END\n")).expect("written");
    std::fs::set_permissions(&mpich, std::fs::Permissions::from_mode(0o755)).expect("changed");
    let mut c = doctor(&[]);
    c.env("PATH", format!("{}:/bin", folder.display()));
    let r = found(c, 0);
    let srun = named(&r["launchers"], "srun");
    assert_eq!(srun["version"], "slurm 24.05.1");
    assert_eq!(named(&r["launchers"], "mpirun.mpich")["version"], "MPICH's Hydra 4.0.2");
    assert!(srun["path"].as_str().is_some_and(|p| p.ends_with("launchers/srun")));
    assert!(named(&r["launchers"], "torchrun")["path"].is_null());
}

#[test]
fn bad_arguments_are_one_line_and_an_error_object() {
    let out = run(doctor(&["--nope", "--json", "-"]));
    assert_eq!((out.status.code(), text(&out.stderr).lines().count()), (Some(2), 1), "{}", text(&out.stderr));
    let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    assert_eq!(r["error"]["kind"], "Usage");
    let out = run(doctor(&["--json", "/nowhere/at/all"]));
    assert_eq!((out.status.code(), text(&out.stderr).lines().count()), (Some(2), 1));
}
