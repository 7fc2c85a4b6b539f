//! PEs that are processes, connected by sockets: abstract Unix sockets within a host, TCP between hosts.
//!
//! A connection is made when something is first sent to a peer; which PEs are connected from the start follows from the
//! exchanges of [`Group`](super::Group), all pairs in a small world, a tree in a large one. Both ends prove that they know
//! the job's secret. One thread a PE reads all connections; sending never waits for the receiver.
//!
//! | file | what |
//! |---|---|
//! | `card` | where a PE can be reached |
//! | `doors`, `dial`, `hello`, `secret`, `shake` | from an address to a connection that is proved both ways |
//! | `frame`, `link`, `io` | messages on it |
//! | `gossip` | who is gone |

mod card;
mod dial;
mod doors;
mod frame;
mod gossip;
mod hello;
mod io;
mod link;
mod noise;
mod secret;
mod shake;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::event::epoll;
use rustix::io::Errno;

use self::card::{Card, Cards, Directory};
use self::doors::{Door, Doors};
use self::frame::{MAX_FDS, MAX_PAYLOAD};
use self::link::{Link, Sent};
use super::group::{FLAT, Group};
use super::mailbox::Mailbox;
use super::tree::Place;
use super::{Bootstrap, Liveness, Message, Presence, Tag};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

pub use self::noise::read_noise;
pub use self::secret::Secret;
pub(super) use self::shake::Handshake;

/// How long [`close`](Bootstrap::close) waits for messages that are still queued; peers always read, so only one that
/// is stopped or overloaded comes near it.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// How long a failed write waits to learn from the IO thread whether the peer left or failed.
const VERDICT_LIMIT: Duration = Duration::from_secs(1);
/// Id of the group in which the world meets.
const MEET_TEAM: u64 = u64::from_le_bytes(*b"meet....");

/// Who this PE is, and of which job.
#[derive(Clone, Debug)]
pub struct Identity {
    /// This PE.
    pub pe: Pe,
    /// PEs of the job, 1 or more.
    pub n_pes: usize,
    /// Name of the job: 1 to 64 bytes, equal on all its PEs.
    pub job: String,
    /// The job's secret.
    pub secret: Secret,
}

/// How PEs learn each other's addresses before they are connected: what a launcher or MPI offers for that.
pub trait Contacts {
    /// Makes `card` (a few hundred bytes at most) known as this PE's and returns those of `wanted`, in that order.
    ///
    /// # Collective
    /// Over all PEs of the job, once.
    ///
    /// # Errors
    /// [`Error::Timeout`] naming PEs that did not come, where that can be known.
    fn exchange(&mut self, card: &[u8], wanted: &[Pe], deadline: Deadline) -> Result<Vec<Vec<u8>>>;

    /// Connections that this PE dropped meanwhile because who made them did not belong to the job.
    fn strangers(&self) -> u64 {
        0
    }
}

/// Where the PEs of a job are.
pub enum Whereabouts<'a> {
    /// All on this host: each listens at an abstract socket that is named by uid, job and PE.
    OneHost,
    /// As `OneHost`, but they come together by `contacts`. Nobody listens for other hosts, nor for other users.
    OneHostBy {
        /// How they tell each other that they came.
        contacts: &'a mut dyn Contacts,
    },
    /// Anywhere. `interfaces`: beginnings of the names of network interfaces to use, with commas between them.
    Anywhere {
        /// How they learn each other's addresses.
        contacts: &'a mut dyn Contacts,
        /// See [`Config::interfaces`](crate::Config::interfaces).
        interfaces: Option<&'a str>,
    },
    /// As `Anywhere`, but PEs of one host connect over TCP too, so no descriptors pass between them: shows on one machine
    /// what several do.
    OverTcp {
        /// How they learn each other's addresses.
        contacts: &'a mut dyn Contacts,
        /// See [`Config::interfaces`](crate::Config::interfaces).
        interfaces: Option<&'a str>,
    },
}

impl fmt::Debug for Whereabouts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Whereabouts::OneHost => "OneHost",
            Whereabouts::OneHostBy { .. } => "OneHostBy",
            Whereabouts::Anywhere { .. } => "Anywhere",
            Whereabouts::OverTcp { .. } => "OverTcp",
        })
    }
}

