//! Why a slab can't be used. Each names the path and, where there's something to do, what.

use std::io;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum SlabError {
    /// ENOENT: the folder, or the device or file if it wasn't to be created.
    #[error("{}: not found; look whether the path is right, the drive mounted, and the folder there", path.display())]
    NotFound {
        /// The slab.
        path: PathBuf,
    },
    /// EACCES, EPERM.
    #[error("{}: permission denied; this user must be able to read and write it", path.display())]
    PermissionDenied {
        /// The slab.
        path: PathBuf,
    },
    /// EROFS.
    #[error("{}: the filesystem is mounted read-only", path.display())]
    ReadOnlyFilesystem {
        /// The slab.
        path: PathBuf,
    },
    /// ENOSPC, EDQUOT, EFBIG.
    #[error("{}: no room for {bytes} bytes; free some, or configure a smaller slab", path.display())]
    NoSpace {
        /// The slab.
        path: PathBuf,
        /// Wanted.
        bytes: u64,
    },
    /// Another process, or another part of this one, has the slab open.
    #[error("{}: in use by another process, and a slab belongs to one: stop that, or name another", path.display())]
    InUse {
        /// The slab.
        path: PathBuf,
    },
    /// `Direct::Require` on a filesystem that can't.
    #[error("{}: no O_DIRECT here ({why}); put the slab on ext4, XFS or a raw device", path.display())]
    NoDirect {
        /// The slab.
        path: PathBuf,
        /// What failed.
        why: String,
    },
    /// Neither a regular file nor a block device.
    #[error("{}: neither a file nor a block device", path.display())]
    WrongType {
        /// The slab.
        path: PathBuf,
    },
    /// The size asked for isn't a positive multiple of 4,096, or larger than a file can be.
    #[error("{}: a size of {bytes} bytes isn't a positive multiple of 4096", path.display())]
    BadSize {
        /// The slab.
        path: PathBuf,
        /// Wanted.
        bytes: u64,
    },
    /// What exists is smaller than what is wanted and can't grow, or holds no sector.
    #[error("{}: {actual_bytes} bytes, {bytes} are wanted", path.display())]
    TooSmall {
        /// The slab.
        path: PathBuf,
        /// There.
        actual_bytes: u64,
        /// Wanted.
        bytes: u64,
    },
    /// Any other errno.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// The slab.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl SlabError {
    /// The error for what the system said; `bytes` is the size wanted.
    pub(crate) fn of(path: &Path, doing: &'static str, bytes: u64, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ENXIO) => {
                Self::NotFound { path }
            }
            Some(libc::EACCES | libc::EPERM) => Self::PermissionDenied { path },
            Some(libc::EROFS) => Self::ReadOnlyFilesystem { path },
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Self::NoSpace { path, bytes },
            Some(libc::EISDIR) => Self::WrongType { path },
            _ => Self::Io { path, doing, source },
        }
    }
}
