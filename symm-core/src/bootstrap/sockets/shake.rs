//! The handshake on a stream that blocks, for connections that are made before there is an IO thread.

use std::io::{Read, Write};

use super::hello::{self, HELLO_BYTES, Hello, REPLY_BYTES, Reply, STANDS, VERSION, Verdict};
use super::secret::{PROOF_BYTES, nonce};
use super::{Identity, Secret};
use crate::error::Error;
use crate::pe::Pe;

/// One side's part of a handshake. Streams carry timeouts of their own.
pub(in crate::bootstrap) struct Handshake<'a> {
    identity: &'a Identity,
}

impl<'a> Handshake<'a> {
    pub(in crate::bootstrap) fn new(identity: &'a Identity) -> Self {
        Handshake { identity }
    }

    fn secret(&self) -> &Secret {
        &self.identity.secret
    }

    /// Lets somebody in: who it is; or why the job cannot work, told by one of its own. The outer error: a stranger.
    pub(in crate::bootstrap) fn accept(
        &self,
        stream: &mut (impl Read + Write),
    ) -> Result<Result<Pe, Error>, String> {
        let ours = self.identity;
        let mut asked = [0; HELLO_BYTES];
        stream.read_exact(&mut asked).map_err(|e| e.to_string())?;
        let theirs = Hello::decode(&asked).ok_or("it sent no greeting")?;
        let n_pes = ours.n_pes as u32;
        let verdict = if theirs.version != VERSION {
            Verdict::Version
        } else if theirs.job != ours.job || theirs.to != ours.pe.0 || theirs.pe == ours.pe.0 {
            Verdict::Misdirected
        } else if theirs.n_pes != n_pes {
            Verdict::Size
        } else if theirs.pe >= n_pes {
            Verdict::Misdirected
        } else {
            Verdict::Welcome
        };
        let nonce = nonce().map_err(|e| e.to_string())?;
        let reply = Reply { verdict, version: VERSION, n_pes, pe: ours.pe.0, nonce };
        let answer = reply.encode(self.secret(), &asked);
        stream.write_all(&answer).map_err(|e| e.to_string())?;
        let mut proof = [0; PROOF_BYTES];
        stream.read_exact(&mut proof).map_err(|e| e.to_string())?;
        if !hello::proved(self.secret(), &asked, &answer, &proof) {
            return Err(format!("it says it is PE {} and does not know the job's secret", theirs.pe));
        }
        let pe = Pe(theirs.pe);
        match verdict {
            Verdict::Welcome => {
                stream.write_all(&STANDS).map_err(|e| e.to_string())?;
                Ok(Ok(pe))
            }
            Verdict::Version => Ok(Err(hello::version_differs(pe, theirs.version))),
            Verdict::Size => Ok(Err(hello::size_differs(pe, theirs.n_pes, n_pes))),
            Verdict::Misdirected if theirs.pe == ours.pe.0 => {
                let why = format!("another process says that it is PE {pe}: its number is given twice");
                Ok(Err(Error::Bootstrap { call: "meeting", why }))
            }
            Verdict::Duplicate | Verdict::Misdirected | Verdict::Crossed => {
                Err(format!("it says it is PE {} of job {:?}", theirs.pe, theirs.job))
            }
        }
    }

    /// Asks to be let in by `to`. The outer error may pass: nobody answered to the end.
    pub(in crate::bootstrap) fn connect(
        &self,
        to: Pe,
        stream: &mut (impl Read + Write),
    ) -> Result<Result<(), Error>, String> {
        let Identity { pe, n_pes, job, .. } = self.identity;
        let nonce = nonce().map_err(|e| e.to_string())?;
        let (n_pes, job) = (*n_pes as u32, job.clone());
        let hello = Hello { version: VERSION, n_pes, pe: pe.0, to: to.0, job, nonce };
        let asked = hello.encode();
        stream.write_all(&asked).map_err(|e| e.to_string())?;
        let mut answer = [0; REPLY_BYTES];
        stream.read_exact(&mut answer).map_err(|e| e.to_string())?;
        let failed = |why: &str| Ok(Err(Error::Bootstrap { call: "handshake", why: why.to_owned() }));
        let Some((reply, proved)) = Reply::decode(&answer, self.secret(), &asked) else {
            return failed("what listens there does not answer like a PE");
        };
        if !proved {
            return failed(
                "what listens there does not know the job's secret: SYMM_TOKEN differs, or another job has this address",
            );
        }
        let proof = hello::proof(self.secret(), &asked, &answer);
        stream.write_all(&proof).map_err(|e| e.to_string())?;
        if let Some(e) = reply.refusal(&hello) {
            return Ok(Err(e));
        }
        let mut stands = [0; STANDS.len()];
        stream.read_exact(&mut stands).map_err(|e| e.to_string())?;
        if stands == STANDS { Ok(Ok(())) } else { failed("what listens there does not answer like a PE") }
    }
}
