//! What this process has used and may use, how it keeps memory and brings it near, and which of its threads go first.

mod allocator;
mod machine;
mod prefetch;
mod priority;

pub use allocator::keep_freed_memory;
pub use machine::memory_bytes;
pub use prefetch::prefetch;
pub use priority::{step_back, yield_to_all};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// CPU time and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time since the process began, user and system, in microseconds.
    pub cpu_us: u64,
    /// Resident memory, in bytes; 0 where `/proc` can't be read.
    pub resident_bytes: u64,
}

impl Usage {
    /// As of now.
    pub fn now() -> Self {
        let cpu_us = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| {
            let total = usage.user_time() + usage.system_time();
            u64::try_from(total.num_microseconds()).unwrap_or(0)
        });
        Self { cpu_us, resident_bytes: resident_bytes().unwrap_or(0) }
    }
}

/// The second number of `/proc/self/statm` counts pages.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    Some(pages * u64::try_from(page).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_memory_show() {
        let before = Usage::now();
        let held: Vec<u8> = (0..64 << 20).map(|i| i as u8).collect();
        let after = Usage::now();
        assert!(held.iter().map(|&b| u64::from(b)).sum::<u64>() > 0);
        assert!(after.cpu_us > before.cpu_us);
        assert!(after.resident_bytes > before.resident_bytes + (32 << 20));
    }
}
