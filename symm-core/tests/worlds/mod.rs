//! Worlds of one process for the tests of the bootstrap: of threads, and of sockets.
#![allow(dead_code, reason = "no test program uses all of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use symm_core::bootstrap::{Bootstrap, Group, Unix, local};
use symm_core::{Config, Deadline, Pe};

pub(crate) fn long() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Sockets of one process, as a job that no other test has.
pub(crate) fn joined(n: usize) -> Vec<Arc<dyn Bootstrap>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let job = format!("worlds-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let join = |pe: usize| {
        let mut c = Config::default();
        (c.pe, c.n_pes, c.job) = (Some(pe as u32), Some(n as u32), Some(job.clone()));
        thread::spawn(move || Unix::join(&c))
    };
    let threads: Vec<_> = (0..n).map(join).collect();
    threads.into_iter().map(|t| t.join().expect("no panic").expect("the world is complete")).collect()
}

/// Runs `test` on a world of `n` threads, then on one of `n` socket ends in this process.
pub(crate) fn both(n: usize, test: impl Fn(Vec<Arc<dyn Bootstrap>>)) {
    test(local(n));
    test(joined(n));
}

pub(crate) fn each<R: Send>(
    world: &[Arc<dyn Bootstrap>],
    f: impl Fn(&Arc<dyn Bootstrap>) -> R + Sync,
) -> Vec<R> {
    thread::scope(|s| {
        let threads: Vec<_> = world.iter().map(|b| s.spawn(|| f(b))).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

pub(crate) fn group(boot: &Arc<dyn Bootstrap>) -> Group {
    Group::new(Arc::clone(boot), 1, (0..boot.n_pes()).map(Pe::from).collect()).expect("all PEs")
}
