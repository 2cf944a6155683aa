//! The events of a run. They are hashed, so that two runs of a seed can be compared, and printed on request.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::rc::Rc;
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

/// The wall-clock time at which each run begins, in milliseconds since 1970.
pub const BEGAN_UNIX_MS: u64 = 2_000_000_000_000;

thread_local! {
    /// The milliseconds since the start of this thread's run.
    static NOW_MS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the wall-clock time of this thread's run, since 1970.
pub fn unix_time() -> Duration {
    Duration::from_millis(BEGAN_UNIX_MS + NOW_MS.get())
}

/// The events of one run, from all its components.
#[derive(Clone, Default)]
pub struct Trace(Rc<RefCell<TraceState>>);

#[derive(Default)]
struct TraceState {
    hash: Xxh3,
    now_ms: u64,
    events: u64,
    is_shown: bool,
}

impl Trace {
    /// Creates a trace, which prints each event if `is_shown`.
    pub fn new(is_shown: bool) -> Self {
        NOW_MS.set(0);
        Self(Rc::new(RefCell::new(TraceState { is_shown, ..TraceState::default() })))
    }

    /// Sets the time.
    pub fn set_now(&self, now_ms: u64) {
        self.0.borrow_mut().now_ms = now_ms;
        NOW_MS.set(now_ms);
    }

    /// Returns the milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.0.borrow().now_ms
    }

    /// Records an event.
    pub fn say(&self, event: impl Display) {
        let mut state = self.0.borrow_mut();
        let line = format!("{:>7} {event}\n", state.now_ms);
        state.hash.update(line.as_bytes());
        state.events += 1;
        if state.is_shown {
            eprint!("{line}");
        }
    }

    /// Returns the hash and the number of all events so far.
    pub fn digest(&self) -> (u64, u64) {
        let state = self.0.borrow();
        (state.hash.digest(), state.events)
    }
}
