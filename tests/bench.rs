//! `symm bench`: real runs of the binary, short ones.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn symm(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_symm"));
    c.args(args).stdin(Stdio::null());
    // The tests decide these, not whoever runs them.
    for name in ["SYMM_PE", "SYMM_N_PES", "SYMM_JOB", "SYMM_HOST_NODES", "SYMM_BENCH_CORRUPT", "RUST_LOG"] {
        c.env_remove(name);
    }
    c.env("SYMM_BACKEND", "host");
    c
}

fn bench(args: &[&str]) -> Command {
    symm(&[&["bench"], args].concat())
}

fn run(mut c: Command) -> Output {
    c.output().expect("symm starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const OPS: [&str; 20] = [
    "put",
    "get",
    "signal",
    "barrier",
    "all_gather",
    "all_reduce",
    "reduce_scatter",
    "broadcast",
    "all_to_all",
    "vdev",
    "vdev_2d",
    "combine",
    "plan",
    "low_contention_all_gather",
    "low_contention_all_to_all",
    "low_contention_reduce_scatter",
    "all_to_all_nd",
    "reduce_scatter_offset",
    "tile_reduce",
    "multi_root_tile_reduce",
];

/// Operations measured under this name.
fn forms(op: &str) -> usize {
    if ["all_reduce", "plan"].contains(&op) { 2 } else { 1 }
}

/// Runs a few iterations of a few sizes; all values must be right, and JSON alone on standard output.
fn right(mut c: Command) -> Value {
    c.args(["-n", "3", "-w", "1", "--json", "-"]);
    let out = run(c);
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), String::new()), "{}", text(&out.stdout));
    let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    assert_eq!(r["wrong"], 0);
    r
}

fn rows(r: &Value) -> &[Value] {
    r["rows"].as_array().expect("rows")
}

#[test]
fn every_operation_is_right_on_one_to_four_pes() {
    for pes in ["1", "2", "3", "4"] {
        for op in OPS {
            let r = right(bench(&[
                op, "--pes", pes, "-b", "8", "-e", "40K", "-f", "70", "-r", "0", "--row", "256",
            ]));
            assert_eq!(r["pes"].to_string(), pes);
            assert_eq!(rows(&r).len(), if op == "barrier" { 1 } else { 3 * forms(op) }, "{op}");
            for row in rows(&r) {
                let f = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{op}: no number at {key}"));
                assert!(
                    0.0 < f("min_us") && f("min_us") <= f("p50_us") && f("p50_us") <= f("max_us"),
                    "{row}"
                );
                assert_eq!(f("wire_bytes") == 0.0, pes == "1" || op == "barrier", "{op}: {row}");
                let bandwidth = f("size") / f("p50_us") / 1e3;
                assert!((f("algbw") - bandwidth).abs() <= 1e-9 * bandwidth, "{row}");
            }
        }
    }
}

#[test]
fn all_types_are_right_where_they_apply() {
    for dtype in ["f64", "f16", "bf16", "i32", "i64"] {
        right(bench(&["all_reduce", "-b", "4K", "-e", "4K", "-d", dtype]));
        right(bench(&["multi_root_tile_reduce", "-b", "4K", "-e", "4K", "-d", dtype, "--row", "40"]));
    }
    for dtype in ["i8", "i16", "u8", "u16", "u32", "u64", "bf16"] {
        let r =
            right(bench(&["vdev_2d", "-b", "4K", "-e", "4K", "-d", dtype, "--row", "64", "--experts", "1"]));
        assert_eq!((&r["row"], &r["experts"]), (&64.into(), &1.into()));
    }
}

#[test]
fn made_up_nodes_give_the_same_values_over_the_network() {
    for op in OPS {
        let mut c = bench(&[op, "--pes", "4", "-b", "24K", "-e", "24K", "--row", "1K", "-r", "3"]);
        c.env("SYMM_HOST_NODES", "2").env("SYMM_HOST_DELAY_US", "20");
        assert_eq!(right(c)["reach"], "direct+network");
    }
}

