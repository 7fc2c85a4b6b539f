//! Whether UCX, below NVSHMEM's `ucx`, carries bytes through shared memory.
//!
//! NVSHMEM names UCX's transports itself: InfiniBand's where there is a NIC, else shared memory, in which PEs of one machine that are not
//! direct then meet. A quiet is UCX's flush, and that does not wait for a get that waits for room in the peer's queue: a get returns before
//! its bytes are there, and sums come out wrong without an error. Seen with UCX 1.19 to 1.22, without NVSHMEM too
//! (`tests/two_hosts/ucx_flush.c`); over TCP no get was early, and a NIC reads by itself.

use std::ffi::{c_int, c_void};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

/// By which NVSHMEM looks for NICs.
const VERBS: &str = "libibverbs.so.1";
/// What UCX calls its shared memory.
const SHARED: &str = "/ucx_shm_";

const WHY: &str = "NVSHMEM_REMOTE_TRANSPORT=ucx finds no NIC and carries bytes through shared memory, over which UCX lets a get return \
     before its bytes are there (UCX 1.19 to 1.22); with a NIC it works, and PEs of one host do without where they reach each other by load \
     and store (NVSHMEM_DISABLE_P2P unset)";

/// Sees that gets are there when they are said to be; asked once NVSHMEM has started.
///
/// # Errors
/// What carries them, with the settings to change.
pub(crate) fn gets_work() -> Result<(), String> {
    let transport = std::env::var("NVSHMEM_REMOTE_TRANSPORT").unwrap_or_default();
    // Where it cannot be read, nothing is known.
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    decide(&transport, has_nic, maps)
}

/// As [`gets_work`], over what is found here. An application that calls UCX itself has such memory, too: it counts where NVSHMEM's choice
/// is the same.
fn decide(
    transport: &str,
    has_nic: impl FnOnce() -> bool,
    maps: impl FnOnce() -> String,
) -> Result<(), String> {
    let shared = transport.eq_ignore_ascii_case("ucx") && !has_nic() && maps().contains(SHARED);
    if shared { Err(WHY.to_owned()) } else { Ok(()) }
}

/// Whether there is a device of InfiniBand or RoCE, as NVSHMEM's `ucx` asks.
fn has_nic() -> bool {
    type List = unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void;
    type Free = unsafe extern "C" fn(*mut *mut c_void);
    // SAFETY: the initialisers of this library touch nothing but its own data.
    let Ok(verbs) = (unsafe { Library::open(Some(VERBS), RTLD_NOW | RTLD_LOCAL) }) else { return false };
    // SAFETY: the types are those of infiniband/verbs.h.
    let list: Result<Symbol<List>, _> = unsafe { verbs.get(b"ibv_get_device_list\0") };
    // SAFETY: as above.
    let free: Result<Symbol<Free>, _> = unsafe { verbs.get(b"ibv_free_device_list\0") };
    let (Ok(list), Ok(free)) = (list, free) else { return false };
    let mut devices = 0;
    // SAFETY: a place for an integer.
    let listed = unsafe { list(&raw mut devices) };
    if listed.is_null() {
        return false;
    }
    // SAFETY: the list that was made just now, of which nothing is kept.
    unsafe { free(listed) };
    devices > 0
}

#[cfg(test)]
mod tests {
    use super::decide;

    #[test]
    fn shared_memory_below_ucx_is_refused() {
        let line = |name: &str| format!("7f2c83e3e000-7f2c84257000 rw-s 00000000 00:1b 3176    {name}\n");
        let ours = || line("/dev/shm/symm-1-2") + &line("/usr/lib/libucs.so.0");
        let shared = || ours() + &line("/dev/shm/ucx_shm_posix_2e68f6cb (deleted)");
        let why = decide("UCX", || false, shared).expect_err("gets go through shared memory");
        assert!(why.contains("NVSHMEM_REMOTE_TRANSPORT=ucx") && why.contains("shared memory"), "{why}");
        assert_eq!(decide("ucx", || false, ours), Ok(()), "over TCP");
        assert_eq!(decide("ucx", || true, shared), Ok(()), "the application's own");
        assert_eq!(decide("", || false, shared), Ok(()), "the application's own, too");
    }
}
