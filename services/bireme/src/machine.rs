//! The machine's cores, and free space on its disks.

use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;

/// Returns the number of cores that this process may use; 0 if the system does not report it.
pub fn cores() -> usize {
    ring::affinity::allowed_cores().map_or(0, |cores| cores.len())
}

/// Returns the bytes that this user may still write on the filesystem of `folder`.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let found = statvfs(folder)?;
    Ok(found.blocks_available() as u64 * found.fragment_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_counted_and_a_missing_folder_is_an_error() {
        assert!(cores() > 0);
        assert!(free_bytes(Path::new("/nonexistent")).is_err());
    }
}
