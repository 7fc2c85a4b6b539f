//! What the proxy carries, and how it arrives.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use symm_core::Pe;
use symm_core::backend::SignalOp;

use crate::memory::Place;
use crate::protocol::{cells::Word, signal};

/// One message.
#[derive(Debug)]
pub(crate) enum Message {
    /// Bytes and a flag towards a PE.
    Put(Write),
    /// Bytes from a PE.
    Get(Fetch),
}

/// Bytes to a place on a PE, then a flag, either of which may be absent.
#[derive(Debug)]
pub(crate) struct Write {
    /// Where it goes.
    pub(crate) to: Pe,
    /// Place and bytes.
    pub(crate) data: Option<(Place, Box<[u8]>)>,
    /// The flag.
    pub(crate) update: Option<(Place, Update)>,
}

/// A change of a flag on arrival, after the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Update {
    /// A user signal.
    Signal(SignalOp, u64),
    /// An epoch: a smaller one that was overtaken changes nothing.
    Epoch(u64),
    /// A pad slot.
    Slot,
    /// A credit.
    Credit(u32),
}

/// Bytes of a PE's memory, copied into a reply.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// Whose memory.
    pub(crate) from: Pe,
    /// First byte.
    pub(crate) place: Place,
    /// How many.
    pub(crate) bytes: usize,
    /// Where they go. Not the user's memory: a get that gave up must not write there any more.
    pub(crate) reply: Arc<Reply>,
}

/// Bytes on their way back.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    here: AtomicBool,
    bytes: Mutex<Vec<u8>>,
}

impl Reply {
    /// The bytes, once they are here.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        self.here
            .load(Ordering::Acquire)
            .then(|| std::mem::take(&mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Message {
    /// The PE at the other end.
    pub(crate) fn target(&self) -> Pe {
        match self {
            Message::Put(w) => w.to,
            Message::Get(f) => f.from,
        }
    }

    pub(crate) fn is_put(&self) -> bool {
        matches!(self, Message::Put(_))
    }

    /// A put without a flag: nobody can tell when it arrives until quiet.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Message::Put(w) if w.update.is_none())
    }

    /// Carries it out.
    pub(crate) fn deliver(&self) {
        match self {
            Message::Put(write) => write.deliver(),
            Message::Get(fetch) => fetch.deliver(),
        }
    }
}

impl Write {
    fn deliver(&self) {
        let copy = || {
            if let Some((place, bytes)) = &self.data {
                // SAFETY: the sender checked that so many bytes at the place are inside the mapping, which the place
                // keeps alive.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.ptr(), bytes.len()) };
            }
        };
        let Some((place, update)) = &self.update else {
            copy();
            return;
        };
        match *update {
            Update::Signal(op, value) => signal::put_with_signal(copy, place.word64(), op, value),
            Update::Epoch(epoch) => {
                copy();
                Word::<u64>::fetch_max(place.word64(), epoch, Ordering::Release);
            }
            Update::Slot => {
                copy();
                signal::deliver_raise(place.word32());
            }
            Update::Credit(count) => {
                copy();
                signal::give_credit(place.word32(), count);
            }
        }
    }
}

impl Fetch {
    fn deliver(&self) {
        let mut bytes = vec![0_u8; self.bytes];
        // SAFETY: the sender checked that so many bytes at the place are inside the mapping, which the place keeps
        // alive; the vector is as long.
        unsafe { std::ptr::copy_nonoverlapping(self.place.ptr(), bytes.as_mut_ptr(), self.bytes) };
        *self.reply.bytes.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
        self.reply.here.store(true, Ordering::Release);
    }
}

// The words behind places are the processor's own.
const _: fn(&Place) -> &AtomicU32 = Place::word32;
const _: fn(&Place) -> &AtomicU64 = Place::word64;
