//! Which threads go first where there are fewer CPUs than work.

/// A tenth of the CPU that others get, where both want it. Not less: what such a thread holds (an arena of the
/// allocator, for one) others may wait for.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Has the calling thread, and those that it starts, step back for all that have not called this. Linux alone gives
/// threads priorities of their own; elsewhere nothing changes.
pub fn step_back() {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: both calls take numbers and touch no memory; 0 is the calling thread. Everyone may step back.
        #[allow(unsafe_code)]
        unsafe {
            let now = libc::getpriority(libc::PRIO_PROCESS, 0);
            libc::setpriority(libc::PRIO_PROCESS, 0, NICE.max(now));
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The 19th field of `/proc/thread-self/stat`, of which the 2nd may hold spaces.
    fn nice() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(16).unwrap().parse().unwrap()
    }

    #[test]
    fn a_thread_steps_back_by_itself() {
        let before = nice();
        let stepped_back = std::thread::spawn(|| {
            step_back();
            (nice(), std::thread::spawn(nice).join().unwrap())
        });
        let after = NICE.max(before);
        assert_eq!(stepped_back.join().unwrap(), (after, after));
        assert_eq!(nice(), before);
    }
}
