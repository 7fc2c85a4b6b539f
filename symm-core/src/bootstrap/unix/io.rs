//! The IO thread: reads every connection into the mailbox, flushes what senders could not write, notices death.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::Shared;
use super::frame::{Frame, MAX_FDS, Reader};
use crate::pe::Pe;

/// Event of the wake-up descriptor; the others carry a PE's index, plus `PIDFD` for its process.
pub(super) const WAKE: u64 = u64::MAX;
const PIDFD: u64 = 1 << 32;

const READ_BYTES: usize = 256 << 10;
/// Reads that one wake-up may spend on one connection before it looks at the others.
const READS_PER_TURN: usize = 8;

pub(super) const READ: EventFlags = EventFlags::IN;
pub(super) const READ_WRITE: EventFlags = EventFlags::IN.union(EventFlags::OUT);

/// What the IO thread alone knows of a connection.
struct Peer {
    reader: Reader,
    said_goodbye: bool,
    open: bool,
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
    shared: Arc<Shared>,
    peers: Vec<Peer>,
    /// Readable once the peer's process is gone: a child that it forked may hold its connections open.
    pidfds: Vec<Option<OwnedFd>>,
    scratch: Vec<u8>,
}

impl Io {
    /// Registers everything with the epoll descriptor.
    pub(super) fn new(shared: Arc<Shared>, pidfds: Vec<Option<OwnedFd>>) -> Result<Self, Errno> {
        epoll::add(&shared.epoll, &shared.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        for (i, link) in shared.links.iter().enumerate() {
            if let Some(link) = link {
                epoll::add(&shared.epoll, &link.socket, EventData::new_u64(i as u64), READ)?;
            }
        }
        for (i, pidfd) in pidfds.iter().enumerate() {
            if let Some(pidfd) = pidfd {
                epoll::add(&shared.epoll, pidfd, EventData::new_u64(PIDFD | i as u64), EventFlags::IN)?;
            }
        }
        let peer = || Peer { reader: Reader::default(), said_goodbye: false, open: true };
        let peers = shared.links.iter().map(|_| peer()).collect();
        Ok(Io { shared, peers, pidfds, scratch: vec![0; READ_BYTES] })
    }

    /// Runs until the bootstrap is closed or dropped.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        while !self.shared.stop.load(Ordering::Acquire) {
            events.clear();
            match epoll::wait(&self.shared.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return self.lost(&format!("epoll_wait failed here: {e}")),
            }
            for event in &events {
                let data = event.data.u64();
                if data == WAKE {
                    continue;
                }
                let index = (data & (PIDFD - 1)) as usize;
                if data & PIDFD != 0 {
                    self.process_ended(index);
                } else {
                    self.ready(index, event.flags);
                }
            }
        }
    }

    /// Without this thread nobody hears of anything any more, so every peer counts as gone.
    fn lost(&mut self, why: &str) {
        for i in 0..self.peers.len() {
            self.end(i, why.to_owned());
        }
    }

    fn ready(&mut self, index: usize, flags: EventFlags) {
        if !self.peers[index].open {
            return;
        }
        if flags.contains(EventFlags::OUT) {
            self.flush(index);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            for _ in 0..READS_PER_TURN {
                match self.read(index) {
                    Read::Dry => return,
                    Read::More => {}
                    Read::End(why) => return self.end(index, why),
                }
            }
        }
    }

    fn flush(&self, index: usize) {
        if let Some(link) = &self.shared.links[index] {
            // An error broke the connection; reading finds its end, after what is left to read.
            let _ = link.flush(|| {
                let _ =
                    epoll::modify(&self.shared.epoll, &link.socket, EventData::new_u64(index as u64), READ);
            });
        }
    }

    fn read(&mut self, index: usize) -> Read {
        let Some(link) = &self.shared.links[index] else { return Read::Dry };
        let Peer { reader, said_goodbye, .. } = &mut self.peers[index];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = recvmsg(&link.socket, &mut [IoSliceMut::new(&mut self.scratch)], &mut control, flags);
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
        let from = Pe::from(index);
        let fed = reader.feed(&self.scratch[..bytes], &mut |frame| match frame {
            Frame::Message(tag, message) => self.shared.mailbox.deliver(from, tag, message),
            Frame::Goodbye => {
                *said_goodbye = true;
                self.shared.mailbox.peer_left(from);
            }
        });
        match fed {
            Ok(()) if bytes < READ_BYTES / 2 => Read::Dry,
            Ok(()) => Read::More,
            Err(why) => Read::End(why),
        }
    }

    /// The peer's process is gone: what it sent is read first, then the connection counts as closed even if somebody
    /// who inherited it holds it open.
    fn process_ended(&mut self, index: usize) {
        if let Some(pidfd) = self.pidfds[index].take() {
            // Dropping it would do; this says so.
            let _ = epoll::delete(&self.shared.epoll, &pidfd);
        }
        if !self.peers[index].open {
            return;
        }
        loop {
            match self.read(index) {
                // A short read counts as dry, so only an empty one proves that nothing is left.
                Read::Dry if self.nothing_left(index) => {
                    return self.end(index, "its process ended without a goodbye".to_owned());
                }
                Read::Dry | Read::More => {}
                Read::End(why) => return self.end(index, why),
            }
        }
    }

    fn nothing_left(&self, index: usize) -> bool {
        let Some(link) = &self.shared.links[index] else { return true };
        let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(rustix::net::recv(&link.socket, &mut [0; 1], peek), Err(Errno::AGAIN))
    }

    fn end(&mut self, index: usize, why: String) {
        let Some(link) = &self.shared.links[index] else { return };
        let peer = &mut self.peers[index];
        if !std::mem::replace(&mut peer.open, false) {
            return;
        }
        // Descriptors and half a message that will never be whole.
        peer.reader = Reader::default();
        let _ = epoll::delete(&self.shared.epoll, &link.socket);
        link.end();
        if !peer.said_goodbye {
            log::debug!("PE {index}: {why}");
            self.shared.mailbox.peer_failed(Pe::from(index), &why);
        }
    }
}
