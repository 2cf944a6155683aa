//! The reasons why a slab cannot be used. Each message names the path and, where possible, says what to do.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a slab could not be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum SlabError {
    /// The folder does not exist, or the file or device does not exist and was not to be created (ENOENT, ENOTDIR,
    /// ENODEV, ENXIO).
    #[error("{}: not found; check that the path is right, the drive is mounted, and the folder exists", path.display())]
    NotFound {
        /// The path of the slab.
        path: PathBuf,
    },
    /// The process may not read or write the slab (EACCES, EPERM).
    #[error("{}: permission denied; give this user permission to read and write it", path.display())]
    PermissionDenied {
        /// The path of the slab.
        path: PathBuf,
    },
    /// The filesystem is read-only (EROFS).
    #[error("{}: the filesystem is mounted read-only; mount it read-write", path.display())]
    ReadOnlyFilesystem {
        /// The path of the slab.
        path: PathBuf,
    },
    /// The filesystem has no space for the slab (ENOSPC, EDQUOT, EFBIG).
    #[error("{}: no space for {bytes} bytes; free some, or configure a smaller slab", path.display())]
    NoSpace {
        /// The path of the slab.
        path: PathBuf,
        /// The configured size.
        bytes: u64,
    },
    /// The slab is already open in another process or elsewhere in this one.
    #[error("{}: in use by another process; stop that process, or configure another path", path.display())]
    InUse {
        /// The path of the slab.
        path: PathBuf,
    },
    /// `Direct::Require` was given, but the filesystem does not support O_DIRECT.
    #[error("{}: no O_DIRECT here ({why}); put the slab on ext4, XFS or a raw device", path.display())]
    NoDirect {
        /// The path of the slab.
        path: PathBuf,
        /// The step that failed.
        why: String,
    },
    /// The path is neither a regular file nor a block device.
    #[error("{}: neither a file nor a block device; configure the path of one", path.display())]
    WrongType {
        /// The path of the slab.
        path: PathBuf,
    },
    /// The configured size is not a positive multiple of 4,096, or exceeds the maximum size of a file.
    #[error("{}: a size of {bytes} bytes is not a positive multiple of 4096", path.display())]
    BadSize {
        /// The path of the slab.
        path: PathBuf,
        /// The configured size.
        bytes: u64,
    },
    /// The existing file or device is smaller than the configured size and cannot grow, or is smaller than a
    /// sector.
    #[error("{}: it has {actual_bytes} bytes, but {bytes} are needed", path.display())]
    TooSmall {
        /// The path of the slab.
        path: PathBuf,
        /// The actual size.
        actual_bytes: u64,
        /// The needed size.
        bytes: u64,
    },
    /// The operating system reported another error.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// The path of the slab.
        path: PathBuf,
        /// The step that failed.
        doing: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl SlabError {
    /// Returns the error for an errno of the operating system. `bytes` is the configured size.
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
