//! The conformance suite: one table of cases, run on every backend, at every reach and number of PEs, in real processes.
//!
//! The binary executes itself again as the PEs of a job. One group of processes runs the cases of a configuration one
//! after the other; what a case needs beside that (a setting, a world that it may end) gets a group of its own. Two of the host
//! backend's configurations run at a time. Cases of the bootstrap's exchanges run with 12 PEs there, too, which exchange along a tree.
//!
//! ```text
//! cargo test --test conformance                        everything
//! cargo test --test conformance -- vdev_2d             cases whose name (configuration/case) contains `vdev_2d`
//! cargo test --test conformance -- --pes 2,4 --nodes 2 --backend host --list
//! cargo test --test conformance -- --json FILE         every outcome and time as JSON, too
//! SYMM_REQUIRE=cuda cargo test --test conformance      a skipped case of the CUDA backend is a failure
//! ```
//!
//! The last line is `N passed, N failed, N skipped`; the exit code is 1 if anything failed, or if nothing ran though
//! no filter was given.

mod cases;
mod harness;
mod pattern;

fn main() -> std::process::ExitCode {
    harness::main(&cases::all())
}
