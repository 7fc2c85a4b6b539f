//! The loader with real installations, and with libraries that are not what they should be. A process loads one library
//! only, so each case is a child process of this test.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use nvshmem_sys as sys;
use support::{Scratch, installations, run};

/// What a child prints: `inspect()`, or its error.
fn inspected(variables: &[(&str, &Path)]) -> Result<String, String> {
    child("child_inspects", variables)
}

/// Runs an ignored test of this file in a process whose environment has only these of the loader's variables.
fn child(test: &str, variables: &[(&str, &Path)]) -> Result<String, String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    for name in
        ["SYMM_NVSHMEM_LIB", "NVSHMEM_HOME", "NVSHMEM_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH"]
    {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    let printed = String::from_utf8(run(&mut command).stdout).unwrap();
    let between = |mark: &str| Some(printed.split_once(mark)?.1.split_once("\nEND")?.0.to_owned());
    match (between("OK: "), between("ERROR: ")) {
        (Some(text), None) => Ok(text),
        (None, Some(text)) => Err(text),
        _ => panic!("child {test} printed {printed}"),
    }
}

fn say<T: std::fmt::Debug, E: std::fmt::Display>(result: Result<T, E>) {
    match result {
        Ok(value) => println!("\nOK: {value:?}\nEND"),
        Err(error) => println!("\nERROR: {error}\nEND"),
    }
}

#[test]
#[ignore = "a child of the other tests"]
fn child_inspects() {
    say(sys::inspect());
}

/// Calls what needs no GPU.
#[test]
#[ignore = "a child of the other tests"]
fn child_calls() {
    let nvshmem = sys::Nvshmem::load().unwrap();
    let mut id = sys::NVSHMEMX_UNIQUEID_INITIALIZER;
    // SAFETY: a valid place for an id; no start-up is needed for this call.
    let rc = unsafe { nvshmem.nvshmemx_get_uniqueid(&mut id) }.unwrap();
    let bytes = sys::uniqueid_to_bytes(&id);
    assert_eq!(sys::uniqueid_to_bytes(&sys::uniqueid_from_bytes(bytes)), bytes);
    let filled = bytes[4..].iter().any(|b| *b != 0);
    let mut attr = sys::NVSHMEMX_INIT_ATTR_INITIALIZER;
    // SAFETY: id and attribute are valid and outlive the call; the attribute is not used further.
    let set = unsafe { nvshmem.nvshmemx_set_attr_uniqueid_args(2, 3, &id, &mut attr) }.unwrap();
    let uid = &attr.args.uid_args;
    say::<_, String>(Ok((rc, id.version, filled, set, uid.myrank, uid.nranks, std::ptr::eq(uid.id, &id))));
}

/// Loads another copy first, as a program that links NVSHMEM would have.
#[test]
#[ignore = "a child of the other tests"]
fn child_with_a_copy() {
    let first = std::env::var_os("FIRST").unwrap();
    // SAFETY: an NVSHMEM library, or the test's own, neither of which does anything when it is loaded.
    let first = unsafe { libloading::Library::new(first) }.unwrap();
    say(sys::inspect());
    drop(first);
}

/// Loads two copies first, as a process would have whose parts each came with one.
#[test]
#[ignore = "a child of the other tests"]
fn child_with_copies() {
    let copies = ["FIRST", "SECOND"].map(|name| {
        let file = std::env::var_os(name).unwrap();
        // SAFETY: an NVSHMEM library, or the test's own, neither of which does anything when it is loaded.
        unsafe { libloading::Library::new(file) }.unwrap()
    });
    say(sys::inspect());
    drop(copies);
}

fn library(home: &Path) -> PathBuf {
    home.join("lib").join(sys::SONAME)
}

