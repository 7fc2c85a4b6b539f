//! The sending half of one connection.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::frame::MAX_FDS;
use crate::deadline::Deadline;

/// Calls that one wake-up of the IO thread may spend on one connection before it looks at the others.
const CALLS_PER_TURN: usize = 16;

/// A frame that the socket had no room for.
struct Queued {
    bytes: Vec<u8>,
    sent: usize,
    /// Sent with the first byte, then dropped.
    fds: Vec<OwnedFd>,
}

#[derive(Default)]
struct Out {
    queue: VecDeque<Queued>,
    broken: bool,
}

/// A connection to a peer. Writing never blocks: what does not fit is queued, and the IO thread flushes it.
pub(super) struct Link {
    pub(super) socket: OwnedFd,
    out: Mutex<Out>,
    drained: Condvar,
}

/// What became of a send.
pub(super) enum Sent {
    /// All bytes are with the system, or behind others that are queued already.
    Done,
    /// Bytes were left over and are the first in the queue: the IO thread must wait for room.
    Queued,
}

impl Link {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Link { socket, out: Mutex::new(Out::default()), drained: Condvar::new() }
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends or queues one frame.
    pub(super) fn send(&self, header: &[u8], payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Sent, Errno> {
        let mut out = self.out();
        if out.broken {
            return Err(Errno::PIPE);
        }
        let total = header.len() + payload.len();
        let mut sent = 0;
        while out.queue.is_empty() && sent < total {
            let head = &header[sent.min(header.len())..];
            let body = &payload[sent.saturating_sub(header.len())..];
            match write(
                &self.socket,
                &[IoSlice::new(head), IoSlice::new(body)],
                if sent == 0 { fds } else { &[] },
            ) {
                Ok(n) => sent += n,
                Err(Errno::AGAIN) => break,
                Err(e) => {
                    // Half a frame is out: what follows could not be told apart.
                    if sent > 0 {
                        self.give_up(&mut out);
                    }
                    return Err(e);
                }
            }
        }
        if sent == total {
            return Ok(Sent::Done);
        }
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(total - sent).is_err() {
            if sent > 0 {
                self.give_up(&mut out);
            }
            return Err(Errno::NOMEM);
        }
        bytes.extend_from_slice(&header[sent.min(header.len())..]);
        bytes.extend_from_slice(&payload[sent.saturating_sub(header.len())..]);
        let fds: Result<Vec<OwnedFd>, Errno> = match sent {
            0 => fds.iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 0)).collect(),
            _ => Ok(Vec::new()),
        };
        let first = out.queue.is_empty();
        out.queue.push_back(Queued { bytes, sent: 0, fds: fds? });
        Ok(if first { Sent::Queued } else { Sent::Done })
    }

    /// Writes queued bytes as far as there is room. Once none are left, `disarm` runs under the lock, so that no sender
    /// can queue (and arm) between the look at the queue and it.
    pub(super) fn flush(&self, disarm: impl FnOnce()) -> Result<(), Errno> {
        let mut out = self.out();
        for _ in 0..CALLS_PER_TURN {
            let Some(first) = out.queue.front_mut() else { break };
            let fds: Vec<BorrowedFd<'_>> = first.fds.iter().map(AsFd::as_fd).collect();
            let wrote = write(&self.socket, &[IoSlice::new(&first.bytes[first.sent..])], &fds);
            match wrote {
                Ok(n) => {
                    first.fds.clear();
                    first.sent += n;
                    if first.sent == first.bytes.len() {
                        out.queue.pop_front();
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(e) => {
                    self.give_up(&mut out);
                    return Err(e);
                }
            }
        }
        if out.queue.is_empty() {
            disarm();
            self.drained.notify_all();
        }
        Ok(())
    }

    /// Waits until nothing is queued, the connection broke, or the deadline passed.
    pub(super) fn wait_drained(&self, deadline: Deadline) {
        let mut out = self.out();
        while !out.queue.is_empty() && !deadline.passed() {
            let woken = self.drained.wait_timeout(out, deadline.left());
            out = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the connection in both directions; bytes that the peer has not read yet stay readable there.
    pub(super) fn end(&self) {
        self.give_up(&mut self.out());
    }

    fn give_up(&self, out: &mut Out) {
        out.broken = true;
        out.queue.clear();
        self.drained.notify_all();
        // Fails only where the connection is gone already, which is what is wanted.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

/// One non-blocking write; descriptors go with its first byte.
fn write(socket: &OwnedFd, parts: &[IoSlice<'_>], fds: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    // NOSIGNAL: a peer's death is an error here, not a SIGPIPE for the user's process.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| sendmsg(socket, parts, &mut control, flags))
}
