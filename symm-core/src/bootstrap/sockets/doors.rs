//! Where this PE listens, and those who came and have not proved yet that they belong to the job.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, bind, listen, recv, send,
    socket_with, sockopt,
};
use rustix::process::{Pid, getpid, getuid};

use super::card;
use super::hello::{self, HELLO_BYTES, Hello, REPLY_BYTES, Reply, STANDS, VERSION, Verdict, WITHDRAWN};
use super::io::{DOOR, Io, VISITOR};
use super::locked;
use super::secret::{self, PROOF_BYTES};
use crate::error::{Error, Result};
use crate::pe::Pe;

/// How long somebody who came may take to prove itself; a PE does it at once.
pub(super) const VISIT_LIMIT: Duration = Duration::from_secs(5);
/// Most who may be at it at one time, beyond one for each PE up to a thousand.
const STRANGERS: usize = 64;
/// Most who are let in before those who are in are looked at again: a crowd at the door must not keep this thread.
const ENTRIES_PER_TURN: usize = 16;
/// Pause after the system had no descriptor for somebody who came.
const NO_DESCRIPTOR: Duration = Duration::from_millis(50);

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A listening socket.
pub(super) struct Door {
    pub(super) socket: OwnedFd,
    /// Reached through this host only, so uid and pid of who comes are known.
    pub(super) unix: bool,
    /// Let go of after the socket.
    _name: Option<Held>,
}

/// Names at which this process listens: whoever asks for one of them again opens a world twice.
static HELD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// One of them, as long as it is held.
struct Held(String);

impl Held {
    fn is(name: &str) -> bool {
        locked(&HELD).contains(name)
    }

    fn new(name: String) -> Self {
        locked(&HELD).insert(name.clone());
        Held(name)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        locked(&HELD).remove(&self.0);
    }
}

/// Listens at the abstract socket of `pe`.
pub(super) fn unix_door(job: &str, pe: Pe) -> Result<Door> {
    let name = card::name(job, pe);
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None);
    let socket = socket.map_err(|e| Error::system("socket", e))?;
    bind(&socket, &card::unix(&name)?).map_err(|e| match e {
        Errno::ADDRINUSE if Held::is(&name) => Error::Bootstrap {
            call: "bind",
            why: format!(
                "address @{name} is in use by this process, which is PE {pe} of job {job:?} and has opened its world: it does so \
                 once, and clones of the World are the same world"
            ),
        },
        Errno::ADDRINUSE => Error::Bootstrap {
            call: "bind",
            why: format!("address @{name} is in use: another process is PE {pe} of a job named {job:?}"),
        },
        e => Error::system("bind", e),
    })?;
    listen(&socket, i32::from(u16::MAX)).map_err(|e| Error::system("listen", e))?;
    Ok(Door { socket, unix: true, _name: Some(Held::new(name)) })
}

/// Somebody who came.
pub(super) struct Visitor {
    socket: OwnedFd,
    unix: bool,
    pid: Option<Pid>,
    since: Instant,
    bytes: Vec<u8>,
    greeted: Option<Greeted>,
}

/// What a visitor said and was answered.
struct Greeted {
    hello: Hello,
    asked: [u8; HELLO_BYTES],
    answer: [u8; REPLY_BYTES],
    verdict: Verdict,
}

impl Io {
    /// Lets in who waits at a door.
    pub(super) fn let_in(&mut self, index: usize) {
        for _ in 0..ENTRIES_PER_TURN {
            let came = self.shared.doors().get(index).map(|d| (accept_with(&d.socket, FLAGS), d.unix));
            let (socket, unix) = match came {
                Some((Ok(socket), unix)) => (socket, unix),
                // The bootstrap has ended.
                None | Some((Err(Errno::AGAIN), _)) => return,
                Some((Err(Errno::INVAL), _)) => return self.shared.shut_doors(),
                Some((Err(Errno::INTR | Errno::CONNABORTED), _)) => continue,
                Some((Err(e), _)) => return self.no_entry(index, e),
            };
            let mut pid = None;
            if unix {
                match credentials(&socket) {
                    Ok((who, uid)) if uid == getuid().as_raw() => pid = who,
                    Ok((_, uid)) => {
                        self.turned_away(&format!("a process of user {uid} connected"));
                        continue;
                    }
                    Err(e) => {
                        self.turned_away(&e.to_string());
                        continue;
                    }
                }
            } else {
                let _ = sockopt::set_tcp_nodelay(&socket, true);
            }
            let most = self.shared.n_pes().min(1000) + STRANGERS;
            if self.visitors.len() >= most {
                self.make_room();
            }
            let number = self.next_visitor;
            self.next_visitor += 1;
            let data = EventData::new_u64(VISITOR | number);
            if let Err(e) = epoll::add(&self.shared.epoll, &socket, data, EventFlags::IN) {
                self.turned_away(&format!("epoll_ctl failed: {e}"));
                continue;
            }
            let since = Instant::now();
            let visitor = Visitor { socket, unix, pid, since, bytes: Vec::new(), greeted: None };
            self.visitors.insert(number, visitor);
        }
    }

