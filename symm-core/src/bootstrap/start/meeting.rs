//! PEs that meet at an address that all of them know: PE 0 listens there until everybody has told where it is.
//!
//! Each connects once, proves itself as on any connection of the job, sends its card and whose cards it wants, and gets
//! them when all have come, in a very large world when they are there. Meanwhile it hears who is missing, so that its own
//! timeout can name them.

mod table;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::listen;
use serde::{Deserialize, Serialize};

use crate::bootstrap::sockets::{Contacts, Handshake, Identity};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

use table::Table;

/// Longest message; checked before anything is allocated. Cards have some hundred bytes.
const MOST: u32 = 64 << 10;
/// How long somebody who connected may take in all until it has proved itself; a PE does it at once.
const TALK_LIMIT: Duration = Duration::from_secs(5);
/// Pause between attempts to connect.
const RETRY: Duration = Duration::from_millis(20);
/// How often those who wait hear who is missing.
const NEWS: Duration = Duration::from_millis(250);
/// Most who may be talking at one time: each has a thread. Others wait in the system's queue.
const GUESTS: usize = 128;
/// Most missing PEs that are named to those who wait.
const NAMED: usize = 1000;
/// Largest world in which PE 0 keeps everybody until all have come: a descriptor for each, of the 1024 that a process often may
/// have. In a larger one a PE leaves with the card of whom it connects to, and learns of others by asking along the tree.
const HELD: usize = 512;

/// The address, as [`Contacts`].
pub(super) struct Meeting {
    identity: Identity,
    addresses: Vec<SocketAddr>,
    strangers: Arc<AtomicU64>,
}

/// What a PE says.
#[derive(Serialize, Deserialize)]
struct Arrival {
    card: Vec<u8>,
    wanted: Vec<u32>,
}

/// What it hears.
#[derive(Serialize, Deserialize)]
enum News {
    /// PEs that are missing, the lowest of them.
    Missing(Vec<u32>),
    /// The cards that it wanted.
    Cards(Vec<Vec<u8>>),
    /// The world cannot be made.
    Impossible(String),
    /// Nor can it, because this PE had come and is gone; and how that was seen.
    Failed(u32, String),
    /// PE 0's time is over, and these are missing, the lowest of them.
    GaveUp(Vec<u32>),
}

/// Looks up `HOST:PORT`, waiting for a name that nobody knows yet.
pub(super) fn resolve(name: &'static str, address: &str, deadline: Deadline) -> Result<Vec<SocketAddr>> {
    loop {
        let why = match look_up(address, deadline) {
            Ok(found) => {
                if found.iter().any(|a| a.port() == 0) {
                    let expected = "HOST:PORT of PE 0, a port that all know, which 0 is not".to_owned();
                    return Err(Error::Setting { name, got: address.to_owned(), expected });
                }
                if !found.is_empty() {
                    return Ok(found);
                }
                "it has no address".to_owned()
            }
            Err(e) if e.kind() == ErrorKind::InvalidInput => {
                let expected = "HOST:PORT of PE 0".to_owned();
                return Err(Error::Setting { name, got: address.to_owned(), expected });
            }
            Err(e) => e.to_string(),
        };
        if deadline.passed() {
            return Err(Error::Bootstrap { call: "getaddrinfo", why: format!("{name}={address}: {why}") });
        }
        std::thread::sleep(RETRY.min(deadline.left()));
    }
}

/// One attempt, on a thread of its own: the system's resolver has deadlines of its own, which can be longer.
fn look_up(address: &str, deadline: Deadline) -> std::io::Result<Vec<SocketAddr>> {
    let (tell, hear) = mpsc::channel();
    let asked = address.to_owned();
    let ask = move || drop(tell.send(asked.to_socket_addrs().map(Iterator::collect)));
    std::thread::Builder::new().name("symm-resolve".to_owned()).spawn(ask)?;
    hear.recv_timeout(deadline.left())
        .unwrap_or_else(|_| Err(std::io::Error::new(ErrorKind::TimedOut, "no answer in time")))
}

