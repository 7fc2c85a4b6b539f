//! How much memory there is.

use std::fs;
use std::path::{Path, PathBuf};

use symm::Config;
use symm_core::layout::{ContextLayout, PadLayout, default_max_splits};

use super::args::human;
use super::error::Failure;

/// Bytes that this process and its children may still take: what the system calls available, less where a control
/// group allows less. `None` if the system does not tell.
pub(crate) fn available() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo(&text));
    let groups =
        fs::read_to_string("/proc/self/cgroup").ok().map(|text| group_files(&text)).unwrap_or_default();
    groups.iter().filter_map(|(max, used)| left(max, used)).chain(system).min()
}

/// Bytes of a process that has nothing but the library.
const PROCESS: u64 = 4 << 20;

/// Bytes that one of `pes` PEs takes of the host whatever it does: the process and, if `on_host` its symmetric memory is there, pools, a
/// pad for each of `handles`, and the world's context.
pub(crate) fn of_pe(config: &Config, pes: usize, handles: u64, on_host: bool) -> u64 {
    if !on_host {
        return PROCESS;
    }
    let pools = 2 * config.pool_bytes as u64;
    let pad = PadLayout::new(pes, config.signal_pad_bytes, config.signals).bytes as u64;
    PROCESS
        .saturating_add(pools)
        .saturating_add(handles.saturating_mul(pad))
        .saturating_add(of_context(pes, default_max_splits(pes)))
}

/// Whether symmetric memory is the host's; GPUs say themselves what they have.
pub(crate) fn on_host(config: &Config) -> bool {
    cfg!(not(feature = "cuda")) || config.backend == "host"
}

/// Bytes of a context.
pub(crate) fn of_context(pes: usize, splits: usize) -> u64 {
    // Beyond this the layout's own arithmetic would not fit; far too much in any case.
    let rough = (2 * pes as u64).saturating_mul(8 * splits as u64);
    if rough > 1 << 50 { rough } else { ContextLayout::new(pes, splits).bytes as u64 }
}

/// Checks that this machine has the memory that `pes` PEs take whatever they do.
pub(crate) fn check_pes(config: &Config, pes: usize, on_host: bool) -> Result<(), Failure> {
    let available = available().unwrap_or(u64::MAX);
    let all = |pes: usize| of_pe(config, pes, 1, on_host).saturating_mul(pes as u64);
    if all(pes) <= available {
        return Ok(());
    }
    // One is never refused here; halving the range finds the most.
    let (mut low, mut high) = (1, pes);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if all(middle) <= available { low = middle } else { high = middle }
    }
    let expected = format!(
        "at most {low} on this machine: {pes} take {} before any buffer, {} are available",
        human(all(pes)),
        human(available)
    );
    if pes == 1 { Ok(()) } else { Err(Failure::argument("pes", pes, expected)) }
}

/// What a control group leaves; file pages that it would give up at once count as free.
fn left(max: &Path, used: &Path) -> Option<u64> {
    let stat = fs::read_to_string(used.with_file_name("memory.stat")).unwrap_or_default();
    Some(number(max)?.saturating_sub(number(used)?.saturating_sub(idle_file_pages(&stat))))
}

fn idle_file_pages(stat: &str) -> u64 {
    let field = |name: &str| stat.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<u64>().ok());
    // Version 1 counts the children only under the second name.
    field("total_inactive_file ").or_else(|| field("inactive_file ")).unwrap_or(0)
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Files with the limit and the use of each control group that this process is in: version 2, and 1's memory controller.
fn group_files(cgroup: &str) -> Vec<(PathBuf, PathBuf)> {
    let mut files = Vec::new();
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, max, used) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            c if c.split(',').any(|c| c == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        // A parent's limit binds its children too.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let group = Path::new(root).join(group);
            files.push((group.join(max), group.join(used)));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_pes_than_fit_are_refused_with_how_many_do() {
        let config = Config::default();
        for on_host in [true, false] {
            assert_eq!(check_pes(&config, 1, on_host).map_err(|f| f.error.message), Ok(()));
            let e = check_pes(&config, 1 << 20, on_host).expect_err("4 TiB of processes alone").error;
            assert_eq!(e.field.as_deref(), Some("pes"));
            let most = e.message.split("at most ").nth(1).and_then(|rest| rest.split(' ').next());
            let most: usize = most.and_then(|n| n.parse().ok()).expect("a number");
            assert_eq!(check_pes(&config, most / 2, on_host).map_err(|f| f.error.message), Ok(()));
        }
        assert_eq!(of_pe(&config, 1 << 20, 1, false), PROCESS);
        assert!(of_pe(&config, 1000, 2, true) > of_pe(&config, 1000, 1, true));
    }

    #[test]
    fn the_system_tells_how_much_there_is() {
        assert_eq!(meminfo("MemTotal: 9 kB\nMemAvailable:   5 kB\n"), Some(5120));
        assert!(available().is_some_and(|n| n > 0));
        let files = group_files("0::/a/b\n");
        let max: Vec<_> = files.iter().map(|(m, _)| m.to_string_lossy().into_owned()).collect();
        let expected = ["/sys/fs/cgroup/a/b/", "/sys/fs/cgroup/a/", "/sys/fs/cgroup/"];
        assert_eq!(max, expected.map(|p| format!("{p}memory.max")));
        assert_eq!(idle_file_pages("anon 4\ninactive_file 7\n"), 7);
        assert_eq!(idle_file_pages("inactive_file 7\ntotal_inactive_file 9\n"), 9);
        assert_eq!(
            group_files("5:cpu,memory:/x\n")[0].1,
            Path::new("/sys/fs/cgroup/memory/x/memory.usage_in_bytes")
        );
    }
}