    /// Drops the oldest of those who have not greeted as a PE would, which a PE does at once; else the oldest.
    fn make_room(&mut self) {
        let welcome = |v: &Visitor| v.greeted.as_ref().is_some_and(|g| g.verdict == Verdict::Welcome);
        let rude = self.visitors.iter().find(|(_, v)| !welcome(v)).map(|(number, _)| *number);
        if let Some(number) = rude.or_else(|| self.visitors.keys().next().copied()) {
            self.end_visit(number, "it was slow and others came");
        }
    }

    /// The system could not let somebody in. While the world is made, that is its end; later it may pass.
    fn no_entry(&mut self, index: usize, e: Errno) {
        if !self.shared.complete.load(Ordering::Acquire) {
            self.shared.mailbox.break_off(Error::system("accept4", e));
        }
        log::warn!("PE {}: accept4 failed: {e}", self.shared.pe);
        // Whoever waits stays ready to be let in: without a pause this thread would turn in circles.
        if let Some(door) = self.shared.doors().get(index) {
            let _ = epoll::delete(&self.shared.epoll, &door.socket);
        }
        self.closed_door = Some((Instant::now() + NO_DESCRIPTOR, index));
    }

    /// Opens a door again after a pause.
    pub(super) fn reopen_door(&mut self) {
        if let Some((at, index)) = self.closed_door
            && at <= Instant::now()
        {
            self.closed_door = None;
            let data = EventData::new_u64(DOOR | index as u64);
            if let Some(door) = self.shared.doors().get(index) {
                let _ = epoll::add(&self.shared.epoll, &door.socket, data, EventFlags::IN);
            }
        }
    }

    /// Counts somebody who did not belong here.
    pub(super) fn turned_away(&self, why: &str) {
        self.shared.strangers.fetch_add(1, Ordering::Relaxed);
        log::warn!("PE {}: a connection was dropped: {why}", self.shared.pe);
    }

    /// Drops visitors who took too long.
    pub(super) fn end_visits(&mut self) {
        while let Some((number, visitor)) = self.visitors.first_key_value()
            && visitor.since.elapsed() >= VISIT_LIMIT
        {
            let (number, answered) = (*number, visitor.greeted.is_some());
            // Once answered, it counts on this connection and would take its end for a death. It was this PE that took long
            // if the proof lies there unread: stopped, or one of too many on its machine.
            if answered {
                self.visited(number);
            }
            if self.visitors.remove(&number).is_some() {
                self.turned_away("it did not prove to be of the job in time");
            }
        }
    }

    /// Reads what a visitor says.
    pub(super) fn visited(&mut self, number: u64) {
        let Some(visitor) = self.visitors.get_mut(&number) else { return };
        if visitor.greeted.is_none() {
            match fill::<HELLO_BYTES>(&visitor.socket, &mut visitor.bytes) {
                Filled::NotYet => return,
                Filled::Never if visitor.bytes == WITHDRAWN => return drop(self.visitors.remove(&number)),
                Filled::Never => return self.end_visit(number, "it sent no greeting"),
                Filled::All(asked) => match Hello::decode(&asked) {
                    Some(hello) => self.greeted(number, hello, asked),
                    None => return self.end_visit(number, "it sent no greeting"),
                },
            }
        }
        let Some(visitor) = self.visitors.get_mut(&number) else { return };
        match fill::<PROOF_BYTES>(&visitor.socket, &mut visitor.bytes) {
            Filled::NotYet => {}
            // It may have lost interest, as one does whose own connection is the one that stands.
            Filled::Never => drop(self.visitors.remove(&number)),
            Filled::All(proof) => self.proved(number, &proof),
        }
    }

    fn end_visit(&mut self, number: u64, why: &str) {
        self.visitors.remove(&number);
        self.turned_away(why);
    }

    /// Answers a greeting.
    fn greeted(&mut self, number: u64, hello: Hello, asked: [u8; HELLO_BYTES]) {
        let verdict = self.judge(&hello);
        let nonce = match secret::nonce() {
            Ok(nonce) => nonce,
            Err(e) => return self.end_visit(number, &e.to_string()),
        };
        let s = &self.shared;
        let reply = Reply { verdict, version: VERSION, n_pes: s.n_pes() as u32, pe: s.pe.0, nonce };
        let answer = reply.encode(&s.secret, &asked);
        let Some(visitor) = self.visitors.get_mut(&number) else { return };
        visitor.bytes.clear();
        // The socket is fresh, so there is room for these few bytes.
        if !send(&visitor.socket, &answer, SendFlags::NOSIGNAL).is_ok_and(|n| n == REPLY_BYTES) {
            return match verdict {
                // It lost interest, since this PE's own connection to it is the one that stands.
                Verdict::Welcome | Verdict::Crossed | Verdict::Duplicate => {
                    drop(self.visitors.remove(&number));
                }
                Verdict::Version | Verdict::Size | Verdict::Misdirected => {
                    self.end_visit(number, "it hung up")
                }
            };
        }
        let theirs = Pe(hello.pe);
        visitor.greeted = Some(Greeted { hello, asked, answer, verdict });
        if verdict == Verdict::Welcome {
            // The other end takes it for the connection from now on, so it must be the only one.
            self.forget_dial(theirs);
        }
    }