/// A PE among the processes of a job.
///
/// Messages that a peer is slow to read wait in memory here, without a limit; one message has at most 1 GiB and 253
/// descriptors.
///
/// Dropping it without [`close`](Bootstrap::close) or [`abandon`](Bootstrap::abandon) is a death to its peers, as is the end of
/// the process.
pub struct Sockets {
    shared: Arc<Shared>,
}

struct Shared {
    pe: Pe,
    job: String,
    secret: Secret,
    directory: Directory,
    epoll: OwnedFd,
    wake: OwnedFd,
    stop: AtomicBool,
    /// Whether every PE has come.
    complete: AtomicBool,
    mailbox: Mailbox,
    links: Mutex<HashMap<Pe, Arc<Link>>>,
    /// PEs to which the IO thread is to connect.
    wanted: Mutex<Vec<Pe>>,
    /// Where this PE listens. Shut ones still hold the addresses against a second PE of the same number.
    doors: Mutex<Doors>,
    strangers: AtomicU64,
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.shared;
        f.debug_struct("Sockets")
            .field("pe", &s.pe)
            .field("n_pes", &s.n_pes())
            .field("mailbox", &s.mailbox)
            .finish()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves the value whole, so a panic elsewhere in its thread does not spoil it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sockets {
    /// Connects this process with all PEs of the job.
    ///
    /// # Collective
    /// Over the world. Returns once every PE has come; a world of one needs no socket.
    ///
    /// # Errors
    /// - [`Error::Timeout`] naming the PEs that did not come within the deadline;
    /// - [`Error::SettingDiffers`] if a PE has another number of PEs;
    /// - [`Error::PeerFailed`] if a PE ended while others were still coming;
    /// - [`Error::Bootstrap`] if the address is in use (a job of the same name, or a PE number given twice), belongs
    ///   to another user, or who listens there does not know the secret;
    /// - [`Error::System`] for a failed call, such as too many open files; those of the contacts.
    pub fn join(
        identity: Identity,
        whereabouts: Whereabouts<'_>,
        deadline: Deadline,
    ) -> Result<Arc<Sockets>> {
        let Identity { pe, n_pes, job, secret } = identity;
        if n_pes == 0 || pe.index() >= n_pes || job.is_empty() || job.len() > 64 {
            let got = format!("PE {pe} of {n_pes} in job {job:?}");
            return Err(Error::argument(
                "init",
                "identity",
                got,
                "a PE of a job with a name of 1 to 64 bytes",
            ));
        }
        let mut doors = Doors::new();
        let mut directory = Directory::OneHost;
        let mut mine = Vec::new();
        let mut strangers = 0;
        if n_pes > 1 {
            let tcp_only = matches!(whereabouts, Whereabouts::OverTcp { .. });
            if !tcp_only {
                doors.push(doors::unix_door(&job, pe)?);
            }
            let (contacts, card) = match whereabouts {
                Whereabouts::OneHost => (None, None),
                Whereabouts::OneHostBy { contacts } => (Some(contacts), Some(Card::here(&[], 0))),
                Whereabouts::Anywhere { contacts, interfaces }
                | Whereabouts::OverTcp { contacts, interfaces } => {
                    let (door, card) = open_to_others(interfaces)?;
                    doors.push(door);
                    (Some(contacts), Some(card))
                }
            };
            mine = card.map_or_else(Vec::new, |card| card.encode());
            if let Some(contacts) = contacts {
                let early = meet(contacts, pe, n_pes, &mine, deadline)?;
                directory = Directory::Cards(Cards::new(early, tcp_only));
                strangers = contacts.strangers();
            }
        }
        let shared = Arc::new(Shared {
            pe,
            job,
            secret,
            directory,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)
                .map_err(|e| Error::system("epoll_create1", e))?,
            wake: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|e| Error::system("eventfd", e))?,
            stop: AtomicBool::new(false),
            complete: AtomicBool::new(n_pes == 1),
            mailbox: Mailbox::new(n_pes),
            links: Mutex::default(),
            wanted: Mutex::default(),
            doors: Mutex::new(doors),
            strangers: AtomicU64::new(strangers),
        });
        let sockets = Arc::new(Sockets { shared: Arc::clone(&shared) });
        if n_pes > 1 {
            let io = io::Io::new(shared).map_err(|e| Error::system("epoll_ctl", e))?;
            let thread = std::thread::Builder::new().name(format!("symm-boot-{pe}"));
            thread.spawn(move || io.run()).map_err(|e| Error::System {
                call: "pthread_create",
                errno: e.raw_os_error().unwrap_or(0),
                text: e.to_string(),
            })?;
            sockets.complete(&mine, deadline).inspect_err(|e| super::give_up(&*sockets, "start", e))?;
        }
        Ok(sockets)
    }

    /// Meets everybody, and learns where they all are.
    fn complete(self: &Arc<Self>, card: &[u8], deadline: Deadline) -> Result<()> {
        let s = &self.shared;
        let everybody = (0..s.n_pes()).map(Pe::from).collect();
        let group = Group::new(Arc::clone(self) as Arc<dyn Bootstrap>, MEET_TEAM, everybody)?;
        let cards = group.all_gather_packed("init", card, deadline)?;
        s.directory.complete(cards, s.n_pes())?;
        s.complete.store(true, Ordering::Release);
        s.mailbox.completed();
        if s.n_pes() <= FLAT {
            // Everybody is connected with everybody, so whoever comes now does not belong here.
            s.shut_doors();
        }
        Ok(())
    }

    /// Ends the IO thread and all connections, and frees the addresses.
    fn end(&self) {
        let s = &self.shared;
        s.stop.store(true, Ordering::Release);
        s.wake();
        locked(&s.links).values().for_each(|link| link.end());
        s.doors().clear();
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

/// Listens for PEs of other hosts.
fn open_to_others(interfaces: Option<&str>) -> Result<(Door, Card)> {
    let addresses = card::interfaces(interfaces)?;
    let only_loopback = addresses.iter().all(IpAddr::is_loopback);
    let any: IpAddr = match (only_loopback, addresses.iter().any(IpAddr::is_ipv6)) {
        (true, _) => addresses[0],
        // Takes IPv4 as well.
        (false, true) => Ipv6Addr::UNSPECIFIED.into(),
        (false, false) => Ipv4Addr::UNSPECIFIED.into(),
    };
    let (door, port) = doors::tcp_door(SocketAddr::new(any, 0))?;
    Ok((door, Card::here(&addresses, port)))
}

/// Learns where those are to whom this PE connects in the first exchange.
fn meet(
    contacts: &mut dyn Contacts,
    pe: Pe,
    n_pes: usize,
    mine: &[u8],
    deadline: Deadline,
) -> Result<BTreeMap<Pe, Card>> {
    let wanted: Vec<Pe> = match n_pes {
        0..=FLAT => (0..n_pes).map(Pe::from).filter(|other| *other != pe).collect(),
        _ => Place::new(pe.index(), n_pes).parent().map(Pe::from).into_iter().collect(),
    };
    let cards = contacts.exchange(mine, &wanted, deadline)?;
    wanted.into_iter().zip(cards).map(|(pe, card)| Ok((pe, Card::decode(pe, &card)?))).collect()
}

impl Shared {
    fn n_pes(&self) -> usize {
        self.mailbox.n_pes()
    }

    fn link(&self, pe: Pe) -> Arc<Link> {
        Arc::clone(locked(&self.links).entry(pe).or_default())
    }

    fn wanted(&self) -> MutexGuard<'_, Vec<Pe>> {
        locked(&self.wanted)
    }

    fn doors(&self) -> MutexGuard<'_, Doors> {
        locked(&self.doors)
    }

    /// Keeps the addresses, but from now on the system refuses whoever connects.
    fn shut_doors(&self) {
        for door in &*self.doors() {
            let _ = epoll::delete(&self.epoll, &door.socket);
            let _ = rustix::net::shutdown(&door.socket, rustix::net::Shutdown::Both);
        }
    }

    fn wake(&self) {
        // Cannot fail: the counter is far from its limit.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Sends a frame, if only later.
    fn send(&self, to: Pe, header: &[u8], payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        match self.link(to).send(header, payload, fds)? {
            Sent::Done => {}
            Sent::Queued(socket) => self.arm(to, &socket),
            Sent::Connect => {
                self.wanted().push(to);
                self.wake();
            }
        }
        Ok(())
    }

    /// Sends a frame of the bootstrap's own; a peer that is gone needs none.
    fn post(&self, to: Pe, header: &[u8], payload: &[u8]) {
        if let Err(e) = self.send(to, header, payload, &[]) {
            log::trace!("PE {}: to PE {to}: {e}", self.pe);
        }
    }
}