#[test]
fn a_wrong_value_is_found_in_every_operation_and_exits_with_three() {
    for op in OPS.into_iter().filter(|op| *op != "barrier") {
        let mut c =
            bench(&[op, "--pes", "3", "-b", "4K", "-e", "4K", "-n", "1", "--row", "64", "--json", "-"]);
        c.env("SYMM_BENCH_CORRUPT", "1");
        let out = run(c);
        assert_eq!(out.status.code(), Some(3), "{op}: {}", text(&out.stderr));
        let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
        let forms = forms(op);
        assert_eq!((&r["wrong"], rows(&r).len()), (&forms.into(), forms), "{op}");
        let expected = format!("symm bench: {forms} values are wrong\n");
        assert_eq!(text(&out.stderr), expected);
        // Who does not look does not find.
        let mut c = bench(&[op, "--pes", "3", "-b", "4K", "-e", "4K", "-n", "1", "-c", "0"]);
        c.env("SYMM_BENCH_CORRUPT", "1");
        let out = run(c);
        assert!(out.status.success() && text(&out.stdout).contains("N/A"), "{op}");
    }
}

#[test]
fn the_table_has_the_columns_of_nccl_tests_and_a_row_for_each_size() {
    let out = run(bench(&["all_gather", "--pes", "2", "-b", "1K", "-e", "64K", "-f", "4", "-n", "2"]));
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), String::new()));
    let table = text(&out.stdout);
    for word in ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "of copy", "#wrong"] {
        assert!(table.contains(word), "{word} is missing in\n{table}");
    }
    let sizes: Vec<&str> =
        table.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(sizes, ["1024", "4096", "16384", "65536"]);
}

#[test]
fn json_goes_to_a_file_and_the_table_to_standard_output() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench.json");
    let json = path.to_str().expect("a name in UTF-8");
    let out = run(bench(&["put", "-b", "64", "-e", "64", "-n", "2", "--json", json]));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("of copy"));
    let r: Value = serde_json::from_slice(&std::fs::read(&path).expect("written")).expect("JSON");
    assert_eq!((&r["op"], &r["backend"]), (&"put".into(), &"host".into()));
    let out = run(bench(&["put", "--json", "/nowhere/at/all"]));
    assert_eq!((out.status.code(), text(&out.stderr).lines().count()), (Some(2), 1));
}

#[test]
fn under_a_launcher_each_process_is_one_pe_and_pe_0_alone_prints() {
    let me = env!("CARGO_BIN_EXE_symm");
    let launched = |args: &[&str]| {
        symm(
            &[
                &["run", "-n", "3", "--no-prefix", "--", me, "bench", "all_to_all", "-b", "96", "-e", "96"],
                args,
            ]
            .concat(),
        )
    };
    assert_eq!(right(launched(&[]))["pes"], 3);
    assert_eq!(right(launched(&["--pes", "3"]))["pes"], 3);
    for (args, field) in
        [(["--pes", "4"], "pes"), (["-r", "3"], "root"), (["--backend", "tpu"], "SYMM_BACKEND")]
    {
        let out = run(launched(&[&args[..], &["--json", "-"]].concat()));
        assert_eq!(out.status.code(), Some(2));
        let e: Value = serde_json::from_slice(&out.stdout).expect("JSON of one PE");
        assert_eq!(e["error"]["field"], field);
        let stderr = text(&out.stderr);
        assert_eq!(stderr.lines().filter(|l| l.starts_with("symm bench: ")).count(), 1, "{stderr}");
    }
}

/// Whether Open MPI can be tried; where it must be, its absence is a failure.
fn has_mpi() -> bool {
    let here = Command::new("mpirun").arg("--version").output().is_ok_and(|o| o.status.success())
        && Command::new("mpicc").arg("--version").output().is_ok_and(|o| o.status.success());
    let required = std::env::var("SYMM_REQUIRE").is_ok_and(|v| v.split(',').any(|w| w.trim() == "mpi"));
    assert!(here || !required, "SYMM_REQUIRE asks for mpirun and mpicc");
    if !here {
        eprintln!("not tried: mpirun and mpicc are not here (SYMM_REQUIRE=mpi makes that a failure)");
    }
    here
}

