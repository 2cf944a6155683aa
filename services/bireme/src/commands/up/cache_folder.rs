//! The folder of the cache of `bireme up`, and the size of its slab.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use bytesize::ByteSize;

use crate::error::{CliError, Result};
use crate::machine::free_bytes;

/// The bytes that are left free on the disk, in addition to a twentieth of its free space. On a nearly full disk, the
/// twentieth alone would be next to nothing.
const RESERVE_BYTES: u64 = 64 << 20;

/// The minimum size of a cache, in bytes: the superblock, and seven segments of 8 MiB, each of which has space for an
/// extent.
const CACHE_BYTES_MIN: u64 = 64 << 20;

/// The minimum size of a slab, as a multiple of the segment's size. One segment fewer fits, because the superblock
/// takes space too.
const SEGMENTS_MIN: u64 = 8;

/// The maximum size of a segment, in bytes: the default of I/O nodes.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Sizes are multiples of this, in bytes.
const MIB: u64 = 1 << 20;

/// The name of the file that holds the extents.
const SLAB: &str = "slab";

/// A folder for the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheFolder(PathBuf);

/// The file that holds the extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slab {
    /// The file's path.
    pub path: PathBuf,
    /// The file's size.
    pub size: ByteSize,
    /// The size of a segment.
    pub segment: ByteSize,
    /// Whether the file is smaller than requested, because the disk has no room for more.
    pub is_smaller: bool,
    /// Free space on the disk, without the space that the file takes already.
    pub free: ByteSize,
}

impl CacheFolder {
    /// Returns `folder` if given, else `bireme/up/NAME` in the user's cache folder.
    pub fn locate(
        folder: Option<&Path>,
        name: &str,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self> {
        if let Some(folder) = folder {
            return Ok(Self(folder.to_owned()));
        }
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(CliError::usage(format!("`{name}` can't be the --name of a cache folder")));
        }
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        let base = base.ok_or_else(|| {
            CliError::usage("HOME is not set to an absolute path; name a folder with --cache-dir")
        })?;
        Ok(Self(base.join("bireme/up").join(name)))
    }

    /// Creates the folder and its missing parents with mode 0700, and plans a slab of `wanted` bytes, or of as much as
    /// the disk has room for.
    pub fn slab(&self, wanted: ByteSize) -> Result<Slab> {
        let shown = self.0.display();
        let folder = DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        folder.map_err(|error| cannot_make(&self.0, &error))?;
        let free = free_bytes(&self.0).map_err(|error| {
            let doing = format!("the free space of {shown} can't be read");
            CliError::os(&doing, &error, "name another folder with --cache-dir")
        })?;
        let path = self.0.join(SLAB);
        // The blocks that the file already occupies need no free space.
        let held = std::fs::metadata(&path).map_or(0, |found| found.blocks() * 512);
        let Some(size) = size(wanted.as_u64(), free, held) else {
            return Err(too_small(&self.0, wanted, free));
        };
        let segment = segment(size);
        let is_smaller = size < wanted.as_u64() / MIB * MIB;
        Ok(Slab {
            path,
            size: ByteSize::b(size),
            segment: ByteSize::b(segment),
            is_smaller,
            free: ByteSize::b(free),
        })
    }
}

/// A cache that is removed on drop, and its folder too if nothing else is in it.
pub struct TemporaryCache(PathBuf);

impl TemporaryCache {
    /// Takes the cache in `folder`, which need not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }
}

