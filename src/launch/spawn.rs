//! Starting one PE.

use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use symm_core::{Error, Result};

use super::signals::last_errno;
use super::{Launcher, Output, Status};

/// A PE that was started.
pub(super) struct Process {
    child: Child,
    pub(super) pidfd: OwnedFd,
    pub(super) status: Option<Status>,
}

/// Read ends of a PE's standard output and error.
pub(super) struct Pipes {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// What names a job and what its PEs prove to know.
pub(super) struct Names {
    job: String,
    token: String,
}

impl Names {
    pub(super) fn new() -> Result<Self> {
        Ok(Names { job: random()?, token: random()? })
    }
}

/// 128 random bits as text.
fn random() -> Result<String> {
    let mut bytes = [0_u8; 16];
    // SAFETY: the buffer is live and as long as said. Up to 256 bytes come whole once the system's pool is ready.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if n != bytes.len() as isize {
        return Err(Error::system("getrandom", last_errno()));
    }
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

impl Process {
    /// Starts PE `pe`. It dies with the calling thread.
    pub(super) fn start(launcher: &Launcher, names: &Names, pe: usize) -> Result<(Self, Option<Pipes>)> {
        let mut command = Command::new(&launcher.program);
        command.args(&launcher.args).envs(launcher.env.iter().map(|(k, v)| (k, v)));
        command.env("SYMM_PE", pe.to_string()).env("SYMM_N_PES", launcher.n.to_string());
        command.env("SYMM_JOB", &names.job).env("SYMM_TOKEN", &names.token);
        // A job that itself is started by something else.
        command.env_remove("SYMM_ADDR").env_remove("SYMM_BOOTSTRAP");
        if pe > 0 {
            command.stdin(Stdio::null());
        }
        if launcher.output != Output::Inherited {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let parent = getpid().as_raw_pid();
        // SAFETY: between fork and exec the closure makes only the async-signal-safe calls `prctl`, `getppid`,
        // `sigemptyset` and `pthread_sigmask`, and allocates nothing: errors are made of plain numbers.
        unsafe {
            command.pre_exec(move || before_exec(parent));
        }
        let mut child = command.spawn().map_err(|e| Error::System {
            call: "spawn",
            errno: e.raw_os_error().unwrap_or(0),
            text: format!("{}: {e}", launcher.program.to_string_lossy()),
        })?;
        let pipes = match (child.stdout.take(), child.stderr.take()) {
            (Some(stdout), Some(stderr)) => Some(Pipes { stdout: stdout.into(), stderr: stderr.into() }),
            _ => None,
        };
        // The child is not reaped yet, so its number is its own.
        let pid = Pid::from_raw(child.id().cast_signed()).ok_or(Errno::SRCH);
        match pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Ok(pidfd) => Ok((Process { child, pidfd, status: None }, pipes)),
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(Error::system("pidfd_open", e))
            }
        }
    }

    /// Sends a signal if it still runs.
    pub(super) fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // Fails only if it has ended meanwhile.
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
    }

    /// Its status if it has ended just now or before.
    pub(super) fn poll(&mut self) -> Result<Option<Status>> {
        if self.status.is_none() {
            let ended = self.child.try_wait().map_err(|e| wait_failed(&e))?;
            self.status = ended.map(|s| match (s.code(), s.signal()) {
                (Some(code), _) => Status::Exited(code),
                (None, signal) => Status::Signaled(signal.unwrap_or(0)),
            });
        }
        Ok(self.status)
    }

    /// Kills it and waits for the end, which SIGKILL makes short.
    pub(super) fn destroy(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn wait_failed(e: &std::io::Error) -> Error {
    Error::system("waitid", Errno::from_io_error(e).unwrap_or(Errno::CHILD))
}

/// Runs in the child: ties its life to the launcher's thread, and undoes the launcher's signal mask.
fn before_exec(parent: i32) -> std::io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: no arguments. If the launcher died before the call above, no signal will come any more.
    if unsafe { libc::getppid() } != parent {
        return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
    }
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set before `pthread_sigmask` reads it.
    let rc = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
    };
    if rc == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(rc)) }
}
