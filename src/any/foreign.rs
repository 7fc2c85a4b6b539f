//! The answers to a value of another backend's world. With one backend there is no other, and none of this.

use symm_core::backend::{Addr, DevicePtrs};
use symm_core::{Error, Result};

pub(super) trait Foreign {
    fn foreign(backend: &'static str) -> Self;
}

impl<T> Foreign for Result<T> {
    fn foreign(backend: &'static str) -> Self {
        Err(Error::argument("backend", "value", "a value of another backend's world", backend))
    }
}

impl<T> Foreign for Option<T> {
    fn foreign(_: &'static str) -> Self {
        None
    }
}

impl Foreign for Addr {
    fn foreign(_: &'static str) -> Self {
        Addr::NULL
    }
}

impl Foreign for DevicePtrs {
    fn foreign(_: &'static str) -> Self {
        let none = Addr::NULL;
        DevicePtrs { buffers: none, pads: none, members: none, status: none, status_host: none }
    }
}

pub(super) fn mixture() -> Error {
    Error::argument("backend", "parts", "parts of two backends", "parts of one")
}
