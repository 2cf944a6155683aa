//! What this machine has for a node to use: room on its disks.

use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;

/// Bytes that this user may still write on the filesystem of `folder`.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let found = statvfs(folder)?;
    Ok(found.blocks_available() as u64 * found.fragment_size() as u64)
}
