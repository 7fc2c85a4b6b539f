//! Bytes from a connection, as strangers and broken peers send them.
#![no_main]

libfuzzer_sys::fuzz_target!(|noise: &[u8]| symm_core::bootstrap::read_noise(noise));