impl Meeting {
    pub(super) fn new(identity: Identity, addresses: Vec<SocketAddr>) -> Self {
        Meeting { identity, addresses, strangers: Arc::default() }
    }
}

impl Contacts for Meeting {
    fn exchange(&mut self, card: &[u8], wanted: &[Pe], deadline: Deadline) -> Result<Vec<Vec<u8>>> {
        if self.identity.pe == Pe(0) {
            self.host(card, wanted, deadline)
        } else {
            self.go(card, wanted, deadline)
        }
    }

    fn strangers(&self) -> u64 {
        self.strangers.load(Ordering::Relaxed)
    }
}

struct Room {
    identity: Identity,
    table: Mutex<Table>,
    /// Until when PEs may come.
    deadline: Deadline,
    strangers: Arc<AtomicU64>,
    /// Readable once the table has changed.
    changed: OwnedFd,
}

impl Room {
    fn change(&self, change: impl FnOnce(&mut Table)) {
        change(&mut self.table());
        // Cannot fail: the counter is far from its limit.
        let _ = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for somebody who comes (if there is room), or a change of the table.
    fn wait(&self, listener: &TcpListener, limit: Duration) -> Result<()> {
        let full = self.table().guests >= GUESTS;
        let mut fds = vec![PollFd::new(&self.changed, PollFlags::IN)];
        if !full {
            fds.push(PollFd::new(listener, PollFlags::IN));
        }
        let limit =
            Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: i64::from(limit.subsec_nanos()) };
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::system("poll", e)),
        }
        // Only so that it does not end the next wait for the same reason.
        let _ = rustix::io::read(&self.changed, &mut [0_u8; 8]);
        Ok(())
    }
}

/// PE 0.
impl Meeting {
    fn host(&self, card: &[u8], wanted: &[Pe], deadline: Deadline) -> Result<Vec<Vec<u8>>> {
        let n_pes = self.identity.n_pes;
        let listener = self.listen()?;
        let changed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let table = Table::new(card);
        let room = Arc::new(Room {
            identity: self.identity.clone(),
            table: Mutex::new(table),
            deadline,
            strangers: Arc::clone(&self.strangers),
            changed: changed.map_err(|e| Error::system("eventfd", e))?,
        });
        let mut told = Instant::now();
        loop {
            room.wait(&listener, NEWS.min(deadline.left()))?;
            while room.table().guests < GUESTS {
                match listener.accept() {
                    Ok((stream, from)) => welcome(&room, stream, from)?,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
                    Err(e) => return Err(io_failed("accept", &e)),
                }
            }
            let news = told.elapsed() >= NEWS || deadline.passed();
            if news {
                told = Instant::now();
            }
            let mut table = room.table();
            table.serve(n_pes, news);
            if let Some(e) = &table.impossible {
                return Err(e.clone());
            }
            if table.served >= n_pes {
                let wanted: Vec<u32> = wanted.iter().map(|pe| pe.0).collect();
                return table.cards(&wanted).ok_or_else(|| Error::Bootstrap {
                    call: "meeting",
                    why: "a PE's card is missing though all were served".to_owned(),
                });
            }
            if deadline.passed() {
                table.give_up(n_pes);
                let late = table.missing(n_pes);
                let (expected, got) = (n_pes as u64, (n_pes - late.len()) as u64);
                let waited = deadline.waited();
                return Err(Error::Timeout { op: "init", phase: "meeting", late, expected, got, waited });
            }
        }
    }

    fn listen(&self) -> Result<TcpListener> {
        let mut why = None;
        for address in &self.addresses {
            match TcpListener::bind(address) {
                Ok(listener) => {
                    listener.set_nonblocking(true).map_err(|e| io_failed("fcntl", &e))?;
                    // As long a queue as the system allows: PEs come all at once, and one that finds the queue full
                    // asks again after whole seconds.
                    listen(&listener, i32::from(u16::MAX)).map_err(|e| Error::system("listen", e))?;
                    return Ok(listener);
                }
                Err(e) => why = Some(format!("{address}: {e}")),
            }
        }
        let why = why.unwrap_or_default();
        let hint = "is another job, or another PE 0, there? SYMM_PORT or SYMM_ADDR choose another port";
        Err(Error::Bootstrap { call: "bind", why: format!("{why}; {hint}") })
    }
}

