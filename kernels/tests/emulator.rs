//! The kernels' sources, built by a C++ compiler and run on an emulated machine (`emulator/machine.h`) whose memory is as weak as PTX
//! allows (`emulator/model.h`), against oracles: protocol, places, sums, verdict, deadlines, order. With every fence thousands of
//! random calls pass; with any one left out, some call fails soon, and so with any acquire that is not listed as superfluous
//! (`emulator/acquires.rs`). What it cannot show: the GPU's caches and its speed.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

#[path = "emulator/acquires.rs"]
mod acquires;

use acquires::{ACQUIRES, RELEASES};
use symm_core::layout::{ContextLayout, ContextRoom};

/// What an acquire left out does.
enum Found {
    /// The program fails.
    Without(&'static Program),
    /// None does, for this reason.
    Kept(&'static str),
}

/// A program: the folder of its `main.cpp`, and files of `cu` that are linked with it.
struct Program {
    name: &'static str,
    units: &'static [&'static str],
}

const EXCHANGE: Program = Program { name: "exchange", units: &[] };
const REDUCE: Program = Program { name: "reduce", units: &[] };
const TAKE: Program = Program { name: "take", units: &[] };
const PLAN: Program = Program { name: "plan", units: &[] };
const NET_EXCHANGE: Program = Program { name: "net_exchange", units: &[] };
const NET_REDUCE: Program = Program { name: "net_reduce", units: &[] };
const NET_TAKE: Program = Program { name: "net_take", units: &[] };
const PUSHED: Program = Program { name: "pushed", units: &["pushed"] };
const NET_ONE_SIDED: Program = Program { name: "net_one_sided", units: &[] };
const ORDER: Program = Program { name: "order", units: &["copy", "signal", "barrier", "exchange"] };
const USERS: Program = Program { name: "users", units: &["barrier"] };

/// The fences of `cu/steps.cuh` in their order, and the program that fails without each.
const FENCES: [(&str, &Program); 21] = [
    ("FENCE_PUSHED", &EXCHANGE),
    ("FENCE_MANY_SPLITS", &EXCHANGE),
    ("FENCE_EXCHANGE_COUNT", &ORDER),
    ("FENCE_BARRIER", &ORDER),
    ("FENCE_CONTEXT_BARRIER", &ORDER),
    ("FENCE_BROUGHT", &REDUCE),
    ("FENCE_REDUCE_COUNT", &REDUCE),
    ("FENCE_PUSH_COUNT", &PUSHED),
    ("FENCE_REDUCED", &REDUCE),
    ("FENCE_TAKE_COUNT", &PLAN),
    ("FENCE_PUT_SIGNAL", &ORDER),
    ("FENCE_PUT_COUNT", &ORDER),
    ("FENCE_PAD_SIGNAL", &ORDER),
    ("FENCE_PAD_STORE", &ORDER),
    ("FENCE_PAD_CLAIM", &ORDER),
    ("FENCE_NET_STAGED", &NET_EXCHANGE),
    ("FENCE_NET_HANDED", &NET_REDUCE),
    ("FENCE_NET_SLOT", &NET_ONE_SIDED),
    ("FENCE_NET_CREDIT", &NET_ONE_SIDED),
    ("FENCE_NET_BARRIER", &NET_ONE_SIDED),
    ("FENCE_NET_COUNT", &NET_EXCHANGE),
];

/// A left-out fence must be found within as many seeds.
const SEEDS: u32 = 16;

/// What a host compiler is given instead of lines of a file in `cu`.
const CHANGES: [(&str, &str, &str); 13] = [
    ("exchange.cu", "__shared__ Shared<FEW> s;", "Shared<FEW>& s = *(Shared<FEW>*)current_block->shared;"),
    ("reduce.cu", "__shared__ Shared s;", "Shared& s = *(Shared*)current_block->shared;"),
    ("take.cu", "__shared__ Shared s;", "Shared& s = *(Shared*)current_block->shared;"),
    ("plan.cu", "__shared__ Shared s;", "Shared& s = *(Shared*)current_block->shared;"),
    ("pushed.cu", "__shared__ PushedShared s;", "PushedShared& s = *(PushedShared*)current_block->shared;"),
    ("barrier.cu", "__shared__ u64 count;", "u64& count = *(u64*)current_block->shared;"),
    // A block of the machine has 64 threads.
    ("reduce/common.cuh", "constexpr int THREADS = 512;", "constexpr int THREADS = 64;"),
    ("nvshmem/net.cuh", "constexpr int THREADS = 512;", "constexpr int THREADS = 64;"),
    // The kernel's own shared memory lies behind that of net.cuh (`NetMemory`).
    ("nvshmem/net.cuh", "__shared__ uint32_t taken;", "uint32_t& taken = *(uint32_t*)current_block->shared;"),
    (
        "nvshmem/exchange.cuh",
        "__shared__ OfBlock s;",
        "OfBlock& s = *(OfBlock*)((char*)current_block->shared + 64);",
    ),
    ("nvshmem/reduce.cuh", "__shared__ Sums s;", "Sums& s = *(Sums*)((char*)current_block->shared + 64);"),
    // Small stages, so that little data takes many.
    (
        "nvshmem/net.cuh",
        "constexpr uint32_t STAGE_BYTES = 512 * 1024;",
        "constexpr uint32_t STAGE_BYTES = 2048;",
    ),
    // One build for all fences.
    ("steps.cuh", "constexpr uint32_t WITHOUT = FENCE_NONE;", "inline uint32_t WITHOUT = FENCE_NONE;"),
];

/// What may acquire, as it is called.
const ACQUIRING: [&str; 10] = [
    "load_acquire_sys_u64(",
    "load_acquire_gpu_u64(",
    "load_acquire_sys_u32(",
    "load_acquire_sys_tagged(",
    "fence_acq_rel_sys(",
    "fence_acq_rel_gpu(",
    "fence_acquire_sys(",
    "fetch_add_acq_rel_gpu_u64(",
    "cas_acq_rel_gpu_u64(",
    "cas_acq_rel_sys_u32(",
];

/// What may release in users' kernels.
const RELEASING: [&str; 6] = [
    "store_release_sys_u64(",
    "add_release_sys_u64(",
    "cas_acq_rel_sys_u32(",
    "fence_release_sys(",
    "fence_acq_rel_sys(",
    "__syncthreads(",
];

/// The acquires, then the releases that are not the other half of one; a call's number is its place, counted from 1.
fn numbered_calls() -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = ACQUIRES.iter().map(|(file, text, _)| (*file, *text)).collect();
    let more: Vec<_> = RELEASES.into_iter().filter(|row| !all.contains(row)).collect();
    all.extend(more);
    all
}

