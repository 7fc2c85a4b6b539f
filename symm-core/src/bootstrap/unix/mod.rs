//! PEs that are processes of one host, connected by abstract Unix sockets.
//!
//! Every pair has one connection. PE p listens at `@symm-mem/UID/JOB/p`, an address that is no file, is bound to
//! the network namespace and vanishes with the process; the higher PE of a pair connects. Both ends check the other's
//! uid. One thread reads all connections; sending never waits for the receiver.

mod frame;
mod hello;
mod io;
mod join;
mod link;

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::event::epoll::{self, EventData};
use rustix::io::Errno;

use self::frame::{MAX_FDS, MAX_PAYLOAD};
use self::link::{Link, Sent};
use super::mailbox::Mailbox;
use super::{Bootstrap, Liveness, Message, Tag};
use crate::config::Config;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

/// How long [`close`](Bootstrap::close) waits for messages that are still queued; peers always read, so only one that
/// is stopped or overloaded comes near it.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// How long a failed write waits to learn from the IO thread whether the peer left or failed.
const VERDICT_LIMIT: Duration = Duration::from_secs(1);

/// A PE among the processes of one host.
///
/// Messages that a peer is slow to read wait in memory here, without a limit; one message has at most 1 GiB and 253
/// descriptors.
///
/// Dropping it without [`close`](Bootstrap::close) is a death to its peers, as is the end of the process: a PE that returns early because of
/// an error does not look as if it had finished its work.
pub struct Unix {
    shared: Arc<Shared>,
    /// Holds the address against a second PE of the same number; it accepts nobody any more.
    address: Mutex<Option<OwnedFd>>,
}

struct Shared {
    pe: Pe,
    epoll: OwnedFd,
    wake: OwnedFd,
    stop: AtomicBool,
    mailbox: Mailbox,
    /// In PE order; `None` for this PE.
    links: Vec<Option<Link>>,
}

impl fmt::Debug for Unix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.shared;
        f.debug_struct("Unix")
            .field("pe", &s.pe)
            .field("n_pes", &s.links.len())
            .field("mailbox", &s.mailbox)
            .finish()
    }
}