/// Talks with one who came, on a thread of its own: a stranger may be slow.
fn welcome(room: &Arc<Room>, stream: TcpStream, from: SocketAddr) -> Result<()> {
    room.table().guests += 1;
    let guest_room = Arc::clone(room);
    let talk = move || {
        let heard = hear(&guest_room, stream);
        if let Err(why) = &heard {
            guest_room.strangers.fetch_add(1, Ordering::Relaxed);
            log::warn!("PE 0: a connection from {from} was dropped: {why}");
        }
        guest_room.change(|table| table.guests -= 1);
    };
    match std::thread::Builder::new().name("symm-meeting".to_owned()).stack_size(256 << 10).spawn(talk) {
        Ok(_) => Ok(()),
        Err(e) => Err(io_failed("pthread_create", &e)),
    }
}

fn hear(room: &Room, mut stream: TcpStream) -> Result<(), String> {
    let set = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_write_timeout(Some(TALK_LIMIT)))
        .and_then(|()| stream.set_nodelay(true));
    set.map_err(|e| e.to_string())?;
    let mut limited = Limited { stream: &mut stream, deadline: Deadline::after(TALK_LIMIT) };
    let pe = match Handshake::new(&room.identity).accept(&mut limited)? {
        Ok(pe) => pe,
        Err(e) => {
            room.change(|table| {
                table.impossible.get_or_insert(e);
            });
            return Ok(());
        }
    };
    let arrival: Arrival = receive(&mut Limited { stream: &mut stream, deadline: room.deadline })?;
    room.change(|table| {
        if !table.arrive(pe, stream, arrival) {
            let why = format!("PE {pe} came twice: its number is given to two processes");
            table.impossible.get_or_insert(Error::Bootstrap { call: "meeting", why });
        }
    });
    Ok(())
}

/// The others.
impl Meeting {
    fn go(&self, card: &[u8], wanted: &[Pe], deadline: Deadline) -> Result<Vec<Vec<u8>>> {
        // Who has not come, once PE 0 has said so.
        let mut missing = Vec::new();
        for attempt in 0.. {
            let address = self.addresses[attempt % self.addresses.len()];
            let why = match self.visit(address, card, wanted, deadline, &mut missing)? {
                Ok(cards) => return Ok(cards),
                Err(why) => why,
            };
            if deadline.passed() {
                if missing.is_empty() {
                    return Err(Self::not_reached(address, &why, deadline));
                }
                break;
            }
            std::thread::sleep(RETRY.min(deadline.left()));
        }
        Err(self.late(missing, deadline))
    }

    fn late(&self, missing: Vec<Pe>, deadline: Deadline) -> Error {
        let n_pes = self.identity.n_pes as u64;
        let (expected, got, waited) = (n_pes, n_pes - missing.len() as u64, deadline.waited());
        Error::Timeout { op: "init", phase: "meeting", late: missing, expected, got, waited }
    }

    /// Nobody was there, or nobody who answered; whether PE 0 is late or the address is wrong, only users know.
    fn not_reached(last: SocketAddr, why: &str, deadline: Deadline) -> Error {
        let waited = deadline.waited();
        let why = format!(
            "PE 0 was not reached at {last} within {waited:.1?} (SYMM_ADDR or MASTER_ADDR; is PE 0 late?): {why}"
        );
        Error::Bootstrap { call: "connect", why }
    }

