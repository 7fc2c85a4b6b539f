//! The first bytes on a connection: who is there, and whether it belongs to this mesh.
//!
//! Both messages have a fixed size, so a stranger's bytes can be short or wrong but never ask for memory.

use crate::error::Error;
use crate::pe::Pe;

const MAGIC: [u8; 8] = *b"symmboot";
/// Version of the handshake and the frames after it.
pub(super) const VERSION: u32 = 1;
/// Longest job name, as [`Config::check`](crate::Config::check) has it.
const JOB_BYTES: usize = 64;
/// Bytes of a [`Hello`].
pub(super) const HELLO_BYTES: usize = 8 + 4 * 4 + JOB_BYTES;
/// Bytes of a [`Reply`].
pub(super) const REPLY_BYTES: usize = 8 + 4 * 4;

/// What the connecting PE says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) version: u32,
    pub(super) n_pes: u32,
    pub(super) pe: u32,
    pub(super) job: String,
}

fn word(bytes: &[u8], index: usize) -> Option<u32> {
    let at = MAGIC.len() + 4 * index;
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
}

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let job = self.job.as_bytes();
        let mut bytes = MAGIC.to_vec();
        for w in [self.version, self.n_pes, self.pe, job.len() as u32] {
            bytes.extend(w.to_le_bytes());
        }
        bytes.extend(job);
        bytes.resize(HELLO_BYTES, 0);
        bytes
    }

    /// `None` if the bytes are not a PE's greeting, whatever else they are.
    pub(super) fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Hello> {
        bytes.starts_with(&MAGIC).then_some(())?;
        let job = &bytes[HELLO_BYTES - JOB_BYTES..];
        let (job, rest) = job.split_at_checked(word(bytes, 3)? as usize)?;
        rest.iter().all(|b| *b == 0).then_some(())?;
        let job = std::str::from_utf8(job).ok()?.to_owned();
        Some(Hello { version: word(bytes, 0)?, n_pes: word(bytes, 1)?, pe: word(bytes, 2)?, job })
    }
}

/// How the listening PE answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Welcome,
    /// The two speak different versions.
    Version,
    /// `SYMM_N_PES` differs.
    Size,
    /// That PE number is connected already.
    Duplicate,
    /// Another job, or a PE number that has no business at this address.
    Misdirected,
}

const VERDICTS: [Verdict; 5] =
    [Verdict::Welcome, Verdict::Version, Verdict::Size, Verdict::Duplicate, Verdict::Misdirected];

/// The listening PE's answer, with what it holds itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) verdict: Verdict,
    pub(super) version: u32,
    pub(super) n_pes: u32,
    pub(super) pe: u32,
}

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for w in [self.verdict as u32, self.version, self.n_pes, self.pe] {
            bytes.extend(w.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; REPLY_BYTES]) -> Option<Reply> {
        bytes.starts_with(&MAGIC).then_some(())?;
        let verdict = *VERDICTS.get(word(bytes, 0)? as usize)?;
        Some(Reply { verdict, version: word(bytes, 1)?, n_pes: word(bytes, 2)?, pe: word(bytes, 3)? })
    }

    /// The error of the PE that holds `ours`, told by `pe`; `None` for a welcome.
    pub(super) fn refusal(&self, ours: &Hello) -> Option<Error> {
        let pe = Pe(self.pe);
        let why = match self.verdict {
            Verdict::Welcome => return None,
            Verdict::Size => return Some(size_differs(pe, self.n_pes, ours.n_pes)),
            Verdict::Version => return Some(version_differs(pe, self.version)),
            Verdict::Duplicate => {
                format!("PE {pe} has a connection to another PE {} of job {:?}", ours.pe, ours.job)
            }
            Verdict::Misdirected => format!("PE {pe} expects no PE {} of job {:?}", ours.pe, ours.job),
        };
        Some(Error::Bootstrap { call: "handshake", why })
    }
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
    fn a_greeting_and_an_answer_come_back() {
        let hello = Hello { version: VERSION, n_pes: 7, pe: 3, job: "j-1".to_owned() };
        let bytes: [u8; HELLO_BYTES] = hello.encode().try_into().expect("fixed size");
        assert_eq!(Hello::decode(&bytes), Some(hello));
        for verdict in VERDICTS {
            let reply = Reply { verdict, version: VERSION, n_pes: 7, pe: 1 };
            let bytes: [u8; REPLY_BYTES] = reply.encode().try_into().expect("fixed size");
            assert_eq!(Reply::decode(&bytes), Some(reply));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(body in proptest::collection::vec(any::<u8>(), HELLO_BYTES - 8)) {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(body);
            let hello: [u8; HELLO_BYTES] = bytes.clone().try_into().expect("fixed size");
            if let Some(h) = Hello::decode(&hello) {
                prop_assert_eq!(h.encode(), hello.to_vec());
            }
            let reply: [u8; REPLY_BYTES] = bytes[..REPLY_BYTES].try_into().expect("fixed size");
            if let Some(r) = Reply::decode(&reply) {
                prop_assert_eq!(r.encode(), reply.to_vec());
            }
        }
    }
}
