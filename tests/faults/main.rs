//! Faults in whole jobs of real processes, each at several moments: what every survivor is told, and how soon; and that
//! nothing is left behind. `docs/FAILURES.md` shows what they say.
//!
//! | file | faults |
//! |---|---|
//! | `deaths` | kill -9, exit, panic, an early return; of the launcher |
//! | `silence` | SIGSTOP, shorter and longer than the deadline; a PE that never comes |
//! | `reuse` | a PE stopped in a put: the memory under it |
//! | `limits` | no memory left, too few descriptors |
//! | `start` | settings, secrets, addresses and users that do not fit; a second job; strangers |
//!
//! `pe` is the program that all of them run; `job` starts it and listens.

mod deaths;
mod job;
mod limits;
mod pe;
mod reuse;
mod silence;
mod start;

/// The PEs' side: this binary runs itself once for each of them.
#[test]
fn pe() {
    if std::env::var_os(job::ROLE).is_some() {
        pe::main();
    }
}
