//! The native part of the Python package `bireme`: the Rust client ([`client::query`]) as Python objects.
//!
//! The package in `../python` is what users see: builders, tables, errors, the event loop. This module only turns
//! arguments into requests, runs them, and turns answers into pyarrow objects, without copying rows. It knows neither
//! Lance nor how an answer is found, and keeps no state besides one runtime for all connections of a process, and the
//! last schemas that it converted.
//!
//! - `background.rs`: the runtime of all connections, and who drives it.
//! - `call.rs`: a call, which a thread can wait for or an event loop can await.
//! - `completions.rs`: hands finished calls to an event loop; `answer.rs`: the outcome of a call.
//! - `client.rs`: a connection, with a method for each kind of call; `look_up.rs` and `warm.rs` have the longer ones.
//! - `request.rs`, `rows.rs`, `row.rs`, `description.rs`, `errors.rs`, `time_limit.rs`: conversions.

mod answer;
mod background;
mod call;
mod client;
mod completions;
mod description;
mod errors;
mod look_up;
mod request;
mod row;
mod rows;
mod time_limit;
mod uuid_keys;
mod warm;

/// The module `bireme._bireme`.
#[pyo3::pymodule]
mod _bireme {
    #[pymodule_export]
    use crate::call::Call;
    #[pymodule_export]
    use crate::client::{Client, connect};
    #[pymodule_export]
    use crate::completions::Completions;
    #[pymodule_export]
    use crate::warm::Warm;
}
