//! How often a fuzzer runs, and what a case may cost.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{set_hook, take_hook};
use std::str::FromStr;
use std::sync::Once;

use rand::SeedableRng;
use rand::rngs::StdRng;

/// Runs `count` cases of a fuzzer, or as many and those that the environment asks for; see the crate's head. One that
/// panics is named.
pub fn cases(name: &str, count: u64, mut case: impl FnMut(&mut StdRng)) {
    let seed = variable("BIREME_FUZZ_SEED").unwrap_or(0);
    let numbers = match variable("BIREME_FUZZ_CASE") {
        Some(number) => number..number + 1,
        None => 0..count * variable("BIREME_FUZZ_TIMES").unwrap_or(1),
    };
    println!("{name}: {} cases of seed {seed}", numbers.end - numbers.start);
    for number in numbers {
        let naming = Naming { name, seed, number };
        let mut hasher = DefaultHasher::new();
        (seed, name, number).hash(&mut hasher);
        case(&mut StdRng::seed_from_u64(hasher.finish()));
        drop(naming);
    }
}

/// Does `work`, which may have `bytes_max` allocated at most at any time, over what there was before: no length on a
/// wire or drive is to be believed before the bytes are there.
///
/// # Panics
/// If it takes more. Other threads are not counted.
pub fn within<T>(bytes_max: usize, work: impl FnOnce() -> T) -> T {
    tell_panics_briefly();
    let mut done = None;
    IS_MEASURED.set(true);
    let took = allocation_counter::measure(|| done = Some(work()));
    IS_MEASURED.set(false);
    assert!(
        took.bytes_max <= bytes_max as u64,
        "{} bytes were allocated at a time, where {bytes_max} are enough",
        took.bytes_max
    );
    done.expect("it was run")
}

thread_local! {
    static IS_MEASURED: Cell<bool> = const { Cell::new(false) };
}

/// Has panics that are caught within what is measured told without a backtrace: one takes the memory of all that is
/// known of the program's symbols.
fn tell_panics_briefly() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |info| match IS_MEASURED.get() {
            true => eprintln!("{info}"),
            false => usual(info),
        }));
    });
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is `{text}`; give a number")))
}

/// Says which case it was, when one panics.
struct Naming<'a> {
    name: &'a str,
    seed: u64,
    number: u64,
}

impl Drop for Naming<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { name, seed, number } = self;
            eprintln!("{name} fails; BIREME_FUZZ_SEED={seed} BIREME_FUZZ_CASE={number} repeats it");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use rand::Rng;

    use super::*;

    #[test]
    fn cases_differ_and_repeat_themselves() {
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
    fn what_allocates_too_much_is_found_out() {
        let sum = |count: usize| vec![1u8; count].iter().map(|&byte| usize::from(byte)).sum();
        assert_eq!(within(2000, || -> usize { sum(1000) }), 1000);
        assert!(catch_unwind(|| within(2000, || -> usize { sum(3000) })).is_err());
    }

    #[test]
    fn a_panic_that_is_caught_does_not_count_its_backtrace() {
        let caught = within(64 << 10, || catch_unwind(|| panic!("caught")).is_err());
        assert!(caught);
    }
}
