//! What this machine has for a node to use: cores, memory, room on its disks.

use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;

/// Cores that this process may use; 0 where the system doesn't tell.
pub fn cores() -> usize {
    ring::affinity::allowed_cores().map_or(0, |cores| cores.len())
}

/// Bytes of memory that this process may use: the machine's, or what its control group leaves of
/// them. `None` where the system doesn't tell.
pub fn memory_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let machine = total(&read("/proc/meminfo"));
    // "max" where there is no limit; a group is seen at this place from within a container.
    let group = read("/sys/fs/cgroup/memory.max").trim().parse().ok();
    machine.into_iter().chain(group).min()
}

/// Bytes that this user may still write on the filesystem of `folder`.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let found = statvfs(folder)?;
    Ok(found.blocks_available() as u64 * found.fragment_size() as u64)
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
    fn this_machine_has_something_of_each() {
        assert!(cores() > 0);
        assert!(memory_bytes() > Some(1 << 20));
        assert!(free_bytes(Path::new("/nonexistent")).is_err());
        assert_eq!(total("MemTotal:       1024 kB\nMemFree: 1 kB\n"), Some(1 << 20));
        assert_eq!(total("x"), None);
    }
}