/// What a run leaves out: numbers, 0 for nothing.
#[derive(Clone, Copy, Default)]
struct LeftOut {
    /// Of a fence in [`FENCES`].
    fence: usize,
    /// Of a call in [`numbered_calls`], its acquiring half.
    acquire: usize,
    /// Of a call in [`numbered_calls`], its releasing half.
    release: usize,
}

/// The text with its call by the name that takes a number.
fn numbered(text: &str, number: usize) -> String {
    let call = ACQUIRING.iter().chain(&RELEASING).find(|call| text.contains(**call));
    let call = call.expect("a row should name a call");
    let name = call.trim_end_matches('(');
    text.replace(call, &format!("numbered_{name}<{number}>("))
}

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

fn sources() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/emulator"))
}

fn compiler() -> String {
    env::var("CXX").unwrap_or_else(|_| "c++".to_owned())
}

/// Whether there is a compiler; without one the test is skipped, unless `SYMM_REQUIRE` has c++.
fn has_compiler() -> bool {
    if Command::new(compiler()).arg("--version").output().is_ok() {
        return true;
    }
    let why = format!("no C++ compiler {} (CXX names another one)", compiler());
    assert!(!env::var("SYMM_REQUIRE").is_ok_and(|r| r.split(',').any(|name| name == "c++")), "{why}");
    eprintln!("skipped: {why}");
    false
}

fn checked(command: &mut Command) -> Output {
    let done = command.output().expect("the compiler should start");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    done
}

/// A compilation against the changed sources in `folder`.
fn compile(folder: &Path, source: &Path, object: &Path) -> Command {
    let include = |path: &Path| format!("-I{}", path.display());
    let mut command = Command::new(compiler());
    // Fortified jumps refuse to go from one stack to another.
    command.args(["-std=c++17", "-O1", "-U_FORTIFY_SOURCE", "-DSYMM_DELAYS", "-x", "c++", "-c"]);
    // First, so that its symm/memory.cuh is found before the real one.
    command.arg(include(sources())).arg(include(&folder.join("cu")));
    command.arg(include(&folder.join("include")));
    command.arg(source).arg("-o").arg(object);
    command
}

