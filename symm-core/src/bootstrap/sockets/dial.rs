//! Connecting to peers: attempts, greetings, proofs.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, connect, send, socket_with, sockopt};
use rustix::process::{Pid, getuid};

use super::card::Address;
use super::doors::{Filled, credentials, fill};
use super::hello::{self, HELLO_BYTES, Hello, REPLY_BYTES, Reply, STANDS, VERSION, Verdict, WITHDRAWN};
use super::io::{DIAL, Io};
use super::secret::{self, PROOF_BYTES};
use crate::error::{Error, Result};
use crate::pe::Pe;

/// Pause between attempts to reach a PE that is not there yet, growing from the first to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// Pause after the other side said that there is, or will be, another connection.
const CROSSED: Duration = Duration::from_millis(100);
/// How often the other side may say so before it is believed to mean another PE of the same number.
const DUPLICATES: u32 = 10;
/// How long an attempt may take.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);

/// A peer that this PE is connecting to.
pub(super) struct Dial {
    next: Instant,
    pause: Duration,
    attempts: usize,
    duplicates: u32,
    call: Option<Call>,
}

/// One attempt.
struct Call {
    socket: OwnedFd,
    address: Address,
    since: Instant,
    pid: Option<Pid>,
    /// The greeting, once it is sent.
    asked: Option<(Hello, [u8; HELLO_BYTES])>,
    /// The proof is sent: the other end may have taken the connection, so only it may give this one up.
    pledged: bool,
    bytes: Vec<u8>,
}

impl Io {
    /// Begins to connect to those that senders asked for.
    pub(super) fn take_requests(&mut self) {
        let wanted = std::mem::take(&mut *self.shared.wanted());
        for pe in wanted {
            self.begin(pe);
        }
    }

    /// Connects to `pe` from the next turn on.
    pub(super) fn begin(&mut self, pe: Pe) {
        if !self.shared.link(pe).settled() {
            let fresh =
                || Dial { next: Instant::now(), pause: RETRY.0, attempts: 0, duplicates: 0, call: None };
            self.dials.entry(pe).or_insert_with(fresh);
        }
    }

    /// Whether `pe` has been greeted and has not answered.
    pub(super) fn asked(&self, pe: Pe) -> bool {
        self.dials.get(&pe).and_then(|d| d.call.as_ref()).is_some_and(|c| c.asked.is_some())
    }

    /// Whether `pe` has all that it needs to take this PE's connection.
    pub(super) fn pledged(&self, pe: Pe) -> bool {
        self.dials.get(&pe).and_then(|d| d.call.as_ref()).is_some_and(|c| c.pledged)
    }

    /// Ends an attempt because the peer has come by itself; it is repeated if nothing becomes of that.
    pub(super) fn forget_dial(&mut self, pe: Pe) {
        if let Some(dial) = self.dials.get_mut(&pe) {
            // After a greeting the other end knows who hung up.
            if let Some(call) = dial.call.take().filter(|call| call.asked.is_none()) {
                let _ = send(&call.socket, &WITHDRAWN, SendFlags::NOSIGNAL);
            }
            dial.next = Instant::now() + CROSSED;
        }
    }

    /// When the next attempt is due or the present one ends.
    pub(super) fn next_dial(&self) -> Option<Instant> {
        self.dials.values().filter_map(Dial::at).min()
    }

    /// Makes the attempts that are due.
    pub(super) fn dial_due(&mut self) {
        let now = Instant::now();
        let due: Vec<Pe> = self.dials.iter().filter(|(_, d)| d.due(now)).map(|(pe, _)| *pe).collect();
        for pe in due {
            if self.shared.link(pe).settled() {
                self.forget_dial(pe);
                self.dials.remove(&pe);
                continue;
            }
            // The answer may have come while this thread did not run; then the other end counts on this connection.
            if self.asked(pe) {
                self.dialled(pe);
            }
            if self.dials.get(&pe).is_some_and(|dial| dial.due(now))
                && let Err(e) = self.attempt(pe)
            {
                self.failed_start(pe, e);
            }
        }
    }

