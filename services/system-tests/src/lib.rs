//! This crate has only tests, in `tests/system`.
