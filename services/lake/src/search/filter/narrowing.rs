//! The rows of a table that scalar indexes leave if they answer a part of a filter. All rows that pass the filter are
//! among them.
//!
//! ```text
//! filter ─┬─► what indexes answer ─► rows that they find, and all of fragments that they do not cover ─► AllowList
//!         └─► the rest, or all of it ─► evaluated for candidates of the list (`vector/candidates.rs`)
//! ```
//!
//! Filters with a part in common, such as `topic = 5 AND price < 10` and `topic = 5 AND price < 20`, share the list of
//! that part.

use std::hash::{Hash, Hasher};

use datafusion::common::ScalarValue;
use lance_index::scalar::expression::ScalarIndexExpr;
use roaring::RoaringBitmap;

/// A query of scalar indexes that finds all rows that pass a filter, and perhaps others, of the fragments that the
/// indexes cover. Two narrowings of one version are equal if their queries are equal and `must_be_exact` is the
/// same.
#[derive(Debug)]
pub(crate) struct Narrowing {
    pub query: ScalarIndexExpr,
    /// The fragments that the indexes cover.
    pub covered: RoaringBitmap,
    /// The other fragments, all of whose rows may pass.
    pub uncovered: RoaringBitmap,
    /// Whether candidates are compared with the rest of the filter only, so that the query must find no row for which
    /// the part that it answers is false.
    pub must_be_exact: bool,
    /// The query as Lance prints it. Equal queries have the same text, but unequal ones may have it too.
    text: String,
}

impl Narrowing {
    /// Creates the narrowing to the rows that `query` finds in the covered fragments, and all rows of the uncovered
    /// ones.
    pub fn new(
        query: ScalarIndexExpr,
        (covered, uncovered): (RoaringBitmap, RoaringBitmap),
        must_be_exact: bool,
    ) -> Self {
        let text = query.to_string();
        Self { query, covered, uncovered, must_be_exact, text }
    }

    /// Returns the approximate memory that the narrowing takes, in bytes.
    pub fn bytes(&self) -> usize {
        let fragments = self.covered.serialized_size() + self.uncovered.serialized_size();
        // The query also holds the values that its text lists, separated by commas.
        let values = 1 + self.text.bytes().filter(|byte| *byte == b',').count();
        size_of::<Self>() + 2 * self.text.len() + values * size_of::<ScalarValue>() + fragments
    }
}

impl PartialEq for Narrowing {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
            && self.must_be_exact == other.must_be_exact
            && self.query == other.query
    }
}

impl Eq for Narrowing {}

impl Hash for Narrowing {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use lance_index::scalar::SargableQuery;
    use lance_index::scalar::expression::ScalarIndexSearch;

    use super::*;

    #[test]
    fn queries_with_the_same_text_differ_by_their_values() {
        let of = |texts: &[&str]| {
            let values = texts.iter().map(|text| ScalarValue::from(*text)).collect();
            let search = ScalarIndexSearch {
                column: "name".into(),
                index_name: "name_idx".into(),
                index_type: "BTree".into(),
                query: Arc::new(SargableQuery::IsIn(values)),
                needs_recheck: false,
                fragment_bitmap: None,
            };
            Narrowing::new(ScalarIndexExpr::Query(search), Default::default(), true)
        };
        let (two, one, other) = (of(&["a,b", "c"]), of(&["a", "b,c"]), of(&["a", "c"]));
        assert_eq!(two.text, one.text);
        let known: HashSet<_> = [two, one].into();
        assert_eq!(known.len(), 2);
        assert!(known.contains(&of(&["a", "b,c"])) && !known.contains(&other));
    }
}
