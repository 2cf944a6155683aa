//! What memory there is.

/// Bytes of memory that this process may use: the machine's, or what its control group leaves of
/// them. `None` where the system doesn't tell.
pub fn memory_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let machine = total(&read("/proc/meminfo"));
    // "max" where there is no limit; a group is seen at this place from within a container. Version 1 of
    // control groups has it elsewhere, and a number beyond all machines for none.
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
    fn this_machine_has_some() {
        assert!(memory_bytes() > Some(1 << 20));
        assert_eq!(total("MemTotal:       1024 kB\nMemFree: 1 kB\n"), Some(1 << 20));
        assert_eq!(total("x"), None);
    }
}
