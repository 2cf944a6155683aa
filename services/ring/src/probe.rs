//! Finds out whether io_uring is usable on this system. This is checked before a node serves, so that the node does not
//! fail later.

use std::fs;
use std::io;

use io_uring::{IoUring, Probe, opcode};

use crate::TaskRun;

/// The io_uring features that the kernel supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoUringSupport {
    /// The best mode in which a ring can be set up.
    pub task_run: TaskRun,
}

/// The reason why io_uring is not usable, and what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoUringUnavailable {
    /// The kernel reported ENOSYS.
    #[error(
        "this kernel has no io_uring, or seccomp hides it; io_uring needs Linux 5.6 or newer, \
         built with CONFIG_IO_URING"
    )]
    NoKernelSupport,
    /// The kernel reported EPERM, and the sysctl is 1 or 2.
    #[error(
        "the sysctl kernel.io_uring_disabled is {value}; set it to 0, or, if it is 1, give the \
         process CAP_SYS_ADMIN or the group in kernel.io_uring_group"
    )]
    Sysctl {
        /// 1: only privileged processes may use io_uring; 2: no process may.
        value: u8,
    },
    /// The kernel reported EPERM or EACCES for another reason.
    #[error(
        "a security policy forbids io_uring (errno {errno}); the container's seccomp profile must \
         allow io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Policy {
        /// The reported errno.
        errno: i32,
    },
    /// The kernel reported ENOMEM.
    #[error("not enough locked memory for a ring; raise RLIMIT_MEMLOCK (ulimit -l)")]
    LockedMemory,
    /// The kernel is too old for some of the operations.
    #[error("this kernel's io_uring lacks {missing}; it needs Linux 5.6 or newer")]
    NoOperation {
        /// The names of the missing operations.
        missing: String,
    },
    /// The kernel reported another errno.
    #[error("io_uring failed while {doing}: {error_text}")]
    Other {
        /// The step that failed.
        doing: &'static str,
        /// The text of the error.
        error_text: String,
    },
}

/// Sets up a small ring, submits a no-op to it, and checks that the kernel supports the operations that a
/// [`Ring`] needs.
///
/// # Errors
///
/// The reason why io_uring is not usable, in a sentence that says what to do.
///
/// [`Ring`]: crate::Ring
pub fn probe() -> Result<IoUringSupport, IoUringUnavailable> {
    let why = |doing| move |error| reason_for(doing, &error);
    let (mut ring, _signal, task_run) =
        crate::backend::setup_uring(4).map_err(IoUringUnavailable::at_setup)?;
    let mut operations = Probe::new();
    ring.submitter().register_probe(&mut operations).map_err(why("listing its operations"))?;
    check_operations(|code| operations.is_supported(code))?;
    submit_noop(&mut ring).map_err(why("submitting a no-op"))?;
    Ok(IoUringSupport { task_run })
}

impl IoUringUnavailable {
    /// Returns the reason why a ring could not be set up.
    pub(crate) fn at_setup(error: io::Error) -> Self {
        reason_for("setting up a ring", &error)
    }
}

#[expect(clippy::disallowed_methods, reason = "procfs is read before a node serves")]
fn reason_for(doing: &'static str, error: &io::Error) -> IoUringUnavailable {
    let sysctl = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
    classify(doing, error, sysctl.as_deref())
}

/// Submits a no-op, because a seccomp profile may allow the setup and forbid everything else.
fn submit_noop(ring: &mut IoUring) -> io::Result<()> {
    // SAFETY: a NOP has no buffer and no file.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    pushed.map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))?;
    ring.submit_and_wait(1)?;
    Ok(())
}

fn check_operations(supported: impl Fn(u8) -> bool) -> Result<(), IoUringUnavailable> {
    let needed = [
        ("READ", opcode::Read::CODE),
        ("READ_FIXED", opcode::ReadFixed::CODE),
        ("WRITE", opcode::Write::CODE),
        ("FSYNC", opcode::Fsync::CODE),
    ];
    let missing: Vec<_> =
        needed.iter().filter(|(_, code)| !supported(*code)).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(IoUringUnavailable::NoOperation { missing: missing.join(", ") })
}

fn classify(doing: &'static str, error: &io::Error, sysctl: Option<&str>) -> IoUringUnavailable {
    match (error.raw_os_error(), sysctl.and_then(|text| text.trim().parse().ok())) {
        (Some(libc::ENOSYS), _) => IoUringUnavailable::NoKernelSupport,
        (Some(libc::EPERM), Some(value @ 1..)) => IoUringUnavailable::Sysctl { value },
        (Some(errno @ (libc::EPERM | libc::EACCES)), _) => IoUringUnavailable::Policy { errno },
        (Some(libc::ENOMEM), _) => IoUringUnavailable::LockedMemory,
        _ => IoUringUnavailable::Other { doing, error_text: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_errno_has_its_advice() {
        let why = |errno, sysctl| classify("", &io::Error::from_raw_os_error(errno), sysctl);
        assert_eq!(why(libc::ENOSYS, None), IoUringUnavailable::NoKernelSupport);
        assert_eq!(why(libc::EPERM, Some("2\n")), IoUringUnavailable::Sysctl { value: 2 });
        assert_eq!(
            why(libc::EPERM, Some("0\n")),
            IoUringUnavailable::Policy { errno: libc::EPERM }
        );
        assert_eq!(why(libc::EPERM, None), IoUringUnavailable::Policy { errno: libc::EPERM });
        assert_eq!(why(libc::ENOMEM, None), IoUringUnavailable::LockedMemory);
        assert!(why(libc::EMFILE, None).to_string().contains("Too many open files"));
    }

    #[test]
    fn missing_operations_are_named() {
        assert_eq!(check_operations(|_| true), Ok(()));
        let missing =
            check_operations(|code| code != opcode::Read::CODE && code != opcode::Write::CODE);
        assert_eq!(missing, Err(IoUringUnavailable::NoOperation { missing: "READ, WRITE".into() }));
    }
}
