//! The first bytes on a connection: who is there, whether it belongs to this job, and the proof of it both ways.
//!
//! 1. The connecting side greets: who it is, whom it looks for, a nonce.
//! 2. The listening side answers: its verdict, its own nonce, and a proof over both messages.
//! 3. The connecting side sends its proof.
//! 4. The listening side says that the connection stands. Frames follow.
//!
//! Without the last step the connecting side could take for a connection, and its end for a death, what the listening side
//! has dropped meanwhile to make room for others.
//!
//! All four have a fixed size in every version, so a stranger's bytes can be short or wrong but never ask for memory,
//! and nobody acts on what the other side says before it has proved to be of the job.

use super::secret::{NONCE_BYTES, PROOF_BYTES, Secret};
use crate::error::Error;
use crate::pe::Pe;

const MAGIC: [u8; 8] = *b"symmboot";
/// Version of the handshake, the frames after it and the messages of exchanges in them.
pub(super) const VERSION: u32 = 5;
/// Longest job name, as [`Config::check`](crate::Config::check) has it.
const JOB_BYTES: usize = 64;
/// Bytes of a [`Hello`].
pub(super) const HELLO_BYTES: usize = 8 + 5 * 4 + JOB_BYTES + NONCE_BYTES;
/// Bytes of a [`Reply`] without its proof.
const VERDICT_BYTES: usize = 8 + 4 * 4 + NONCE_BYTES;
/// Bytes of a [`Reply`].
pub(super) const REPLY_BYTES: usize = VERDICT_BYTES + PROOF_BYTES;
/// The last step: the connection stands.
pub(super) const STANDS: [u8; 1] = *b"+";
/// In place of a greeting: a PE that hangs up, because the other end has come by itself meanwhile. No stranger, that is, and not
/// to be answered, which a greeting would be: then both might give up their own connection for the other's.
pub(super) const WITHDRAWN: [u8; 8] = *b"symmback";

/// What the connecting PE says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) version: u32,
    pub(super) n_pes: u32,
    pub(super) pe: u32,
    /// Whom it looks for.
    pub(super) to: u32,
    pub(super) job: String,
    pub(super) nonce: [u8; NONCE_BYTES],
}

fn word(bytes: &[u8], index: usize) -> Option<u32> {
    let at = MAGIC.len() + 4 * index;
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        let job = self.job.as_bytes();
        for (i, w) in [self.version, self.n_pes, self.pe, self.to, job.len() as u32].into_iter().enumerate() {
            bytes[8 + 4 * i..][..4].copy_from_slice(&w.to_le_bytes());
        }
        bytes[28..28 + job.len()].copy_from_slice(job);
        bytes[28 + JOB_BYTES..].copy_from_slice(&self.nonce);
        bytes
    }

    /// `None` if the bytes are not a PE's greeting, whatever else they are.
    pub(super) fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Hello> {
        bytes.starts_with(&MAGIC).then_some(())?;
        let (job, nonce) = bytes[28..].split_at(JOB_BYTES);
        let (job, rest) = job.split_at_checked(word(bytes, 4)? as usize)?;
        rest.iter().all(|b| *b == 0).then_some(())?;
        let job = std::str::from_utf8(job).ok()?.to_owned();
        let [version, n_pes, pe, to] = [0, 1, 2, 3].map(|i| word(bytes, i));
        Some(Hello { version: version?, n_pes: n_pes?, pe: pe?, to: to?, job, nonce: nonce.try_into().ok()? })
    }
}

/// How the listening PE answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Welcome,
    /// The two speak different versions.
    Version,
    /// The number of PEs differs.
    Size,
    /// That PE is connected already.
    Duplicate,
    /// Another job, or a PE that has no business at this address.
    Misdirected,
    /// Both connect to each other at once, and the other connection stands.
    Crossed,
}

const VERDICTS: [Verdict; 6] = [
    Verdict::Welcome,
    Verdict::Version,
    Verdict::Size,
    Verdict::Duplicate,
    Verdict::Misdirected,
    Verdict::Crossed,
];

/// The listening PE's answer, with what it holds itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) verdict: Verdict,
    pub(super) version: u32,
    pub(super) n_pes: u32,
    pub(super) pe: u32,
    pub(super) nonce: [u8; NONCE_BYTES],
}

