//! Processors, memory, limits and settings, as the system tells them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use crate::cli::machine::cpu;
use crate::cli::memory;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) system: String,
    pub(super) cpu: String,
    /// Processors that this process may use.
    pub(super) cores: usize,
    /// Sockets and NUMA nodes of the machine; `None` where the system does not tell.
    pub(super) sockets: Option<usize>,
    pub(super) numa_nodes: Option<usize>,
    /// Bytes.
    pub(super) memory: Option<u64>,
    /// Bytes that this process may still take, control groups counted.
    pub(super) memory_available: Option<u64>,
}

impl Machine {
    pub(super) fn look() -> Self {
        let uname = rustix::system::uname();
        let part = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
        Machine {
            system: format!("{} {}, {}", part(uname.sysname()), part(uname.release()), part(uname.machine())),
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            sockets: sockets(),
            numa_nodes: entries("/sys/devices/system/node", "node").map(|n| n.len()),
            memory: memory(),
            memory_available: memory::available(),
        }
    }
}

/// Names in a folder that are `start` and a number.
fn entries(folder: &str, start: &str) -> Option<Vec<String>> {
    let names = fs::read_dir(folder).ok()?.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let numbered = |name: &String| {
        name.strip_prefix(start).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    Some(names.filter(numbered).collect())
}

fn sockets() -> Option<usize> {
    let folder = "/sys/devices/system/cpu";
    let package = |cpu: String| {
        fs::read_to_string(Path::new(folder).join(cpu).join("topology/physical_package_id")).ok()
    };
    let packages: BTreeSet<String> = entries(folder, "cpu")?.into_iter().filter_map(package).collect();
    (!packages.is_empty()).then_some(packages.len())
}

fn memory() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A limit of this process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Limit {
    pub(super) name: String,
    /// `None`: no limit.
    pub(super) soft: Option<u64>,
    pub(super) hard: Option<u64>,
    /// What it is good for, and what is wrong with it.
    pub(super) note: String,
    pub(super) low: bool,
    /// Whether it counts bytes.
    pub(super) bytes: bool,
}

/// Open files below which jobs of a few hundred PEs run out: each PE holds a connection to each other one, and a descriptor
/// of each segment until it is mapped.
const FILES: u64 = 1024;
/// Locked memory below which network adapters cannot register what they move.
const LOCKED: u64 = 1 << 30;
/// Mappings below which many segments of many peers run out; the system's default.
const MAPPINGS: u64 = 65_530;

pub(super) fn limits() -> Vec<Limit> {
    let of = |name: &str, resource, least: u64, note: &str, why: &str| {
        let l = getrlimit(resource);
        let low = l.current.is_some_and(|n| n < least);
        let note = if low { format!("{note}; {why}") } else { note.to_owned() };
        let bytes = resource == Resource::Memlock;
        Limit { name: name.to_owned(), soft: l.current, hard: l.maximum, note, low, bytes }
    };
    let mut limits = vec![
        of(
            "open files",
            Resource::Nofile,
            FILES,
            "one for each peer and each segment on its way",
            "low for many PEs: raise it with ulimit -n",
        ),
        of(
            "locked memory",
            Resource::Memlock,
            LOCKED,
            "for network adapters; backends host and cuda need none",
            "too low for RDMA: raise it with ulimit -l",
        ),
        of("processes", Resource::Nproc, 64, "PEs and their threads", "low: raise it with ulimit -u"),
    ];
    let mappings = fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|t| t.trim().parse().ok());
    if let Some(n) = mappings {
        let low = n < MAPPINGS;
        let note = if low {
            "memory mappings; low: raise vm.max_map_count"
        } else {
            "memory mappings, one for each peer's segment"
        };
        limits.push(Limit {
            name: "mappings".to_owned(),
            soft: Some(n),
            hard: Some(n),
            note: note.to_owned(),
            low,
            bytes: false,
        });
    }
    limits
}

/// A setting in the environment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: String,
}

/// Variables that decide what a job does, by their first letters. Those of secrets are not shown.
pub(super) fn settings() -> Vec<Setting> {
    const STARTS: [&str; 5] = ["SYMM_", "NVSHMEM_", "NCCL_", "CUDA_", "TORCH_SYMM_MEM_"];
    let mut all: Vec<Setting> = std::env::vars_os()
        .map(|(n, v)| (n.to_string_lossy().into_owned(), v.to_string_lossy().into_owned()))
        .filter(|(name, _)| STARTS.iter().any(|s| name.starts_with(s)))
        .map(|(name, value)| {
            let secret = ["TOKEN", "SECRET", "KEY"].iter().any(|s| name.contains(s));
            Setting { value: if secret { "(set, not shown)".to_owned() } else { value }, name }
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_processors_and_memory() {
        let m = Machine::look();
        assert!(m.cores > 0 && m.memory.is_some_and(|n| n > 0) && m.system.starts_with("Linux"), "{m:?}");
        assert!(m.memory_available <= m.memory);
        assert_eq!(
            limits().iter().map(|l| l.name.as_str()).take(3).collect::<Vec<_>>(),
            ["open files", "locked memory", "processes"]
        );
    }
}
