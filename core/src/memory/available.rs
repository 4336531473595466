//! The amount of memory that this process can still use, given the available memory of the machine and the limits of
//! its control groups.

use std::fs;
use std::path::Path;

/// Bytes that this process could still allocate without swapping and within its control groups; `None` if the kernel
/// does not report it. Reads some files of `/proc` and `/sys`.
pub(crate) fn available_bytes() -> Option<u64> {
    let machine = of_machine(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let left = groups.lines().filter_map(|line| unused_in(line, |path| fs::read_to_string(path).ok())).min();
    Some(left.map_or(machine, |left| left.min(machine)))
}

/// The bytes that `/proc/meminfo` names as available.
fn of_machine(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The number of bytes that the memory limits of a control group (a line of `/proc/self/cgroup`) and of its ancestors
/// leave.
fn unused_in(line: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, group) = (fields.next()?, fields.next()?);
    let (root, limit, used) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
        _ if controllers.split(',').any(|one| one == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
        }
        _ => return None,
    };
    let number = |path: &Path| read(path)?.trim().parse::<u64>().ok();
    let own = Path::new(root).join(group.trim_start_matches('/'));
    let around = own.ancestors().take_while(|folder| folder.starts_with(root));
    // A group without a limit has "max" in the file, or no such file.
    around.filter_map(|at| Some(number(&at.join(limit))?.saturating_sub(number(&at.join(used))?))).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_of_all_limits_counts() {
        assert_eq!(of_machine("MemTotal: 9 kB\nMemAvailable:    7 kB\n"), Some(7 << 10));
        assert_eq!(of_machine("MemTotal: 9 kB\n"), None);
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/b/memory.current", "5\n"),
            ("/sys/fs/cgroup/a/memory.max", "100\n"),
            ("/sys/fs/cgroup/a/memory.current", "30\n"),
            ("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "50\n"),
            ("/sys/fs/cgroup/memory/c/memory.usage_in_bytes", "60\n"),
        ];
        let read = |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).into());
        let left = |line: &str| unused_in(line, read);
        assert_eq!(
            [left("0::/a/b"), left("0::/"), left("4:memory:/c"), left("5:cpu,cpuacct:/c")],
            [Some(70), None, Some(0), None]
        );
    }

    #[test]
    fn values_of_this_machine_are_plausible() {
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