/// The folder in which programs are built, with the changed sources and the machine, which all of them use.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulator");
    let _ = fs::remove_dir_all(&folder);
    let cu = folder.join("cu");
    copy_folder(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/cu")), &cu)
        .expect("the sources should be readable");
    copy_folder(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/include")), &folder.join("include"))
        .expect("the headers should be readable");
    for (number, (file, text)) in (1..).zip(numbered_calls()) {
        let source = fs::read_to_string(folder.join(file)).expect("a source should be text");
        assert_eq!(source.matches(text).count(), 1, "{file}: {text}");
        fs::write(folder.join(file), source.replace(text, &numbered(text, number)))
            .expect("the copy should be writable");
    }
    for (file, line, instead) in CHANGES {
        let source = fs::read_to_string(cu.join(file)).expect("a source should be text");
        assert_eq!(source.matches(line).count(), 1, "{file}: {line}");
        fs::write(cu.join(file), source.replace(line, instead)).expect("the copy should be writable");
    }
    for unit in ["machine", "model", "hooks", "network"] {
        let (source, object) =
            (sources().join(unit).with_extension("cpp"), folder.join(unit).with_extension("o"));
        // Runs are for the most part in these.
        checked(compile(&folder, &source, &object).arg("-O3"));
    }
    folder
});

/// Builds a program. Its plain loads and stores are announced to the model by the instrumentation that compilers have for their thread
/// sanitizer; the sanitizer's own library is not linked.
fn build(program: &Program) -> PathBuf {
    let folder = FOLDER.as_path();
    let object = |unit: &str| folder.join(format!("{}-{unit}.o", program.name));
    let main = (sources().join(program.name).join("main.cpp"), object("main"));
    let units =
        program.units.iter().map(|unit| (folder.join("cu").join(unit).with_extension("cu"), object(unit)));
    let all: Vec<_> = std::iter::once(main).chain(units).collect();
    for (source, object) in &all {
        checked(compile(folder, source, object).arg("-fsanitize=thread"));
    }
    let built = folder.join(program.name);
    let mut link = Command::new(compiler());
    link.args(all.iter().map(|(_, object)| object));
    link.args(["machine.o", "model.o", "hooks.o", "network.o"].map(|o| folder.join(o))).arg("-o").arg(&built);
    checked(&mut link);
    built
}

/// What a run finds wrong; `Ok` if nothing.
fn run(program: &Path, calls: u32, seed: u32, without: LeftOut) -> Result<(), String> {
    let arguments = [calls.to_string(), seed.to_string(), without.fence.to_string()];
    let mut command = Command::new(program);
    command.args(arguments).env("SYMM_NO_ACQUIRE", without.acquire.to_string());
    command.env("SYMM_NO_RELEASE", without.release.to_string());
    let done = command.output().expect("a built program should start");
    let said = String::from_utf8_lossy(&done.stdout);
    if done.status.success() && said.lines().last() == Some("0 failures") {
        return Ok(());
    }
    let first: Vec<_> = said.lines().take(12).collect();
    Err(format!("seed {seed}: {}\n{}", done.status, first.join("\n")))
}

/// Runs `calls` calls for each seed; `SYMM_EMULATOR_SEEDS` says how many seeds, for longer runs.
fn passes(program: &Program, calls: u32) {
    if !has_compiler() {
        return;
    }
    let built = build(program);
    let seeds = env::var("SYMM_EMULATOR_SEEDS")
        .map_or(3, |n| n.parse().expect("SYMM_EMULATOR_SEEDS should be a number"));
    for seed in 1..=seeds {
        run(&built, calls, seed, LeftOut::default()).unwrap_or_else(|why| panic!("{}: {why}", program.name));
    }
    // Then every fence, acquire and release that this program is to miss.
    let fails = |what: &str, without| {
        let found = (1..=SEEDS).find(|seed| run(&built, calls, *seed, without).is_err());
        let seed = found.unwrap_or_else(|| panic!("{} passes without {what}, {SEEDS} seeds", program.name));
        println!("without {what} {} fails at seed {seed}", program.name);
    };
    for (number, (fence, _)) in (1..).zip(&FENCES).filter(|(_, (_, by))| by.name == program.name) {
        fails(fence, LeftOut { fence: number, ..LeftOut::default() });
    }
    for (acquire, (file, text, found)) in (1..).zip(&ACQUIRES) {
        match found {
            Found::Without(by) if by.name == program.name => {
                fails(&format!("{file}: {text}"), LeftOut { acquire, ..LeftOut::default() });
            }
            _ => {}
        }
    }
    for (release, row) in (1..).zip(numbered_calls()) {
        if program.name == USERS.name && RELEASES.contains(&row) {
            fails(&format!("{}: {}, its release", row.0, row.1), LeftOut { release, ..LeftOut::default() });
        }
    }
}

#[test]
fn the_exchange_does_what_the_oracle_says() {
    passes(&EXCHANGE, 16);
}

#[test]
fn the_reductions_do_what_the_oracle_says() {
    passes(&REDUCE, 30);
}

