//! Which call and step a message of an exchange belongs to.
//!
//! Members of a team that make different calls take the same tag, so the tag says nothing of that. Every message of an
//! exchange begins with its call, and a receiver compares it with its own before it decodes anything. Along a tree a PE
//! hears its neighbours only: one that sees two calls tells the others of both, and one that gives up says in which call it
//! was, for those that come to the same tag later with another.

use std::fmt;

use crate::error::{Error, Result};
use crate::pe::Pe;

/// What an exchange is part of; equal on all members that make the same calls in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) op: &'static str,
    /// The step of it, where it has several; else empty.
    pub(crate) step: &'static str,
}

/// The call that no `recover` comes after.
pub(crate) const FINALIZE: &str = "finalize";

impl From<&'static str> for Call {
    fn from(op: &'static str) -> Self {
        Call { op, step: "" }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            "" => f.write_str(self.op),
            step => write!(f, "step {step} of {}", self.op),
        }
    }
}

/// Kinds of messages: a part, the word of a PE that gave up, two calls that differ.
const PART: u8 = 0;
const GAVE_UP: u8 = 1;
const DIFFERS: u8 = 2;

/// A message of an exchange that is not refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// What its sender brings.
    Part(Vec<u8>),
    /// Its sender gave up in the same call.
    GaveUp,
}

/// Two members, and the different calls that they are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Differs([(Pe, String); 2]);

/// Why an exchange ends early.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Differs(Differs),
    Error(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Error(e)
    }
}

fn head(kind: u8, text: &str) -> Vec<u8> {
    let text = &text[..text.floor_char_boundary(usize::from(u8::MAX))];
    [&[kind, text.len() as u8], text.as_bytes()].concat()
}

fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

impl Call {
    /// The message that brings `part`.
    pub(super) fn part(self, part: &[u8]) -> Vec<u8> {
        let mut message = head(PART, &self.to_string());
        message.extend_from_slice(part);
        message
    }

    /// The message of a PE that comes no more.
    pub(super) fn gave_up(self) -> Vec<u8> {
        head(GAVE_UP, &self.to_string())
    }

    /// What `from` sent to `me`, which is in this call.
    pub(super) fn read(self, me: Pe, from: Pe, mut message: Vec<u8>) -> Result<Came, Stop> {
        let wrong = || Error::Bootstrap {
            call: self.op,
            why: format!("PE {from} sent a message of an exchange that does not decode"),
        };
        let (kind, rest) = message.split_first().ok_or_else(wrong)?;
        if *kind == DIFFERS {
            return Err(Stop::Differs(Differs::decode(rest).ok_or_else(wrong)?));
        }
        let (theirs, part) = text(rest).ok_or_else(wrong)?;
        let ours = self.to_string();
        if theirs != ours.as_bytes() {
            let theirs = String::from_utf8_lossy(theirs).into_owned();
            return Err(Stop::Differs(Differs([(me, ours), (from, theirs)])));
        }
        match *kind {
            PART => {
                let at = message.len() - part.len();
                message.drain(..at);
                Ok(Came::Part(message))
            }
            GAVE_UP if part.is_empty() => Ok(Came::GaveUp),
            _ => Err(wrong().into()),
        }
    }
}

impl Differs {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut message = vec![DIFFERS];
        for (pe, call) in &self.0 {
            message.extend_from_slice(&pe.0.to_le_bytes());
            message.extend_from_slice(&head(DIFFERS, call)[1..]);
        }
        message
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let one = |bytes| {
            let (pe, rest) = <[u8]>::split_first_chunk::<4>(bytes)?;
            let (call, rest) = text(rest)?;
            Some(((Pe(u32::from_le_bytes(*pe)), String::from_utf8_lossy(call).into_owned()), rest))
        };
        let (a, rest) = one(bytes)?;
        let (b, rest) = one(rest)?;
        rest.is_empty().then_some(Differs([a, b]))
    }

    /// The error of a PE in `call`: it names the first of the two that is in another.
    pub(super) fn error(&self, call: Call) -> Error {
        let ours = call.to_string();
        let [a, b] = &self.0;
        let (pe, theirs) = if a.1 == ours { b } else { a };
        let last = |call: &str| call.ends_with(FINALIZE);
        let then = if last(&ours) || last(theirs) { "" } else { "; recover sets them right" };
        let why = format!(
            "PE {pe} is in {theirs}, this PE in {ours}: not every member made every call before{then}"
        );
        Error::Bootstrap { call: call.op, why }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OFFER: Call = Call { op: "rendezvous", step: "Offer" };
    const ARRIVE: Call = Call { op: FINALIZE, step: "Arrive" };

    #[test]
    fn what_is_of_the_same_call_comes_back() {
        for call in [OFFER, ARRIVE, Call::from("init")] {
            assert_eq!(call.read(Pe(0), Pe(1), call.part(b"abc")), Ok(Came::Part(b"abc".to_vec())));
            assert_eq!(call.read(Pe(0), Pe(1), call.part(b"")), Ok(Came::Part(vec![])));
            assert_eq!(call.read(Pe(0), Pe(1), call.gave_up()), Ok(Came::GaveUp));
        }
    }

    /// Also of one that gave up, and told by a third.
    #[test]
    fn another_call_is_named_by_everybody() {
        let seen = |call: Call, message| match call.read(Pe(0), Pe(1), message) {
            Err(Stop::Differs(differs)) => differs,
            other => panic!("{other:?}"),
        };
        let told = "bootstrap: rendezvous: PE 1 is in step Arrive of finalize, this PE in step Offer of rendezvous: not every \
                    member made every call before";
        for message in [ARRIVE.part(b"x"), ARRIVE.gave_up()] {
            let differs = seen(OFFER, message);
            assert_eq!(differs.error(OFFER).to_string(), told);
            let told = seen(OFFER, differs.encode());
            assert_eq!(told, differs);
            assert_eq!(
                seen(ARRIVE, differs.encode()).error(ARRIVE).to_string().matches("PE 0 is in").count(),
                1
            );
        }
        let log = Call { op: "rendezvous", step: "Log" };
        assert!(seen(OFFER, log.part(b"")).error(OFFER).to_string().ends_with("; recover sets them right"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(message in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = OFFER.read(Pe(0), Pe(1), message);
        }
    }
}
