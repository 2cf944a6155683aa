//! Which threads go first where there are fewer CPUs than work.

/// A tenth of the CPU that others get, where both want it. Not less: what such a thread holds (an arena of the
/// allocator, for one) others may wait for.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// The longest time slice there is. Since Linux 6.12 a thread that wakes takes the CPU at once from one whose slice is
/// longer than its own (3 ms, mostly); from one of the same it takes it at the slice's end, however nice that one is.
#[cfg(target_os = "linux")]
const SLICE_NS: u64 = 100_000_000;

/// Has the calling thread, and those that it starts, step back for all that have not called this: they run before it,
/// and where they leave it no CPU it gets a tenth of what each of them has. Linux alone gives threads priorities of
/// their own; elsewhere nothing changes.
pub fn step_back() {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the calls take numbers, but for one that reads `wanted`, which outlives it and says how long it is; 0 is the
        // calling thread. Everyone may step back.
        #[allow(unsafe_code)]
        unsafe {
            if libc::sched_getscheduler(0) == libc::SCHED_IDLE {
                // All of the process yields more than that already.
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
                // Where a sandbox doesn't know that call.
                libc::setpriority(libc::PRIO_PROCESS, 0, nice);
            }
        }
    }
}

/// Has the calling thread, and those that it starts, run only on CPUs that nobody else wants, which others then take
/// like idle ones. It can't be taken back. Where CPUs are used up such a thread gets a third of a percent of one
/// (`man 7 sched`, `SCHED_IDLE`), so nobody may wait for what it does without another way.
pub fn yield_to_all() {
    #[cfg(target_os = "linux")]
    {
        let none = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call reads the parameters, which outlive it; 0 is the calling thread. Everyone may do this.
        #[allow(unsafe_code)]
        let refused =
            unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) } != 0;
        if refused {
            // By a sandbox: as much as is possible.
            step_back();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// A field of `/proc/thread-self/stat` by its number there, from 3 on; the 2nd may hold spaces.
    fn stat(field: usize) -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(field - 3).unwrap().parse().unwrap()
    }

    /// How nice the calling thread is, and its policy.
    fn priority() -> (i32, i32) {
        (stat(19), stat(41))
    }

    /// The priority of a thread that has called this, and of one that it started.
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
    fn a_thread_steps_back_by_itself() {
        assert_eq!(after(step_back), [(NICE.max(priority().0), libc::SCHED_BATCH); 2]);
    }

    #[test]
    fn a_thread_yields_by_itself_and_does_not_step_forward_again() {
        let yields = [(priority().0, libc::SCHED_IDLE); 2];
        assert_eq!(after(yield_to_all), yields);
        let twice = || {
            yield_to_all();
            step_back();
        };
        assert_eq!(after(twice), yields);
    }
}
