//! The limit of open files and sockets of this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of open descriptors to the hard limit, or prints a warning if the system refuses. Returns the limit
/// that applies afterwards. Systems start processes with a limit of 1,024 because of `select`, which this process does
/// not use.
pub fn raise_descriptors() -> u64 {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        eprintln!("warning: the limit of open files stays at {soft}: {error}");
    }
    descriptors()
}

/// Returns the limit of open descriptors. Returns `u64::MAX` if the system does not report one.
pub fn descriptors() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_hard_limit() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, soft.min(512), hard).unwrap();
        assert_eq!(descriptors(), soft.min(512));
        assert_eq!(raise_descriptors(), hard);
    }
}
