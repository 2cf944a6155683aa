//! Panics within tasks, which their runtimes would keep to themselves.

use std::cell::RefCell;
use std::sync::Once;

/// Of h2 in builds that check: a connection that is dropped with open streams, as a crash drops it. What there is is
/// freed all the same, and builds that don't check say nothing (hyperium/h2#907).
const DROPPED_WITH_STREAMS: &str = "!self.has_streams()";

thread_local! {
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has panics of every thread noted there.
pub fn note() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload_as_str().is_some_and(|it| it.contains(DROPPED_WITH_STREAMS)) {
                return;
            }
            FIRST.with_borrow_mut(|first| {
                let _ = first.get_or_insert_with(|| panic.to_string());
            });
            shown(panic);
        }));
    });
}

/// Forgets them.
pub fn forget() {
    FIRST.take();
}

/// # Panics
/// If this thread has panicked.
pub fn none_so_far() {
    assert!(FIRST.with_borrow(Option::is_none), "a task panicked; see above");
}
