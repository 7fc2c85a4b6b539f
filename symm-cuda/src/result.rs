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

/// As [`check`] for a call that takes `bytes` bytes of this PE's GPU: where there are not as many, `OutOfMemory` says how many are
/// free. The GPU's context is current.
pub(crate) fn check_memory(call: &'static str, bytes: usize, result: CUresult) -> Result<()> {
    if result != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return check(call, result);
    }
    let (mut free, mut total) = (0, 0);
    // SAFETY: both are valid places.
    let asked = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    let left = if asked == CUresult::CUDA_SUCCESS {
        format!("the GPU has {free} of its {total} bytes free")
    } else {
        format!("what the GPU has free is unknown: cuMemGetInfo_v2 gave code {}", asked as u32)
    };
    Err(out_of_memory(call, bytes, &left))
}

/// As [`check`] for a call that pins `bytes` bytes of the host.
pub(crate) fn check_pinned(call: &'static str, bytes: usize, result: CUresult) -> Result<()> {
    if result != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return check(call, result);
    }
    let host = rustix::system::sysinfo();
    let unit = u64::from(host.mem_unit.max(1));
    let left = format!("the host has {} bytes free, to be pinned", host.freeram as u64 * unit);
    Err(out_of_memory(call, bytes, &left))
}

fn out_of_memory(call: &str, bytes: usize, left: &str) -> Error {
    let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32;
    let why = format!("{call} failed (code {code}); {left}");
    Error::OutOfMemory { requested: bytes as u64, why, holders: Vec::new() }
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
