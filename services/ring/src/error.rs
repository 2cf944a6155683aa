//! What can go wrong with a ring and with one operation. Errors of opening a file are in
//! `slab_error`.

use std::fmt;
use std::io;

use address::{ByteOffset, DriveNo};

use crate::{AlignedBuf, ConfigError, Fault, WhyNot};

/// Why a read has no bytes. Refusals come from the call itself, the others from the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Refused: the queue is at its bound; shed the request.
    #[error("{queue_max} reads wait already")]
    Full {
        /// The bound, in reads.
        queue_max: usize,
    },
    /// Refused: the ring was started without this drive.
    #[error("the ring has no drive {}", drive.0)]
    NoSuchDrive {
        /// As asked for.
        drive: DriveNo,
    },
    /// Refused: offset or length isn't a multiple of 4,096, or the length is 0.
    #[error("{len} bytes at {} of drive {} aren't whole sectors", offset.0, drive.0)]
    Unaligned {
        /// The drive.
        drive: DriveNo,
        /// As asked for.
        offset: ByteOffset,
        /// In bytes, as asked for.
        len: usize,
    },
    /// Refused: longer than one operation may be.
    #[error("a read of {len} bytes; at most {max} fit")]
    TooLong {
        /// In bytes, as asked for.
        len: usize,
        /// In bytes.
        max: usize,
    },
    /// The range isn't wholly within the slab, or the file ended before its length at the start.
    #[error("{len} bytes at {} of drive {} reach past its end at {end}", offset.0, drive.0)]
    PastEnd {
        /// The drive.
        drive: DriveNo,
        /// As asked for.
        offset: ByteOffset,
        /// In bytes, as asked for.
        len: usize,
        /// In bytes.
        end: u64,
    },
    /// The kernel reported an error, or the same transient one after every retry.
    #[error("read of drive {} at {}: {} ({fault})", drive.0, offset.0, errno_text(*errno))]
    Io {
        /// The drive.
        drive: DriveNo,
        /// Where the operation began.
        offset: ByteOffset,
        /// As the kernel reported it, positive.
        errno: i32,
        /// What the errno means.
        fault: Fault,
    },
    /// The ring was dropped before the read was made.
    #[error("the ring was dropped")]
    Closed,
}

/// Why bytes weren't written, or not made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Refused: the queue of transfers is at its bound.
    #[error("{queue_max} transfers wait already")]
    Full {
        /// The bound, in transfers.
        queue_max: usize,
    },
    /// Refused: the ring was started without this drive.
    #[error("the ring has no drive {}", drive.0)]
    NoSuchDrive {
        /// As asked for.
        drive: DriveNo,
    },
    /// Refused: the slab was opened read-only.
    #[error("drive {} was opened read-only", drive.0)]
    ReadOnly {
        /// The drive.
        drive: DriveNo,
    },
    /// Refused: the offset isn't a multiple of 4,096, or the buffer is empty.
    #[error("{len} bytes at {} of drive {} aren't whole sectors", offset.0, drive.0)]
    Unaligned {
        /// The drive.
        drive: DriveNo,
        /// As asked for.
        offset: ByteOffset,
        /// In bytes, as asked for.
        len: usize,
    },
    /// Refused: longer than one operation may be.
    #[error("a write of {len} bytes; at most {max} fit")]
    TooLong {
        /// In bytes, as asked for.
        len: usize,
        /// In bytes.
        max: usize,
    },
    /// Refused: the range isn't wholly within the slab.
    #[error("{len} bytes at {} of drive {} reach past its end at {end}", offset.0, drive.0)]
    PastEnd {
        /// The drive.
        drive: DriveNo,
        /// As asked for.
        offset: ByteOffset,
        /// In bytes, as asked for.
        len: usize,
        /// In bytes.
        end: u64,
    },
    /// No room for the bytes (ENOSPC, EDQUOT).
    #[error("no space on drive {} for a write at {}", drive.0, offset.0)]
    NoSpace {
        /// The drive.
        drive: DriveNo,
        /// Where the operation began.
        offset: ByteOffset,
    },
    /// The kernel reported an error. The range may hold old bytes, new bytes or a mixture.
    #[error("write of drive {} at {}: {} ({fault})", drive.0, offset.0, errno_text(*errno))]
    Io {
        /// The drive.
        drive: DriveNo,
        /// Where the operation began.
        offset: ByteOffset,
        /// As the kernel reported it, positive.
        errno: i32,
        /// What the errno means.
        fault: Fault,
    },
    /// The ring was dropped before the whole of it was written.
    #[error("the ring was dropped")]
    Closed,
}

/// An error together with the buffer that was lent for the operation.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Returned<E> {
    /// What went wrong.
    pub error: E,
    /// The buffer. After a failed read its bytes mean nothing.
    pub buf: AlignedBuf,
}

impl<E: fmt::Debug> fmt::Debug for Returned<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// Why a ring couldn't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `Engine::IoUring` was asked for, and it isn't usable here.
    #[error("io_uring can't be used: {0}")]
    NoIoUring(#[from] WhyNot),
    /// Not called within a current-thread tokio runtime with I/O enabled.
    #[error("a ring lives in a current-thread tokio runtime, on its core's thread")]
    Runtime,
    /// Simulated slabs with a real engine, or the other way round, or of another simulated disk.
    #[error("{path} doesn't belong to the {engine} engine")]
    WrongMedium {
        /// The slab.
        path: String,
        /// The engine.
        engine: &'static str,
    },
    /// No drives, or more than a `DriveNo` can count.
    #[error("{0} drives; a ring serves 1 to 65,535")]
    Drives(usize),
    /// The operating system refused something a ring needs.
    #[error("{doing}: {source}")]
    Os {
        /// What was being done.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// How a transfer ended badly, before it's known whether that's a reader's or a writer's error.
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
                Self::Io { drive, offset, errno, fault: Fault::of(errno) }
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
            Failure::Io { drive, offset, errno } => match Fault::of(errno) {
                Fault::NoSpace => Self::NoSpace { drive, offset },
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
