//! Whether io_uring can be used here: asked before serving, so that nothing fails half-way.

use std::fmt;
use std::fs;
use std::io;

use io_uring::{IoUring, Probe, opcode};

/// What the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoUringSupport {
    /// The best mode that a ring can be set up with.
    pub task_run: TaskRun,
}

/// Where the kernel finishes completions; the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRun {
    /// When the ring is reaped (`DEFER_TASKRUN`, Linux 6.1).
    Deferred,
    /// When the thread enters the kernel next (`COOP_TASKRUN`, Linux 5.19; with `SINGLE_ISSUER`,
    /// Linux 6.0, or without).
    Cooperative,
    /// At once, by an interrupt.
    Interrupting,
}

impl fmt::Display for TaskRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deferred => "DEFER_TASKRUN",
            Self::Cooperative => "COOP_TASKRUN",
            Self::Interrupting => "no task-run flags",
        })
    }
}

/// Why io_uring can't be used, and what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyNot {
    /// ENOSYS.
    #[error(
        "this kernel has no io_uring: it needs Linux 5.6, built with CONFIG_IO_URING; or seccomp \
         hides it"
    )]
    NoKernelSupport,
    /// EPERM with the sysctl at 1 or 2.
    #[error(
        "the sysctl kernel.io_uring_disabled is {value}: set it to 0, or if it's 1 give the \
         process the group of kernel.io_uring_group or CAP_SYS_ADMIN"
    )]
    Sysctl {
        /// 1: only for the privileged; 2: for nobody.
        value: u8,
    },
    /// EPERM or EACCES otherwise.
    #[error(
        "a security policy forbids io_uring (errno {errno}): a container's seccomp profile has to \
         allow io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Policy {
        /// As reported.
        errno: i32,
    },
    /// ENOMEM.
    #[error("no locked memory left for a ring: raise RLIMIT_MEMLOCK (ulimit -l)")]
    LockedMemory,
    /// The kernel is too old for some operation.
    #[error("this kernel's io_uring lacks {missing}: it needs Linux 5.6")]
    NoOperation {
        /// Names of the operations.
        missing: String,
    },
    /// Any other errno.
    #[error("io_uring failed while {doing}: {error_text}")]
    Other {
        /// What was being done.
        doing: &'static str,
        /// What the kernel said.
        error_text: String,
    },
}

/// Sets a small ring up, makes it do something, and asks for the operations needed.
///
/// # Errors
///
/// Why not, in a sentence that a person can act on.
pub fn probe() -> Result<IoUringSupport, WhyNot> {
    let why = |doing| move |error| ask_why(doing, &error);
    let (mut ring, _signal, task_run) = crate::backend::setup_uring(4).map_err(WhyNot::of_setup)?;
    let mut operations = Probe::new();
    ring.submitter().register_probe(&mut operations).map_err(why("listing operations"))?;
    needs(|code| operations.is_supported(code))?;
    do_nothing(&mut ring).map_err(why("entering it"))?;
    Ok(IoUringSupport { task_run })
}

impl WhyNot {
    /// Why a ring couldn't be set up.
    pub(crate) fn of_setup(error: io::Error) -> Self {
        ask_why("setting a ring up", &error)
    }
}

fn ask_why(doing: &'static str, error: &io::Error) -> WhyNot {
    let sysctl = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
    why_not(doing, error, sysctl.as_deref())
}

/// A seccomp profile may allow the setup and forbid the rest.
fn do_nothing(ring: &mut IoUring) -> io::Result<()> {
    // SAFETY: a NOP has no buffer and no file.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    pushed.map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))?;
    ring.submit_and_wait(1)?;
    Ok(())
}

fn needs(supported: impl Fn(u8) -> bool) -> Result<(), WhyNot> {
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
    Err(WhyNot::NoOperation { missing: missing.join(", ") })
}

fn why_not(doing: &'static str, error: &io::Error, sysctl: Option<&str>) -> WhyNot {
    match (error.raw_os_error(), sysctl.and_then(|text| text.trim().parse().ok())) {
        (Some(libc::ENOSYS), _) => WhyNot::NoKernelSupport,
        (Some(libc::EPERM), Some(value @ 1..)) => WhyNot::Sysctl { value },
        (Some(errno @ (libc::EPERM | libc::EACCES)), _) => WhyNot::Policy { errno },
        (Some(libc::ENOMEM), _) => WhyNot::LockedMemory,
        _ => WhyNot::Other { doing, error_text: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_errno_has_its_advice() {
        let why = |errno, sysctl| why_not("", &io::Error::from_raw_os_error(errno), sysctl);
        assert_eq!(why(libc::ENOSYS, None), WhyNot::NoKernelSupport);
        assert_eq!(why(libc::EPERM, Some("2\n")), WhyNot::Sysctl { value: 2 });
        assert_eq!(why(libc::EPERM, Some("0\n")), WhyNot::Policy { errno: libc::EPERM });
        assert_eq!(why(libc::EPERM, None), WhyNot::Policy { errno: libc::EPERM });
        assert_eq!(why(libc::ENOMEM, None), WhyNot::LockedMemory);
        assert!(why(libc::EMFILE, None).to_string().contains("Too many open files"));
    }

    #[test]
    fn names_what_is_missing() {
        assert_eq!(needs(|_| true), Ok(()));
        let missing = needs(|code| code != opcode::Read::CODE && code != opcode::Write::CODE);
        assert_eq!(missing, Err(WhyNot::NoOperation { missing: "READ, WRITE".into() }));
    }
}
