//! How much memory there is.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that this process and its children may still take: what the system calls available, less where a control
/// group allows less. `None` if the system does not tell.
pub(crate) fn available() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo(&text));
    let groups =
        fs::read_to_string("/proc/self/cgroup").ok().map(|text| group_files(&text)).unwrap_or_default();
    groups.iter().filter_map(|(max, used)| left(max, used)).chain(system).min()
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
