//! The memory limit of this process.

/// Returns the bytes of memory that this process may use: the machine's memory, or the limit of its control group
/// if that is lower. `None` if the system reports neither.
pub fn memory_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let machine = total(&read("/proc/meminfo"));
    // Inside a container, its own control group is mounted at these paths: version 2, then version 1. Without a
    // limit, version 2 has "max" there, which does not parse, and version 1 a number larger than any machine's memory.
    let groups = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let groups = groups.iter().filter_map(|path| read(path).trim().parse().ok());
    machine.into_iter().chain(groups).min()
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_found() {
        assert!(memory_bytes() > Some(1 << 20));
        assert_eq!(total("MemTotal:       1024 kB\nMemFree: 1 kB\n"), Some(1 << 20));
        assert_eq!(total("x"), None);
    }
}
