//! Whatever bytes a stranger or a broken peer may send, through every reader of this module: the entry of `fuzz/`.

use super::card::Card;
use super::frame::Reader;
use super::hello::{HELLO_BYTES, Hello, REPLY_BYTES, Reply};
use super::secret::Secret;
use crate::bootstrap::tree;
use crate::pe::Pe;

/// Frames of `bytes` read in pieces of `piece`, and how that ended, as text.
fn frames(bytes: &[u8], piece: usize) -> (Vec<String>, Result<(), String>) {
    let (mut reader, mut seen) = (Reader::default(), Vec::new());
    let mut end = Ok(());
    for piece in bytes.chunks(piece) {
        end = reader.feed(piece, &mut |frame| seen.push(format!("{frame:?}")));
        if end.is_err() {
            break;
        }
    }
    (seen, end)
}

/// Reads `noise` as a greeting, an answer, frames, a card and gathered parts.
///
/// # Panics
/// If frames depend on how the bytes were cut, or a greeting is not what it encodes to. Nothing else may panic, and nothing
/// is allocated for lengths that are only announced: that is what a fuzzer looks for.
#[doc(hidden)]
pub fn read_noise(noise: &[u8]) {
    let secret = Secret::new(b"of the job");
    if let Some(bytes) = noise.first_chunk::<HELLO_BYTES>() {
        if let Some(hello) = Hello::decode(bytes) {
            assert_eq!(hello.encode()[..], bytes[..], "a greeting is its bytes");
        }
        if let Some(reply) = noise[HELLO_BYTES..].first_chunk::<REPLY_BYTES>()
            && let Some((_, proved)) = Reply::decode(reply, &secret, bytes)
        {
            assert!(!proved, "noise proves no secret");
        }
    }
    let whole = frames(noise, noise.len().max(1));
    for piece in [1, 31, 4096] {
        assert_eq!(frames(noise, piece), whole, "in pieces of {piece}");
    }
    let _ = Card::decode(Pe(1), noise);
    let ranks = noise.first().map_or(1, |b| usize::from(*b));
    let _ = tree::Packed::read("noise", Pe(1), noise.to_vec(), ranks).map(|packed| packed.parts());
}
