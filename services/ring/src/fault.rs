//! What an errno of a read, write or sync means to the one who must act on it.

use std::fmt;

/// Kinds of failure, by what can be done about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The drive couldn't read or write these sectors (EIO, ENODATA, EILSEQ, EBADMSG, EREMOTEIO):
    /// drop the extent, others may be fine.
    Medium,
    /// The drive didn't answer in the kernel's time (ETIMEDOUT).
    Timeout,
    /// The drive is gone (ENODEV, ENXIO, ESTALE, ESHUTDOWN): nothing on it can be served.
    Gone,
    /// No room (ENOSPC, EDQUOT) or too large a file (EFBIG).
    NoSpace,
    /// Not to be written (EROFS, EPERM, EACCES).
    ReadOnly,
    /// The kernel lacked memory (ENOMEM, ENOBUFS), or was still busy after every retry (EAGAIN,
    /// EINTR): later it may work.
    Busy,
    /// Only a defect of this program gets here (EINVAL, EBADF, EFAULT, EOPNOTSUPP).
    Misuse,
    /// Any other errno.
    Other,
}

impl Fault {
    /// The kind of an errno.
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

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Medium => "bad sector or medium",
            Self::Timeout => "the drive timed out",
            Self::Gone => "the drive is gone",
            Self::NoSpace => "no space",
            Self::ReadOnly => "not writable",
            Self::Busy => "the kernel is short of memory or busy",
            Self::Misuse => "an operation the kernel rejects: a defect of this program",
            Self::Other => "an unexpected error",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_errno_has_its_kind() {
        let kinds = [libc::EIO, libc::ENODEV, libc::ENOSPC, libc::EINVAL, libc::ELOOP];
        assert_eq!(
            kinds.map(Fault::of),
            [Fault::Medium, Fault::Gone, Fault::NoSpace, Fault::Misuse, Fault::Other]
        );
    }
}
