//! `symm moe`: real runs of the binary, with small rows.

mod figures;
mod picture;

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn symm(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_symm"));
    c.args(args).stdin(Stdio::null());
    // The tests decide these, not whoever runs them.
    for name in ["SYMM_PE", "SYMM_N_PES", "SYMM_JOB", "SYMM_HOST_NODES", "SYMM_MOE_CORRUPT", "RUST_LOG"] {
        c.env_remove(name);
    }
    c.env("SYMM_BACKEND", "host");
    c
}

fn moe(args: &[&str]) -> Command {
    symm(&[&["moe"], args].concat())
}

/// `symm run -n N symm moe ARGS`.
fn launched(n: &str, args: &[&str]) -> Command {
    let me = env!("CARGO_BIN_EXE_symm");
    symm(&[&["run", "-n", n, "--no-prefix", "--", me, "moe"], args].concat())
}

fn run(mut c: Command) -> Output {
    c.output().expect("symm starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of this test run.
fn file(name: &str, content: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).expect("the test's folder can be written");
    path
}

/// Runs with small rows and few steps; the result must be right, and JSON alone on standard output.
fn verified(mut c: Command) -> Value {
    c.args(["--hidden", "24", "--steps", "3", "--json", "-"]);
    let out = run(c);
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), String::new()), "{}", text(&out.stdout));
    let report: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    assert_eq!(report["verified"], true);
    assert_eq!(report["hidden"], 24);
    assert_eq!(report["steps"], 3);
    report
}

fn routes(path: &Path) -> [&str; 2] {
    ["--routes", path.to_str().expect("a name in UTF-8")]
}

fn n(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

#[test]
fn every_value_is_right_on_one_to_eight_pes() {
    for pes in ["1", "2", "3", "4", "8"] {
        let r = verified(moe(&["--pes", pes]));
        assert_eq!(r["pes"].to_string(), pes);
        assert_eq!((n(&r["tokens"]), n(&r["experts"]), n(&r["top_k"])), (8192, 64, 8));
        assert_eq!(n(&r["rows"]), 65_536);
        assert_eq!(n(&r["wire_bytes"]) + n(&r["local_bytes"]), 65_536 * 24 * 2);
        assert_eq!(n(&r["wire_bytes"]) == 0, pes == "1");
        assert_eq!((r["backend"].as_str(), r["reach"].as_str()), (Some("host"), Some("direct")));
        let load = &r["load"];
        assert_eq!(load["max_over_mean"].as_f64().map(|x| (x * 100.0).round()), Some(154.0));
        assert_eq!(load["min_over_mean"].as_f64().map(|x| (x * 100.0).round()), Some(29.0));
    }
}

#[test]
fn made_up_nodes_give_the_same_values_over_the_network() {
    for (pes, nodes, reach) in [("2", "2", "network"), ("4", "2", "direct+network"), ("3", "3", "network")] {
        let mut c = moe(&["--pes", pes, "--seed", "9"]);
        c.env("SYMM_HOST_NODES", nodes);
        assert_eq!(verified(c)["reach"], reach);
    }
}

/// A trace of `tokens` tokens whose choices come from a small generator; `line` may change them.
fn made_up(tokens: u64, experts: u64, top_k: u64, line: impl Fn(u64, &mut Vec<i64>)) -> String {
    let mut out = String::new();
    let mut state = 7u64;
    for token in 0..tokens {
        let mut ids: Vec<i64> = Vec::new();
        while (ids.len() as u64) < top_k {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let id = (state >> 33) % experts;
            if !ids.contains(&(id as i64)) {
                ids.push(id as i64);
            }
        }
        line(token, &mut ids);
        let weights: Vec<f64> = (0..top_k).map(|j| 1.0 / (j + 2) as f64).collect();
        let route = serde_json::json!({"type": "route", "req_id": "q", "token_idx": token, "layer": 1,
            "topk_ids": ids, "topk_weights": weights});
        let _ = writeln!(out, "{route}");
    }
    out
}

#[test]
fn sixty_experts_do_not_divide_by_eight_pes() {
    // The last PE owns experts 56 to 59 and four that do not exist.
    let meta = "{\"type\":\"meta\",\"num_experts\":60,\"hidden\":40}\n";
    let path = file("sixty.jsonl", &(meta.to_owned() + &made_up(501, 60, 4, |_, _| ())));
    let mut c = moe(&routes(&path));
    c.args(["--pes", "8"]);
    let r = verified(c);
    assert_eq!((n(&r["experts"]), n(&r["top_k"]), n(&r["tokens"]), n(&r["rows"])), (60, 4, 501, 2004));
    // The metadata's row length is the default.
    let out = run(moe(&[&routes(&path)[..], &["--pes", "8", "--steps", "3", "--json", "-"]].concat()));
    let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    assert_eq!((n(&r["hidden"]), out.status.code()), (40, Some(0)));
}

#[test]
fn choices_that_were_not_made_have_no_rows() {
    let trace = made_up(300, 16, 4, |token, ids| {
        ids[0] = if token % 3 == 0 { -1 } else { ids[0] };
        if token % 50 == 0 {
            ids.fill(-1);
        }
    });
    let path = file("unmade.jsonl", &trace);
    let made: u64 = trace
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).expect("own line"))
        .flat_map(|l| l["topk_ids"].as_array().cloned().unwrap_or_default())
        .filter(|id| *id != -1)
        .count() as u64;
    assert_eq!(n(&verified(moe(&routes(&path)))["rows"]), made);
    // Nobody chose anybody; E is known from the metadata alone.
    let none = made_up(20, 4, 2, |_, ids| ids.fill(-1));
    let path = file("nothing.jsonl", &format!("{{\"type\":\"meta\",\"num_experts\":4}}\n{none}"));
    let r = verified(moe(&routes(&path)));
    assert_eq!((n(&r["rows"]), n(&r["wire_bytes"]), n(&r["local_bytes"])), (0, 0, 0));
}

