//! Operating system facilities of this process: CPU and memory usage, the limits of memory and of open files, allocator
//! settings, huge pages, cache prefetch and thread priorities.

mod allocator;
mod descriptors;
mod huge_pages;
mod machine;
mod prefetch;
mod priority;

pub use allocator::{give_back_memory, keep_freed_memory};
pub use descriptors::{descriptors, raise_descriptors};
pub use huge_pages::prefer_huge_pages;
pub use machine::memory_bytes;
pub use prefetch::prefetch;
pub use priority::{step_back, yield_to_all};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// CPU time and memory used by this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system CPU time since the process started, in microseconds.
    pub cpu_us: u64,
    /// Resident memory, in bytes. 0 if `/proc` can't be read.
    pub resident_bytes: u64,
}

impl Usage {
    /// Returns the current usage.
    pub fn now() -> Self {
        let cpu_us = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| {
            let total = usage.user_time() + usage.system_time();
            u64::try_from(total.num_microseconds()).unwrap_or(0)
        });
        Self { cpu_us, resident_bytes: resident_bytes().unwrap_or(0) }
    }
}

/// Reads the resident memory from `/proc/self/statm`, whose second number counts pages.
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
    fn usage_includes_work_done_and_memory_allocated() {
        let before = Usage::now();
        let held: Vec<u8> = (0..64 << 20).map(|i| i as u8).collect();
        let after = Usage::now();
        assert!(held.iter().map(|&b| u64::from(b)).sum::<u64>() > 0);
        assert!(after.cpu_us > before.cpu_us);
        assert!(after.resident_bytes > before.resident_bytes + (32 << 20));
    }
}
