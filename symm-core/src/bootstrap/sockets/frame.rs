//! Messages on a connection after the handshake: a header of fixed size, then the payload.
//!
//! Descriptors travel with the first byte of their header, so they are there before the header is complete.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::bootstrap::{Message, Presence, Tag};
use crate::pe::Pe;

/// Longest payload of one message.
pub(super) const MAX_PAYLOAD: usize = 1 << 30;
/// Most descriptors of one message: what the system passes in one call (SCM_MAX_FD).
pub(super) const MAX_FDS: usize = 253;
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 32;

const MAGIC: u32 = u32::from_le_bytes(*b"symf");
const MESSAGE: u16 = 1;
const GOODBYE: u16 = 2;
const GONE: u16 = 3;
const ASK: u16 = 4;
const ANSWER: u16 = 5;
const ABANDON: u16 = 6;

/// Longest text that says how a PE went.
const MAX_WHY: usize = 512;
/// Most PEs of one answer: a PE waits for its neighbours in a tree.
const MAX_WAITS: usize = 64;

/// A message's header; `payload` and `fds` must be within the limits above.
pub(super) fn message_header(tag: Tag, payload: usize, fds: usize) -> [u8; HEADER_BYTES] {
    header(MESSAGE, fds as u16, payload as u64, tag)
}

/// The frame that says goodbye.
pub(super) fn goodbye() -> [u8; HEADER_BYTES] {
    header(GOODBYE, 0, 0, Tag { team: 0, seq: 0 })
}

/// Header and payload of the frame with which a PE says that it gives the job up, and why.
pub(super) fn abandon(why: &str) -> ([u8; HEADER_BYTES], &[u8]) {
    let why = cut(why);
    (header(ABANDON, 0, why.len() as u64, Tag { team: 0, seq: 0 }), why)
}

/// As much of a text as a frame carries.
fn cut(why: &str) -> &[u8] {
    &why.as_bytes()[..why.floor_char_boundary(MAX_WHY)]
}

/// What a PE tells the others of one that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) pe: Pe,
    /// It went without a goodbye, and how that was noticed.
    pub(super) failed: Option<String>,
    /// Its end is proven.
    pub(super) ended: bool,
}

impl Gone {
    /// Header and payload.
    pub(super) fn encode(&self) -> ([u8; HEADER_BYTES], Vec<u8>) {
        let why = cut(self.failed.as_deref().unwrap_or_default());
        let flags = u64::from(self.failed.is_some()) | u64::from(self.ended) << 1;
        let tag = Tag { team: u64::from(self.pe.0), seq: flags };
        (header(GONE, 0, why.len() as u64, tag), why.to_vec())
    }
}

/// The question how far the peer is in an exchange.
pub(super) fn ask(tag: Tag) -> [u8; HEADER_BYTES] {
    header(ASK, 0, 0, tag)
}

/// Header and payload of the answer to it.
pub(super) fn answer(tag: Tag, presence: &Presence) -> ([u8; HEADER_BYTES], Vec<u8>) {
    let (word, pes) = match presence {
        Presence::NotYet => (0, &[][..]),
        Presence::WaitsFor(pes) => (1, &pes[..pes.len().min(MAX_WAITS)]),
        Presence::Past => (2, &[][..]),
    };
    let words = std::iter::once(word).chain(pes.iter().map(|pe| pe.0));
    let payload: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    (header(ANSWER, 0, payload.len() as u64, tag), payload)
}

fn presence(payload: &[u8]) -> Option<Presence> {
    let (word, pes) = payload.split_first_chunk::<4>()?;
    let (pes, rest) = pes.as_chunks::<4>();
    rest.is_empty().then_some(())?;
    match u32::from_le_bytes(*word) {
        0 => Some(Presence::NotYet),
        1 => Some(Presence::WaitsFor(pes.iter().map(|pe| Pe(u32::from_le_bytes(*pe))).collect())),
        2 => Some(Presence::Past),
        _ => None,
    }
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
    Abandon(String),
    Gone(Gone),
    Ask(Tag),
    Answer(Tag, Presence),
}

