//! Spells names and counts in messages: suggests the name that a misspelt one was meant to be, and counts with their
//! nouns. Pure.

mod counted;
mod nearest;

pub use counted::counted;
pub use nearest::nearest;
