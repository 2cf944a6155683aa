//! Detects panics within tasks, which their runtimes would catch.

use std::cell::RefCell;
use std::sync::Once;

/// An assertion of h2 in debug builds fails if a connection with open streams is dropped, which a crash does. This
/// panic is ignored: the memory is freed nevertheless, and release builds do not check (hyperium/h2#907).
const DROPPED_WITH_STREAMS: &str = "!self.has_streams()";

thread_local! {
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records the first panic of every thread.
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

/// Forgets the panic of this thread.
pub fn forget() {
    FIRST.take();
}

/// Checks that no panic was recorded.
///
/// # Panics
/// If this thread has panicked.
pub fn none_so_far() {
    assert!(FIRST.with_borrow(Option::is_none), "a task panicked; see above");
}
