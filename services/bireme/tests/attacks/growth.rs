//! Makes an attack larger until it is refused.

/// The outcome of an attack of some size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered like any other request.
    Answered,
    /// It was refused, with this text.
    Refused(String),
}

/// Doubles `size` from 1 until `attack` is refused, then finds the smallest size that is refused. Returns that size and
/// the text of the refusal. `attack` panics if a node ends or does not answer.
///
/// # Panics
/// If the attack is still answered at the largest power of two up to `size_max`, which shows that the construct has no
/// bound.
pub fn until_refused(
    construct: &str,
    size_max: usize,
    mut attack: impl FnMut(usize) -> Outcome,
) -> (usize, String) {
    let (mut answered, mut refused) = (0, None);
    let mut size = 1;
    while refused.is_none() {
        assert!(size <= size_max, "{construct}: {answered} is still answered");
        match attack(size) {
            Outcome::Answered => (answered, size) = (size, size * 2),
            Outcome::Refused(why) => refused = Some((size, why)),
        }
    }
    let (mut smallest, mut why) = refused.unwrap();
    while answered + 1 < smallest {
        let middle = answered + (smallest - answered) / 2;
        match attack(middle) {
            Outcome::Answered => answered = middle,
            Outcome::Refused(text) => (smallest, why) = (middle, text),
        }
    }
    (smallest, why)
}

#[test]
fn the_smallest_size_that_is_refused_is_found() {
    for bound in [1, 2, 7, 64, 469, 1000] {
        let attack = |size| match size >= bound {
            true => Outcome::Refused(format!("{size} is too much")),
            false => Outcome::Answered,
        };
        let (size, why) = until_refused("terms", 1024, attack);
        assert_eq!((size, why), (bound, format!("{bound} is too much")));
    }
}
