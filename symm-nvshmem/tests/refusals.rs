//! What two PEs get where the backend cannot start: an error on both, soon, that says what to change. Needs no GPU, and NVSHMEM for
//! one case only. The process runs itself again for each case, since the settings are of the process.

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvshmem_sys::{
    INIT_WITH_UNIQUEID, NVSHMEMX_INIT_ATTR_INITIALIZER, NVSHMEMX_UNIQUEID_INITIALIZER, Nvshmem as Library,
};
use symm_core::bootstrap::{Bootstrap, Local};
use symm_core::{Backend, Config, Error};
use symm_nvshmem::Nvshmem;

/// Set in the processes that are a case's two PEs; its value is text that both errors have.
const EXPECTED: &str = "SYMM_TEST_EXPECTED";
/// Set where the process starts NVSHMEM by itself before.
const STARTED: &str = "SYMM_TEST_STARTED";
/// Exit status of a process that found no NVSHMEM to start.
const NOT_FOUND: i32 = 77;

struct Case {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    expected: &'static str,
}

const CASES: [Case; 4] = [
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
    Case {
        name: "somebody else in the process has started NVSHMEM",
        settings: &[(STARTED, "1")],
        expected: "somebody else in this process has started NVSHMEM",
    },
];

/// Starts NVSHMEM as a program of one PE would, without this library. How far that comes depends on the GPU; that it has begun is
/// enough.
fn start_nvshmem() -> Result<(), String> {
    let Ok(library) = Library::load() else { std::process::exit(NOT_FOUND) };
    let mut id = NVSHMEMX_UNIQUEID_INITIALIZER;
    let mut attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    // SAFETY: initialised places that outlive the calls; this is the only PE of its job, so nobody is waited for.
    let status = unsafe {
        library
            .nvshmemx_get_uniqueid(&raw mut id)
            .and_then(|_| library.nvshmemx_set_attr_uniqueid_args(0, 1, &raw const id, &raw mut attr))
            .and_then(|_| library.nvshmemx_hostlib_init_attr(INIT_WITH_UNIQUEID, &raw mut attr))
            .and_then(|_| library.nvshmemx_init_status())
    };
    match status.map_err(|e| e.to_string())? {
        0 => Err("NVSHMEM did not even begin to start".to_owned()),
        _ => Ok(()),
    }
}

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
        let started = if std::env::var_os(STARTED).is_some() { start_nvshmem() } else { Ok(()) };
        return match started.and_then(|()| two_pes(&expected)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                println!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    let program = std::env::current_exe().expect("a running program should have a path");
    let required = std::env::var("SYMM_REQUIRE")
        .is_ok_and(|r| r.split(',').any(|name| matches!(name, "nvshmem" | "nvshmem-link")));
    let (mut passed, mut failed) = (0, 0);
    for Case { name, settings, expected } in CASES {
        let done = Command::new(&program)
            .envs(settings.iter().copied())
            .env(EXPECTED, expected)
            .output()
            .expect("the program should run");
        let said = String::from_utf8_lossy(&done.stdout);
        if done.status.code() == Some(NOT_FOUND) && !required {
            println!("test {name} ... skipped: no NVSHMEM here");
            continue;
        }
        println!("test {name} ... {}", if done.status.success() { "ok" } else { "FAILED" });
        if done.status.success() {
            passed += 1;
        } else {
            failed += 1;
            println!("  {} {said}{}", done.status, String::from_utf8_lossy(&done.stderr));
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
