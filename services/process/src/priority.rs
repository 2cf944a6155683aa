//! Lowers the scheduling priority of background threads.

/// The nice value of background threads. It gives them a tenth of the CPU time of a normal thread when both want to
/// run. The share is not smaller, because other threads may wait for a lock that a background thread holds, such as
/// that of an arena of the allocator.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// The time slice of background threads: the longest that Linux allows. Since Linux 6.12 a thread that wakes up
/// preempts a thread with a longer time slice at once. If the slices are equally long, the waking thread waits for the
/// end of the other thread's slice, whatever the nice values. The usual slice is 3 ms.
#[cfg(target_os = "linux")]
const SLICE_NS: u64 = 100_000_000;

/// Lowers the priority of the calling thread and of the threads that it starts later. Threads of normal priority
/// preempt such a thread. If they leave no CPU idle, the background thread gets a tenth of the CPU time that one of
/// them gets. Has an effect only on Linux: elsewhere, a nice value applies to a whole process.
pub fn step_back() {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the calls take numbers, except for one that reads `wanted`, which outlives the call and holds its own
        // size. Thread 0 is the calling thread. Lowering a priority needs no privilege.
        #[allow(unsafe_code)]
        unsafe {
            if libc::sched_getscheduler(0) == libc::SCHED_IDLE {
                // The priority is lower already.
                return;
            }
            let nice = NICE.max(libc::getpriority(libc::PRIO_PROCESS, 0));
            let wanted = libc::sched_attr {
                size: size_of::<libc::sched_attr>() as u32,
                sched_policy: libc::SCHED_BATCH as u32,
                sched_flags: 0,
                sched_nice: nice,
                sched_priority: 0,
                sched_runtime: SLICE_NS,
                sched_deadline: 0,
                sched_period: 0,
            };
            if libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) != 0 {
                // A sandbox may refuse the call. Set at least the nice value.
                libc::setpriority(libc::PRIO_PROCESS, 0, nice);
            }
        }
    }
}

/// Restricts the calling thread, and the threads that it starts later, to otherwise idle CPUs (`SCHED_IDLE`). The
/// scheduler treats a CPU that runs such a thread as idle for other threads. This can't be undone.
///
/// When all CPUs are busy, the thread gets a third of a percent of one: Linux gives it a weight of 3, and a normal
/// thread one of 1,024. No other thread may depend on its progress without a fallback.
pub fn yield_to_all() {
    #[cfg(target_os = "linux")]
    {
        let none = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call reads the parameters, which outlive it. Thread 0 is the calling thread. Lowering a priority
        // needs no privilege.
        #[allow(unsafe_code)]
        let refused =
            unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) } != 0;
        if refused {
            // A sandbox may refuse the call. Lower the priority as far as possible.
            step_back();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Returns the field of `/proc/thread-self/stat` that has this number in `man 5 proc`. The number is at least 3,
    /// because field 2 may contain spaces.
    fn stat(field: usize) -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(field - 3).unwrap().parse().unwrap()
    }

    /// Returns the nice value and the scheduling policy of the calling thread.
    fn priority() -> (i32, i32) {
        (stat(19), stat(41))
    }

    /// Calls `first` on a new thread. Returns the priority of that thread and of one that it starts.
    fn after(first: fn()) -> [(i32, i32); 2] {
        let before = priority();
        let called = std::thread::spawn(move || {
            first();
            [priority(), std::thread::spawn(priority).join().unwrap()]
        });
        let after = called.join().unwrap();
        assert_eq!(priority(), before);
        after
    }

    #[test]
    fn step_back_affects_only_the_calling_thread_and_its_children() {
        assert_eq!(after(step_back), [(NICE.max(priority().0), libc::SCHED_BATCH); 2]);
    }

    #[test]
    fn yield_to_all_affects_only_the_calling_thread_and_its_children() {
        let yields = [(priority().0, libc::SCHED_IDLE); 2];
        assert_eq!(after(yield_to_all), yields);
        let twice = || {
            yield_to_all();
            step_back();
        };
        assert_eq!(after(twice), yields);
    }
}