#[test]
fn every_bound_function_is_exported() {
    for home in installations("exports") {
        let path = library(&home);
        let text = inspected(&[("SYMM_NVSHMEM_LIB", &path)]).unwrap();
        assert!(text.contains("missing: []"), "{text}");
        assert!(text.contains("status: 0"), "{text}");
        assert!(text.contains("because: \"SYMM_NVSHMEM_LIB\""), "{text}");
        assert!(text.contains("name: \"NVSHMEM v"), "{text}");
        assert!(text.contains("libnvshmem_device.a"), "{text}");
        for plugin in ["\"uid\"", "\"mpi\"", "\"pmix\"", "\"ucx\"", "\"ibrc\""] {
            assert!(text.contains(plugin), "{plugin} is not in {text}");
        }
    }
}

#[test]
fn the_pinned_release_is_that_of_the_bindings() {
    let Some(home) = std::env::var_os("SYMM_NVSHMEM_PINNED").map(PathBuf::from) else {
        installations("pin");
        return;
    };
    let text = inspected(&[("NVSHMEM_HOME", &home)]).unwrap();
    assert!(text.contains(&format!("version: {:?}", sys::BINDINGS)), "{text}");
    assert!(text.contains("because: \"NVSHMEM_HOME\""), "{text}");
    // A wheel in a Python environment is found through the environment: HOME/../../../../.. is its prefix.
    let prefix = home.ancestors().nth(5).unwrap();
    if prefix.join("bin/python").exists() {
        let text = inspected(&[("VIRTUAL_ENV", prefix)]).unwrap();
        assert!(text.contains("because: \"VIRTUAL_ENV\""), "{text}");
    }
}

#[test]
fn calls_that_need_no_gpu_work() {
    for home in installations("calls") {
        let text = child("child_calls", &[("NVSHMEM_HOME", &home)]).unwrap();
        let stamp = sys::NVSHMEMX_UNIQUEID_INITIALIZER.version;
        assert_eq!(text, format!("(0, {stamp}, true, 0, 2, 3, true)"), "{}", home.display());
    }
}

#[test]
fn a_copy_that_is_loaded_is_used_and_another_one_refused() {
    let homes = installations("copies");
    let [pinned, newest] = homes.as_slice() else { return };
    let (pinned, newest) = (library(pinned), library(newest));
    let text = child("child_with_a_copy", &[("FIRST", &pinned)]).unwrap();
    assert!(text.contains("because: \"already loaded in this process\""), "{text}");
    let text = child("child_with_a_copy", &[("FIRST", &pinned), ("SYMM_NVSHMEM_LIB", &pinned)]).unwrap();
    assert!(text.contains(&format!("version: {:?}", sys::BINDINGS)), "{text}");
    let error = child("child_with_a_copy", &[("FIRST", &pinned), ("SYMM_NVSHMEM_LIB", &newest)]).unwrap_err();
    assert!(error.starts_with("this process has already loaded NVSHMEM from"), "{error}");
    assert!(error.contains(&*newest.to_string_lossy()), "{error}");
}

#[test]
fn two_copies_in_one_process_are_refused_whatever_their_releases() {
    let scratch = Scratch::new("two");
    let [a, b] = ["a", "b"].map(|name| {
        let folder = scratch.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        fake(&folder, &VERSION.replace("MAJOR", "3").replace("MINOR", if name == "a" { "4" } else { "5" }))
    });
    let error = child("child_with_copies", &[("FIRST", &a), ("SECOND", &b)]).unwrap_err();
    let both = format!("several NVSHMEM host libraries, {} and {};", a.display(), b.display());
    assert!(error.contains(&both), "{both} is not in {error}");
    // An older major release has another name, and is a copy all the same.
    let old = scratch.path().join("libnvshmem_host.so.2");
    std::fs::copy(&a, &old).unwrap();
    let error = child("child_with_copies", &[("FIRST", &old), ("SECOND", &b)]).unwrap_err();
    assert!(
        error.contains("several NVSHMEM host libraries") && error.contains(&*old.to_string_lossy()),
        "{error}"
    );
}

/// A library of the test's own, with a version and without most functions.
fn fake(folder: &Path, body: &str) -> PathBuf {
    let source = folder.join("fake.c");
    std::fs::write(&source, body).unwrap();
    let file = folder.join(sys::SONAME);
    let soname = format!("-Wl,-soname,{}", sys::SONAME);
    run(Command::new("cc").args(["-shared", "-fPIC", &soname, "-o"]).arg(&file).arg(&source));
    file
}

