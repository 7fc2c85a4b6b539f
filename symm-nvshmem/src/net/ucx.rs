//! Whether UCX, below NVSHMEM's `ucx`, carries bytes through shared memory.
//!
//! A quiet is UCX's flush, and over shared memory that does not wait for a get that waits for room in the peer's queue: a get returns before
//! its bytes are there, and sums come out wrong without an error. Seen with UCX 1.13 and 1.19 to 1.22, without NVSHMEM too
//! (`tests/two_hosts/ucx_flush.c`); over TCP no get was early, and a NIC reads by itself.
//!
//! UCX carries them over what NVSHMEM names to it, as the code of its `ucx` has it:
//!
//! | release | names |
//! |---|---|
//! | 3.4 to 3.7 | `rc` where there is a NIC, else `posix,ib`, whatever UCX_TLS says |
//! | 3.8 and newer | what `NVSHMEM_UCX_TLS` says, else what `UCX_TLS` says, else the same |
//!
//! Names of shared memory and of InfiniBand together count as a NIC's where there is one; none was here to try it on.

use std::ffi::{c_int, c_void};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL, Symbol};

/// By which NVSHMEM looks for NICs.
const VERBS: &str = "libibverbs.so.1";
/// NVSHMEM's transport, up to the number of the interface between the two, and that of the first release that reads UCX's names.
const PLUGIN: &str = "/nvshmem_transport_ucx.so.";
const READS_NAMES: u32 = 7;
/// What UCX calls its shared memory, and Linux that of System V.
const POSIX: &str = "/ucx_shm_";
const SYSTEM_V: &str = "/SYSV";

const WHY: &str = "NVSHMEM_REMOTE_TRANSPORT=ucx has no NIC to use and carries bytes through shared memory, over which UCX lets a get return \
     before its bytes are there (UCX 1.13 to 1.22); with a NIC it works, from NVSHMEM 3.8 on also without shared memory (UCX_TLS=^sm), and \
     PEs of one host do without where they reach each other by load and store (NVSHMEM_DISABLE_P2P unset)";

/// Sees that gets are there when they are said to be; asked once NVSHMEM has started.
///
/// # Errors
/// What carries them, with the settings to change.
pub(crate) fn gets_work() -> Result<(), String> {
    // Names of files need not be UTF-8. Where they cannot be read, nothing is known.
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    decide(&String::from_utf8_lossy(&maps), |name| std::env::var(name).ok(), has_nic)
}

/// As [`gets_work`], over what is found here. An application that calls UCX itself has such memory, too: it counts where NVSHMEM may have
/// chosen the same. Which transport NVSHMEM runs is seen by its file, since a file of settings may have named it.
fn decide(
    maps: &str,
    setting: impl Fn(&str) -> Option<String>,
    has_nic: impl FnOnce() -> bool,
) -> Result<(), String> {
    let Some(interface) = interface(maps) else { return Ok(()) };
    let set = |name| setting(name).filter(|list| !list.is_empty());
    let names =
        (interface >= READS_NAMES).then(|| set("NVSHMEM_UCX_TLS").or_else(|| set("UCX_TLS"))).flatten();
    let shared = match names {
        None => maps.contains(POSIX) && !has_nic(),
        Some(list) => {
            let found = maps.contains(POSIX) || maps.contains(SYSTEM_V);
            found
                && takes(&list, is_shared, &["sm", "shm", "mm"])
                && !(takes(&list, is_nics, &["ib"]) && has_nic())
        }
    };
    if shared { Err(WHY.to_owned()) } else { Ok(()) }
}

/// The number of NVSHMEM's `ucx`, if that is what it runs.
fn interface(maps: &str) -> Option<u32> {
    let (_, number) = maps.split_once(PLUGIN)?;
    let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    Some(number[..digits].parse().unwrap_or(0))
}

/// Whether UCX takes a transport of a kind by its list of names. One that begins with `^` has what is not to be taken: that leaves some of
/// the kind unless it is one of `whole`.
fn takes(list: &str, is: fn(&str) -> bool, whole: &[&str]) -> bool {
    let mut names = list.trim_start_matches('^').split(',').map(|t| t.trim().trim_start_matches('\\'));
    if list.starts_with('^') { !names.any(|t| whole.contains(&t)) } else { names.any(is) }
}

