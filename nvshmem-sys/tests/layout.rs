//! The bindings against a C++ compiler: sizes, alignments, offsets and constants of everything in `bindings.rs`, and the fields
//! of the initialisers.
//!
//! What `bindings.rs` asserts about its structs rustc has checked by the time this runs; the same numbers are put to the
//! C++ compiler, so both compilers agree on them.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nvshmem_sys as sys;
use support::{Scratch, installations, run};

const BINDINGS: &str = include_str!("../src/bindings.rs");

/// `text` without white space, as one line.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect()
}

/// The C++ assertions that say what `bindings.rs` says, and how many there are of each kind.
fn assertions() -> (String, [usize; 4]) {
    let mut text = String::new();
    let mut count = [0; 4];
    // One assertion each: ["Size of T"][::core::mem::size_of::<T>()-144usize];
    let all = squeezed(BINDINGS);
    for part in all.split("][::core::mem::").skip(1) {
        let (call, rest) = part.split_once('-').unwrap();
        let number: u64 = rest.split_once("usize").unwrap().0.parse().unwrap();
        let argument =
            |open: &str, close: &str| Some(call.strip_prefix(open)?.strip_suffix(close)?.to_owned());
        if let Some(ty) = argument("size_of::<", ">()") {
            count[0] += 1;
            writeln!(text, "static_assert(sizeof({ty}) == {number});").unwrap();
        } else if let Some(ty) = argument("align_of::<", ">()") {
            count[1] += 1;
            writeln!(text, "static_assert(alignof({ty}) == {number});").unwrap();
        } else if let Some(field) = argument("offset_of!(", ")") {
            count[2] += 1;
            writeln!(text, "static_assert(offsetof({field}) == {number});").unwrap();
        } else {
            panic!("not understood: {call}");
        }
    }
    for line in BINDINGS.lines() {
        let Some((name, rest)) = line.strip_prefix("pub const ").and_then(|l| l.split_once(": ")) else {
            continue;
        };
        let value = rest.split_once(" = ").unwrap().1.trim_end_matches(';');
        count[3] += 1;
        writeln!(text, "static_assert((long long)({name}) == {value}LL, \"{name}\");").unwrap();
    }
    (text, count)
}

struct Compiler {
    nvshmem: PathBuf,
    cuda: PathBuf,
}

impl Compiler {
    fn command(&self, source: &Path) -> Command {
        let mut command = Command::new("c++");
        command.args(["-std=c++17", "-Wno-invalid-offsetof", "-x", "c++"]);
        command.arg(source).arg("-I").arg(self.nvshmem.join("include"));
        command.arg("-isystem").arg(self.cuda.join("include"));
        command
    }
}

fn cuda() -> PathBuf {
    std::env::var_os("CUDA_HOME")
        .map(PathBuf::from)
        .expect("CUDA_HOME names the CUDA headers (ci/install-cuda)")
}

#[test]
fn a_cxx_compiler_sees_the_same_structs_and_constants() {
    let homes = installations("layout");
    // The newest release's structs have other versions; the committed bindings are those of the first.
    let Some(nvshmem) = homes.into_iter().next() else { return };
    let (text, [sizes, alignments, offsets, constants]) = assertions();
    let structs = BINDINGS.matches("pub struct ").count() - 1; // Functions
    let opaque = BINDINGS.matches("_unused: [u8; 0]").count();
    assert_eq!(sizes, structs - opaque, "a struct without an assertion of its size");
    assert_eq!(alignments, sizes);
    assert!(offsets > sizes && constants > 30, "{offsets} offsets, {constants} constants");

    let scratch = Scratch::new("layout");
    let source = scratch.path().join("layout.cpp");
    let unit = format!("#include <cstddef>\n#include <nvshmem_host.h>\n{text}");
    std::fs::write(&source, &unit).unwrap();
    let compiler = Compiler { nvshmem, cuda: cuda() };
    run(compiler.command(&source).arg("-fsyntax-only"));

    // The unit can fail: one number changed is seen.
    let wrong =
        unit.replacen("sizeof(nvshmemx_init_attr_v1) == 144", "sizeof(nvshmemx_init_attr_v1) == 145", 1);
    assert_ne!(wrong, unit);
    std::fs::write(&source, wrong).unwrap();
    let output = compiler.command(&source).arg("-fsyntax-only").output().unwrap();
    assert!(!output.status.success(), "a wrong size was not seen");
}

/// A line of hexadecimal bytes as the fields of the struct that it is.
fn text<T: Copy + std::fmt::Debug>(line: &str) -> String {
    let bytes: Vec<u8> =
        (0..line.len()).step_by(2).map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap()).collect();
    assert_eq!(bytes.len(), size_of::<T>());
    // SAFETY: as many bytes as the struct has, whose integers and pointers may have any.
    format!("{:?}", unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast::<T>()) })
}

#[test]
fn initialisers_are_the_headers_macros() {
    for nvshmem in installations("initialisers") {
        let scratch = Scratch::new("initialisers");
        let source = scratch.path().join("initialisers.cpp");
        // 3.8 names two versions of the attribute; version 1 is what every release knows.
        let unit = r#"
#include <cstdio>
#include <nvshmem_host.h>
#ifndef NVSHMEMX_INIT_ATTR_V1_INITIALIZER
#define NVSHMEMX_INIT_ATTR_V1_INITIALIZER NVSHMEMX_INIT_ATTR_INITIALIZER
#endif
static nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
static nvshmemx_uniqueid_args_t id_args = NVSHMEMX_UNIQUEID_ARGS_INITIALIZER;
static nvshmemx_init_args_t args = NVSHMEMX_INIT_ARGS_INITIALIZER;
static nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_V1_INITIALIZER;
static nvshmem_team_config_t config = NVSHMEM_TEAM_CONFIG_INITIALIZER;
template <class T> static void print(const T &value) {
    const unsigned char *bytes = reinterpret_cast<const unsigned char *>(&value);
    for (size_t i = 0; i < sizeof(T); i++) std::printf("%02x", bytes[i]);
    std::printf("\n");
}
int main() { print(id); print(id_args); print(args); print(attr); print(config); }
"#;
        std::fs::write(&source, unit).unwrap();
        let program = scratch.path().join("initialisers");
        let compiler = Compiler { nvshmem, cuda: cuda() };
        run(compiler.command(&source).arg("-O1").arg("-o").arg(&program));
        let printed = String::from_utf8(run(&mut Command::new(&program)).stdout).unwrap();
        let theirs: Vec<&str> = printed.lines().collect();
        let same = |ours: String, theirs: String| assert_eq!(ours, theirs, "{}", compiler.nvshmem.display());
        same(
            format!("{:?}", sys::NVSHMEMX_UNIQUEID_INITIALIZER),
            text::<sys::nvshmemx_uniqueid_t>(theirs[0]),
        );
        same(
            format!("{:?}", sys::NVSHMEMX_UNIQUEID_ARGS_INITIALIZER),
            text::<sys::nvshmemx_uniqueid_args_t>(theirs[1]),
        );
        same(
            format!("{:?}", sys::NVSHMEMX_INIT_ARGS_INITIALIZER),
            text::<sys::nvshmemx_init_args_t>(theirs[2]),
        );
        same(
            format!("{:?}", sys::NVSHMEMX_INIT_ATTR_INITIALIZER),
            text::<sys::nvshmemx_init_attr_t>(theirs[3]),
        );
        same(
            format!("{:?}", sys::NVSHMEM_TEAM_CONFIG_INITIALIZER),
            text::<sys::nvshmem_team_config_t>(theirs[4]),
        );
    }
}
