//! Errors of the library, and locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use symm_core::Error;

/// Name of the backend in errors.
pub(crate) const BACKEND: &str = "nvshmem";

/// The backend cannot run here.
pub(crate) fn unavailable(why: impl Into<String>) -> Error {
    Error::Unavailable { backend: BACKEND.to_owned(), why: why.into() }
}

/// Something cannot be done.
pub(crate) fn unsupported(capability: &'static str, why: impl Into<String>) -> Error {
    Error::Unsupported { backend: BACKEND, capability, why: why.into() }
}

/// Locks; a panic of another holder left nothing half-done in the small states that this crate guards.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