#[test]
fn the_forms_that_take_do_what_the_oracle_says() {
    passes(&TAKE, 42);
}

#[test]
fn the_exchange_over_a_network_does_what_the_oracle_says() {
    passes(&NET_EXCHANGE, 12);
}

#[test]
fn the_reductions_over_a_network_do_what_the_oracle_says() {
    passes(&NET_REDUCE, 30);
}

#[test]
fn the_forms_that_take_over_a_network_do_what_the_oracle_says() {
    passes(&NET_TAKE, 28);
}

#[test]
fn whoever_sees_a_signal_of_the_network_finds_the_data() {
    passes(&NET_ONE_SIDED, 16);
}

#[test]
fn a_planned_exchange_moves_what_its_table_says() {
    passes(&PLAN, 24);
}

#[test]
fn pushed_elements_are_added_up_like_those_that_are_read() {
    passes(&PUSHED, 40);
}

#[test]
fn whoever_learns_of_something_finds_what_came_before() {
    passes(&ORDER, 16);
}

#[test]
fn users_kernels_find_what_they_have_waited_for() {
    passes(&USERS, 6);
}

/// `layout.h`, which the programs of `benches/gpu` have, too.
#[test]
fn programs_lay_contexts_out_as_the_library_does() {
    if !has_compiler() {
        return;
    }
    let mut unit = String::from("#include \"../layout.h\"\nusing namespace symm;\n");
    macro_rules! equal {
        ($of:expr, $layout:expr, $($field:ident)*) => {
            $(unit += &format!("static_assert({}.{} == {});\n", $of, stringify!($field), $layout.$field);)*
        };
    }
    for (parity, shared) in [(0, 0), (0, 256), (1664, 0), (5000, 7000)] {
        let room = ContextRoom { parity, shared };
        for (ranks, max_splits) in [(1, 1024), (2, 1024), (3, 0), (5, 1), (8, 1027), (9, 64), (128, 4096)] {
            let layout = ContextLayout::new(ranks, max_splits).with_room(room);
            let of = format!("ContextLayout({ranks}, {max_splits}, {parity}, {shared})");
            equal!(of, layout, arrival done gathered aborted notes pushed slots slot_bytes);
            equal!(of, layout, room room_bytes shared_room bytes);
        }
    }
    let source = FOLDER.join("layout.cpp");
    fs::write(&source, unit).expect("the folder should be writable");
    checked(&mut compile(&FOLDER, &source, &source.with_extension("o")));
}

#[test]
fn every_fence_has_a_program_that_fails_without_it() {
    let steps = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/cu/steps.cuh"))
        .expect("steps.cuh should be text");
    let listed = steps
        .split("enum Fence")
        .nth(1)
        .and_then(|rest| rest.split("};").next())
        .expect("steps.cuh should list fences");
    let names: Vec<_> = listed
        .split_whitespace()
        .filter(|w| w.starts_with("FENCE_"))
        .map(|w| w.trim_end_matches(','))
        .collect();
    let expected: Vec<_> = std::iter::once("FENCE_NONE").chain(FENCES.map(|(name, _)| name)).collect();
    assert_eq!(names, expected);
}

/// An acquire that is new gets a row, too.
#[test]
fn every_acquire_is_listed_with_what_its_loss_does() {
    fn calls_in(folder: &Path) -> usize {
        let entries = fs::read_dir(folder).expect("the sources should be readable");
        let paths: Vec<_> = entries.map(|entry| entry.expect("an entry should be readable").path()).collect();
        let of = |path: &PathBuf| {
            if path.is_dir() {
                return calls_in(path);
            }
            if path.ends_with("symm/memory.cuh") {
                return 0; // It defines them.
            }
            let source = fs::read_to_string(path).expect("a source should be text");
            let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
            code.map(|line| ACQUIRING.iter().map(|call| line.matches(call).count()).sum::<usize>()).sum()
        };
        paths.iter().map(of).sum()
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(calls_in(&root.join("cu")) + calls_in(&root.join("include")), ACQUIRES.len());
    let headers = ["barrier.cuh", "handle.cuh"].map(|file| root.join("include/symm").join(file));
    let code = headers.map(|path| fs::read_to_string(path).expect("a header should be text"));
    let lines = code.iter().flat_map(|text| text.lines()).filter(|line| !line.trim_start().starts_with("//"));
    let releases: usize =
        lines.map(|line| RELEASING.iter().map(|call| line.matches(call).count()).sum::<usize>()).sum();
    assert_eq!(releases, RELEASES.len());
    let unexplained =
        ACQUIRES.iter().filter(|(.., found)| matches!(found, Found::Kept(why) if why.is_empty()));
    assert_eq!(unexplained.count(), 0);
}
