//! What happened in a run: hashed, so that two runs of a seed can be compared, and shown if somebody wants to see it.

use std::cell::RefCell;
use std::fmt::Display;
use std::rc::Rc;

use xxhash_rust::xxh3::Xxh3;

/// The events of one run, of all who have a part in it.
#[derive(Clone, Default)]
pub struct Trace(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    hash: Xxh3,
    now_ms: u64,
    events: u64,
    is_shown: bool,
}

impl Trace {
    /// Printed as it comes if `is_shown`.
    pub fn new(is_shown: bool) -> Self {
        Self(Rc::new(RefCell::new(State { is_shown, ..State::default() })))
    }

    /// It is later.
    pub fn set_now(&self, now_ms: u64) {
        self.0.borrow_mut().now_ms = now_ms;
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.0.borrow().now_ms
    }

    /// Something happened.
    pub fn say(&self, event: impl Display) {
        let mut state = self.0.borrow_mut();
        let line = format!("{:>7} {event}\n", state.now_ms);
        state.hash.update(line.as_bytes());
        state.events += 1;
        if state.is_shown {
            eprint!("{line}");
        }
    }

    /// Of all events so far: their hash, and how many.
    pub fn digest(&self) -> (u64, u64) {
        let state = self.0.borrow();
        (state.hash.digest(), state.events)
    }
}