impl Reply {
    /// The answer to `hello` (as bytes), with the proof.
    pub(super) fn encode(&self, secret: &Secret, hello: &[u8; HELLO_BYTES]) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        for (i, w) in [self.verdict as u32, self.version, self.n_pes, self.pe].into_iter().enumerate() {
            bytes[8 + 4 * i..][..4].copy_from_slice(&w.to_le_bytes());
        }
        bytes[24..VERDICT_BYTES].copy_from_slice(&self.nonce);
        let proof = secret.prove("accept", &[hello, &bytes[..VERDICT_BYTES]]);
        bytes[VERDICT_BYTES..].copy_from_slice(&proof);
        bytes
    }

    /// `None` if the bytes are no answer; the flag says whether the proof holds.
    pub(super) fn decode(
        bytes: &[u8; REPLY_BYTES],
        secret: &Secret,
        hello: &[u8; HELLO_BYTES],
    ) -> Option<(Reply, bool)> {
        bytes.starts_with(&MAGIC).then_some(())?;
        let verdict = *VERDICTS.get(word(bytes, 0)? as usize)?;
        let [version, n_pes, pe] = [1, 2, 3].map(|i| word(bytes, i));
        let (said, proof) = bytes.split_at(VERDICT_BYTES);
        let proved = secret.verify("accept", &[hello, said], proof.try_into().ok()?);
        let nonce = said[24..].try_into().ok()?;
        Some((Reply { verdict, version: version?, n_pes: n_pes?, pe: pe?, nonce }, proved))
    }

    /// The error of the PE that holds `ours`, told by `pe`; `None` for a welcome.
    pub(super) fn refusal(&self, ours: &Hello) -> Option<Error> {
        let pe = Pe(self.pe);
        let why = match self.verdict {
            Verdict::Welcome | Verdict::Crossed => return None,
            Verdict::Size => return Some(size_differs(pe, self.n_pes, ours.n_pes)),
            Verdict::Version => return Some(version_differs(pe, self.version)),
            Verdict::Duplicate => {
                format!("PE {pe} has a connection to another PE {}: is a PE number given twice?", ours.pe)
            }
            Verdict::Misdirected => {
                format!(
                    "PE {pe} expects no PE {} of job {:?} that looks for PE {}",
                    ours.pe, ours.job, ours.to
                )
            }
        };
        Some(Error::Bootstrap { call: "handshake", why })
    }
}

/// The connecting side's proof.
pub(super) fn proof(
    secret: &Secret,
    hello: &[u8; HELLO_BYTES],
    reply: &[u8; REPLY_BYTES],
) -> [u8; PROOF_BYTES] {
    secret.prove("connect", &[hello, reply])
}

/// Whether the connecting side has proved to be of the job.
pub(super) fn proved(
    secret: &Secret,
    hello: &[u8; HELLO_BYTES],
    reply: &[u8; REPLY_BYTES],
    proof: &[u8; PROOF_BYTES],
) -> bool {
    secret.verify("connect", &[hello, reply], proof)
}

pub(super) fn size_differs(pe: Pe, theirs: u32, ours: u32) -> Error {
    Error::SettingDiffers { name: "SYMM_N_PES", pe, theirs: theirs.to_string(), ours: ours.to_string() }
}

pub(super) fn version_differs(pe: Pe, theirs: u32) -> Error {
    let why = format!("PE {pe} speaks version {theirs} of the protocol, this PE version {VERSION}");
    Error::Bootstrap { call: "handshake", why }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_greeting_and_an_answer_come_back_and_are_proved() {
        let hello = Hello { version: VERSION, n_pes: 7, pe: 3, to: 1, job: "j".repeat(64), nonce: [5; 32] };
        let asked = hello.encode();
        assert_eq!(Hello::decode(&asked), Some(hello));
        let (secret, other) = (Secret::new(b"a"), Secret::new(b"b"));
        for verdict in VERDICTS {
            let reply = Reply { verdict, version: VERSION, n_pes: 7, pe: 1, nonce: [6; 32] };
            let bytes = reply.encode(&secret, &asked);
            assert_eq!(Reply::decode(&bytes, &secret, &asked), Some((reply, true)));
            assert_eq!(Reply::decode(&bytes, &other, &asked), Some((reply, false)));
            let mut flipped = bytes;
            flipped[12] ^= 1;
            assert!(matches!(Reply::decode(&flipped, &secret, &asked), Some((_, false))));
            assert!(proved(&secret, &asked, &bytes, &proof(&secret, &asked, &bytes)));
            assert!(!proved(&secret, &asked, &bytes, &proof(&other, &asked, &bytes)));
            // Nobody can prove itself by sending back what it was told.
            assert!(!proved(&secret, &asked, &bytes, bytes[VERDICT_BYTES..].try_into().expect("its size")));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(body in proptest::collection::vec(any::<u8>(), HELLO_BYTES - 8)) {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(body);
            let hello: [u8; HELLO_BYTES] = bytes.clone().try_into().expect("fixed size");
            if let Some(h) = Hello::decode(&hello) {
                prop_assert_eq!(h.encode(), hello);
            }
            let reply: [u8; REPLY_BYTES] = bytes[..REPLY_BYTES].try_into().expect("fixed size");
            if let Some((_, proved)) = Reply::decode(&reply, &Secret::default(), &hello) {
                prop_assert!(!proved);
            }
        }
    }
}
