//! How an I/O node recognises the nodes that it answers, its peers: by the names in their certificates ([`Names`]).

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod names;

pub use names::Names;