    fn attempt(&mut self, pe: Pe) -> Result<()> {
        let addresses = self.shared.directory.addresses(&self.shared.job, pe);
        let Some(dial) = self.dials.get_mut(&pe) else { return Ok(()) };
        dial.call = None;
        dial.next = Instant::now() + dial.pause;
        dial.pause = (dial.pause * 2).min(RETRY.1);
        // Where it is not known yet, a later turn may know.
        let Some(addresses) = addresses.filter(|a| !a.is_empty()) else { return Ok(()) };
        let address = addresses[dial.attempts % addresses.len()].clone();
        dial.attempts += 1;
        let family = match &address {
            Address::Unix(_) => AddressFamily::UNIX,
            Address::Tcp(addr) if addr.is_ipv4() => AddressFamily::INET,
            Address::Tcp(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None);
        let socket = socket.map_err(|e| Error::system("socket", e))?;
        match connect(&socket, &address.sockaddr()?) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            // Nobody there yet, no longer, or its queue is full.
            Err(e) => {
                return match (&address, e) {
                    (Address::Unix(_), Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR)
                    | (Address::Tcp(_), _) => {
                        self.refused(pe, &address, e);
                        Ok(())
                    }
                    (Address::Unix(_), e) => Err(Error::system("connect", e)),
                };
            }
        }
        let mut pid = None;
        if let Address::Unix(name) = &address {
            let (who, uid) = credentials(&socket)?;
            if uid != getuid().as_raw() {
                let why = format!("address @{name} of PE {pe} belongs to user {uid}");
                return Err(Error::Bootstrap { call: "connect", why });
            }
            pid = who;
        }
        let data = EventData::new_u64(DIAL | u64::from(pe.0));
        epoll::add(&self.shared.epoll, &socket, data, EventFlags::OUT)
            .map_err(|e| Error::system("epoll_ctl", e))?;
        let since = Instant::now();
        dial.call =
            Some(Call { socket, address, since, pid, asked: None, pledged: false, bytes: Vec::new() });
        Ok(())
    }

    /// Nobody listens where `pe` should. While the world is made it may still come; later it is gone.
    fn refused(&mut self, pe: Pe, address: &Address, e: Errno) {
        log::trace!("PE {}: PE {pe} at {address}: {e}", self.shared.pe);
        if self.shared.complete.load(Ordering::Acquire) && e == Errno::CONNREFUSED {
            self.gone(pe, &format!("nobody listens at its address {address} any more"));
        }
    }

    /// An attempt can be continued.
    pub(super) fn dialled(&mut self, pe: Pe) {
        if let Err(e) = self.greet(pe).and_then(|()| self.hear(pe)) {
            self.failed_start(pe, e);
        }
    }

    /// Once connected, sends the greeting.
    fn greet(&mut self, pe: Pe) -> Result<()> {
        let Some(call) = self.dials.get_mut(&pe).and_then(|d| d.call.as_mut()) else { return Ok(()) };
        if call.asked.is_some() {
            return Ok(());
        }
        if let Ok(Err(e)) | Err(e) = sockopt::socket_error(&call.socket) {
            let address = call.address.clone();
            self.hang_up(pe);
            self.refused(pe, &address, e);
            return Ok(());
        }
        if matches!(call.address, Address::Tcp(_)) {
            let _ = sockopt::set_tcp_nodelay(&call.socket, true);
        }
        let s = &self.shared;
        let (version, n_pes) = (VERSION, s.n_pes() as u32);
        let nonce = secret::nonce()?;
        let hello = Hello { version, n_pes, pe: s.pe.0, to: pe.0, job: s.job.clone(), nonce };
        let asked = hello.encode();
        // The socket is fresh, so there is room for these few bytes; whatever else happens, another try is due.
        if !send(&call.socket, &asked, SendFlags::NOSIGNAL).is_ok_and(|n| n == HELLO_BYTES) {
            self.hang_up(pe);
            return Ok(());
        }
        call.asked = Some((hello, asked));
        let data = EventData::new_u64(DIAL | u64::from(pe.0));
        epoll::modify(&s.epoll, &call.socket, data, EventFlags::IN).map_err(|e| Error::system("epoll_ctl", e))
    }

