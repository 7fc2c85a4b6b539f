//! PEs, and the launcher, that end at every moment, without a word or with an error.

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

/// A `main` that returns an error drops its world: the others are told that, not left to their deadlines.
#[test]
fn a_main_that_returns_an_error() {
    for (i, moment) in MOMENTS.iter().enumerate() {
        for pe in [0, 2] {
            let mut job = Job::new(3);
            job.set("SYMM_HOST_NODES", 1 + i % 2);
            job.fault(pe, "error", moment);
            let what = format!("an error of PE {pe} at {moment}");
            // Before it is a world, only its connection closes.
            let how = if *moment == "init" {
                "its connection closed"
            } else {
                "it dropped its World without finalize; its last error: main: input is not there"
            };
            let told = format!("PE {pe} failed: {how}");
            job.run().told(&what, pe, "PeerFailed", &[&told], SOON);
        }
    }
}

/// Who gave up has failed, but its process lives, and with it whatever may still write the others' memory: nobody goes on
/// without it before that has ended.
#[test]
fn a_pe_that_gave_up_and_lives_on_is_left_out_only_when_it_ends() {
    for ends in [false, true] {
        let mut job = Job::new(3);
        job.set("SURVIVORS", 2);
        job.set("LIVES_ON", 1);
        if !ends {
            job.set("SYMM_INIT_TIMEOUT_MS", 1500);
        }
        job.fault(1, "error", "operation");
        let running = job.start();
        let first = [0, 2].map(|pe| running.pes[pe].await_word("error"));
        first
            .iter()
            .for_each(|said| assert!(said.text.starts_with("PeerFailed PE 1 failed"), "{}", said.text));
        let wait = std::time::Duration::from_millis(if ends { 500 } else { 3000 });
        std::thread::sleep(wait);
        let before = [0, 2].map(|pe| running.pes[pe].said());
        running.pes[1].signal(Signal::KILL);
        let ended = running.end();
        for (pe, before) in [0, 2].into_iter().zip(before) {
            let end = &ended.pes[pe];
            let members = |said: &[job::Said]| said.iter().any(|s| s.word == "members");
            assert!(!members(&before), "PE {pe} went on while PE 1 lived: {before:?}");
            let late = end.said.iter().any(|s| {
                s.word == "error" && s.text.contains("end of process") && s.text.contains("late: PE 1")
            });
            println!("gave up and lives on: PE {pe}: {:?}", end.said);
            assert_eq!((members(&end.said), late), (ends, !ends), "PE {pe}: {:?}\n{}", end.said, end.log);
        }
    }
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
