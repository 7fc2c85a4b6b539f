//! A PE that has no memory or no descriptors left: its own error says which call failed, the others are told of the PE.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::job::Job;

/// Before any deadline (15 s): counted from the limit's beginning, after which the PE still works, and touches up to 128 MiB, until
/// it meets it. How soon a death is told is what `deaths` looks at.
const SOON: Duration = Duration::from_secs(10);

/// PE 1 of 2 has room for `mib` MiB more from `moment` on; the tensor has `words` words. PE 0 gets `kind` with `words_of`.
struct Memory {
    moment: &'static str,
    mib: u64,
    tensor: usize,
    victim: (&'static str, &'static str),
    other: (&'static str, &'static str),
}

#[test]
fn address_space_that_does_not_suffice() {
    let import = "PE 1 failed in import: out of symmetric memory";
    let left = "PE 1 failed: it dropped its World without finalize; its last error: out of symmetric memory: 268435456";
    for m in [
        // Set-ups are collective: all are told the same.
        Memory {
            moment: "before",
            mib: 4,
            tensor: 1 << 14,
            victim: ("Setup", import),
            other: ("Setup", import),
        },
        Memory {
            moment: "rendezvous",
            mib: 40,
            tensor: 8 << 20,
            victim: ("Setup", import),
            other: ("Setup", import),
        },
        // `empty` is local, and the program ends.
        Memory {
            moment: "rendezvous",
            mib: 96,
            tensor: 64 << 20,
            victim: ("OutOfMemory", "268435456 bytes: mmap failed: Cannot allocate memory"),
            other: ("PeerFailed", left),
        },
    ] {
        let mut job = Job::new(2);
        job.set("TENSOR_WORDS", m.tensor);
        job.set("FAULT_MIB", m.mib);
        job.fault(1, "memory", m.moment);
        let ended = job.run();
        let what = format!("{} MiB left at {}", m.mib, m.moment);
        ended.told(&what, 1, m.other.0, &[m.other.1], SOON);
        let (kind, text) = ended.pes[1].error();
        println!("{what}: PE 1: {kind}: {text}");
        assert!(kind == m.victim.0 && text.contains(m.victim.1), "{what}: {kind}: {text}");
    }
}

/// Without a page more, what is set up goes on, or the process ends at the first small allocation that fails, as Rust's do
/// ("memory allocation of 41 bytes failed", or for the stack of a thread): then the other is told.
#[test]
fn no_address_space_at_all_is_no_harm_or_a_death_that_is_told() {
    for (i, moment) in ["operation", "between", "finalize"].iter().enumerate() {
        for nodes in [1, 2] {
            let mut job = Job::new(2);
            job.set("SYMM_HOST_NODES", nodes);
            job.set("FAULT_MIB", 0);
            let pe = i % 2;
            job.fault(pe, "memory", moment);
            let ended = job.run();
            let what = format!("no more address space at {moment}, {nodes} nodes");
            if ended.pes[pe].status.success() {
                ended.all_well(&what);
                continue;
            }
            let aborted = ended.pes[pe].status.signal() == Some(libc::SIGABRT);
            assert!(aborted, "{what}: {}: {}", ended.pes[pe].status, ended.pes[pe].log);
            // Who was through with everything before it ended misses nothing.
            if !ended.pes[1 - pe].status.success() {
                ended.told(&what, pe, "PeerFailed", &[&format!("PE {pe} failed")], SOON);
            }
        }
    }
}

/// A group of the memory controller, removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// One with `bytes`, if this process may make it.
    fn new(bytes: u64) -> Option<Self> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (base, limit) = if v1.join("memory.limit_in_bytes").exists() {
            (v1, "memory.limit_in_bytes")
        } else {
            (Path::new("/sys/fs/cgroup"), "memory.max")
        };
        let group = Cgroup(base.join(format!("symm-faults-{}", std::process::id())));
        std::fs::create_dir(&group.0).ok()?;
        // Without swap, where the machine has some.
        let _ = std::fs::write(group.0.join("memory.swap.max"), "0");
        std::fs::write(group.0.join(limit), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// What the system does with a process whose group has no memory left: it ends it, and that is a death as others are.
/// Where no group can be made, the limit on the address space above is what is tested.
#[test]
fn a_control_group_without_memory() {
    let Some(group) = Cgroup::new(24 << 20) else {
        println!(
            "no memory control group can be made here: address_space_that_does_not_suffice covers the rest"
        );
        assert!(!require("cgroup"), "SYMM_REQUIRE asks for memory control groups");
        return;
    };
    for moment in ["before", "init", "rendezvous", "operation", "between", "finalize"] {
        let mut job = Job::new(2);
        // Up to the rendezvous it is that which takes more than the group has, later the application.
        let by_us = ["before", "init", "rendezvous"].contains(&moment);
        job.set("TENSOR_WORDS", if by_us { 32 << 20 } else { 1 << 14 });
        job.set("FAULT_HOG_MIB", if by_us { 0 } else { 64 });
        job.set("FAULT_CGROUP", group.0.join("cgroup.procs").display());
        job.fault(1, "cgroup", moment);
        let ended = job.run();
        ended.told(
            &format!("memory group exhausted after {moment}"),
            1,
            "PeerFailed",
            &["PE 1 failed"],
            SOON,
        );
        assert_eq!(ended.pes[1].status.code(), None, "ended by {}", ended.pes[1].status);
    }
}

fn require(what: &str) -> bool {
    std::env::var("SYMM_REQUIRE").is_ok_and(|v| v.split(',').any(|w| w.trim() == what))
}

#[test]
fn descriptors_that_do_not_suffice() {
    for moment in ["before", "init", "rendezvous"] {
        let mut job = Job::new(2);
        job.set("SYMM_INIT_TIMEOUT_MS", 1500);
        job.set("TENSOR_WORDS", 8 << 20);
        job.fault(1, "descriptors", moment);
        let ended = job.run();
        let what = format!("no descriptors left at {moment}");
        let errors = [0, 1].map(|pe| ended.pes[pe].error());
        errors.iter().enumerate().for_each(|(pe, (kind, text))| println!("{what}: PE {pe}: {kind}: {text}"));
        let [(kind, text), own] = errors;
        let expected: &[&str] = match moment {
            // Who has none before it is connected never comes.
            "before" => &["Timeout"],
            // What comes first: that it could make no page, or that it could not take PE 0's.
            "init" => &["PeerFailed", "Unavailable"],
            _ => &["PeerFailed", "Setup"],
        };
        assert!(expected.contains(&kind.as_str()) && text.contains("PE 1"), "{what}: {kind}: {text}");
        let names = ["errno 24", "RLIMIT_NOFILE of this process reached?"];
        assert!(names.iter().any(|n| own.1.contains(n)), "{what}: {own:?}");
        let at = |pe: usize, word| ended.pes[pe].word(word).map_or(0, |s| s.at);
        let after = Duration::from_nanos(at(0, "error").saturating_sub(at(1, "acts")));
        assert!(after < SOON, "{what}: told after {after:?}");
    }
}
