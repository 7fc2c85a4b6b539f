//! PEs, and the launcher, that end without a word at every moment.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::job::{self, Job, Process};

/// How soon survivors are told: a second, and what a busy machine adds to their own start.
const SOON: Duration = Duration::from_secs(2);

/// Moments at which the others are connected with the one that dies.
const MOMENTS: [&str; 5] = ["init", "rendezvous", "operation", "between", "finalize"];

/// PE `pe` of 3 does `fault` at each moment; the others are told of the death of that PE.
fn dies(fault: &str, pe: usize) {
    for (i, moment) in MOMENTS.iter().enumerate() {
        let mut job = Job::new(3);
        job.set("SYMM_HOST_NODES", 1 + i % 2);
        job.fault(pe, fault, moment);
        let what = format!("{fault} of PE {pe} at {moment}");
        let names = format!("PE {pe} failed");
        job.run().told(&what, pe, "PeerFailed", &[&names], SOON);
    }
}

#[test]
fn kill_9_of_the_last_pe() {
    dies("kill", 2);
}

#[test]
fn kill_9_of_pe_0() {
    dies("kill", 0);
}

#[test]
fn exit_without_finalize() {
    dies("exit", 1);
    dies("exit", 0);
}

#[test]
fn a_panic() {
    dies("panic", 1);
}

/// PE 0, which would decide who is left, dies; so does PE 1, which decides after it, at some moment of that. Those who are
/// left agree on themselves, work, and end well.
#[test]
fn deaths_while_the_rest_agree_who_is_left() {
    for (i, after) in [0, 100, 300, 600, 1000, 2000, 4000, 8000].into_iter().enumerate() {
        let mut job = Job::new(4);
        job.set("SYMM_HOST_NODES", 1 + i % 2);
        job.set("SURVIVORS", 2);
        job.set("SECOND_PE", 1);
        job.set("SECOND_AFTER_US", after);
        job.fault(0, "kill", "operation");
        let ended = job.run();
        for pe in [2, 3] {
            let end = &ended.pes[pe];
            let members = end.word("members").map(|s| s.text.as_str());
            assert_eq!(members, Some("[PE 2, PE 3]"), "second after {after} µs: {:?}\n{}", end.said, end.log);
            assert!(end.status.success(), "PE {pe} ended with {}", end.status);
        }
    }
}

/// Nobody was connected with it, so nothing says that it is dead: it is missed, by name.
#[test]
fn a_death_before_the_start_is_missed_by_name() {
    let mut job = Job::new(3);
    job.set("SYMM_INIT_TIMEOUT_MS", 1500);
    job.fault(1, "kill", "before");
    job.run().missed("kill before the start", 1);
}

fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ended = stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']));
    !ended && Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok())
}

#[test]
fn kill_9_of_the_launcher_ends_everybody() {
    for moment in ["before", "init", "rendezvous", "operation", "between", "finalize"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_symm"));
        command
            .args(["run", "-n", "3", "--"])
            .arg(std::env::current_exe().expect("own path"))
            .args(Job::args());
        command.env(job::ROLE, "launched").env("FAULT", "sleep").env("FAULT_AT", moment).env("FAULT_PE", "1");
        let launcher = Process::start(command);
        launcher.await_word("acts");
        let began = Instant::now();
        let pids = loop {
            let said = launcher.said().into_iter().filter(|s| s.word == "pid");
            let pids: Vec<i32> = said.filter_map(|s| s.text.parse().ok()).collect();
            if pids.len() == 3 {
                break pids;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{pids:?}");
            std::thread::sleep(Duration::from_millis(1));
        };
        // Into the wait.
        std::thread::sleep(Duration::from_millis(30));
        kill_process(launcher.pid(), Signal::KILL).expect("it runs");
        let began = Instant::now();
        while pids.iter().any(|pid| lives(*pid)) {
            assert!(began.elapsed() < SOON, "{moment}: still there: {pids:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
