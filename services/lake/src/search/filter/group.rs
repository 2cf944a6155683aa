//! A group of tokens that is open, and how high the expression in it is. Pure.

use super::functions::Arguments;
use super::tokens::EXAMPLE;

/// What a group of tokens is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The filter itself.
    Whole,
    /// `(a)`
    Nested,
    /// `f(a, b)`
    Call(Arguments),
    /// `IN (a, b)`
    In,
    /// `[a, b]`
    List,
    /// `a[b]`
    Subscript,
    /// `CAST(a AS type)`
    Cast,
}

/// A group that is open.
pub(super) struct Group {
    pub(super) kind: Kind,
    /// Its name, for calls.
    pub(super) name: String,
    /// Commas so far.
    pub(super) commas: usize,
    /// Whether it has any operand.
    pub(super) is_empty: bool,
    /// Operators since the last `AND`, `OR` or comma, and the height of the tallest group among them.
    pub(super) operators: usize,
    pub(super) inner: usize,
    /// The height of the tallest such piece.
    pub(super) height: usize,
    /// The same of what the optimiser copies.
    pub(super) copies: usize,
    pub(super) inner_copies: usize,
    pub(super) copies_max: usize,
    /// `AND`s and `OR`s.
    pub(super) terms: usize,
    /// `IS DISTINCT FROM`s.
    pub(super) distincts: usize,
    /// `BETWEEN`s whose `AND` hasn't come.
    pub(super) betweens: usize,
}

impl Group {
    /// One that was just opened.
    pub(super) fn new(kind: Kind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            commas: 0,
            is_empty: true,
            operators: 0,
            inner: 0,
            height: 0,
            copies: 0,
            inner_copies: 0,
            copies_max: 0,
            terms: 0,
            distincts: 0,
            betweens: 0,
        }
    }

    /// Ends a piece between `AND`s, `OR`s and commas.
    pub(super) fn end_piece(&mut self) -> Result<(), String> {
        if self.betweens > 0 {
            return Err(format!("`BETWEEN` lacks its `AND`; {EXAMPLE}"));
        }
        self.height = self.height.max(self.operators + self.inner);
        self.copies_max = self.copies_max.max(self.copies + self.inner_copies);
        (self.operators, self.inner, self.copies, self.inner_copies) = (0, 0, 0, 0);
        Ok(())
    }

    /// How deep what the optimiser copies stands in each other, once it is closed.
    pub(super) fn total_copies(&self) -> usize {
        self.copies_max + self.distincts
    }

    /// Its height once it is closed. Chains of `AND` and of `OR` may stand on top of each other.
    pub(super) fn total(&self) -> usize {
        let balanced = (usize::BITS - self.terms.leading_zeros()) as usize;
        1 + self.height + self.distincts + 2 * balanced
    }
}