#[test]
fn repeated_tokens_count_each_time() {
    let once = made_up(40, 8, 2, |_, _| ());
    let path = file("repeated.jsonl", &once.repeat(3));
    assert_eq!(n(&verified(moe(&routes(&path)))["tokens"]), 120);
}

#[test]
fn metadata_and_weights_may_be_absent_and_pes_may_outnumber_tokens_and_experts() {
    let bare = "{\"type\":\"route\",\"req_id\":\"a\",\"token_idx\":0,\"layer\":0,\"topk_ids\":[2,0]}\n\
                {\"type\":\"route\",\"req_id\":\"a\",\"token_idx\":1,\"layer\":0,\"topk_ids\":[1,2]}\n";
    let path = file("bare.jsonl", bare);
    for pes in ["1", "3", "8"] {
        let mut c = moe(&routes(&path));
        c.args(["--pes", pes]);
        let r = verified(c);
        assert_eq!((n(&r["experts"]), n(&r["tokens"]), n(&r["rows"])), (3, 2, 4));
    }
    let mut c = moe(&routes(&path));
    c.args(["--dtype", "f16", "--align", "128"]);
    verified(c);
}

#[test]
fn more_experts_than_the_teams_own_context_takes() {
    let path = file("experts.jsonl", &made_up(200, 3000, 4, |_, _| ()));
    let mut c = moe(&routes(&path));
    c.args(["--pes", "2", "--align", "2"]);
    assert_eq!(n(&verified(c)["rows"]), 800);
}

#[test]
fn a_trace_may_come_through_a_pipe() {
    let trace = file("piped.jsonl", &made_up(2000, 8, 2, |_, _| ()));
    let mut cat = Command::new("cat").arg(trace).stdout(Stdio::piped()).spawn().expect("cat starts");
    let mut c = moe(&["--routes", "/dev/stdin", "--hidden", "8", "--steps", "2", "--json", "-"]);
    c.stdin(cat.stdout.take().expect("piped"));
    let out = run(c);
    cat.wait().expect("cat ends");
    let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    assert_eq!((n(&r["tokens"]), out.status.code()), (2000, Some(0)));
}