impl Unix {
    /// Connects this process with all PEs of the job that `config` names (`pe`, `n_pes`, `job`).
    ///
    /// # Collective
    /// Over the world. Returns once every other PE is connected; a world of one needs no socket.
    ///
    /// # Errors
    /// - [`Error::Setting`] if the settings do not fit together;
    /// - [`Error::Timeout`] naming every PE that was not connected within `config.init_timeout`;
    /// - [`Error::SettingDiffers`] if a PE has another `n_pes`;
    /// - [`Error::PeerFailed`] if a PE ended while others were still coming;
    /// - [`Error::Bootstrap`] if the address is in use (a job of the same name, or a PE number given twice), belongs
    ///   to another user, or the other end refuses;
    /// - [`Error::System`] for a failed call, such as too many open files.
    pub fn join(config: &Config) -> Result<Arc<dyn Bootstrap>> {
        config.check()?;
        let pe = Pe(config.pe.unwrap_or(0));
        let n_pes = config.n_pes.unwrap_or(1) as usize;
        let mut mesh = join::Mesh::alone(n_pes);
        if n_pes > 1 {
            let deadline = Deadline::after(config.init_timeout);
            mesh = join::connect(config.job.as_deref().unwrap_or_default(), pe, n_pes, deadline)?;
        }
        let shared = Arc::new(Shared {
            pe,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)
                .map_err(|e| Error::system("epoll_create1", e))?,
            wake: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|e| Error::system("eventfd", e))?,
            stop: AtomicBool::new(false),
            mailbox: Mailbox::new(n_pes),
            links: mesh.sockets.into_iter().map(|s| s.map(Link::new)).collect(),
        });
        if n_pes > 1 {
            let io =
                io::Io::new(Arc::clone(&shared), mesh.pidfds).map_err(|e| Error::system("epoll_ctl", e))?;
            let thread = std::thread::Builder::new().name(format!("symm-boot-{pe}"));
            thread.spawn(move || io.run()).map_err(|e| Error::System {
                call: "pthread_create",
                errno: e.raw_os_error().unwrap_or(0),
                text: e.to_string(),
            })?;
        }
        Ok(Arc::new(Unix { shared, address: Mutex::new(mesh.listener) }))
    }

    fn link(&self, pe: Pe) -> Option<&Link> {
        self.shared.links.get(pe.index()).and_then(Option::as_ref)
    }

    /// Ends the IO thread and all connections, and frees the address.
    fn end(&self) {
        self.shared.stop.store(true, Ordering::Release);
        // Cannot fail: the counter is far from its limit.
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
        self.shared.links.iter().flatten().for_each(Link::end);
        drop(self.address.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The error of a write that failed: the reader knows best how the peer went.
    fn write_failed(&self, to: Pe, error: Errno) -> Error {
        if matches!(error, Errno::PIPE | Errno::CONNRESET)
            && let Err(e) = self.shared.mailbox.wait_gone("send", to, Deadline::after(VERDICT_LIMIT))
        {
            return e;
        }
        Error::system("sendmsg", error)
    }
}

impl Bootstrap for Unix {
    fn pe(&self) -> Pe {
        self.shared.pe
    }

    fn n_pes(&self) -> usize {
        self.shared.links.len()
    }

    fn passes_fds(&self, pe: Pe) -> bool {
        pe.index() < self.n_pes()
    }

    fn send(&self, to: Pe, tag: Tag, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        let s = &self.shared;
        s.mailbox.check_send(to)?;
        if payload.len() > MAX_PAYLOAD {
            return Err(Error::argument(
                "send",
                "payload",
                format!("{} bytes", payload.len()),
                "1 GiB at most",
            ));
        }
        if fds.len() > MAX_FDS {
            return Err(Error::argument("send", "fds", fds.len(), format!("{MAX_FDS} at most")));
        }
        let Some(link) = self.link(to) else {
            let dup = |fd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
            let fds = fds.iter().map(dup).collect::<std::result::Result<_, _>>();
            let fds = fds.map_err(|e| Error::system("fcntl(F_DUPFD_CLOEXEC)", e))?;
            s.mailbox.deliver(to, tag, Message { payload: payload.to_vec(), fds });
            return Ok(());
        };
        let header = frame::message_header(tag, payload.len(), fds.len());
        match link.send(&header, payload, fds) {
            Ok(Sent::Done) => Ok(()),
            Ok(Sent::Queued) => self.arm(to, link),
            Err(e) => Err(self.write_failed(to, e)),
        }
    }

    fn recv(&self, from: Pe, tag: Tag, deadline: Deadline) -> Result<Message> {
        self.shared.mailbox.recv(from, tag, deadline)
    }

    fn watch(&self, observer: Arc<dyn Liveness>) {
        self.shared.mailbox.watch(observer);
    }

    fn failed(&self) -> Vec<Pe> {
        self.shared.mailbox.failed()
    }

    fn close(&self) {
        if !self.shared.mailbox.close("the bootstrap is closed") {
            return;
        }
        let deadline = Deadline::after(CLOSE_LIMIT);
        for (i, link) in self.shared.links.iter().enumerate() {
            // A peer that is gone needs no goodbye.
            if let Some(link) = link
                && let Ok(Sent::Queued) = link.send(&frame::goodbye(), &[], &[])
            {
                let _ = self.arm(Pe::from(i), link);
            }
        }
        self.shared.links.iter().flatten().for_each(|link| link.wait_drained(deadline));
        self.end();
    }
}

impl Unix {
    /// Asks the IO thread to flush the link.
    fn arm(&self, to: Pe, link: &Link) -> Result<()> {
        let data = EventData::new_u64(u64::from(to.0));
        match epoll::modify(&self.shared.epoll, &link.socket, data, io::READ_WRITE) {
            Ok(()) => Ok(()),
            // The IO thread took the connection out because the peer is gone.
            Err(Errno::NOENT) => Err(self.write_failed(to, Errno::PIPE)),
            Err(e) => {
                // Nobody would ever flush it.
                link.end();
                Err(Error::system("epoll_ctl", e))
            }
        }
    }
}

impl Drop for Unix {
    fn drop(&mut self) {
        if self.shared.mailbox.close("the bootstrap is dropped") {
            self.end();
        }
    }
}
