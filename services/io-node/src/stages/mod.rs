//! The stages of a fetch, in the order in which `fetch.rs` calls them.

pub mod admit;
pub mod assemble;
pub mod coalesce;
pub mod decode;
pub mod locate;
pub mod ram_tier;
pub mod read;
pub mod reply;
pub mod rerank;
mod timeline;
mod trace;