    fn judge(&self, theirs: &Hello) -> Verdict {
        let s = &self.shared;
        if theirs.version != VERSION {
            return Verdict::Version;
        }
        if theirs.job != s.job || theirs.to != s.pe.0 || theirs.pe == s.pe.0 {
            return Verdict::Misdirected;
        }
        if theirs.n_pes as usize != s.n_pes() {
            return Verdict::Size;
        }
        if theirs.pe as usize >= s.n_pes() {
            return Verdict::Misdirected;
        }
        let pe = Pe(theirs.pe);
        let link = s.link(pe);
        if link.settled() {
            Verdict::Duplicate
        } else if link.connecting() && (self.pledged(pe) || s.pe > pe && self.asked(pe)) {
            Verdict::Crossed
        } else {
            Verdict::Welcome
        }
    }

    /// Takes in who proved to be of the job.
    fn proved(&mut self, number: u64, proof: &[u8; PROOF_BYTES]) {
        let Some(visitor) = self.visitors.remove(&number) else { return };
        let Some(Greeted { hello, asked, answer, verdict }) = visitor.greeted else { return };
        if !hello::proved(&self.shared.secret, &asked, &answer, proof) {
            let who = format!("it says it is PE {} and does not know the job's secret", hello.pe);
            return self.turned_away(&who);
        }
        let pe = Pe(hello.pe);
        let s = &self.shared;
        // That the job cannot work is believed only from one of its own.
        match verdict {
            Verdict::Welcome => {}
            Verdict::Version => return s.mailbox.break_off(hello::version_differs(pe, hello.version)),
            Verdict::Size => {
                return s.mailbox.break_off(hello::size_differs(pe, hello.n_pes, s.n_pes() as u32));
            }
            Verdict::Crossed => return,
            Verdict::Duplicate | Verdict::Misdirected => {
                return self.turned_away(&format!("it says it is PE {}: {verdict:?}", hello.pe));
            }
        }
        if s.link(pe).settled() {
            return self.turned_away(&format!("PE {pe} has a connection already"));
        }
        // It may have hung up, which reading finds. The few bytes that went before were read, so there is room.
        let _ = send(&visitor.socket, &STANDS, SendFlags::NOSIGNAL);
        // Not closing it in between: it is registered under another name first.
        let _ = epoll::delete(&s.epoll, &visitor.socket);
        self.connected(pe, visitor.socket, visitor.unix, visitor.pid);
    }
}

/// A peer's pid, unless it is this process (PEs that are threads), which cannot outlive itself.
pub(super) fn other(pid: Option<Pid>) -> Option<Pid> {
    pid.filter(|p| *p != getpid())
}

pub(super) enum Filled<const N: usize> {
    NotYet,
    /// The other end is closed.
    Never,
    All([u8; N]),
}

/// Reads up to `N` bytes, and none of what follows them.
pub(super) fn fill<const N: usize>(socket: &OwnedFd, have: &mut Vec<u8>) -> Filled<N> {
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
pub(super) fn credentials(socket: &OwnedFd) -> Result<(Option<Pid>, u32)> {
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

/// Listens over TCP at `addr`; `backlog` as large as the system allows.
pub(super) fn tcp_door(addr: std::net::SocketAddr) -> Result<(Door, u16)> {
    let failed = |call, e: &std::io::Error| Error::System {
        call,
        errno: e.raw_os_error().unwrap_or(0),
        text: format!("{addr}: {e}"),
    };
    let listener = std::net::TcpListener::bind(addr).map_err(|e| failed("bind", &e))?;
    listener.set_nonblocking(true).map_err(|e| failed("fcntl", &e))?;
    let port = listener.local_addr().map_err(|e| failed("getsockname", &e))?.port();
    let socket = OwnedFd::from(listener);
    // Raises the backlog.
    listen(&socket, i32::from(u16::MAX)).map_err(|e| Error::system("listen", e))?;
    Ok((Door { socket, unix: false, _name: None }, port))
}

/// What a PE listens at.
pub(super) type Doors = Vec<Door>;

impl Visitor {
    pub(super) fn since(&self) -> Instant {
        self.since
    }
}
