//! The sending half of what connects this PE with another: a connection, or the frames that wait for one.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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

#[derive(Clone, Default)]
enum State {
    /// Nobody has asked for a connection yet.
    #[default]
    Idle,
    /// The IO thread is connecting; frames are queued.
    Connecting,
    Open(Arc<OwnedFd>),
    /// Closed, or of no use.
    Gone,
}

#[derive(Default)]
struct Out {
    state: State,
    queue: VecDeque<Queued>,
}

/// One per peer that was ever sent to, or came. Writing never blocks: what does not fit is queued, and the IO thread
/// flushes it.
#[derive(Default)]
pub(super) struct Link {
    out: Mutex<Out>,
    drained: Condvar,
}

/// What became of a send.
pub(super) enum Sent {
    /// All bytes are with the system, or behind others that are queued already.
    Done,
    /// Bytes were left over and are the first in the queue: the IO thread must wait for room.
    Queued(Arc<OwnedFd>),
    /// The first frame to this peer: the IO thread must connect.
    Connect,
}

impl Link {
    /// Asks for a connection; `true` if the IO thread must be told.
    pub(super) fn want(&self) -> bool {
        let mut out = self.out();
        let idle = matches!(out.state, State::Idle);
        if idle {
            out.state = State::Connecting;
        }
        idle
    }

    /// Whether there is a connection, or was one.
    pub(super) fn settled(&self) -> bool {
        matches!(self.out().state, State::Open(_) | State::Gone)
    }

    /// Whether the IO thread is connecting.
    pub(super) fn connecting(&self) -> bool {
        matches!(self.out().state, State::Connecting)
    }

    /// The connection stands from now on; `true` if frames wait to be flushed.
    pub(super) fn open(&self, socket: &Arc<OwnedFd>) -> bool {
        let mut out = self.out();
        out.state = State::Open(Arc::clone(socket));
        !out.queue.is_empty()
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends or queues one frame.
    pub(super) fn send(&self, header: &[u8], payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Sent, Errno> {
        let mut out = self.out();
        let socket = match &out.state {
            State::Open(socket) => Arc::clone(socket),
            State::Gone => return Err(Errno::PIPE),
            state @ (State::Idle | State::Connecting) => {
                let first = matches!(state, State::Idle);
                let queued = queued(0, header, payload, fds)?;
                out.state = State::Connecting;
                out.queue.push_back(queued);
                return Ok(if first { Sent::Connect } else { Sent::Done });
            }
        };
        let total = header.len() + payload.len();
        let mut sent = 0;
        while out.queue.is_empty() && sent < total {
            let head = &header[sent.min(header.len())..];
            let body = &payload[sent.saturating_sub(header.len())..];
            match write(&socket, &[IoSlice::new(head), IoSlice::new(body)], if sent == 0 { fds } else { &[] })
            {
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
        let queued = match queued(sent, header, payload, fds) {
            Ok(queued) => queued,
            Err(e) => {
                if sent > 0 {
                    self.give_up(&mut out);
                }
                return Err(e);
            }
        };
        let first = out.queue.is_empty();
        out.queue.push_back(queued);
        Ok(if first { Sent::Queued(socket) } else { Sent::Done })
    }

    /// Writes queued bytes as far as there is room. Once none are left, `disarm` runs under the lock, so that no sender
    /// can queue (and arm) between the look at the queue and it.
    pub(super) fn flush(&self, disarm: impl FnOnce()) -> Result<(), Errno> {
        let mut out = self.out();
        let State::Open(socket) = out.state.clone() else { return Ok(()) };
        for _ in 0..CALLS_PER_TURN {
            let Some(first) = out.queue.front_mut() else { break };
            let fds: Vec<BorrowedFd<'_>> = first.fds.iter().map(AsFd::as_fd).collect();
            let wrote = write(&socket, &[IoSlice::new(&first.bytes[first.sent..])], &fds);
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
        out.queue.clear();
        self.drained.notify_all();
        if let State::Open(socket) = std::mem::replace(&mut out.state, State::Gone) {
            // Fails only where the connection is gone already, which is what is wanted.
            let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
        }
    }
}

/// What is left of a frame after its first `sent` bytes.
fn queued(sent: usize, header: &[u8], payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Queued, Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(header.len() + payload.len() - sent).map_err(|_| Errno::NOMEM)?;
    bytes.extend_from_slice(&header[sent.min(header.len())..]);
    bytes.extend_from_slice(&payload[sent.saturating_sub(header.len())..]);
    // They went with the first byte.
    let fds = if sent == 0 { fds } else { &[] };
    let fds = fds.iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 0)).collect::<Result<_, _>>()?;
    Ok(Queued { bytes, sent: 0, fds })
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
