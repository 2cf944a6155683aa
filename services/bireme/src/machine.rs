//! What this machine has for a node to use: cores, and room on its disks.

use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;

/// Cores that this process may use; 0 where the system doesn't tell.
pub fn cores() -> usize {
    ring::affinity::allowed_cores().map_or(0, |cores| cores.len())
}

/// Bytes that this user may still write on the filesystem of `folder`.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let found = statvfs(folder)?;
    Ok(found.blocks_available() as u64 * found.fragment_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_something_of_each() {
        assert!(cores() > 0);
        assert!(free_bytes(Path::new("/nonexistent")).is_err());
    }
}