impl Bootstrap for Sockets {
    fn pe(&self) -> Pe {
        self.shared.pe
    }

    fn n_pes(&self) -> usize {
        self.shared.n_pes()
    }

    fn passes_fds(&self, pe: Pe) -> bool {
        pe.index() < self.n_pes() && (pe == self.shared.pe || self.shared.directory.is_here(pe))
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
        if !fds.is_empty() && !self.passes_fds(to) {
            let expected = format!("none, since PE {to} is on another host");
            return Err(Error::argument("send", "fds", fds.len(), expected));
        }
        if to == s.pe {
            let dup = |fd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
            let fds = fds.iter().map(dup).collect::<std::result::Result<_, _>>();
            let fds = fds.map_err(|e| Error::system("fcntl(F_DUPFD_CLOEXEC)", e))?;
            s.mailbox.deliver(to, tag, Message { payload: payload.to_vec(), fds });
            return Ok(());
        }
        let header = frame::message_header(tag, payload.len(), fds.len());
        s.send(to, &header, payload, fds).map_err(|e| self.write_failed(to, e))
    }

    fn recv(&self, from: Pe, tag: Tag, deadline: Deadline) -> Result<Message> {
        self.shared.mailbox.recv(from, tag, &[], deadline)
    }

    fn recv_among(&self, from: Pe, tag: Tag, among: &[Pe], deadline: Deadline) -> Result<Message> {
        self.shared.mailbox.recv(from, tag, among, deadline)
    }

