//! How much memory this process may still take.

use std::fs::read_to_string;
use std::path::Path;

/// Bytes that the machine and every control group of this process still allow; `None` where neither says.
pub(crate) fn bytes() -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| of_machine(&text));
    let groups = read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|text| of_groups(&text, Path::new("/sys/fs/cgroup")));
    machine.into_iter().chain(groups).min()
}

/// What `/proc/meminfo` says: available memory and free swap.
fn of_machine(meminfo: &str) -> Option<u64> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(field("MemAvailable")?.saturating_add(field("SwapFree").unwrap_or(0)))
}

/// The smallest room in the process's control group (version 2) and those above it.
fn of_groups(cgroup: &str, root: &Path) -> Option<u64> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let number = |group: &Path, file: &str| read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    let own = root.join(path);
    own.ancestors()
        .take_while(|group| group.starts_with(root))
        .filter_map(|group| {
            // "max" is no number: no limit here.
            let limit = number(group, "memory.max")?;
            Some(limit.saturating_sub(number(group, "memory.current")?))
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_available_plus_swap() {
        let text = "MemTotal:       100 kB\nMemAvailable:    40 kB\nSwapFree:        2 kB\n";
        assert_eq!(of_machine(text), Some(42 * 1024));
        assert_eq!(of_machine("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = std::env::temp_dir().join(format!("symm-host-groups-{}", std::process::id()));
        let inner = root.join("outer/inner");
        std::fs::create_dir_all(&inner).unwrap();
        let limit = |group: &Path, max: &str, current: &str| {
            std::fs::write(group.join("memory.max"), max).unwrap();
            std::fs::write(group.join("memory.current"), current).unwrap();
        };
        limit(&inner, "max\n", "10\n");
        limit(&root.join("outer"), "100\n", "70\n");
        let found = of_groups("0::/outer/inner\n", &root);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, Some(30));
    }

    #[test]
    fn this_machine_says_something() {
        assert!(bytes().is_some_and(|b| b > 0));
    }
}
