//! An open group of a filter's tokens, and the height of its expression. Pure.

use super::example::EXAMPLE;
use super::functions::Arguments;

/// The syntax that a group of tokens belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupKind {
    /// The whole filter.
    Filter,
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

/// A group whose closing token has not been reached. `AND`, `OR` and commas divide it into pieces.
pub(super) struct Group {
    pub(super) kind: GroupKind,
    /// The function's name, for calls.
    pub(super) name: String,
    /// The number of commas so far.
    pub(super) commas: usize,
    /// Whether the group has no operand yet.
    pub(super) is_empty: bool,
    /// The number of operators in the current piece.
    pub(super) operators: usize,
    /// The height of the tallest group in the current piece.
    pub(super) inner_height: usize,
    /// The height of the tallest piece.
    pub(super) height_max: usize,
    /// The number of operators in the current piece whose operands the optimiser copies.
    pub(super) copies: usize,
    /// The deepest nesting, in a group of the current piece, of operators whose operands the optimiser copies.
    pub(super) inner_copies: usize,
    /// The deepest nesting, in a piece, of operators whose operands the optimiser copies.
    pub(super) copies_max: usize,
    /// The number of `AND`s and `OR`s, without the `AND`s of `BETWEEN`s.
    pub(super) terms: usize,
    /// The number of `IS DISTINCT FROM`s.
    pub(super) distincts: usize,
    /// The number of `BETWEEN`s whose `AND` has not been reached.
    pub(super) betweens: usize,
}

impl Group {
    /// Returns a group that was just opened.
    pub(super) fn new(kind: GroupKind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            commas: 0,
            is_empty: true,
            operators: 0,
            inner_height: 0,
            height_max: 0,
            copies: 0,
            inner_copies: 0,
            copies_max: 0,
            terms: 0,
            distincts: 0,
            betweens: 0,
        }
    }

    /// Ends the current piece.
    pub(super) fn end_piece(&mut self) -> Result<(), String> {
        if self.betweens > 0 {
            return Err(format!("`BETWEEN` lacks its `AND`; {EXAMPLE}"));
        }
        self.height_max = self.height_max.max(self.operators + self.inner_height);
        self.copies_max = self.copies_max.max(self.copies + self.inner_copies);
        (self.operators, self.inner_height, self.copies, self.inner_copies) = (0, 0, 0, 0);
        Ok(())
    }

    /// Returns the nesting depth, in the closed group, of operators whose operands the optimiser copies.
    pub(super) fn total_copies(&self) -> usize {
        self.copies_max + self.distincts
    }

    /// Returns the group's height once it is closed. Lance builds balanced trees of `AND`s and of `OR`s, and a tree of
    /// `AND`s may be in one of `OR`s, so the height of a balanced tree counts twice.
    pub(super) fn total_height(&self) -> usize {
        let balanced = (usize::BITS - self.terms.leading_zeros()) as usize;
        1 + self.height_max + self.distincts + 2 * balanced
    }
}
