//! The job's secret, and how two PEs prove to each other that they have it.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;

use crate::error::{Error, Result};

/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = 32;
/// Bytes that each side chooses anew for every connection, so that no proof can be used twice.
pub(super) const NONCE_BYTES: usize = 32;

/// What the PEs of a job know and nobody else. It is never sent, only proved, and not shown by `Debug`.
///
/// The empty secret is known to everybody: jobs of one host, which check the other's uid instead, go with it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Option<Arc<[u8]>>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Secret(..)" } else { "Secret(none)" })
    }
}

impl Secret {
    /// These bytes; none for an empty slice.
    pub fn new(bytes: &[u8]) -> Self {
        Secret((!bytes.is_empty()).then(|| bytes.into()))
    }

    /// 32 random bytes, for the PE that a launcher's key-value space lets choose for all.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn random() -> Result<[u8; 32]> {
        let mut bytes = [0; 32];
        fill_random(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    fn mac(&self, role: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let key = self.0.as_deref().unwrap_or_default();
        let mut mac =
            <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC should take keys of any length");
        mac.update(role.as_bytes());
        // All parts have fixed sizes, so nothing can move from one into the next.
        parts.iter().for_each(|part| mac.update(part));
        mac
    }

    /// Proof of the side in this role over what both have said.
    pub(super) fn prove(&self, role: &str, parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
        self.mac(role, parts).finalize().into_bytes().into()
    }

    /// Checks the other side's proof, in time that does not depend on it.
    pub(super) fn verify(&self, role: &str, parts: &[&[u8]], proof: &[u8; PROOF_BYTES]) -> bool {
        self.mac(role, parts).verify_slice(proof).is_ok()
    }
}

/// A nonce.
pub(super) fn nonce() -> Result<[u8; NONCE_BYTES]> {
    let mut bytes = [0; NONCE_BYTES];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

fn fill_random(bytes: &mut [u8; 32]) -> Result<()> {
    // Up to 256 bytes come whole.
    let got = rustix::io::retry_on_intr(|| getrandom(&mut *bytes, GetRandomFlags::empty()));
    match got {
        Ok(32) => Ok(()),
        Ok(n) => Err(Error::Bootstrap { call: "getrandom", why: format!("{n} of 32 bytes came") }),
        Err(e) => Err(Error::system("getrandom", e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_secret_role_and_words_only() {
        let secret = Secret::new(b"job");
        let proof = secret.prove("accept", &[b"hello", b"reply"]);
        assert!(secret.verify("accept", &[b"hello", b"reply"], &proof));
        assert!(!secret.verify("connect", &[b"hello", b"reply"], &proof));
        assert!(!secret.verify("accept", &[b"hellO", b"reply"], &proof));
        assert!(!Secret::new(b"jab").verify("accept", &[b"hello", b"reply"], &proof));
        assert!(!Secret::default().verify("accept", &[b"hello", b"reply"], &proof));
        assert_ne!(nonce().expect("random"), nonce().expect("random"));
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