/// Runs what must be refused; the error object must be the one of standard error. Returns it.
fn refused(c: Command) -> Value {
    let out = run(c);
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(2), "{stdout}{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let json: Value = serde_json::from_str(&stdout).expect("JSON alone");
    let error = json["error"].as_object().expect("an error object");
    let mut keys: Vec<&str> = error.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["field", "file", "kind", "line", "message", "pe"]);
    assert!(stderr.contains(error["message"].as_str().expect("a text")), "{stderr}");
    json["error"].clone()
}

#[test]
fn a_bad_trace_is_refused_with_file_line_and_field() {
    let good = made_up(3, 8, 2, |_, _| ());
    let route =
        |rest: &str| format!("{{\"type\":\"route\",\"req_id\":\"a\",\"token_idx\":9,\"layer\":1,{rest}}}\n");
    let meta = "{\"type\":\"meta\",\"num_experts\":8}\n".to_owned();
    for (name, content, line, field) in [
        ("broken", format!("{good}{{\"type\":\"route\",\"topk_ids\":[1,\n"), 4, "topk_ids"),
        ("range", format!("{meta}{good}{}", route("\"topk_ids\":[8,1]")), 5, "topk_ids"),
        ("below", format!("{good}{}", route("\"topk_ids\":[-2,1]")), 4, "topk_ids"),
        ("count", format!("{good}{}", route("\"topk_ids\":[1,2,3]")), 4, "topk_ids"),
        (
            "negative",
            format!("{good}{}", route("\"topk_ids\":[1,2],\"topk_weights\":[0.5,-0.5]")),
            4,
            "topk_weights",
        ),
        (
            "nan",
            format!("{good}{}", route("\"topk_ids\":[1,2],\"topk_weights\":[0.5,NaN]")),
            4,
            "topk_weights",
        ),
        ("empty", String::new(), 1, "route"),
    ] {
        let path = file(&format!("bad-{name}.jsonl"), &content);
        let mut c = moe(&routes(&path));
        c.args(["--json", "-"]);
        let e = refused(c);
        assert_eq!(
            (&e["kind"], &e["line"], &e["field"]),
            (&"Trace".into(), &line.into(), &field.into()),
            "{name}: {e}"
        );
        assert_eq!(e["file"].as_str(), path.to_str());
        let out = run(moe(&routes(&path)));
        let place = format!("{}:{line}: {field}: ", path.display());
        assert!(text(&out.stderr).contains(&place), "{}", text(&out.stderr));
        assert_eq!((out.status.code(), text(&out.stdout)), (Some(2), String::new()));
    }
    let e = refused(moe(&["--routes", "/nowhere/at-all", "--json", "-"]));
    assert_eq!((e["kind"].as_str(), e["file"].as_str()), (Some("File"), Some("/nowhere/at-all")));
}

#[test]
fn several_layers_need_a_choice() {
    let trace = made_up(30, 12, 2, |_, _| ());
    let second = made_up(20, 40, 3, |_, _| ()).replace("\"layer\":1", "\"layer\":5");
    let path = file("layers.jsonl", &(trace + &second));
    let e = refused(moe(&[&routes(&path)[..], &["--json", "-"]].concat()));
    let message = e["message"].as_str().unwrap_or_default();
    assert!(message.contains("1, 5"), "{message}");
    assert_eq!(e["field"], "layer");
    let e = refused(moe(&[&routes(&path)[..], &["--layer", "2", "--json", "-"]].concat()));
    assert!(e["message"].as_str().is_some_and(|m| m.contains("1, 5")), "{e}");
    // E is that of the chosen layer.
    let mut c = moe(&routes(&path));
    c.args(["--layer", "1"]);
    let r = verified(c);
    assert!(n(&r["experts"]) <= 12 && n(&r["tokens"]) == 30 && n(&r["top_k"]) == 2);
    let mut c = moe(&routes(&path));
    c.args(["--layer", "5"]);
    assert_eq!((n(&verified(c)["tokens"])), 20);
}

