//! PEs that are stopped, or never come: silence is no proof of death, and nobody waits beyond a deadline.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::job::{Job, Process, Running};

pub(crate) fn await_stop(pe: &Process) {
    pe.await_word("acts");
    let began = Instant::now();
    while !pe.is_stopped() {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stop_shorter_than_the_deadline_changes_nothing() {
    for (i, moment) in ["init", "rendezvous", "operation", "between", "finalize"].iter().enumerate() {
        let mut job = Job::new(3);
        job.set("SYMM_HOST_NODES", 1 + i % 2);
        job.fault(1, "stop", moment);
        let running = job.start();
        await_stop(&running.pes[1]);
        std::thread::sleep(Duration::from_millis(200));
        running.pes[1].signal(Signal::CONT);
        running.end().all_well(&format!("stopped for a moment at {moment}"));
    }
}

/// Until both others have said so.
fn await_errors(running: &Running) {
    for pe in [0, 2] {
        running.pes[pe].await_word("error");
    }
}

#[test]
fn a_stop_longer_than_the_deadline_is_a_timeout_that_names_the_pe() {
    for (moment, op) in [
        ("init", "init: timeout"),
        ("rendezvous", "rendezvous: timeout"),
        ("operation", "all_to_all: timeout in arrival"),
        ("finalize", "finalize: timeout"),
    ] {
        let mut job = Job::new(3);
        job.set("SYMM_INIT_TIMEOUT_MS", 1500);
        job.set("SYMM_TIMEOUT_MS", 600);
        job.fault(1, "stop", moment);
        let running = job.start();
        await_stop(&running.pes[1]);
        await_errors(&running);
        running.pes[1].signal(Signal::KILL);
        let ended = running.end();
        let what = format!("stopped at {moment}");
        match moment {
            "init" => ended.missed(&what, 1),
            _ => ended.told(&what, 1, "Timeout", &[op, "late: PE 1"], Duration::from_secs(5)),
        }
        for pe in [0, 2] {
            // A wait sleeps: it computes for a small part of its time.
            let waited = ended.pes[pe].word("waited").expect("an error comes with it").text.clone();
            let (wall, cpu) = waited.split_once(' ').expect("two numbers");
            let (wall, cpu): (u64, u64) = (wall.parse().expect("µs"), cpu.parse().expect("µs"));
            assert!(4 * cpu < wall, "{moment}: PE {pe} computed {cpu} µs of {wall} µs");
        }
    }
}

/// What the late one still does for the epoch that was given up counts for nothing: it is told, all recover, and three
/// more exchanges have the right data. Over both reaches; over the network messages come late, too.
#[test]
fn who_comes_after_the_deadline_is_told_and_all_recover() {
    for (nodes, moment) in [(1, "operation"), (2, "operation"), (3, "operation"), (1, "rendezvous")] {
        let mut job = Job::new(3);
        job.set("SYMM_HOST_NODES", nodes);
        job.set("SYMM_HOST_DELAY_US", 3000);
        if moment == "rendezvous" {
            job.set("SYMM_INIT_TIMEOUT_MS", 2500);
        }
        job.set("SYMM_TIMEOUT_MS", 500);
        job.set("RECOVER", 1);
        job.fault(1, "stop", moment);
        let running = job.start();
        await_stop(&running.pes[1]);
        await_errors(&running);
        running.pes[1].signal(Signal::CONT);
        let ended = running.end();
        ended.all_well(&format!("late at {moment}, {nodes} nodes"));
        for (pe, end) in ended.pes.iter().enumerate().filter(|(pe, _)| moment == "operation" || *pe != 1) {
            let (kind, text) = end.error();
            println!("late at {moment}, {nodes} nodes: PE {pe}: {kind}: {text}");
            assert!(kind == "Timeout" && text.contains("late: PE 1"), "PE {pe}: {kind}: {text}");
        }
    }
}
