//! Building the mesh: listen, connect to lower PEs, let higher PEs in, turn strangers away.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect as dial, listen, recv, send, socket_with,
};
use rustix::process::{Pid, PidfdFlags, getpid, getuid, pidfd_open};

use super::hello::{HELLO_BYTES, Hello, REPLY_BYTES, Reply, VERSION, Verdict, size_differs, version_differs};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

/// Pause between attempts to reach a PE that is not there yet, growing from the first to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// How long somebody who connected may take for a greeting; a PE sends it at once.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// Connections without a greeting that are kept beyond one for each PE.
const STRANGERS: usize = 64;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The connections of one PE.
pub(super) struct Mesh {
    pub(super) listener: Option<OwnedFd>,
    /// In PE order; `None` for this PE.
    pub(super) sockets: Vec<Option<OwnedFd>>,
    /// In PE order; `None` where the system cannot tell or it is this process.
    pub(super) pidfds: Vec<Option<OwnedFd>>,
}

impl Mesh {
    /// No connections.
    pub(super) fn alone(n_pes: usize) -> Self {
        let none = || (0..n_pes).map(|_| None).collect();
        Mesh { listener: None, sockets: none(), pidfds: none() }
    }
}

/// Connects to every PE of the job. `n_pes` is above 1 and `pe` below it.
pub(super) fn connect(job: &str, pe: Pe, n_pes: usize, deadline: Deadline) -> Result<Mesh> {
    let name = address(job, pe);
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None);
    let listener = listener.map_err(|e| Error::system("socket", e))?;
    bind(&listener, &unix(&name)?).map_err(|e| match e {
        Errno::ADDRINUSE => Error::Bootstrap {
            call: "bind",
            why: format!("address @{name} is in use: another process is PE {pe} of a job named {job:?}"),
        },
        e => Error::system("bind", e),
    })?;
    listen(&listener, i32::from(u16::MAX)).map_err(|e| Error::system("listen", e))?;
    let hello = Hello { version: VERSION, n_pes: n_pes as u32, pe: pe.0, job: job.to_owned() };
    let mut join = Join {
        hello,
        me: pe,
        peers: (0..n_pes).map(|_| Peer::Absent { next: Instant::now(), pause: RETRY.0 }).collect(),
        waiting: Vec::new(),
        listener: &listener,
    };
    join.run(deadline)?;
    let mut mesh = Mesh::alone(n_pes);
    for (i, peer) in join.peers.into_iter().enumerate() {
        if let Peer::Here { socket, pid, .. } = peer {
            mesh.sockets[i] = Some(socket);
            mesh.pidfds[i] = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        }
    }
    // The name stays taken, but from now on the system refuses whoever connects.
    rustix::net::shutdown(&listener, rustix::net::Shutdown::Both)
        .map_err(|e| Error::system("shutdown", e))?;
    while accept_with(&listener, FLAGS).is_ok() {}
    mesh.listener = Some(listener);
    Ok(mesh)
}

fn address(job: &str, pe: Pe) -> String {
    format!("symm-mem/{}/{job}/{pe}", getuid().as_raw())
}

fn unix(name: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|e| Error::system("sockaddr_un", e))
}

enum Peer {
    /// Not connected. For a lower PE: when to try next.
    Absent { next: Instant, pause: Duration },
    /// A lower PE that this one is connected to and whose answer is awaited.
    Asked { socket: OwnedFd, pid: Option<Pid>, answer: Vec<u8> },
    /// Connected. `watched`: a hang-up is still to be looked for.
    Here { socket: OwnedFd, pid: Option<Pid>, watched: bool },
}

/// Somebody who connected and has not said yet who it is.
struct Waiting {
    socket: OwnedFd,
    pid: Option<Pid>,
    greeting: Vec<u8>,
    since: Instant,
}

struct Join<'a> {
    hello: Hello,
    me: Pe,
    peers: Vec<Peer>,
    waiting: Vec<Waiting>,
    listener: &'a OwnedFd,
}

/// Who a poll entry is about.
#[derive(Clone, Copy)]
enum Source {
    Listener,
    Waiting(usize),
    Peer(usize),
}

