//! A node's configuration: flags over environment over file over defaults.

#[cfg(test)]
mod documented;
mod layers;
mod removed;
mod scalar;

pub use layers::{environment, layered};
pub use scalar::{io_scalars, query_scalars};
