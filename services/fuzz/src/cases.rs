//! Runs the cases of a fuzz test, and limits how much memory a case may allocate.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{set_hook, take_hook};
use std::str::FromStr;
use std::sync::Once;

use rand::SeedableRng;
use rand::rngs::StdRng;

/// Runs `count` cases of the fuzz test `name`, or the cases that the environment variables select (see the
/// crate's documentation). If a case panics, prints how to repeat it.
pub fn cases(name: &str, count: u64, mut case: impl FnMut(&mut StdRng)) {
    let seed = environment_number("BIREME_FUZZ_SEED").unwrap_or(0);
    let numbers = match environment_number("BIREME_FUZZ_CASE") {
        Some(number) => number..number + 1,
        None => 0..count * environment_number("BIREME_FUZZ_TIMES").unwrap_or(1),
    };
    println!("{name}: running {} cases with seed {seed}", numbers.end - numbers.start);
    for number in numbers {
        let reporter = FailureReporter { name, seed, number };
        let mut hasher = DefaultHasher::new();
        (seed, name, number).hash(&mut hasher);
        case(&mut StdRng::seed_from_u64(hasher.finish()));
        drop(reporter);
    }
}

/// Runs `work` and checks that its peak allocation never exceeds `bytes_max`. A decoder that reads a length from a wire
/// or a drive must not allocate that much memory before that many bytes have arrived.
///
/// # Panics
/// If `work` allocates more. Allocations of other threads do not count.
pub fn within<T>(bytes_max: usize, work: impl FnOnce() -> T) -> T {
    print_panics_without_backtrace();
    let mut done = None;
    IS_MEASURED.set(true);
    let took = allocation_counter::measure(|| done = Some(work()));
    IS_MEASURED.set(false);
    assert!(
        took.bytes_max <= bytes_max as u64,
        "{} bytes were allocated at once; at most {bytes_max} are allowed",
        took.bytes_max
    );
    done.expect("`measure` runs its closure")
}

thread_local! {
    static IS_MEASURED: Cell<bool> = const { Cell::new(false) };
}

/// Installs a panic hook that prints no backtrace while allocations are measured: resolving a backtrace loads
/// all of the program's symbols into memory. Panics that `work` catches would otherwise exceed the limit.
fn print_panics_without_backtrace() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |info| match IS_MEASURED.get() {
            true => eprintln!("{info}"),
            false => usual(info),
        }));
    });
}

fn environment_number<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is `{text}`; it must be a whole number")))
}

/// Prints how to repeat the current case if it panics.
struct FailureReporter<'a> {
    name: &'a str,
    seed: u64,
    number: u64,
}

impl Drop for FailureReporter<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { name, seed, number } = self;
            eprintln!(
                "{name} failed; to repeat: BIREME_FUZZ_SEED={seed} BIREME_FUZZ_CASE={number}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use rand::Rng;

    use super::*;

    #[test]
    fn cases_differ_and_are_repeatable() {
        let all = || {
            let mut numbers = Vec::new();
            cases("numbers", 20, |rng| numbers.push(rng.random::<u64>()));
            numbers
        };
        let first = all();
        assert_eq!(first, all());
        let distinct: std::collections::HashSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), first.len());
    }

    #[test]
    fn exceeding_the_allocation_limit_panics() {
        let sum = |count: usize| vec![1u8; count].iter().map(|&byte| usize::from(byte)).sum();
        assert_eq!(within(2000, || -> usize { sum(1000) }), 1000);
        assert!(catch_unwind(|| within(2000, || -> usize { sum(3000) })).is_err());
    }

    #[test]
    fn the_backtrace_of_a_caught_panic_is_not_counted() {
        let caught = within(64 << 10, || catch_unwind(|| panic!("caught")).is_err());
        assert!(caught);
    }
}
