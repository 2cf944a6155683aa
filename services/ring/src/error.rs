//! Errors of a ring and of its operations. Errors that occur when a file is opened are in `slab_error`.

use std::fmt;
use std::io;

use address::{ByteOffset, DriveNo};

use crate::{AlignedBuf, ConfigError, DriveFault, IoUringUnavailable};

/// The reason why a read returned no bytes. A read is refused only when it is requested. All other errors occur later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Refused: the queue is full. The caller should shed the request.
    #[error("the read queue is full: {queue_max} reads are waiting")]
    Full {
        /// Maximum length of the queue, in reads; for an owned read, in transfers.
        queue_max: usize,
    },
    /// Refused: the ring was started without this drive.
    #[error("drive {} is not one of the ring's drives", drive.0)]
    NoSuchDrive {
        /// The requested drive.
        drive: DriveNo,
    },
    /// Refused: the offset or the length is not a multiple of 4,096, or the length is 0.
    #[error("{len} bytes at offset {} of drive {} are not whole sectors of 4096 bytes", offset.0, drive.0)]
    Unaligned {
        /// The drive.
        drive: DriveNo,
        /// The requested offset.
        offset: ByteOffset,
        /// The requested length in bytes.
        len: usize,
    },
    /// Refused: the operation is longer than the maximum.
    #[error("a read of {len} bytes is too long; the maximum is {max}")]
    TooLong {
        /// The requested length in bytes.
        len: usize,
        /// Maximum length in bytes.
        max: usize,
    },
    /// Refused: the range extends past the end of the slab. Or, reported later: the file has become shorter since the
    /// ring was started.
    #[error("{len} bytes at offset {} of drive {} extend past its end at {end}", offset.0, drive.0)]
    PastEnd {
        /// The drive.
        drive: DriveNo,
        /// The requested offset.
        offset: ByteOffset,
        /// The requested length in bytes.
        len: usize,
        /// The slab's length in bytes.
        end: u64,
    },
    /// The kernel reported an error, or the operation made no progress until its attempts were used up. The cause may
    /// pass: see [`DriveFault::Busy`].
    #[error("reading drive {} at offset {} failed: {} ({fault})", drive.0, offset.0, errno_text(*errno))]
    Io {
        /// The drive.
        drive: DriveNo,
        /// The offset at which the operation began.
        offset: ByteOffset,
        /// The errno, positive: the kernel's, or EIO if the kernel transferred too little or too much.
        errno: i32,
        /// The class of the errno.
        fault: DriveFault,
    },
    /// The ring was dropped before the read finished.
    #[error("the ring was dropped before the read finished")]
    Closed,
}

/// The reason why bytes were not written, or not made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Refused: the queue of transfers is full.
    #[error("the transfer queue is full: {queue_max} transfers are waiting")]
    Full {
        /// Maximum length of the queue, in transfers.
        queue_max: usize,
    },
    /// Refused: the ring was started without this drive.
    #[error("drive {} is not one of the ring's drives", drive.0)]
    NoSuchDrive {
        /// The requested drive.
        drive: DriveNo,
    },
    /// Refused: the slab was opened read-only.
    #[error("drive {} was opened read-only", drive.0)]
    ReadOnly {
        /// The drive.
        drive: DriveNo,
    },
    /// Refused: the offset is not a multiple of 4,096, or the buffer is empty.
    #[error("{len} bytes at offset {} of drive {} are not whole sectors of 4096 bytes", offset.0, drive.0)]
    Unaligned {
        /// The drive.
        drive: DriveNo,
        /// The requested offset.
        offset: ByteOffset,
        /// The requested length in bytes.
        len: usize,
    },
    /// Refused: the operation is longer than the maximum.
    #[error("a write of {len} bytes is too long; the maximum is {max}")]
    TooLong {
        /// The requested length in bytes.
        len: usize,
        /// Maximum length in bytes.
        max: usize,
    },
    /// Refused: the range extends past the end of the slab.
    #[error("{len} bytes at offset {} of drive {} extend past its end at {end}", offset.0, drive.0)]
    PastEnd {
        /// The drive.
        drive: DriveNo,
        /// The requested offset.
        offset: ByteOffset,
        /// The requested length in bytes.
        len: usize,
        /// The slab's length in bytes.
        end: u64,
    },
    /// There is no space for the bytes (ENOSPC, EDQUOT, EFBIG).
    #[error("no space on drive {} for a write at offset {}", drive.0, offset.0)]
    NoSpace {
        /// The drive.
        drive: DriveNo,
        /// The offset at which the operation began.
        offset: ByteOffset,
    },
    /// The kernel reported an error, or the operation made no progress until its attempts were used up. The range may
    /// now hold old bytes, new bytes or a mixture.
    #[error("writing drive {} at offset {} failed: {} ({fault})", drive.0, offset.0, errno_text(*errno))]
    Io {
        /// The drive.
        drive: DriveNo,
        /// The offset at which the operation began.
        offset: ByteOffset,
        /// The errno, positive: the kernel's, or EIO if the kernel transferred too little or too much.
        errno: i32,
        /// The class of the errno.
        fault: DriveFault,
    },
    /// The ring was dropped before all bytes were written or made durable.
    #[error("the ring was dropped before the write finished")]
    Closed,
}

/// An error together with the buffer of the failed operation.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Returned<E> {
    /// The error.
    pub error: E,
    /// The buffer. After a failed read its contents are undefined.
    pub buf: AlignedBuf,
}

impl<E: fmt::Debug> fmt::Debug for Returned<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// The reason why a ring could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `Engine::IoUring` was configured, but io_uring is not usable here.
    #[error("io_uring cannot be used: {0}")]
    NoIoUring(#[from] IoUringUnavailable),
    /// The ring was not started within a current-thread tokio runtime.
    #[error("a ring must be started within a current-thread tokio runtime, on its core's thread")]
    Runtime,
    /// A simulated slab was given to a real engine, a real slab to the simulated engine, or the slab belongs to another
    /// simulated disk.
    #[error("{path} cannot be used with the {engine} engine")]
    WrongMedium {
        /// The path of the slab.
        path: String,
        /// The engine.
        engine: &'static str,
    },
    /// There are no drives, or more than 65,535.
    #[error("a ring cannot have {0} drives; give it 1 to 65,535")]
    Drives(usize),
    /// The operating system refused something that a ring needs.
    #[error("{doing}: {source}")]
    Os {
        /// The step that failed.
        doing: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The failure of an accepted operation, which is converted to a [`ReadError`] or a [`WriteError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Io { drive: DriveNo, offset: ByteOffset, errno: i32 },
    PastEnd { drive: DriveNo, offset: ByteOffset, len: usize, end: u64 },
    Closed,
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Io { drive, offset, errno } => {
                Self::Io { drive, offset, errno, fault: DriveFault::of(errno) }
            }
            Failure::PastEnd { drive, offset, len, end } => {
                Self::PastEnd { drive, offset, len, end }
            }
            Failure::Closed => Self::Closed,
        }
    }
}

impl From<Failure> for WriteError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Io { drive, offset, errno } => match DriveFault::of(errno) {
                DriveFault::NoSpace => Self::NoSpace { drive, offset },
                fault => Self::Io { drive, offset, errno, fault },
            },
            Failure::PastEnd { drive, offset, len, end } => {
                Self::PastEnd { drive, offset, len, end }
            }
            Failure::Closed => Self::Closed,
        }
    }
}

fn errno_text(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}
