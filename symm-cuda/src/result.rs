//! The driver's result codes as errors.

use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUresult};
use symm_core::{Error, Result};

/// Name of the backend in errors.
pub(crate) const BACKEND: &str = "cuda";

/// Turns the result of the driver call `call` into an error with its raw code and text.
pub(crate) fn check(call: &'static str, result: CUresult) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(Error::Backend { backend: BACKEND, call, code: result as i64, text: text(result) })
}

fn text(result: CUresult) -> String {
    let mut name = std::ptr::null();
    // SAFETY: `name` is a valid place for a pointer; the driver stores one to a static string, or none.
    let found = unsafe { sys::cuGetErrorString(result, &raw mut name) };
    if found != CUresult::CUDA_SUCCESS || name.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: not null, so it is the driver's static, NUL-terminated string.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// Locks; a panic of another holder left nothing half-done in the small states that this crate guards.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