    /// One attempt; the inner error may pass.
    fn visit(
        &self,
        address: SocketAddr,
        card: &[u8],
        wanted: &[Pe],
        deadline: Deadline,
        missing: &mut Vec<Pe>,
    ) -> Result<Result<Vec<Vec<u8>>, String>> {
        let limit = deadline.left().clamp(Duration::from_millis(1), TALK_LIMIT);
        let mut stream = match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => stream,
            Err(e) => return Ok(Err(e.to_string())),
        };
        let set = stream.set_nodelay(true).and_then(|()| stream.set_write_timeout(Some(TALK_LIMIT)));
        if let Err(e) = set {
            return Ok(Err(e.to_string()));
        }
        let mut limited = Limited { stream: &mut stream, deadline: Deadline::after(limit) };
        match Handshake::new(&self.identity).connect(Pe(0), &mut limited) {
            Ok(done) => done.map_err(|e| with_address(e, address))?,
            Err(why) => return Ok(Err(why)),
        }
        let wanted: Vec<u32> = wanted.iter().map(|pe| pe.0).collect();
        if let Err(why) = send(&mut stream, &Arrival { card: card.to_vec(), wanted }) {
            return Ok(Err(why));
        }
        loop {
            match receive::<News>(&mut Limited { stream: &mut stream, deadline }) {
                Ok(News::Cards(cards)) => return Ok(Ok(cards)),
                Ok(News::Missing(pes)) => *missing = pes.into_iter().map(Pe).collect(),
                Ok(News::Impossible(why)) => return Err(Error::Bootstrap { call: "meeting", why }),
                Ok(News::Failed(pe, why)) => return Err(Error::PeerFailed { pe: Pe(pe), why }),
                Ok(News::GaveUp(pes)) => {
                    return Err(self.late(pes.into_iter().map(Pe).collect(), deadline));
                }
                // This PE's time is over. If PE 0 has not even said who is missing, it hangs itself.
                Err(_) if deadline.passed() => {
                    let missing = std::mem::take(missing);
                    return Err(self.late(if missing.is_empty() { vec![Pe(0)] } else { missing }, deadline));
                }
                Err(why) => {
                    let why = format!("before all PEs had met, {why}");
                    return Err(Error::PeerFailed { pe: Pe(0), why });
                }
            }
        }
    }
}

fn with_address(e: Error, address: SocketAddr) -> Error {
    match e {
        Error::Bootstrap { call, why } => Error::Bootstrap { call, why: format!("at {address}: {why}") },
        e => e,
    }
}

fn send<T: Serialize>(stream: &mut TcpStream, message: &T) -> Result<(), String> {
    let body = postcard::to_stdvec(message).expect("plain structs should encode");
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(body);
    stream.write_all(&bytes).map_err(|e| e.to_string())
}

/// A stream whose reads all end at one deadline: a timeout of the socket's begins anew with every byte that comes.
struct Limited<'a> {
    stream: &'a mut TcpStream,
    deadline: Deadline,
}

impl Read for Limited<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let left = self.deadline.left();
        let silent = || std::io::Error::new(ErrorKind::TimedOut, "the other end said nothing in time");
        if left.is_zero() {
            return Err(silent());
        }
        self.stream.set_read_timeout(Some(left))?;
        // The system's word for that is "Resource temporarily unavailable".
        self.stream.read(bytes).map_err(|e| if e.kind() == ErrorKind::WouldBlock { silent() } else { e })
    }
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

fn receive<T: for<'a> Deserialize<'a>>(stream: &mut impl Read) -> Result<T, String> {
    let ended = |e: std::io::Error| match e.kind() {
        // "failed to fill whole buffer" tells nobody anything.
        ErrorKind::UnexpectedEof => "its connection closed".to_owned(),
        _ => e.to_string(),
    };
    let mut len = [0; 4];
    stream.read_exact(&mut len).map_err(ended)?;
    let len = u32::from_le_bytes(len);
    if len > MOST {
        return Err(format!("it announced {len} bytes, {MOST} are allowed"));
    }
    let mut body = vec![0; len as usize];
    stream.read_exact(&mut body).map_err(ended)?;
    postcard::from_bytes(&body).map_err(|e| format!("what it said does not decode: {e}"))
}

fn io_failed(call: &'static str, e: &std::io::Error) -> Error {
    Error::System { call, errno: e.raw_os_error().unwrap_or(0), text: e.to_string() }
}