impl Join<'_> {
    fn run(&mut self, deadline: Deadline) -> Result<()> {
        loop {
            self.dial_lower()?;
            let late = self.late();
            if late.is_empty() {
                return Ok(());
            }
            if deadline.passed() {
                let expected = self.peers.len() as u64 - 1;
                let (got, waited) = (expected - late.len() as u64, deadline.waited());
                return Err(Error::Timeout { op: "init", phase: "connect", late, expected, got, waited });
            }
            let mut ready = self.wait(deadline.left())?;
            // Back to front, because an entry that is done with is removed.
            ready.reverse();
            for source in ready {
                match source {
                    Source::Listener => self.let_in()?,
                    Source::Waiting(i) => self.greeted(i)?,
                    Source::Peer(i) => self.peer_ready(i)?,
                }
            }
            self.waiting.retain(|w| w.since.elapsed() < GREETING_LIMIT);
        }
    }

    fn late(&self) -> Vec<Pe> {
        let all = self.peers.iter().enumerate().filter(|(i, _)| *i != self.me.index());
        all.filter(|(_, p)| !matches!(p, Peer::Here { .. })).map(|(i, _)| Pe::from(i)).collect()
    }

    /// Waits for something to happen, but not past the next attempt to connect.
    fn wait(&self, left: Duration) -> Result<Vec<Source>> {
        let mut fds = vec![PollFd::new(self.listener, PollFlags::IN)];
        let mut sources = vec![Source::Listener];
        for (i, w) in self.waiting.iter().enumerate() {
            fds.push(PollFd::new(&w.socket, PollFlags::IN));
            sources.push(Source::Waiting(i));
        }
        // Also bounds how long a silent stranger stays.
        let mut timeout = left.min(GREETING_LIMIT);
        for (i, p) in self.peers.iter().enumerate() {
            match p {
                Peer::Absent { next, .. } if i < self.me.index() => {
                    timeout = timeout.min(next.saturating_duration_since(Instant::now()));
                }
                Peer::Asked { socket, .. } => fds.push(PollFd::new(socket, PollFlags::IN)),
                Peer::Here { socket, watched: true, .. } => fds.push(PollFd::new(socket, PollFlags::RDHUP)),
                Peer::Absent { .. } | Peer::Here { .. } => {}
            }
            if fds.len() > sources.len() {
                sources.push(Source::Peer(i));
            }
        }
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::system("poll", e)),
        }
        let ready = fds.iter().zip(sources).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, source)| source).collect())
    }

    fn dial_lower(&mut self) -> Result<()> {
        let now = Instant::now();
        for i in 0..self.me.index() {
            if let Peer::Absent { next, pause } = self.peers[i]
                && next <= now
            {
                self.peers[i] = match self.dial(Pe::from(i))? {
                    Some((socket, pid)) => Peer::Asked { socket, pid, answer: Vec::new() },
                    None => Peer::Absent { next: now + pause, pause: (pause * 2).min(RETRY.1) },
                };
            }
        }
        Ok(())
    }

    /// Connects to a lower PE and greets it; `None` if it is not there.
    fn dial(&self, to: Pe) -> Result<Option<(OwnedFd, Option<Pid>)>> {
        let name = address(&self.hello.job, to);
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None);
        let socket = socket.map_err(|e| Error::system("socket", e))?;
        match dial(&socket, &unix(&name)?) {
            Ok(()) => {}
            // Nobody there yet, no longer, or its queue is full.
            Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(e) => return Err(Error::system("connect", e)),
        }
        let (pid, uid) = credentials(&socket)?;
        if uid != getuid().as_raw() {
            let why = format!("address @{name} of PE {to} belongs to user {uid}");
            return Err(Error::Bootstrap { call: "connect", why });
        }
        let greeting = self.hello.encode();
        match send(&socket, &greeting, SendFlags::NOSIGNAL) {
            // The socket is fresh, so there is room for these few bytes; whatever else happens, another try is due.
            Ok(n) if n == greeting.len() => Ok(Some((socket, pid))),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    fn let_in(&mut self) -> Result<()> {
        loop {
            let socket = match accept_with(self.listener, FLAGS) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(e) => return Err(Error::system("accept4", e)),
            };
            let (pid, uid) = credentials(&socket)?;
            if uid != getuid().as_raw() {
                log::warn!("a process of user {uid} connected to PE {} and was turned away", self.me);
                continue;
            }
            if self.waiting.len() >= self.peers.len() + STRANGERS {
                self.waiting.remove(0);
            }
            self.waiting.push(Waiting { socket, pid, greeting: Vec::new(), since: Instant::now() });
        }
    }

    /// Reads a greeting; the entry is removed once it is known what it is.
    fn greeted(&mut self, index: usize) -> Result<()> {
        let Some(w) = self.waiting.get_mut(index) else { return Ok(()) };
        let hello = match fill::<HELLO_BYTES>(&w.socket, &mut w.greeting) {
            Filled::NotYet => return Ok(()),
            Filled::Never => None,
            Filled::All(bytes) => Hello::decode(&bytes),
        };
        let w = self.waiting.remove(index);
        let Some(theirs) = hello else {
            log::warn!("a connection to PE {} that sent no greeting was dropped", self.me);
            return Ok(());
        };
        let (verdict, error) = self.judge(&theirs);
        let reply = Reply { verdict, version: VERSION, n_pes: self.hello.n_pes, pe: self.me.0 };
        let told = send(&w.socket, &reply.encode(), SendFlags::NOSIGNAL).is_ok_and(|n| n == REPLY_BYTES);
        if let Some(e) = error {
            return Err(e);
        }
        if verdict != Verdict::Welcome {
            log::warn!("PE {} turned away a process that says it is PE {}: {verdict:?}", self.me, theirs.pe);
        } else if told {
            let (socket, pid) = (w.socket, other(w.pid));
            self.peers[theirs.pe as usize] = Peer::Here { socket, pid, watched: true };
        }
        Ok(())
    }

    /// The answer to a greeting, and this PE's own error if the job cannot work.
    fn judge(&self, theirs: &Hello) -> (Verdict, Option<Error>) {
        let ours = &self.hello;
        let pe = Pe(theirs.pe);
        if theirs.version != VERSION {
            return (Verdict::Version, Some(version_differs(pe, theirs.version)));
        }
        if theirs.job != ours.job {
            return (Verdict::Misdirected, None);
        }
        if theirs.n_pes != ours.n_pes {
            return (Verdict::Size, Some(size_differs(pe, theirs.n_pes, ours.n_pes)));
        }
        match self.peers.get(pe.index()) {
            Some(Peer::Absent { .. }) if pe > self.me => (Verdict::Welcome, None),
            Some(Peer::Here { .. }) if pe > self.me => (Verdict::Duplicate, None),
            _ => (Verdict::Misdirected, None),
        }
    }

    fn peer_ready(&mut self, index: usize) -> Result<()> {
        let pe = Pe::from(index);
        match &mut self.peers[index] {
            Peer::Absent { .. } => {}
            Peer::Asked { socket, answer, .. } => {
                let reply = match fill::<REPLY_BYTES>(socket, answer) {
                    Filled::NotYet => return Ok(()),
                    // It ended before it answered: an earlier process of that number, or it comes again.
                    Filled::Never => {
                        let (next, pause) = (Instant::now() + RETRY.0, RETRY.0);
                        self.peers[index] = Peer::Absent { next, pause };
                        return Ok(());
                    }
                    Filled::All(bytes) => Reply::decode(&bytes),
                };
                let Some(reply) = reply.filter(|r| r.pe == pe.0) else {
                    let why = format!("what listens at the address of PE {pe} does not answer like one");
                    return Err(Error::Bootstrap { call: "handshake", why });
                };
                if let Some(e) = reply.refusal(&self.hello) {
                    return Err(e);
                }
                let absent = Peer::Absent { next: Instant::now(), pause: RETRY.0 };
                if let Peer::Asked { socket, pid, .. } = std::mem::replace(&mut self.peers[index], absent) {
                    self.peers[index] = Peer::Here { socket, pid: other(pid), watched: true };
                }
            }
            Peer::Here { socket, watched, .. } => {
                // With bytes before the hang-up, it may have done its part and left: the IO thread reads which.
                *watched = false;
                let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
                if !recv(&*socket, &mut [0; 1], peek).is_ok_and(|(_, n)| n > 0) {
                    return Err(Error::PeerFailed {
                        pe,
                        why: "it ended before all PEs were connected".to_owned(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// A peer's pid, unless it is this process (PEs that are threads), which cannot outlive itself.
fn other(pid: Option<Pid>) -> Option<Pid> {
    pid.filter(|p| *p != getpid())
}

enum Filled<const N: usize> {
    NotYet,
    /// The other end is closed.
    Never,
    All([u8; N]),
}

/// Reads up to `N` bytes, and none of what follows them.
fn fill<const N: usize>(socket: &OwnedFd, have: &mut Vec<u8>) -> Filled<N> {
    let mut buffer = [0; N];
    let missing = N - have.len();
    match recv(socket, &mut buffer[..missing], RecvFlags::DONTWAIT) {
        Ok((0, _)) => return Filled::Never,
        Ok((n, _)) => have.extend_from_slice(&buffer[..n]),
        Err(Errno::AGAIN | Errno::INTR) => {}
        Err(_) => return Filled::Never,
    }
    match have.as_slice().try_into() {
        Ok(all) => Filled::All(all),
        Err(_) => Filled::NotYet,
    }
}

/// Who was at the other end when it connected or began to listen: pid (`None` if it has none in this pid namespace)
/// and uid.
fn credentials(socket: &OwnedFd) -> Result<(Option<Pid>, u32)> {
    // By hand, because rustix holds the pid in a type without zero, and zero is what another pid namespace shows as.
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let raw = socket.as_raw_fd();
    // SAFETY: `raw` is open for the borrow of `socket`; `cred` and `len` are live, and `len` is the size of `cred`.
    let rc = unsafe {
        libc::getsockopt(raw, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut cred).cast(), &raw mut len)
    };
    if rc != 0 {
        let e = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL);
        return Err(Error::system("getsockopt(SO_PEERCRED)", e));
    }
    Ok((Pid::from_raw(cred.pid), cred.uid))
}
