//! How many files and sockets this process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of open descriptors as far as this process may, and returns what it is then. Systems start
/// processes with 1,024 for the sake of `select`, which nothing here uses.
pub fn raise_descriptors() -> u64 {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        eprintln!("warning: the limit of open files stays at {soft}: {error}");
    }
    descriptors()
}

/// How many descriptors may be open; very many where the system doesn't tell.
pub fn descriptors() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_it_goes() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, soft.min(512), hard).unwrap();
        assert_eq!(descriptors(), soft.min(512));
        assert_eq!(raise_descriptors(), hard);
    }
}
