//! A mutex whose poison is ignored: a panic in a user's thread must not take the library down with it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// `std::sync::Mutex` with an infallible `lock`. Every critical section here leaves the data consistent at each step.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Lock(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