struct Partial {
    kind: u16,
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
                    sink(p.whole()?);
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
        let most = match kind {
            MESSAGE => MAX_PAYLOAD,
            GOODBYE | ASK => 0,
            GONE | ABANDON => MAX_WHY,
            ANSWER => 4 + 4 * MAX_WAITS,
            _ => return Err(format!("it sent a frame of unknown kind {kind}")),
        };
        if len > most as u64 {
            return Err(format!("it announced a message of {len} bytes, {most} are allowed"));
        }
        if n_fds > self.fds.len() {
            let came = self.fds.len();
            return Err(format!(
                "{came} of {n_fds} file descriptors came (RLIMIT_NOFILE of this process reached?)"
            ));
        }
        let tag = Tag { team: u64::from_le_bytes(at(h, 16)), seq: u64::from_le_bytes(at(h, 24)) };
        let fds = self.fds.drain(..n_fds).collect();
        let partial = Partial { kind, tag, payload: Vec::new(), missing: len as usize, fds };
        if partial.missing == 0 {
            sink(partial.whole()?);
        } else {
            self.partial = Some(partial);
        }
        Ok(())
    }
}

impl Partial {
    fn whole(self) -> Result<Frame, String> {
        let Partial { kind, tag, payload, fds, .. } = self;
        Ok(match kind {
            GOODBYE => Frame::Goodbye,
            ASK => Frame::Ask(tag),
            ABANDON => Frame::Abandon(String::from_utf8_lossy(&payload).into_owned()),
            GONE => {
                let why = String::from_utf8_lossy(&payload).into_owned();
                let pe =
                    Pe(u32::try_from(tag.team).map_err(|_| "it told of a PE that cannot be".to_owned())?);
                Frame::Gone(Gone { pe, failed: (tag.seq & 1 == 1).then_some(why), ended: tag.seq & 2 == 2 })
            }
            ANSWER => {
                let presence = presence(&payload).ok_or("it sent an answer that is none")?;
                Frame::Answer(tag, presence)
            }
            _ => Frame::Message(tag, Message { payload, fds }),
        })
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

    #[test]
    fn what_bootstraps_tell_each_other_comes_back() {
        let tag = Tag { team: 7, seq: 8 };
        let one = |header: [u8; HEADER_BYTES], payload: &[u8]| {
            let (mut frames, end) = read(&[&header, payload]);
            assert_eq!(end, Ok(()));
            frames.pop().expect("one frame")
        };
        for failed in [None, Some("x".repeat(MAX_WHY)), Some(String::new())] {
            let gone = Gone { pe: Pe(9), failed, ended: true };
            let (header, payload) = gone.encode();
            assert!(matches!(one(header, &payload), Frame::Gone(g) if g == gone));
        }
        let long = Gone { pe: Pe(9), failed: Some("ä".repeat(MAX_WHY)), ended: false };
        assert_eq!(long.encode().1.len(), MAX_WHY);
        for why in ["", "its memory ran out", &"ä".repeat(MAX_WHY)] {
            let (header, payload) = abandon(why);
            assert!(
                matches!(one(header, payload), Frame::Abandon(w) if why.starts_with(&w) && w.len() >= why.len().min(MAX_WHY))
            );
        }
        for presence in [Presence::NotYet, Presence::Past, Presence::WaitsFor(vec![Pe(3), Pe(1)])] {
            let (header, payload) = answer(tag, &presence);
            assert!(matches!(one(header, &payload), Frame::Answer(t, p) if t == tag && p == presence));
        }
        assert!(matches!(one(ask(tag), &[]), Frame::Ask(t) if t == tag));
        assert!(read(&[&header(ANSWER, 0, 3, tag), &[0; 3]]).1.is_err());
        assert!(read(&[&header(GONE, 0, MAX_WHY as u64 + 1, tag)]).1.is_err());
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
                    other => prop_assert!(false, "{:?}", other),
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
