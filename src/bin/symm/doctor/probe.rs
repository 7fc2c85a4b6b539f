//! Questions that are asked in a process of their own.

use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{backends, gpus, libraries};

/// Time for one probe: a GPU's first start takes seconds.
const LIMIT: Duration = Duration::from_secs(30);
/// What probes must not take from the environment: this process may be a PE of a job.
const PE: [&str; 3] = ["SYMM_PE", "SYMM_N_PES", "SYMM_JOB"];

/// Answers a probe: prints one line of JSON.
pub(super) fn answer(name: &str) -> ExitCode {
    let (kind, of) = name.split_once(':').unwrap_or((name, ""));
    let line = match kind {
        "library" => encode(&libraries::look(of)),
        "backend" => encode(&backends::try_one(of)),
        "gpus" => encode(&gpus::look()),
        "handles" => encode(&gpus::handles(of)),
        _ => return ExitCode::from(2),
    };
    println!("{line}");
    ExitCode::SUCCESS
}

fn encode(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs should encode")
}

/// Asks this program, in a process of its own.
///
/// # Errors
/// How the process ended, if it did not answer.
pub(super) fn ask<T: DeserializeOwned>(name: &str) -> Result<T, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.args(["doctor", "--probe", name]);
    let said = run(command, LIMIT)?;
    let last = said.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|e| format!("its probe said {last:?}: {e}"))
}

/// Standard output of a program that ends well within the time.
///
/// # Errors
/// How it ended otherwise.
pub(super) fn run(mut command: Command, limit: Duration) -> Result<String, String> {
    for name in PE {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let out = child.stdout.take();
    // Read beside the wait, so that a program that says much does not wait for a reader.
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut out) = out {
            // What was read until an error is what there is.
            let _ = out.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(Some(status)) => return Err(format!("ended with {status}")),
            Ok(None) if began.elapsed() < limit => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                // Killed or ended by itself meanwhile: it is reaped either way.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("gave no answer within {} s", limit.as_secs()));
            }
            Err(e) => return Err(e.to_string()),
        }
    }
    reader.join().map_err(|_| "its output could not be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut c = Command::new("sh");
        c.args(["-c", script]);
        c
    }

    #[test]
    fn a_program_that_crashes_or_hangs_is_an_answer() {
        let limit = Duration::from_millis(300);
        assert_eq!(run(sh("echo yes"), Duration::from_secs(20)), Ok("yes\n".to_owned()));
        assert!(run(sh("kill -SEGV $$"), Duration::from_secs(20)).is_err_and(|e| e.contains("signal: 11")));
        assert!(run(sh("exec sleep 60"), limit).is_err_and(|e| e.contains("no answer within")));
        assert!(run(Command::new("/nowhere/at/all"), limit).is_err());
    }
}
