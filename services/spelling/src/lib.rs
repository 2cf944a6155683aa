//! For messages: suggests the name that a misspelt name was meant to be, and formats counts with their nouns. Pure.

mod counted;
mod nearest;

pub use counted::counted;
pub use nearest::nearest;
