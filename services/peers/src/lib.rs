//! Recognises the nodes that an I/O node answers, its peers, by the names in their certificates ([`Names`]).

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod name_pattern;
mod names;

pub use name_pattern::NamePattern;
pub use names::Names;
