//! The modes in which the kernel processes the completions of an io_uring.

use std::fmt;

/// The mode in which the kernel processes completions, best mode first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRun {
    /// The kernel processes completions when the ring collects them (`DEFER_TASKRUN`, Linux 6.1).
    Deferred,
    /// The kernel processes completions when the thread next enters the kernel (`COOP_TASKRUN`, Linux 5.19; with
    /// `SINGLE_ISSUER` from Linux 6.0).
    Cooperative,
    /// The kernel processes completions at once, by interrupting the thread.
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