    fn progress(&self, tag: Tag, waits_for: &[Pe]) {
        self.shared.mailbox.progress(tag, waits_for);
    }

    fn ask(&self, pes: &[Pe], tag: Tag, deadline: Deadline) -> Vec<Option<Presence>> {
        for pe in pes {
            self.shared.mailbox.expect_answer(*pe, tag);
            self.shared.post(*pe, &frame::ask(tag), &[]);
        }
        self.shared.mailbox.take_answers(pes, tag, deadline)
    }

    fn strangers(&self) -> u64 {
        self.shared.strangers.load(Ordering::Relaxed)
    }

    fn watch(&self, observer: Arc<dyn Liveness>) {
        self.shared.mailbox.watch(observer);
    }

    fn failed(&self) -> Vec<Pe> {
        self.shared.mailbox.failed()
    }

    fn failure(&self, pe: Pe) -> Option<String> {
        self.shared.mailbox.failure(pe)
    }

    fn ended(&self) -> Vec<Pe> {
        self.shared.mailbox.ended()
    }

    fn close(&self) {
        let s = &self.shared;
        if !s.mailbox.close("the bootstrap is closed") {
            return;
        }
        let deadline = Deadline::after(CLOSE_LIMIT);
        let links: Vec<(Pe, Arc<Link>)> =
            locked(&s.links).iter().map(|(pe, l)| (*pe, Arc::clone(l))).collect();
        for (pe, _) in &links {
            s.post(*pe, &frame::goodbye(), &[]);
        }
        links.iter().for_each(|(_, link)| link.wait_drained(deadline));
        self.end();
    }

    fn abandon(&self, why: &str) {
        let s = &self.shared;
        if !s.mailbox.close("this PE gave the job up") {
            return;
        }
        let (header, payload) = frame::abandon(why);
        for (pe, link) in &*locked(&s.links) {
            // Where earlier frames still wait for room nothing can be said without waiting; the end says enough.
            if link.settled()
                && let Err(e) = link.send(&header, payload, &[])
            {
                log::trace!("PE {}: to PE {pe}: {e}", s.pe);
            }
        }
        self.end();
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        if self.shared.mailbox.close("the bootstrap is dropped") {
            self.end();
        }
    }
}