fn is_shared(name: &str) -> bool {
    ["all", "sm", "shm", "mm", "posix", "sysv"].contains(&name)
}

fn is_nics(name: &str) -> bool {
    name == "all" || ["ib", "rc", "dc", "ud"].iter().any(|of| name.starts_with(of))
}

/// Whether there is a device of InfiniBand or RoCE, as NVSHMEM's `ucx` asks.
fn has_nic() -> bool {
    type List = unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void;
    type Free = unsafe extern "C" fn(*mut *mut c_void);
    // SAFETY: the initialisers of this library touch nothing but its own data.
    let Ok(verbs) = (unsafe { Library::open(Some(VERBS), RTLD_LAZY | RTLD_LOCAL) }) else { return false };
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

    fn line(name: &str) -> String {
        format!("7f2c83e3e000-7f2c84257000 rw-s 00000000 00:1b 3176    {name}\n")
    }

    /// A process that runs `ucx` of NVSHMEM with this number, and has memory of UCX's.
    fn maps(number: &str, memory: &str) -> String {
        line("/dev/shm/symm-1-2")
            + &line(&format!("/opt/a b/nvshmem_transport_ucx.so.{number}"))
            + &line(memory)
    }

    const UCX: &str = "/dev/shm/ucx_shm_posix_2e68f6cb (deleted)";
    const LIBRARY: &str = "/usr/lib/libucs.so.0";
    const UNSET: fn(&str) -> Option<String> = |_| None;

    fn over(list: &'static str) -> impl Fn(&str) -> Option<String> {
        move |name| (name == "UCX_TLS").then(|| list.to_owned())
    }

    #[test]
    fn shared_memory_below_ucx_is_refused() {
        for number in ["3", "3.0.0", "4", "7"] {
            let why = decide(&maps(number, UCX), UNSET, || false).expect_err("gets go through shared memory");
            assert!(why.contains("NVSHMEM_REMOTE_TRANSPORT=ucx") && why.contains("shared memory"), "{why}");
            assert_eq!(decide(&maps(number, LIBRARY), UNSET, || false), Ok(()), "over something else");
            assert_eq!(decide(&maps(number, UCX), UNSET, || true), Ok(()), "the application's own");
        }
        let other = line("/opt/nvshmem_transport_ibrc.so.3") + &line(UCX);
        assert_eq!(decide(&other, UNSET, || false), Ok(()), "the application's own, too");
        assert_eq!(decide("", UNSET, || false), Ok(()), "nothing is known");
    }

    #[test]
    fn names_count_where_nvshmem_reads_them() {
        let (old, new) = (maps("6", UCX), maps("7", UCX));
        for list in ["tcp,self", "^sm", "^tcp,shm", "rc,cuda_copy"] {
            assert!(decide(&old, over(list), || false).is_err(), "{list}: not read");
            assert_eq!(decide(&new, over(list), || false), Ok(()), "{list}");
        }
        for list in ["posix", "tcp,sm", "all", "^tcp", "self, \\sysv", "shm,rc"] {
            assert!(decide(&new, over(list), || false).is_err(), "{list}");
        }
        assert!(decide(&maps("7", "/SYSV00000000 (deleted)"), over("sysv,self"), || false).is_err());
        let own = |name: &str| Some(if name == "NVSHMEM_UCX_TLS" { "tcp" } else { "posix" }.to_owned());
        assert_eq!(decide(&new, own, || false), Ok(()), "NVSHMEM's own comes first");
        assert!(decide(&new, over(""), || false).is_err(), "an empty one is none");
    }

    #[test]
    fn a_nic_counts_where_it_is_named() {
        for list in ["all", "rc,sm", "^tcp", "ud_verbs,posix"] {
            assert_eq!(decide(&maps("7", UCX), over(list), || true), Ok(()), "{list}");
        }
        for list in ["posix,self", "tcp,sm", "^ib"] {
            assert!(decide(&maps("7", UCX), over(list), || true).is_err(), "{list}");
            assert_eq!(
                decide(&maps("3", UCX), over(list), || true),
                Ok(()),
                "{list}: not read, and the application's own"
            );
        }
    }
}
