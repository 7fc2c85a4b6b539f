//! `symm run` and the launcher under it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use symm::launch::{self, Launcher, Status};

fn symm(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_symm"));
    c.args(args).stdin(Stdio::null());
    c
}

/// `symm run -n N [OPTIONS] -- sh -c SCRIPT`.
fn run(n: &str, options: &[&str], script: &str) -> Command {
    let mut args = vec!["run", "-n", n];
    args.extend(options);
    args.extend(["--", "sh", "-c", script]);
    symm(&args)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(bytes: &[u8]) -> BTreeSet<String> {
    text(bytes).lines().map(str::to_owned).collect()
}

fn set(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|l| (*l).to_owned()).collect()
}

fn output(mut c: Command) -> Output {
    c.output().expect("symm starts")
}

/// A launcher that is running, killed if the test fails.
struct Running(Child);

impl Running {
    fn start(mut c: Command) -> Self {
        Running(c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("symm starts"))
    }

    /// The pids that `n` PEs print as `pid NUMBER`.
    fn pids(&mut self, n: usize) -> Vec<i32> {
        let out = BufReader::new(self.0.stdout.as_mut().expect("piped"));
        let number = |l: String| l.split_once("pid ").and_then(|(_, p)| p.parse().ok());
        let pids: Vec<i32> = out.lines().map_while(Result::ok).filter_map(number).take(n).collect();
        assert_eq!(pids.len(), n);
        assert!(pids.iter().all(|pid| alive(*pid)));
        pids
    }

    /// The exit code of the launcher, which must come within that time.
    fn code(&mut self, within: Duration) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("a child") {
                return status.code();
            }
            assert!(began.elapsed() < within, "the launcher still runs");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().cast_signed()).expect("a pid");
        kill_process(pid, signal).expect("the launcher runs");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process runs; one that only waits to be reaped does not.
fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn all_end(pids: &[i32], within: Duration) {
    let began = Instant::now();
    while pids.iter().any(|pid| alive(*pid)) {
        assert!(began.elapsed() < within, "still there: {pids:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn pes_get_their_settings_and_lines_their_prefix() {
    let script = r#"echo "pe $SYMM_PE of $SYMM_N_PES"; echo "job $SYMM_JOB" >&2; printf 'no end'"#;
    let out = output(run("3", &[], script));
    assert!(out.status.success());
    let expected: Vec<String> =
        (0..3).flat_map(|k| [format!("[PE {k}] pe {k} of 3"), format!("[PE {k}] no end")]).collect();
    assert_eq!(lines(&out.stdout), expected.into_iter().collect());
    let err = text(&out.stderr);
    let jobs: BTreeSet<_> = err.lines().filter_map(|l| l.split_once("] job ")).map(|(_, job)| job).collect();
    assert_eq!((err.lines().count(), jobs.len()), (3, 1), "{err}");
    assert!(jobs.iter().all(|j| j.len() == 32 && j.chars().all(|c| c.is_ascii_hexdigit())));
    // Another run, another job.
    assert!(
        jobs.is_disjoint(&text(&output(run("1", &[], script)).stderr).lines().map(|l| &l[11..]).collect())
    );
}

#[test]
fn bytes_that_are_no_text_pass_and_lines_never_mix() {
    let out = output(run("1", &[], r"printf '\377\000\376\n\n'"));
    assert_eq!(out.stdout, b"[PE 0] \xff\x00\xfe\n[PE 0] \n");
    let script = "i=0; while [ $i -lt 500 ]; do echo $SYMM_PE-$i-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; i=$((i+1)); done";
    let out = text(&output(run("4", &[], script)).stdout);
    for k in 0..4 {
        let mine = out.lines().filter_map(|l| l.strip_prefix(&format!("[PE {k}] {k}-")));
        assert!(mine.enumerate().all(|(i, l)| l == format!("{i}-{}", "x".repeat(37))));
    }
    assert_eq!(out.lines().count(), 2000);
    let out = output(run("1", &[], "head -c 150000 /dev/zero | tr '\\0' y; echo; echo z")).stdout;
    assert_eq!(out.iter().filter(|b| **b == b'y').count(), 150_000);
    assert!(text(&out).lines().all(|l| l.starts_with("[PE 0] ") && l.len() <= (128 << 10)));
    assert!(out.ends_with(b"\n[PE 0] z\n"));
}

#[test]
fn pe_0_has_the_standard_input() {
    let mut c = run("2", &[], "cat");
    let mut child = c.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("symm starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), b"hello\n").expect("read");
    assert_eq!(child.wait_with_output().expect("ended").stdout, b"[PE 0] hello\n");
}

#[test]
fn without_prefix_output_is_as_it_comes() {
    let out = output(run("2", &["--no-prefix"], "echo plain"));
    assert_eq!(out.stdout, b"plain\nplain\n");
}

#[test]
fn the_first_failure_gives_the_status_and_ends_the_others() {
    for (fail, code, says) in [
        ("exit 3", 3, "symm run: PE 1 exited with 3; the others were ended"),
        ("kill -9 $$", 137, "symm run: PE 1 was ended by signal 9 (SIGKILL); the others were ended"),
        ("kill -SEGV $$", 139, "symm run: PE 1 was ended by signal 11 (SIGSEGV); the others were ended"),
    ] {
        // PE 2 does not listen to SIGTERM.
        let script = format!(
            "[ $SYMM_PE = 2 ] && trap '' TERM; echo pid $$; [ $SYMM_PE = 1 ] && {{ sleep 0.2; {fail}; }}; \
             while :; do sleep 0.05; done"
        );
        let mut job = Running::start(run("3", &[], &script));
        let pids = job.pids(3);
        while alive(pids[0]) && alive(pids[1]) && alive(pids[2]) {
            std::thread::sleep(Duration::from_millis(2));
        }
        all_end(&pids, Duration::from_secs(1));
        assert_eq!(job.code(Duration::from_secs(1)), Some(code));
        let mut err = String::new();
        job.0.stderr.take().expect("piped").read_to_string(&mut err).expect("readable");
        assert!(err.lines().any(|l| l == says), "{err}");
    }
}

#[test]
fn keep_going_lets_the_others_finish() {
    let script = "[ $SYMM_PE = 1 ] && exit 3; sleep 0.3; [ $SYMM_PE = 2 ] && exit 4; echo done";
    let out = output(run("4", &["--keep-going"], script));
    assert_eq!(out.status.code(), Some(3));
    assert_eq!(lines(&out.stdout), set(&["[PE 0] done", "[PE 3] done"]));
    assert_eq!(lines(&out.stderr), set(&["symm run: PE 1 exited with 3", "symm run: PE 2 exited with 4"]));
}

#[test]
fn killing_the_launcher_leaves_no_pe() {
    let mut job =
        Running::start(run("3", &[], "trap '' TERM INT HUP; echo pid $$; while :; do sleep 0.05; done"));
    let pids = job.pids(3);
    job.signal(Signal::KILL);
    all_end(&pids, Duration::from_secs(1));
}

#[test]
fn a_signal_to_the_launcher_ends_the_job() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let script = "[ $SYMM_PE = 1 ] && trap '' TERM; echo pid $$; while :; do sleep 0.05; done";
        let mut job = Running::start(run("3", &[], script));
        let pids = job.pids(3);
        job.signal(signal);
        assert_eq!(job.code(Duration::from_secs(1)), Some(code));
        assert!(pids.iter().all(|pid| !alive(*pid)));
    }
}

#[test]
fn pes_start_with_no_signal_blocked_and_sigpipe_not_ignored() {
    let out = text(&output(run("1", &[], "grep -E '^Sig(Blk|Ign)' /proc/self/status")).stdout);
    let mask = |name: &str| {
        let hex = out.lines().find_map(|l| l.split_once(name)).map(|(_, hex)| hex.trim());
        u64::from_str_radix(hex.expect("a line"), 16).expect("a mask")
    };
    assert_eq!(mask("SigBlk:"), 0);
    // The launcher itself ignores it, as every Rust program does.
    assert_eq!(mask("SigIgn:") & (1 << (libc::SIGPIPE - 1)), 0);
}

#[test]
fn what_a_pe_leaves_behind_is_not_waited_for() {
    let began = Instant::now();
    let out = output(run("2", &[], "(sleep 3; echo late) & echo now; printf part"));
    assert!(began.elapsed() < Duration::from_secs(2));
    let expected = ["[PE 0] now", "[PE 0] part", "[PE 1] now", "[PE 1] part"];
    assert_eq!(lines(&out.stdout), set(&expected));
}

#[test]
fn a_reader_that_left_ends_the_writers() {
    let mut job = Running::start(run("2", &[], "while :; do echo pid $$ || exit 5; done"));
    drop(job.0.stdout.take());
    let code = job.code(Duration::from_secs(5));
    assert!(code.is_some_and(|c| c != 0), "{code:?}");
}

#[test]
fn a_program_that_cannot_be_started_is_one_line() {
    let out = output(symm(&["run", "-n", "2", "no-such-program-here"]));
    assert_eq!(out.status.code(), Some(127));
    assert_eq!(text(&out.stderr).lines().count(), 1, "{}", text(&out.stderr));
    assert!(text(&out.stderr).starts_with("symm run: no-such-program-here: "));
    assert_eq!(output(symm(&["run", "-n", "1", "/"])).status.code(), Some(126));
}

#[test]
fn usage_errors_and_help() {
    for args in [&["run"][..], &["run", "-n", "0", "true"], &["run", "-n", "2"], &["walk"], &[]] {
        assert_eq!(output(symm(args)).status.code(), Some(2), "{args:?}");
    }
    let misspelt = output(symm(&["run", "-n", "2", "--keep", "--", "true"]));
    assert_eq!(misspelt.status.code(), Some(2));
    assert!(text(&misspelt.stderr).starts_with("symm run: --keep: no option"), "{}", text(&misspelt.stderr));
    for (args, words) in [
        (&["--help"][..], &["Symmetric memory for GPUs and hosts", "run "][..]),
        (&["run", "--help"], &["--keep-going", "SYMM_JOB", "127"]),
    ] {
        let help = text(&output(symm(args)).stdout);
        assert!(words.iter().all(|w| help.contains(w)), "{help}");
        assert!(help.lines().all(|l| l.len() <= 100), "{help}");
    }
    // Options of the program are its own, with or without `--`.
    let out = output(symm(&["run", "-n", "1", "echo", "-n", "--keep-going"]));
    assert_eq!(out.stdout, b"[PE 0] --keep-going\n");
}

#[test]
fn the_library_captures_each_pe() {
    let mut launcher = Launcher::new(3, "sh");
    launcher.args = ["-c", "echo $WORD $SYMM_PE; echo error $SYMM_PE >&2"].map(Into::into).to_vec();
    launcher.env = vec![("WORD".into(), "out".into())];
    launcher.output = launch::Output::Captured;
    let outcome = launcher.run().expect("starts");
    assert_eq!((outcome.code(), outcome.statuses), (0, vec![Status::Exited(0); 3]));
    for (k, c) in outcome.captured.iter().enumerate() {
        assert_eq!((text(&c.stdout), text(&c.stderr)), (format!("out {k}\n"), format!("error {k}\n")));
    }
    assert_eq!(outcome.captured.len(), 3);
}

#[test]
fn the_deadline_kills_everybody_and_keeps_the_output() {
    let mut launcher = Launcher::new(2, "sh");
    launcher.args =
        ["-c", "trap '' TERM; echo before; while :; do sleep 0.05; done"].map(Into::into).to_vec();
    launcher.output = launch::Output::Captured;
    launcher.deadline = Some(Duration::from_millis(400));
    let began = Instant::now();
    let outcome = launcher.run().expect("starts");
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(outcome.timed_out && outcome.first_failed.is_none());
    assert_eq!((outcome.code(), outcome.statuses), (124, vec![Status::Signaled(9); 2]));
    assert!(outcome.captured.iter().all(|c| c.stdout == b"before\n"));
}

#[test]
fn no_pes_is_an_error() {
    let e = Launcher::new(0, "true").run().expect_err("nothing to start");
    assert!(matches!(e, symm::Error::InvalidArgument { argument: "n", .. }), "{e}");
}

/// Whoever starts the PEs tells of a variable that nothing reads: once for the job, and without being asked for log lines.
#[test]
fn a_misspelt_setting_is_told_of_once() {
    let bench = ["bench", "barrier", "--pes", "2", "--backend", "host", "-n", "1"];
    for mut c in [run("2", &[], "true"), symm(&bench)] {
        for name in ["SYMM_PE", "SYMM_N_PES", "SYMM_JOB", "RUST_LOG"] {
            c.env_remove(name);
        }
        c.env("SYMM_TIMEOUT", "3");
        let out = output(c);
        let said = text(&out.stderr);
        assert_eq!((out.status.code(), said.lines().count()), (Some(0), 1), "{said}");
        assert!(
            said.contains("SYMM_TIMEOUT is set, and nothing reads it: is SYMM_TIMEOUT_MS meant?"),
            "{said}"
        );
    }
}
