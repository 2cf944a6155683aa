//! Classifies the errno of a read, write or fsync by what the caller can do about it.

use std::fmt;

/// A class of I/O error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriveFault {
    /// The drive could not read or write some of the sectors (EIO, ENODATA, EILSEQ, EBADMSG, EREMOTEIO). Other sectors
    /// may be intact.
    Medium,
    /// The drive did not answer within the kernel's timeout (ETIMEDOUT).
    Timeout,
    /// The drive is gone (ENODEV, ENXIO, ESTALE, ESHUTDOWN). Nothing on it can be served.
    Gone,
    /// There is no space (ENOSPC, EDQUOT), or the file would become too large (EFBIG).
    NoSpace,
    /// The drive cannot be written (EROFS, EPERM, EACCES).
    ReadOnly,
    /// The kernel was short of memory (ENOMEM, ENOBUFS) or busy (EBUSY), or did not carry out the operation in any
    /// attempt (EAGAIN, EINTR). The operation may succeed later.
    Busy,
    /// The kernel rejects the operation, which only a bug in this program can cause (EINVAL, EBADF, EFAULT,
    /// EOPNOTSUPP).
    Misuse,
    /// Any other errno.
    Other,
}

impl DriveFault {
    /// Returns the class of an errno.
    pub const fn of(errno: i32) -> Self {
        match errno {
            libc::EIO | libc::ENODATA | libc::EILSEQ | libc::EBADMSG | libc::EREMOTEIO => {
                Self::Medium
            }
            libc::ETIMEDOUT => Self::Timeout,
            libc::ENODEV | libc::ENXIO | libc::ESTALE | libc::ESHUTDOWN => Self::Gone,
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Self::NoSpace,
            libc::EROFS | libc::EPERM | libc::EACCES => Self::ReadOnly,
            libc::ENOMEM | libc::ENOBUFS | libc::EAGAIN | libc::EINTR | libc::EBUSY => Self::Busy,
            libc::EINVAL | libc::EBADF | libc::EFAULT | libc::EOPNOTSUPP => Self::Misuse,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for DriveFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Medium => "bad sector or medium",
            Self::Timeout => "the drive timed out",
            Self::Gone => "the drive is gone",
            Self::NoSpace => "no space",
            Self::ReadOnly => "not writable",
            Self::Busy => "the kernel is short of memory or busy",
            Self::Misuse => "the kernel rejects the operation; this is a bug in the program",
            Self::Other => "an unexpected error",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_errno_has_its_class() {
        let kinds = [libc::EIO, libc::ENODEV, libc::ENOSPC, libc::EINVAL, libc::ELOOP];
        assert_eq!(
            kinds.map(DriveFault::of),
            [
                DriveFault::Medium,
                DriveFault::Gone,
                DriveFault::NoSpace,
                DriveFault::Misuse,
                DriveFault::Other
            ]
        );
    }
}
