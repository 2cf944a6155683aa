//! Marks in the texts of the errors that the `store` module makes itself.
//!
//! An error that passes through Lance usually keeps its type, but some of Lance's layers keep only its text. So each of
//! these errors begins its text with a mark of its kind, by which [`diagnose`](crate::diagnose) recognises it whatever
//! the rest of the text says. Marks are removed from texts before anyone else sees them.

use std::fmt;

/// The kind of an error that the `store` module makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A file of a table has impossible metadata.
    Damaged,
    /// A table names a path that it may not read.
    Forbidden,
    /// The store does not answer, or the request is not sent.
    Unanswered,
}

impl Mark {
    const ALL: [Self; 3] = [Self::Damaged, Self::Forbidden, Self::Unanswered];

    fn text(self) -> &'static str {
        match self {
            Self::Damaged => "[bireme-error:damaged] ",
            Self::Forbidden => "[bireme-error:forbidden] ",
            Self::Unanswered => "[bireme-error:unanswered] ",
        }
    }

    /// Returns whether `text`, the text of an error, contains this mark.
    pub fn is_in(self, text: &str) -> bool {
        text.contains(self.text())
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Returns `text` without marks.
pub fn unmarked(text: &str) -> String {
    Mark::ALL.iter().fold(text.to_owned(), |text, mark| text.replace(mark.text(), ""))
}
