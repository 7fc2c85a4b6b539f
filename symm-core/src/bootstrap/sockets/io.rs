//! The IO thread: reads every connection into the mailbox, flushes what senders could not write, lets in and connects to
//! peers, notices death.

use std::collections::{BTreeMap, HashMap};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Shared;
use super::dial::Dial;
use super::doors::{VISIT_LIMIT, Visitor, other};
use super::frame::{self, Frame, MAX_FDS, Reader};
use super::gossip::SUSPICION;
use crate::pe::Pe;

/// What an event is about: a kind in the high bits, and a PE, a visitor's number or a door's.
const KIND: u64 = !(u64::MAX >> 4);
const LINK: u64 = 0;
const PIDFD: u64 = 1 << 60;
pub(super) const DIAL: u64 = 2 << 60;
pub(super) const VISITOR: u64 = 3 << 60;
pub(super) const DOOR: u64 = 4 << 60;
const WAKE: u64 = 5 << 60;

const READ_BYTES: usize = 256 << 10;
/// Reads that one wake-up may spend on one connection before it looks at the others.
const READS_PER_TURN: usize = 8;

const READ: EventFlags = EventFlags::IN;
const READ_WRITE: EventFlags = EventFlags::IN.union(EventFlags::OUT);

/// What the IO thread alone knows of a connection.
pub(super) struct Conn {
    socket: Arc<OwnedFd>,
    reader: Reader,
    parting: Parting,
    pub(super) open: bool,
    /// Readable once the peer's process is gone: a child that it forked may hold its connections open.
    pidfd: Option<OwnedFd>,
}

/// What the peer said before its end.
enum Parting {
    /// Nothing: an end is a death.
    None,
    Goodbye,
    /// That it gave the job up, and why. It counts as failed once `due` has passed.
    Abandon {
        due: Instant,
        why: String,
    },
}

/// How far reading got.
enum Read {
    /// Nothing more to read now.
    Dry,
    /// More may be there.
    More,
    /// The peer's end is closed, or of no use; and why.
    End(String),
}

pub(super) struct Io {
    pub(super) shared: Arc<Shared>,
    pub(super) conns: HashMap<Pe, Conn>,
    pub(super) dials: HashMap<Pe, Dial>,
    pub(super) visitors: BTreeMap<u64, Visitor>,
    pub(super) next_visitor: u64,
    /// A door that is not looked at until then.
    pub(super) closed_door: Option<(Instant, usize)>,
    /// PEs that others have seen go while the connection here still stands.
    pub(super) suspects: Vec<(Instant, Pe, String)>,
    scratch: Vec<u8>,
}

