//! What this process has used, from `/proc/self`; 0 where there is no such thing.

/// `/proc` counts CPU time in hundredths of a second for every program, whatever the kernel's tick.
const TICK_US: u64 = 10_000;

/// Pages in `/proc/self/statm`; x86-64 and most of arm64.
const PAGE_BYTES: u64 = 4096;

/// CPU time since the start, in microseconds.
pub fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    cpu_ticks(&stat).unwrap_or(0) * TICK_US
}

/// Resident memory, in bytes.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}

/// User and system time, the 14th and 15th field; the second one, the program's name, may hold
/// anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut times = after_name.split_whitespace().skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_name_may_hold_anything() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 1 1 1";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(cpu_ticks("7 (x"), None);
        assert!(resident_bytes() > 0);
    }
}
