//! A node's configuration: flags over environment over file over defaults.

#[cfg(test)]
mod documented;
mod layers;
mod mistyped;
mod removed;
mod scalar;
mod schema;

pub use layers::{environment, layered};