#[test]
fn bad_arguments_and_settings_are_refused() {
    for (args, field) in [
        (&["--pes", "0"][..], "pes"),
        (&["--hidden", "-1"], "hidden"),
        (&["--dtype", "i32"], "dtype"),
        (&["--align", "0"], "align"),
        (&["--steps", "many"], "steps"),
        (&["--seed", "-1"], "seed"),
        (&["--backend", "tpu"], "SYMM_BACKEND"),
    ] {
        assert_eq!(refused(moe(&[args, &["--json", "-"]].concat()))["field"], field);
    }
    let e = refused({
        let mut c = moe(&["--json", "-"]);
        c.env("SYMM_HOST_NODES", "0");
        c
    });
    assert_eq!(e["field"], "SYMM_HOST_NODES");
}

#[test]
fn sizes_that_do_not_fit_are_refused_with_the_bytes_needed() {
    let e = refused(moe(&["--pes", "100000", "--json", "-"]));
    let message = e["message"].as_str().unwrap_or_default();
    assert!(e["field"] == "pes" && message.contains("at most"), "{e}");
    for args in [&["--hidden", "1000000000"][..], &["--hidden", "281474976710656"]] {
        let began = Instant::now();
        let e = refused(moe(&[args, &["--json", "-"]].concat()));
        assert_eq!(e["kind"], "Memory");
        let message = e["message"].as_str().unwrap_or_default();
        let bytes = message.split_once(" need ").and_then(|(_, m)| m.split_once(" bytes"));
        assert!(bytes.is_some_and(|(b, _)| b.parse::<u64>().is_ok_and(|b| b > 1 << 36)), "{message}");
        assert!(began.elapsed() < Duration::from_secs(20), "nothing is allocated first");
    }
}

#[test]
fn json_goes_to_a_file_and_the_table_to_standard_output() {
    let path = file("result.json", "what was there before");
    let json = path.to_str().expect("a name in UTF-8");
    let out = run(moe(&["--hidden", "16", "--steps", "2", "--pes", "2", "--json", json]));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let table = text(&out.stdout);
    for word in ["every value verified", "2 PEs", "dispatch", "p99", "ceiling", "top-8"] {
        assert!(table.contains(word), "{word} is missing in\n{table}");
    }
    let r: Value = serde_json::from_slice(&std::fs::read(&path).expect("written")).expect("JSON");
    assert_eq!((&r["verified"], n(&r["steps"])), (&true.into(), 2));

    let out = run(moe(&["--dtype", "f7", "--json", json]));
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(2), String::new()));
    let e: Value = serde_json::from_slice(&std::fs::read(&path).expect("written")).expect("JSON");
    assert_eq!(e["error"]["field"], "dtype");

    let out = run(moe(&["--json", "/nowhere/at/all"]));
    assert_eq!(out.status.code(), Some(2));
    assert_eq!(text(&out.stderr).lines().count(), 1);
}

#[test]
fn a_value_that_differs_is_found_and_exits_with_three() {
    for (launcher, place) in [(false, "1,2"), (true, "0,0"), (true, "2,1")] {
        let args = ["--hidden", "16", "--steps", "4", "--json", "-"];
        let mut c = if launcher { launched("3", &args) } else { moe(&args) };
        c.env("SYMM_MOE_CORRUPT", place);
        let out = run(c);
        assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
        let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
        assert_eq!((&r["verified"], n(&r["steps"])), (&false.into(), 4));
        let (pe, step) = place.split_once(',').expect("two numbers");
        let expected = format!("1 values differ on PE {pe}, first in step {step}: token ");
        assert!(text(&out.stderr).contains(&expected), "{}", text(&out.stderr));
    }
}