impl Io {
    /// Registers everything with the epoll descriptor.
    pub(super) fn new(shared: Arc<Shared>) -> Result<Self, Errno> {
        epoll::add(&shared.epoll, &shared.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        for (i, door) in shared.doors().iter().enumerate() {
            epoll::add(&shared.epoll, &door.socket, EventData::new_u64(DOOR | i as u64), EventFlags::IN)?;
        }
        Ok(Io {
            shared,
            conns: HashMap::new(),
            dials: HashMap::new(),
            visitors: BTreeMap::new(),
            next_visitor: 0,
            closed_door: None,
            suspects: Vec::new(),
            scratch: vec![0; READ_BYTES],
        })
    }

    /// Runs until the bootstrap is closed or dropped.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        while !self.shared.stop.load(Ordering::Acquire) {
            self.take_requests();
            self.dial_due();
            self.end_visits();
            self.reopen_door();
            self.end_suspects();
            events.clear();
            let timeout = self.until_due();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.shared.epoll, spare, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return self.lost(&format!("epoll_wait failed here: {e}")),
            }
            for event in &events {
                let data = event.data.u64();
                let number = data & !KIND;
                let pe = Pe(number as u32);
                match data & KIND {
                    LINK => self.ready(pe, event.flags),
                    PIDFD => self.process_ended(pe),
                    DIAL => self.dialled(pe),
                    VISITOR => self.visited(number),
                    DOOR => self.let_in(number as usize),
                    _ => {
                        // So that it does not wake this thread again for the same reason.
                        let _ = rustix::io::read(&self.shared.wake, &mut [0_u8; 8]);
                    }
                }
            }
        }
    }

    /// Time until something is due that no descriptor tells of.
    fn until_due(&self) -> Option<Timespec> {
        let visit = self.visitors.values().next().map(|v| v.since() + VISIT_LIMIT);
        let door = self.closed_door.map(|(at, _)| at);
        let suspect = self.suspects.iter().map(|(at, ..)| *at).min();
        let due = [self.next_dial(), visit, door, suspect].into_iter().flatten().min()?;
        // A little more, so that it is due when the wait is over.
        let left = due.saturating_duration_since(Instant::now()) + Duration::from_micros(100);
        Some(Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) })
    }

    /// Without this thread nobody hears of anything any more, so every peer counts as gone.
    fn lost(&mut self, why: &str) {
        for i in 0..self.shared.n_pes() {
            if Pe::from(i) != self.shared.pe {
                self.given_up(Pe::from(i), why);
            }
        }
    }

    /// A connection that both ends have proved.
    pub(super) fn connected(&mut self, pe: Pe, socket: OwnedFd, unix: bool, pid: Option<Pid>) {
        let s = Arc::clone(&self.shared);
        self.forget_dial(pe);
        self.dials.remove(&pe);
        let socket = Arc::new(socket);
        let data = EventData::new_u64(LINK | u64::from(pe.0));
        if let Err(e) = epoll::add(&s.epoll, &socket, data, READ) {
            return self.gone(pe, &format!("epoll_ctl failed here: {e}"));
        }
        let pidfd = other(pid).filter(|_| unix).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if let Some(pidfd) = &pidfd {
            let data = EventData::new_u64(PIDFD | u64::from(pe.0));
            if let Err(e) = epoll::add(&s.epoll, pidfd, data, EventFlags::IN) {
                log::debug!("PE {}: the process of PE {pe} cannot be watched: {e}", s.pe);
            }
        }
        let reader = Reader::default();
        let conn = Conn { socket: Arc::clone(&socket), reader, parting: Parting::None, open: true, pidfd };
        self.conns.insert(pe, conn);
        if s.link(pe).open(&socket) {
            s.arm(pe, &socket);
        }
        self.tell_what_is_known(pe);
    }

    fn ready(&mut self, pe: Pe, flags: EventFlags) {
        if !self.conns.get(&pe).is_some_and(|c| c.open) {
            return;
        }
        if flags.contains(EventFlags::OUT) {
            self.flush(pe);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            for _ in 0..READS_PER_TURN {
                match self.read(pe) {
                    Read::Dry => return,
                    Read::More => {}
                    Read::End(why) => return self.gone(pe, &why),
                }
            }
        }
    }

    fn flush(&self, pe: Pe) {
        if let Some(conn) = self.conns.get(&pe) {
            // An error broke the connection; reading finds its end, after what is left to read.
            let _ = self.shared.link(pe).flush(|| {
                let data = EventData::new_u64(LINK | u64::from(pe.0));
                let _ = epoll::modify(&self.shared.epoll, &conn.socket, data, READ);
            });
        }
    }

    fn read(&mut self, from: Pe) -> Read {
        let Some(Conn { socket, reader, parting, .. }) = self.conns.get_mut(&from) else {
            return Read::Dry;
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = recvmsg(&*socket, &mut [IoSliceMut::new(&mut self.scratch)], &mut control, flags);
        let bytes = match got {
            Ok(r) if r.bytes == 0 && reader.mid_frame() => {
                return Read::End("its connection closed in the middle of a message".to_owned());
            }
            Ok(r) if r.bytes == 0 => return Read::End("its connection closed without a goodbye".to_owned()),
            Ok(r) => r.bytes,
            Err(Errno::AGAIN) => return Read::Dry,
            Err(Errno::INTR) => return Read::More,
            Err(e) => return Read::End(format!("its connection broke: {e}")),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                reader.add_fds(fds);
            }
        }
        let (shared, mut told, mut abandoned) = (&self.shared, Vec::new(), None);
        let fed = reader.feed(&self.scratch[..bytes], &mut |frame| match frame {
            Frame::Message(tag, message) => shared.mailbox.deliver(from, tag, message),
            Frame::Goodbye => {
                *parting = Parting::Goodbye;
                shared.mailbox.peer_left(from);
            }
            Frame::Abandon(why) => abandoned = Some(why),
            Frame::Ask(tag) => {
                let (header, payload) = frame::answer(tag, &shared.mailbox.presence(tag));
                shared.post(from, &header, &payload);
            }
            Frame::Answer(tag, presence) => shared.mailbox.answered(from, tag, presence),
            Frame::Gone(gone) => told.push(gone),
        });
        if let (Some(why), Parting::None) = (abandoned, &*parting) {
            let due = Instant::now() + SUSPICION;
            *parting = Parting::Abandon { due, why: why.clone() };
            self.shared.mailbox.peer_parts(from, &why);
            self.suspects.push((due, from, why));
        }
        for gone in told {
            self.hear_of(from, gone);
        }
        match fed {
            Ok(()) if bytes < READ_BYTES / 2 => Read::Dry,
            Ok(()) => Read::More,
            Err(why) => Read::End(why),
        }
    }

    /// The peer's process is gone: what it sent is read first, then the connection counts as closed even if somebody
    /// who inherited it holds it open.
    fn process_ended(&mut self, pe: Pe) {
        let Some(conn) = self.conns.get_mut(&pe) else { return };
        if let Some(pidfd) = conn.pidfd.take() {
            // Dropping it would do; this says so.
            let _ = epoll::delete(&self.shared.epoll, &pidfd);
        }
        if !conn.open {
            return self.ended(pe);
        }
        loop {
            match self.read(pe) {
                // A short read counts as dry, so only an empty one proves that nothing is left.
                Read::Dry if self.nothing_left(pe) => {
                    return self.gone(pe, "its process ended without a goodbye");
                }
                Read::Dry | Read::More => {}
                Read::End(why) => return self.gone(pe, &why),
            }
        }
    }

    fn nothing_left(&self, pe: Pe) -> bool {
        let Some(conn) = self.conns.get(&pe) else { return true };
        let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(rustix::net::recv(&*conn.socket, &mut [0; 1], peek), Err(Errno::AGAIN))
    }

    /// The connection to a peer ended. One that said why it would is given up a little later: what made it give up (a
    /// death, a deadline, another PE's word in shared memory) is about to be seen here too, and is what users need to hear.
    pub(super) fn gone(&mut self, pe: Pe, why: &str) {
        if let Some(Conn { open: true, parting: Parting::Abandon { due, .. }, socket, .. }) =
            self.conns.get(&pe)
            && Instant::now() < *due
        {
            // Until then its end would wake this thread again and again.
            let _ = epoll::delete(&self.shared.epoll, socket);
            return;
        }
        self.given_up(pe, why);
    }

    /// Ends what connects this PE with a peer that is gone; without a goodbye it has failed, and the others are told.
    pub(super) fn given_up(&mut self, pe: Pe, why: &str) {
        let mut goodbye = false;
        let mut proven = true;
        let mut why = why.to_owned();
        self.dials.remove(&pe);
        if let Some(conn) = self.conns.get_mut(&pe) {
            if !std::mem::replace(&mut conn.open, false) {
                return;
            }
            // Descriptors and half a message that will never be whole.
            conn.reader = Reader::default();
            let _ = epoll::delete(&self.shared.epoll, &conn.socket);
            proven = conn.pidfd.is_none();
            match std::mem::replace(&mut conn.parting, Parting::None) {
                Parting::None => {}
                Parting::Goodbye => goodbye = true,
                Parting::Abandon { why: said, .. } => why = said,
            }
        }
        self.shared.link(pe).end();
        if !goodbye {
            self.failed(pe, &why);
        }
        if proven {
            self.ended(pe);
        }
    }
}

impl Shared {
    /// Asks the IO thread to flush the link.
    pub(super) fn arm(&self, to: Pe, socket: &OwnedFd) {
        let data = EventData::new_u64(LINK | u64::from(to.0));
        match epoll::modify(&self.epoll, socket, data, READ_WRITE) {
            // The IO thread took the connection out because the peer is gone.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => {
                log::warn!("PE {}: epoll_ctl failed, nothing can be sent to PE {to} any more: {e}", self.pe);
                self.link(to).end();
            }
        }
    }
}
