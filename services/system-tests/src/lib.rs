//! Nothing but tests: see `tests/system`.
