//! Signals to the launcher, read from a descriptor while it runs.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use symm_core::{Error, Result};

/// The signals that end a job.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Blocks [`ENDING`] for the calling thread (and threads started by it) and makes them readable; undone on drop.
pub(super) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    pub(super) fn take() -> Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the set it is given; `sigaddset` gets that set and valid numbers.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in ENDING {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            set.assume_init()
        };
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are live for the call, `set` is initialised.
        let rc = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) };
        if rc != 0 {
            return Err(Error::system("pthread_sigmask", Errno::from_raw_os_error(rc)));
        }
        // SAFETY: the call above succeeded and so initialised `before`.
        let before = unsafe { before.assume_init() };
        // SAFETY: -1 asks for a new descriptor; `set` is initialised.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            let e = Error::system("signalfd", last_errno());
            restore(&before);
            return Err(e);
        }
        // SAFETY: the descriptor is new and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Signals { fd, before })
    }

    /// The next signal that came, if one did.
    pub(super) fn next(&self) -> Option<i32> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.fd, &mut info) {
            // The number is the first field.
            Ok(n) if n == info.len() => Some(i32::from_ne_bytes([info[0], info[1], info[2], info[3]])),
            _ => None,
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        restore(&self.before);
    }
}

fn restore(before: &libc::sigset_t) {
    // SAFETY: `before` was filled by `pthread_sigmask`; no old set is asked for. Cannot fail with SIG_SETMASK.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Names of the signals that programs usually end by.
pub(super) fn name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}
