//! The CPU cores that this process may use, and pinning a thread to one of them.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Returns the cores in the calling thread's affinity mask, in ascending order. `taskset`, a cpuset or a
/// container's CPU manager may have limited them.
///
/// # Errors
///
/// The error of `sched_getaffinity`; `EINVAL` on a machine with more than 1,024 cores.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    let mask = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|&core| mask.is_set(core).unwrap_or(false)).collect())
}

/// Pins the calling thread to `core`.
///
/// # Errors
///
/// `EINVAL` if the machine has no such core or the process's cpuset lacks it.
pub fn pin_to(core: usize) -> io::Result<()> {
    let mut mask = CpuSet::new();
    mask.set(core)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &mask)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_sees_one_core() {
        std::thread::spawn(|| {
            let allowed = allowed_cores().unwrap();
            let last = *allowed.last().unwrap();
            pin_to(last).unwrap();
            assert_eq!(allowed_cores().unwrap(), [last]);
            assert!(pin_to(CpuSet::count()).is_err());
        })
        .join()
        .unwrap();
    }
}
