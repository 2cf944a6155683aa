//! Reasons why Lance's scanner plans a search.

use std::fmt;

/// The reason why Lance's scanner plans a search, and the index is not searched directly. Its text follows "planned by
/// Lance: ".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanReason {
    /// The column has no vector index.
    Unindexed,
    /// The search asks to compare every row.
    Exact,
    /// The rows don't have one vector of floats each.
    NotFloats,
    /// The column has several full-text indexes.
    SeveralIndexes,
    /// The column is a field of a struct.
    Nested,
    /// A search of several columns as if they were one is part of another query.
    CombinedFields,
    /// A full-text index has a format version in which it can't be searched together with another one.
    EarlyFormat,
    /// The column has lists of texts.
    ListsOfText,
    /// The rows that pass the filter depend on the time.
    Clock,
    /// The search leaves the number of partitions to Lance.
    ProbesUnset,
    /// Fragments of the version are overlaid with newer values.
    Overlaid,
    /// Fragments were compacted before their indexes were updated.
    Remapped,
    /// The index does not record which fragments its segments cover, or several segments cover one fragment.
    CoverageUnknown,
    /// A segment of the index has this format version, which is not one of those that are read directly.
    FormatUnknown(i32),
    /// The index covers no fragment of the version.
    CoversNothing,
    /// This number of rows is not covered by the index, too many to be compared one by one.
    Uncovered(u64),
    /// The rows that a full-text index does not cover have too much text to be compared one by one.
    UncoveredText,
    /// Columns are searched as if they were one, and this number of rows is not covered by one of their indexes.
    CombinedUncovered(u64),
    /// A query combines columns whose full-text indexes cover different rows.
    CoverageDiffers,
}

impl fmt::Display for PlanReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unindexed => f.write_str("the vectors have no index"),
            Self::Exact => f.write_str("it compares every row, without the index"),
            Self::NotFloats => f.write_str("the rows don't have one vector of floats each"),
            Self::SeveralIndexes => f.write_str("the column has several full-text indexes"),
            Self::Nested => f.write_str("the column is a field of a struct"),
            Self::CombinedFields => f.write_str("combined columns are part of another query"),
            Self::EarlyFormat => {
                f.write_str("a full-text index of an early format is searched with another one")
            }
            Self::ListsOfText => f.write_str("the column has lists of texts"),
            Self::Clock => f.write_str("the filter depends on the time"),
            Self::ProbesUnset => f.write_str("the number of partitions is not given"),
            Self::Overlaid => f.write_str("fragments are overlaid with newer values"),
            Self::Remapped => {
                f.write_str("fragments were compacted before their indexes were updated")
            }
            Self::CoverageUnknown => {
                f.write_str("the index does not record which fragments each segment covers, or records some twice")
            }
            Self::FormatUnknown(format) => {
                write!(f, "the index has format version {format}, which is unknown")
            }
            Self::CoversNothing => f.write_str("the index covers none of the version's rows"),
            Self::Uncovered(rows) => {
                write!(f, "the index does not cover {rows} rows, more than can be compared one by one")
            }
            Self::UncoveredText => {
                f.write_str("the rows that the index does not cover have more text than can be compared one by one")
            }
            Self::CombinedUncovered(rows) => {
                write!(f, "combined columns are searched, and an index does not cover {rows} rows")
            }
            Self::CoverageDiffers => f.write_str("the columns' indexes cover different rows"),
        }
    }
}