#[test]
fn under_a_launcher_each_process_is_one_pe_and_pe_0_alone_prints() {
    assert_eq!(n(&verified(launched("3", &[]))["pes"]), 3);
    assert_eq!(n(&verified(launched("2", &["--pes", "2"]))["pes"]), 2);
    for (args, field) in
        [(["--pes", "4"], "pes"), (["--align", "x"], "align"), (["--backend", "tpu"], "SYMM_BACKEND")]
    {
        let out = run(launched("3", &[&args[..], &["--json", "-"]].concat()));
        assert_eq!(out.status.code(), Some(2));
        let e: Value = serde_json::from_slice(&out.stdout).expect("JSON of one PE");
        assert_eq!(e["error"]["field"], field);
        // One line of PE 0, one of the launcher.
        let stderr = text(&out.stderr);
        assert_eq!(stderr.lines().filter(|l| l.starts_with("symm moe: ")).count(), 1, "{stderr}");
    }
}

/// A job that would run for long, with its PEs; killed if the test fails.
struct Running {
    child: Option<Child>,
    pes: Vec<Pid>,
}

fn alive(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid()));
    // Whoever inherits an orphan may take its time to reap it.
    status.is_ok_and(|s| !s.contains("State:\tZ"))
}

impl Running {
    fn start(nodes: &str) -> Self {
        let mut c = moe(&["--hidden", "16", "--steps", "1000000000", "--pes", "3", "--json", "-"]);
        c.env("SYMM_HOST_NODES", nodes).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A shell starts what it puts into the background with interrupts ignored, and children inherit that.
        // SAFETY: `signal` may be called between fork and exec, and the handler is the default one.
        unsafe {
            c.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut job = Running { child: Some(c.spawn().expect("symm starts")), pes: Vec::new() };
        let id = job.child.as_ref().expect("just started").id();
        let began = Instant::now();
        while job.pes.len() < 3 {
            assert!(began.elapsed() < Duration::from_secs(30), "the PEs start");
            std::thread::sleep(Duration::from_millis(5));
            let pes = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
            job.pes = pes.split_whitespace().filter_map(|p| Pid::from_raw(p.parse().ok()?)).collect();
        }
        // Long enough for them to be at work, whatever they are doing then.
        std::thread::sleep(Duration::from_millis(700));
        job
    }

    fn parent(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it runs"))
    }

    /// What it said; no PE may be left by then.
    fn output(mut self) -> Output {
        let out = self.child.take().expect("it runs").wait_with_output().expect("it ends");
        let began = Instant::now();
        while self.pes.iter().any(|pe| alive(*pe)) {
            assert!(began.elapsed() < Duration::from_secs(2), "a PE is left");
            std::thread::sleep(Duration::from_millis(5));
        }
        out
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_dead_pe_ends_the_job_within_two_seconds() {
    for (victim, nodes) in [(0, "1"), (2, "1"), (1, "2")] {
        let job = Running::start(nodes);
        let pe = job.pes[victim];
        let began = Instant::now();
        kill_process(pe, Signal::KILL).expect("it lives");
        let out = job.output();
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(out.status.code(), Some(4), "{}", text(&out.stderr));
        let e: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
        assert_eq!((&e["error"]["kind"], &e["error"]["pe"]), (&"PeerFailed".into(), &victim.into()), "{e}");
        assert_eq!(text(&out.stderr).lines().count(), 1, "{}", text(&out.stderr));
    }
}

#[test]
fn an_interrupt_leaves_nothing() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let job = Running::start("1");
        kill_process(job.parent(), signal).expect("it lives");
        assert!(!job.output().status.success());
    }
}

#[test]
fn unasked_it_chooses_the_steps() {
    let out = run(moe(&["--pes", "2", "--hidden", "8", "--json", "-"]));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    // How many depends on the machine, so no time is asserted.
    assert!(n(&r["steps"]) >= 3, "{}", r["steps"]);
    assert_eq!(r["verified"], Value::Bool(true));
}

#[test]
fn arguments_that_do_not_parse_are_one_line_and_an_error_object() {
    let out = run(moe(&["--nope", "--json", "-"]));
    assert_eq!(out.status.code(), Some(2));
    assert_eq!(text(&out.stderr).lines().count(), 1, "{}", text(&out.stderr));
    let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    assert_eq!(r["error"]["kind"], "Usage");
}