/// `mpirun -n N PROGRAM ARGS`, by root too, with more processes than cores.
fn mpirun(n: &str, program: &Path, args: &[&str]) -> Command {
    let mut c = Command::new("mpirun");
    c.args(["-n", n, "--oversubscribe", "--bind-to", "none"]).arg(program).args(args).stdin(Stdio::null());
    c.envs([
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("SYMM_BACKEND", "host"),
    ]);
    c
}

#[test]
fn mpirun_starts_it_and_the_program_that_it_is_compared_with_is_right_too() {
    if !has_mpi() {
        return;
    }
    let me = Path::new(env!("CARGO_BIN_EXE_symm"));
    for op in ["all_reduce", "vdev"] {
        let r = right(mpirun("3", me, &["bench", op, "-b", "4K", "-e", "4K", "--row", "256"]));
        assert_eq!(r["pes"], 3);
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi-collectives");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/mpi/collectives.c");
    let built = Command::new("mpicc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(built.expect("mpicc starts").success());
    for op in ["allreduce", "alltoallv"] {
        let out = run(mpirun("3", &program, &[op, "81920", "3", "1024"]));
        assert!(out.status.success(), "{op}: {}", text(&out.stderr));
        let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
        assert_eq!(r["wrong"], 0, "{op}");
        assert!(r["p50_us"].as_f64().is_some_and(|us| us > 0.0), "{r}");
    }
}

#[test]
fn bad_input_is_one_line_and_an_error_object() {
    for (args, kind, field) in [
        (&["put", "-b", "much"][..], "Argument", Some("minbytes")),
        (&["all_reduce", "-d", "u8"], "Argument", Some("datatype")),
        (&["broadcast", "-r", "2", "--pes", "2"], "Argument", Some("root")),
        (&["put", "--backend", "tpu"], "Setting", Some("SYMM_BACKEND")),
        (&["put", "-e", "100T"], "Memory", Some("maxbytes")),
        (&["put", "-b", "100T", "-e", "200T"], "Memory", Some("minbytes")),
        (&["teleport"], "Usage", None),
        (&["put", "--nope"], "Usage", None),
        (&[], "Usage", None),
    ] {
        let out = run(bench(&[args, &["--json", "-"]].concat()));
        assert_eq!(
            (out.status.code(), text(&out.stderr).lines().count()),
            (Some(2), 1),
            "{}",
            text(&out.stderr)
        );
        let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
        assert_eq!((r["error"]["kind"].as_str(), r["error"]["field"].as_str()), (Some(kind), field), "{r}");
    }
}

#[test]
fn a_backend_without_graphs_says_so_on_one_line() {
    let out = run(bench(&["barrier", "-G", "10", "--json", "-"]));
    assert_eq!((out.status.code(), text(&out.stderr).lines().count()), (Some(4), 1), "{}", text(&out.stderr));
    let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    assert_eq!(r["error"]["kind"], "Unsupported", "{r}");
}

#[test]
fn a_dead_pe_ends_the_bench_and_is_named() {
    let mut c =
        bench(&["all_to_all", "--pes", "3", "-b", "1K", "-e", "1K", "-n", "4000000000", "--json", "-"]);
    c.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = c.spawn().expect("symm starts");
    let list = format!("/proc/{0}/task/{0}/children", child.id());
    let began = Instant::now();
    let pes = loop {
        let ids: Vec<i32> = std::fs::read_to_string(&list)
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect();
        if ids.len() == 3 {
            break ids;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "the PEs start");
        std::thread::sleep(Duration::from_millis(5));
    };
    // Whatever they are doing by then.
    std::thread::sleep(Duration::from_millis(500));
    let pid = rustix::process::Pid::from_raw(pes[1]).expect("not 0");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
    let out = child.wait_with_output().expect("it ends");
    assert_eq!((out.status.code(), text(&out.stderr).lines().count()), (Some(4), 1), "{}", text(&out.stderr));
    let e: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    assert_eq!((&e["error"]["kind"], &e["error"]["pe"]), (&"PeerFailed".into(), &1.into()), "{e}");
}

#[test]
fn unasked_it_chooses_iterations_and_the_largest_size() {
    let out = run(bench(&["barrier", "--json", "-"]));
    let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    let n = rows(&r)[0]["iterations"].as_u64().expect("a count");
    assert!((20..=20_050).contains(&n), "{n}");
    assert_eq!(r["pes"], 2);
}
