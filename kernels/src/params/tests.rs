use std::fmt::Write as _;
use std::process::Command;

use symm_core::backend::KernelHandle;

use super::*;

/// The twin of `Handle`, which kernels of users' are given.
fn users() -> (&'static str, usize, Vec<(&'static str, usize)>) {
    macro_rules! offsets {
        ($($field:ident)*) => { vec![$((stringify!($field), std::mem::offset_of!(KernelHandle, $field)),)*] };
    }
    let fields = offsets!(buffers pads members status status_host offset signals words counters rank ranks);
    ("Handle", size_of::<KernelHandle>(), fields)
}

#[test]
fn layouts_are_those_of_the_header() {
    let mut unit = String::from("#include <stddef.h>\n#include \"symm/params.cuh\"\nusing namespace symm;\n");
    for (name, size, fields) in layouts().into_iter().chain([users()]) {
        writeln!(unit, "static_assert(sizeof({name}) == {size}, \"{name}\");").unwrap();
        for (field, offset) in fields {
            writeln!(unit, "static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");")
                .unwrap();
        }
    }
    let file = std::env::temp_dir().join(format!("symm-layouts-{}.cpp", std::process::id()));
    std::fs::write(&file, unit).unwrap();
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    let done = Command::new(&compiler).args(["-std=c++17", "-fsyntax-only", include]).arg(&file).output();
    std::fs::remove_file(&file).unwrap();
    let done = done.unwrap_or_else(|e| panic!("{compiler}: {e} (CXX names another C++ compiler)"));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn kernels_and_host_have_the_same_limit() {
    let header = include_str!("../../include/symm/exchange.cuh");
    assert!(header.contains(&format!("constexpr int MAX_RANKS = {MAX_RANKS};")));
    assert!(header.contains(&format!("constexpr uint32_t FEW_SPLITS = {FEW_SPLITS};")));
    let common = include_str!("../../cu/exchange/common.cuh");
    assert!(common.contains(&format!("constexpr uint32_t FEW_RANKS = {FEW_RANKS};")));
    let header = include_str!("../../cu/nvshmem/net.cuh");
    assert!(header.contains(&format!("constexpr uint32_t STAGE_BYTES = {} * 1024;", STAGE_BYTES / 1024)));
    let header = include_str!("../../include/symm/params.cuh");
    assert!(header.contains(&format!("constexpr int NEAR_RANKS = {NEAR_RANKS};")));
    assert!(header.contains(&format!("constexpr int MAX_TAKES = {MAX_TAKES};")));
    for (name, phase) in [("WHOLE", TAKE_WHOLE), ("BEGIN", TAKE_BEGIN), ("FINISH", TAKE_FINISH)] {
        assert!(header.contains(&format!("TAKE_{name} = {phase},")), "{name}");
    }
}
