//! What two PEs get where the backend cannot start: an error on both, soon, that says what to change. Needs no GPU and no
//! NVSHMEM. The process runs itself again for each case, since the settings are of the process.

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use symm_core::bootstrap::{Bootstrap, Local};
use symm_core::{Backend, Config, Error};
use symm_nvshmem::Nvshmem;

/// Set in the processes that are a case's two PEs; its value is text that both errors have.
const EXPECTED: &str = "SYMM_TEST_EXPECTED";

struct Case {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    expected: &'static str,
}

const CASES: [Case; 3] = [
    Case {
        name: "the library is missing",
        settings: &[("SYMM_NVSHMEM_LIB", "/no/such/libnvshmem_host.so.3")],
        expected: "SYMM_NVSHMEM_LIB",
    },
    Case {
        name: "what it names is no NVSHMEM",
        settings: &[("SYMM_NVSHMEM_LIB", "libc.so.6")],
        expected: "libc.so.6",
    },
    Case {
        name: "the first PE with a fault is named on both",
        settings: &[("SYMM_NVSHMEM_LIB", "/")],
        expected: "PE 0: ",
    },
];

fn two_pes(expected: &str) -> Result<(), String> {
    let pe = |boot: Arc<Local>| -> Result<(), String> {
        let boot: Arc<dyn Bootstrap> = boot;
        match Nvshmem::init(&boot, &Config::default()) {
            Err(e @ Error::Unavailable { .. }) if e.to_string().contains(expected) => Ok(()),
            Err(e) => Err(format!("PE {}: got {}: {e}", boot.pe(), e.kind())),
            Ok(_) => Err(format!("PE {}: it started", boot.pe())),
        }
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = Local::world(2).into_iter().map(|boot| scope.spawn(move || pe(boot))).collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a PE panicked".to_owned())?)
    })?;
    // Far below the deadline: nobody waits for a PE that has given up.
    if began.elapsed() > Duration::from_secs(10) {
        return Err(format!("it took {:?}", began.elapsed()));
    }
    Ok(())
}

fn main() -> ExitCode {
    if let Ok(expected) = std::env::var(EXPECTED) {
        return match two_pes(&expected) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                println!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    let program = std::env::current_exe().expect("a running program should have a path");
    let mut failed = 0;
    for Case { name, settings, expected } in CASES {
        let done = Command::new(&program)
            .envs(settings.iter().copied())
            .env(EXPECTED, expected)
            .output()
            .expect("the program should run");
        let said = String::from_utf8_lossy(&done.stdout);
        println!("test {name} ... {}", if done.status.success() { "ok" } else { "FAILED" });
        if !done.status.success() {
            failed += 1;
            println!("  {} {said}", done.status);
        }
    }
    println!("{} passed, {failed} failed", CASES.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