    fn hang_up(&mut self, pe: Pe) {
        if let Some(dial) = self.dials.get_mut(&pe) {
            dial.call = None;
        }
    }

    /// Reads the answer and proves this PE in turn.
    fn hear(&mut self, pe: Pe) -> Result<()> {
        let Some(dial) = self.dials.get_mut(&pe) else { return Ok(()) };
        let Some(Call { socket, bytes, asked: Some((ours, asked)), address, pledged, .. }) = &mut dial.call
        else {
            return Ok(());
        };
        if *pledged {
            self.await_standing(pe);
            return Ok(());
        }
        let answer = match fill::<REPLY_BYTES>(socket, bytes) {
            Filled::NotYet => return Ok(()),
            // It ended before it answered: an earlier process of that number, or it comes again.
            Filled::Never => {
                dial.call = None;
                return Ok(());
            }
            Filled::All(answer) => answer,
        };
        let unlike = |what: &str| Error::Bootstrap {
            call: "handshake",
            why: format!("what listens at the address {address} of PE {pe} {what}"),
        };
        let secret = &self.shared.secret;
        let Some((reply, proved)) = Reply::decode(&answer, secret, asked) else {
            return Err(unlike("does not answer like one"));
        };
        if !proved {
            return Err(unlike(
                "does not know the job's secret: SYMM_TOKEN differs, or another job has this address",
            ));
        }
        // Also where this PE gives up: the other end believes only who has proved itself.
        let proof = hello::proof(secret, asked, &answer);
        let told = send(&*socket, &proof, SendFlags::NOSIGNAL).is_ok_and(|n| n == PROOF_BYTES);
        match reply.verdict {
            Verdict::Welcome if told && reply.pe == pe.0 => {
                bytes.clear();
                *pledged = true;
                Ok(())
            }
            Verdict::Welcome => {
                dial.call = None;
                Ok(())
            }
            Verdict::Crossed | Verdict::Duplicate if dial.duplicates < DUPLICATES => {
                dial.duplicates += u32::from(reply.verdict == Verdict::Duplicate);
                dial.next = Instant::now() + CROSSED;
                dial.call = None;
                Ok(())
            }
            _ => reply.refusal(ours).map_or(Ok(()), Err),
        }
    }

    /// Takes the connection once the other end says that it stands; else that end dropped it, and another try is due.
    fn await_standing(&mut self, pe: Pe) {
        let Some(call) = self.dials.get_mut(&pe).and_then(|d| d.call.as_mut()) else { return };
        match fill::<{ STANDS.len() }>(&call.socket, &mut call.bytes) {
            Filled::NotYet => {}
            Filled::All(STANDS) => {
                let Some(call) = self.dials.remove(&pe).and_then(|d| d.call) else { return };
                let _ = epoll::delete(&self.shared.epoll, &call.socket);
                self.connected(pe, call.socket, matches!(call.address, Address::Unix(_)), call.pid);
            }
            Filled::Never | Filled::All(_) => self.hang_up(pe),
        }
    }

    /// What cannot be mended by another attempt: the end of a world that is being made, or of this peer.
    fn failed_start(&mut self, pe: Pe, e: Error) {
        self.dials.remove(&pe);
        if self.shared.complete.load(Ordering::Acquire) {
            self.gone(pe, &format!("no connection to it could be made: {e}"));
        } else {
            self.shared.mailbox.break_off(e);
        }
    }
}

impl Dial {
    /// When the next attempt is due or the present one ends; `None` if only the other end can end it.
    fn at(&self) -> Option<Instant> {
        match &self.call {
            None => Some(self.next),
            Some(call) if call.pledged => None,
            Some(call) => Some(call.since + ATTEMPT_LIMIT),
        }
    }

    fn due(&self, now: Instant) -> bool {
        self.at().is_some_and(|at| at <= now)
    }
}