const VERSION: &str =
    "void nvshmemx_vendor_get_version_info(int *a, int *b, int *c) { *a = MAJOR; *b = MINOR; *c = 7; }\n";

#[test]
fn releases_that_the_bindings_do_not_describe_are_refused() {
    let scratch = Scratch::new("versions");
    for (major, minor) in [("3", "3"), ("2", "11"), ("4", "0")] {
        let file = fake(scratch.path(), &VERSION.replace("MAJOR", major).replace("MINOR", minor));
        let error = inspected(&[("SYMM_NVSHMEM_LIB", &file)]).unwrap_err();
        let path = std::fs::canonicalize(&file).unwrap();
        let expected =
            format!("{} is NVSHMEM {major}.{minor}.7, expected 3.4 or a later 3.x", path.display());
        assert_eq!(error, expected);
    }
}

#[test]
fn a_function_that_a_release_lacks_is_named() {
    let scratch = Scratch::new("missing");
    let file = fake(scratch.path(), &VERSION.replace("MAJOR", "3").replace("MINOR", "9"));
    let error = inspected(&[("SYMM_NVSHMEM_LIB", scratch.path())]).unwrap_err();
    assert!(
        error.ends_with("the loaded NVSHMEM library does not export nvshmem_info_get_version"),
        "{error}"
    );
    // The functions that inspect() asks are there, the others are counted.
    let body = VERSION.replace("MAJOR", "3").replace("MINOR", "9")
        + "void nvshmem_info_get_version(int *a, int *b) { *a = 1; *b = 3; }\n\
           void nvshmem_info_get_name(char *n) { for (int i = 0; i < 256; i++) n[i] = 'x'; }\n\
           int nvshmemx_init_status(void) { return 0; }\n";
    assert_eq!(fake(scratch.path(), &body), file);
    let text = inspected(&[("SYMM_NVSHMEM_LIB", scratch.path())]).unwrap();
    assert!(text.contains("\"nvshmem_malloc\"") && !text.contains("\"nvshmemx_init_status\""), "{text}");
    // A name of the greatest length has no zero at its end.
    assert!(text.contains(&format!("name: \"{}\"", "x".repeat(256))), "{text}");
}

#[test]
fn what_is_not_nvshmem_is_refused() {
    let scratch = Scratch::new("other");
    let file = fake(scratch.path(), "int something_else(void) { return 1; }\n");
    let error = inspected(&[("SYMM_NVSHMEM_LIB", &file)]).unwrap_err();
    assert!(error.contains("is not an NVSHMEM host library"), "{error}");
    assert!(error.contains("nvshmemx_vendor_get_version_info"), "{error}");
    std::fs::write(&file, "no ELF file").unwrap();
    let error = inspected(&[("SYMM_NVSHMEM_LIB", &file)]).unwrap_err();
    assert!(error.contains("(SYMM_NVSHMEM_LIB): ") && error.matches("; ").count() == 1, "{error}");
}

#[test]
fn every_place_that_was_tried_is_in_the_error() {
    let scratch = Scratch::new("nothing");
    let home = scratch.path().join("home");
    let text = match inspected(&[("NVSHMEM_HOME", &home)]) {
        Err(text) => text,
        // Only where this machine has an NVSHMEM in a place that is not of this test.
        Ok(found) => {
            assert!(!found.contains("because: \"NVSHMEM_HOME\""), "{found}");
            eprintln!("every_place: NVSHMEM is installed here: {found}");
            return;
        }
    };
    assert!(text.starts_with("libnvshmem_host.so.3 was not found; set SYMM_NVSHMEM_LIB"), "{text}");
    let lib = home.join("lib").join(sys::SONAME);
    let line = format!("{} (NVSHMEM_HOME): no such file;", lib.display());
    assert!(text.contains(&line), "{line} is not in {text}");
    assert!(text.contains("libnvshmem_host.so.3 (the dynamic loader's search path): "), "{text}");
    assert!(text.contains("/usr/local/nvshmem/lib/"), "{text}");
}