impl Drop for TemporaryCache {
    fn drop(&mut self) {
        // A file that can't be removed stays.
        let _ = std::fs::remove_file(self.0.join(SLAB));
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn cannot_make(folder: &Path, error: &io::Error) -> CliError {
    const MEND: &str = "name another with --cache-dir";
    let doing = format!("the cache folder {} can't be created", folder.display());
    match error.kind() {
        // Missing parents would have been created, so this filesystem, such as /proc, allows no new folders.
        io::ErrorKind::NotFound => {
            CliError::folder(format!("{doing}: its filesystem allows no new folders; {MEND}"))
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            CliError::usage(format!("{doing}: a file is in its place; {MEND}"))
        }
        _ => CliError::os(&doing, error, MEND),
    }
}

fn too_small(folder: &Path, wanted: ByteSize, free: u64) -> CliError {
    if wanted.as_u64() < CACHE_BYTES_MIN {
        return CliError::usage(format!(
            "--cache-size {wanted} is too small; give it at least 64MiB"
        ));
    }
    CliError::disk_full(format!(
        "the disk of the cache folder {} has {} free, too little for a cache; free some, or name a \
         folder on another disk with --cache-dir",
        folder.display(),
        ByteSize::b(free).display().iec()
    ))
}

/// Returns as many of the `wanted` bytes as there is room for, rounded down to a whole MiB; `None` if that is too small
/// for a cache.
fn size(wanted: u64, free: u64, held: u64) -> Option<u64> {
    let room = held + (free - free / 20).saturating_sub(RESERVE_BYTES);
    let size = wanted.min(room) / MIB * MIB;
    (size >= CACHE_BYTES_MIN).then_some(size)
}

fn segment(size: u64) -> u64 {
    (size / SEGMENTS_MIN / MIB * MIB).min(SEGMENT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_cache_is_as_large_as_the_disk_allows() {
        assert_eq!(size(4 * GIB, 100 * GIB, 0), Some(4 * GIB));
        assert_eq!(size(4 * GIB, 2000 * MIB, 0), Some((2000 - 100 - 64) * MIB));
        assert_eq!(size(4 * GIB, 0, 4 * GIB + 4096), Some(4 * GIB));
        assert_eq!(size(4 * GIB, 130 * MIB, 0), None);
        assert_eq!(size(63 * MIB, 100 * GIB, 0), None);
        assert_eq!(size(64 * MIB + 5, 100 * GIB, 0), Some(64 * MIB));
        assert_eq!((segment(64 * MIB), segment(4 * GIB)), (8 * MIB, 64 * MIB));
    }

    #[test]
    fn the_folder_is_in_the_users_cache_folder() {
        let locate = |folder: Option<&str>, name: &str, pairs: &[(&str, &str)]| {
            let variable = |name: &str| {
                pairs.iter().find(|(it, _)| *it == name).map(|(_, value)| OsString::from(value))
            };
            CacheFolder::locate(folder.map(Path::new), name, variable)
                .map(|CacheFolder(path)| path.display().to_string())
        };
        let home = ("HOME", "/home/u");
        assert_eq!(locate(Some("d"), "a", &[home]), Ok("d".into()));
        assert_eq!(locate(None, "a", &[home]), Ok("/home/u/.cache/bireme/up/a".into()));
        assert_eq!(
            locate(None, "a", &[home, ("XDG_CACHE_HOME", "/c")]),
            Ok("/c/bireme/up/a".into())
        );
        assert_eq!(
            locate(None, "a", &[home, ("XDG_CACHE_HOME", "relative")]),
            Ok("/home/u/.cache/bireme/up/a".into())
        );
        assert!(locate(None, "../a", &[home]).is_err());
        assert!(locate(None, "a", &[]).unwrap_err().message().contains("--cache-dir"));
    }

    #[test]
    fn a_folder_that_cant_be_created_is_named_with_what_to_do() {
        for (folder, exit, why) in [
            ("/proc/nonexistent/cache", 6, "allows no new folders"),
            ("/proc/version", 2, "a file is in its place"),
            ("/proc/version/cache", 2, "a file is in its place"),
            // The filesystem of /proc reports no free space.
            ("/proc", 6, "has 0 B free"),
        ] {
            let error = CacheFolder(folder.into()).slab(ByteSize::gib(1)).unwrap_err();
            let said = error.message();
            assert_eq!(error.exit().number(), exit, "{said}");
            assert!(said.contains(&format!("folder {folder} ")) && said.contains(why), "{said}");
            assert!(said.contains("--cache-dir"), "{said}");
        }
    }
}
