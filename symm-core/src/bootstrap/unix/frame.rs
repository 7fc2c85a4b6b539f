//! Messages on a connection after the handshake: a header of fixed size, then the payload.
//!
//! Descriptors travel with the first byte of their header, so they are there before the header is complete.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::bootstrap::{Message, Tag};

/// Longest payload of one message.
pub(super) const MAX_PAYLOAD: usize = 1 << 30;
/// Most descriptors of one message: what the system passes in one call (SCM_MAX_FD).
pub(super) const MAX_FDS: usize = 253;
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 32;

const MAGIC: u32 = u32::from_le_bytes(*b"symf");
const MESSAGE: u16 = 1;
const GOODBYE: u16 = 2;

/// A message's header; `payload` and `fds` must be within the limits above.
pub(super) fn message_header(tag: Tag, payload: usize, fds: usize) -> [u8; HEADER_BYTES] {
    header(MESSAGE, fds as u16, payload as u64, tag)
}

/// The frame that says goodbye.
pub(super) fn goodbye() -> [u8; HEADER_BYTES] {
    header(GOODBYE, 0, 0, Tag { team: 0, seq: 0 })
}

fn header(kind: u16, fds: u16, payload: u64, tag: Tag) -> [u8; HEADER_BYTES] {
    let mut h = [0; HEADER_BYTES];
    h[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    h[4..6].copy_from_slice(&kind.to_le_bytes());
    h[6..8].copy_from_slice(&fds.to_le_bytes());
    h[8..16].copy_from_slice(&payload.to_le_bytes());
    h[16..24].copy_from_slice(&tag.team.to_le_bytes());
    h[24..32].copy_from_slice(&tag.seq.to_le_bytes());
    h
}

fn at<const N: usize>(h: &[u8; HEADER_BYTES], from: usize) -> [u8; N] {
    std::array::from_fn(|i| h[from + i])
}

/// What a peer's bytes turned out to be.
#[derive(Debug)]
pub(super) enum Frame {
    Message(Tag, Message),
    Goodbye,
}

struct Partial {
    tag: Tag,
    payload: Vec<u8>,
    missing: usize,
    fds: Vec<OwnedFd>,
}

/// Cuts a peer's bytes into frames.
#[derive(Default)]
pub(super) struct Reader {
    header: [u8; HEADER_BYTES],
    have: usize,
    partial: Option<Partial>,
    fds: VecDeque<OwnedFd>,
}

impl Reader {
    /// Descriptors that came with the bytes fed next.
    pub(super) fn add_fds(&mut self, fds: impl IntoIterator<Item = OwnedFd>) {
        self.fds.extend(fds);
    }

    /// Whether the peer is in the middle of a frame.
    pub(super) fn mid_frame(&self) -> bool {
        self.have > 0 || self.partial.is_some()
    }

    /// Takes in `bytes` and hands every frame that is complete to `sink`.
    ///
    /// Memory grows with the bytes that came, never with what a header announces. An error means that the peer does
    /// not keep to the protocol or memory ran out; the connection is of no use after it.
    pub(super) fn feed(&mut self, mut bytes: &[u8], sink: &mut impl FnMut(Frame)) -> Result<(), String> {
        loop {
            if let Some(p) = &mut self.partial {
                let (now, later) = bytes.split_at(p.missing.min(bytes.len()));
                let fits = p.payload.try_reserve(now.len());
                fits.map_err(|_| {
                    format!("no memory for a message of {} bytes", p.payload.len() + p.missing)
                })?;
                p.payload.extend_from_slice(now);
                p.missing -= now.len();
                bytes = later;
                if p.missing > 0 {
                    return Ok(());
                }
                if let Some(p) = self.partial.take() {
                    sink(Frame::Message(p.tag, Message { payload: p.payload, fds: p.fds }));
                }
            }
            let (now, later) = bytes.split_at((HEADER_BYTES - self.have).min(bytes.len()));
            self.header[self.have..self.have + now.len()].copy_from_slice(now);
            self.have += now.len();
            bytes = later;
            if self.have < HEADER_BYTES {
                return Ok(());
            }
            self.have = 0;
            self.begin(sink)?;
        }
    }

    fn begin(&mut self, sink: &mut impl FnMut(Frame)) -> Result<(), String> {
        let h = &self.header;
        let kind = u16::from_le_bytes(at(h, 4));
        let n_fds = usize::from(u16::from_le_bytes(at(h, 6)));
        let len = u64::from_le_bytes(at(h, 8));
        if u32::from_le_bytes(at(h, 0)) != MAGIC {
            return Err("it sent bytes that are no frame".to_owned());
        }
        match kind {
            GOODBYE => {
                sink(Frame::Goodbye);
                return Ok(());
            }
            MESSAGE => {}
            _ => return Err(format!("it sent a frame of unknown kind {kind}")),
        }
        if len > MAX_PAYLOAD as u64 {
            return Err(format!("it announced a message of {len} bytes, {MAX_PAYLOAD} are allowed"));
        }
        if n_fds > self.fds.len() {
            let came = self.fds.len();
            return Err(format!(
                "{came} of {n_fds} file descriptors came (RLIMIT_NOFILE of this process reached?)"
            ));
        }
        let tag = Tag { team: u64::from_le_bytes(at(h, 16)), seq: u64::from_le_bytes(at(h, 24)) };
        let fds = self.fds.drain(..n_fds).collect();
        self.partial = Some(Partial { tag, payload: Vec::new(), missing: len as usize, fds });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> (Vec<Frame>, Result<(), String>) {
        let (mut reader, mut frames) = (Reader::default(), Vec::new());
        for piece in pieces {
            if let Err(why) = reader.feed(piece, &mut |f| frames.push(f)) {
                return (frames, Err(why));
            }
        }
        (frames, Ok(()))
    }

    #[test]
    fn an_announced_length_allocates_nothing() {
        let tag = Tag { team: 1, seq: 2 };
        let mut reader = Reader::default();
        reader.feed(&message_header(tag, MAX_PAYLOAD, 0), &mut |_| ()).expect("within the limit");
        assert!(reader.partial.as_ref().is_some_and(|p| p.payload.capacity() == 0));
        assert!(reader.mid_frame());
        assert!(read(&[&message_header(tag, MAX_PAYLOAD + 1, 0)]).1.is_err());
        assert!(read(&[&message_header(tag, usize::MAX, 0)]).1.is_err());
        assert!(read(&[&message_header(tag, 0, 1)]).1.is_err(), "a descriptor that never came");
    }

    proptest! {
        #[test]
        fn frames_survive_any_cutting(sizes in proptest::collection::vec(0_usize..200, 1..20), cut in 1_usize..97) {
            let mut stream = Vec::new();
            for (i, size) in sizes.iter().enumerate() {
                stream.extend(message_header(Tag { team: 9, seq: i as u64 }, *size, 0));
                stream.extend(std::iter::repeat_n(i as u8, *size));
            }
            stream.extend(goodbye());
            let (frames, end) = read(&stream.chunks(cut).collect::<Vec<_>>());
            prop_assert_eq!(end, Ok(()));
            prop_assert_eq!(frames.len(), sizes.len() + 1);
            for (i, frame) in frames.iter().enumerate() {
                match frame {
                    Frame::Message(tag, m) => {
                        prop_assert_eq!(*tag, Tag { team: 9, seq: i as u64 });
                        prop_assert_eq!(&m.payload, &vec![i as u8; sizes[i]]);
                    }
                    Frame::Goodbye => prop_assert_eq!(i, sizes.len()),
                }
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..500), good in any::<bool>()) {
            let mut stream = if good { MAGIC.to_le_bytes().to_vec() } else { Vec::new() };
            stream.extend(bytes);
            let _ = read(&[&stream]);
        }
    }
}
