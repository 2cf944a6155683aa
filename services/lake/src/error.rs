//! The errors of this crate. Each kind maps to one gRPC status.
//!
//! Every message is one line, names what is at fault (URI, version, column, address, file) and says what the user can
//! do, if anything. Match on the variants, never on the text.

pub(crate) mod fault;
pub(crate) mod hint;
pub(crate) mod words;

use std::path::PathBuf;

use address::RowAddr;
use arrow::datatypes::Schema;
use spelling::counted;

use crate::error::hint::{
    build_text_index, column_hint, credentials_hint, option_hint, text_index_hint,
};
use crate::error::words::{listed, listed_addresses, listed_candidates, quoted};

/// The results of this crate's functions.
pub type Result<T> = std::result::Result<T, LakeError>;

/// The errors of this crate's functions.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// There is no table at the URI.
    #[error("no table at {uri}: check the URI, or make it with `bireme ingest FILE --table {uri}`")]
    TableNotFound {
        /// The table's URI.
        uri: String,
    },
    /// There is no folder or bucket at the URI.
    #[error("no folder or bucket at {uri}: check the URI, or create it")]
    FolderNotFound {
        /// The URI.
        uri: String,
    },
    /// There is a table already, and the mode says to create one.
    #[error(
        "a table exists at {uri}: add to it with --mode append, replace its rows with --mode overwrite"
    )]
    TableExists {
        /// The table's URI.
        uri: String,
    },
    /// The table exists, but the version doesn't (never made, or cleaned up).
    #[error("{uri} has no version {version} (never made, or cleaned up); its latest is {latest}")]
    VersionNotFound {
        /// The table.
        uri: String,
        /// The requested version.
        version: u64,
        /// The latest version; 0 when unknown.
        latest: u64,
    },
    /// The table has no such branch.
    #[error("{uri} has no branch `{branch}` (never made, or deleted)")]
    BranchNotFound {
        /// The table.
        uri: String,
        /// The requested branch.
        branch: String,
    },
    /// The version has no fragment with that id.
    #[error("version {version} of {uri} has no fragment {fragment}")]
    FragmentNotFound {
        /// The table.
        uri: String,
        /// The version.
        version: u64,
        /// The fragment's id.
        fragment: u32,
    },
    /// The table has no such top-level column.
    #[error(
        "no column {column:?}: the table has {}{}",
        listed(available),
        column_hint(column, available)
    )]
    ColumnNotFound {
        /// The requested name.
        column: String,
        /// The table's columns.
        available: Vec<String>,
    },
    /// A request left out the column, and the table has none or several to choose from.
    #[error("name the {purpose} column: {}", listed_candidates(candidates))]
    ColumnNotNamed {
        /// The purpose of the column, such as `vector`.
        purpose: &'static str,
        /// The columns of a suitable type.
        candidates: Vec<String>,
    },
    /// Rows (by physical offset) that the fragment doesn't have.
    #[error(
        "rows {start}..{end} are outside fragment {fragment}, which has {}",
        counted(u64::from(*physical_rows), "row")
    )]
    RangeOutOfBounds {
        /// The fragment's id.
        fragment: u32,
        /// The first requested row.
        start: u32,
        /// One past the last requested row.
        end: u32,
        /// The number of rows in the fragment, including deleted ones.
        physical_rows: u32,
    },
    /// Row addresses that this version doesn't have: out of range, or deleted.
    #[error(
        "{} not in version {version} of {uri} (never there, or deleted)",
        listed_addresses(addresses)
    )]
    RowNotFound {
        /// The table.
        uri: String,
        /// The version.
        version: u64,
        /// All the addresses that are missing, in the requested order.
        addresses: Vec<RowAddr>,
    },
    /// The table records no key column, and the request names none.
    #[error(
        "{uri} records no key column: name one with --key-column, or record it with `bireme index --table {uri} --key COLUMN`"
    )]
    KeyColumnUnknown {
        /// The table.
        uri: String,
    },
    /// A key of several columns.
    #[error(
        "the key of {uri} can't be the columns {}: a key is one column; add a column that combines them, and record it \
         with `bireme index --table {uri} --key COLUMN`",
        listed(columns)
    )]
    CompositeKey {
        /// The table.
        uri: String,
        /// The columns.
        columns: Vec<String>,
    },
    /// A key that can't be a value of the key column.
    #[error("{key:?} can't be a key in column {column:?}: {why}")]
    BadKey {
        /// The key column.
        column: String,
        /// The key as given.
        key: String,
        /// The reason.
        why: String,
    },
    /// A filter that doesn't parse, or names unknown columns, or mixes types.
    #[error("bad filter {}: {why}", quoted(filter))]
    BadFilter {
        /// The filter as given.
        filter: String,
        /// The reason.
        why: String,
    },
    /// An expression that doesn't parse, or names unknown columns, mixes types, or has no value for a row.
    #[error("bad expression {}: {why}", quoted(expression))]
    BadExpression {
        /// The expression as given.
        expression: String,
        /// The reason.
        why: String,
    },
    /// A query that asks for something impossible (k = 0, no words, a NaN in the vector), or for too much.
    #[error("bad query: {why}")]
    BadQuery {
        /// The reason.
        why: String,
    },
    /// A query vector of the wrong length.
    #[error(
        "column {column:?} holds vectors of {}, the query has {got}",
        counted(*expected as u64, "dimension")
    )]
    DimensionMismatch {
        /// The vector column.
        column: String,
        /// The column's dimension.
        expected: usize,
        /// The query's dimension.
        got: usize,
    },
    /// A vector search on a column that holds no vectors.
    #[error("column {column:?} is {data_type}, not a vector (fixed-size list of floats)")]
    NotAVector {
        /// The column.
        column: String,
        /// Its Arrow type.
        data_type: String,
    },
    /// A search by words in a column that has no full-text index.
    #[error(
        "column {column:?} has no full-text index in version {version}: {}",
        build_text_index(uri, column)
    )]
    NoIndex {
        /// The table.
        uri: String,
        /// The version that was searched.
        version: u64,
        /// The column.
        column: String,
    },
    /// A search for a phrase in a column whose full-text index has no positions of words.
    #[error(
        "the full-text index of column {column:?} in version {version} has no positions of words, which phrases need: \
         build it again with `bireme index --table {uri} --text {column} --positions`"
    )]
    NoPositions {
        /// The table.
        uri: String,
        /// The version that was searched.
        version: u64,
        /// The column.
        column: String,
    },
    /// A search by words in a table that has no full-text index at all.
    #[error("version {version} of {uri} has no full-text index: {}", text_index_hint(uri, columns))]
    NoTextIndex {
        /// The table.
        uri: String,
        /// The version that was searched.
        version: u64,
        /// The columns on which such an index could be built.
        columns: Vec<String>,
    },
    /// An index can't be trained on so few rows.
    #[error(
        "column {column:?} has {}, and an {kind} index needs at least {needed}: {instead}",
        counted(*rows, "row")
    )]
    TooFewRows {
        /// The column.
        column: String,
        /// The kind of index.
        kind: String,
        /// The number of live rows.
        rows: u64,
        /// The minimum number of rows.
        needed: u64,
        /// The advice.
        instead: String,
    },
    /// Settings of an index that contradict each other or don't fit the column.
    #[error("the index can't be built: {why}")]
    BadIndex {
        /// The reason.
        why: String,
    },
    /// A column of a type that the operation (or Lance) doesn't support.
    #[error("column {column:?} is {data_type}: {why}")]
    UnsupportedType {
        /// The column.
        column: String,
        /// Its Arrow type.
        data_type: String,
        /// The operation that isn't possible, and the advice.
        why: String,
    },
    /// A column with a name that Lance reserves.
    #[error("column {column:?}: Lance reserves this name; rename the column in the files")]
    ReservedColumn {
        /// The column.
        column: String,
    },
    /// A file that can't be read in the format that its name says, or whose contents don't fit the table.
    #[error("{}: {why}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// The reason, with line, row or column where known.
        why: String,
    },
    /// A file whose columns don't agree with those of the table or, for a new table, of the first file.
    #[error("{}: column {column:?} {why}", path.display())]
    SchemaMismatch {
        /// The file.
        path: PathBuf,
        /// The column at fault.
        column: String,
        /// The difference, and the schema that the column differs from.
        why: String,
    },
    /// The store doesn't answer: wrong endpoint, no network, name not resolved, or timeouts.
    #[error("can't reach the store of {uri}: {why}; check the endpoint and the network")]
    StoreUnreachable {
        /// The table.
        uri: String,
        /// The error of the connection.
        why: String,
    },
    /// No credentials are given, and none are found where the store's client looks for them.
    #[error("no credentials for the store of {uri}: {}", credentials_hint(uri))]
    CredentialsMissing {
        /// The table.
        uri: String,
    },
    /// The store answers and refuses the credentials.
    #[error(
        "the store of {uri} refuses the credentials: {why}; check keys, region and bucket policy"
    )]
    CredentialsRefused {
        /// The table.
        uri: String,
        /// The store's message.
        why: String,
    },
    /// An option was given that no object store has.
    #[error("object stores have no option `{name}`; {}", option_hint(*nearest))]
    UnknownOption {
        /// The option's name, as given.
        name: String,
        /// The known name that is likely meant, if any.
        nearest: Option<&'static str>,
    },
    /// An endpoint with a user name or password before its host.
    #[error(
        "the option `{name}` has a user name or password in its URL; give the endpoint without, and credentials by \
         options of their own"
    )]
    UserInEndpoint {
        /// The option's name.
        name: String,
    },
    /// A file with a secret option of the object stores, or the folder of these files, can't be used.
    #[error("`storage_secrets`: {}: {why}", path.display())]
    SecretOption {
        /// The file or folder.
        path: PathBuf,
        /// The kind of the error.
        kind: std::io::ErrorKind,
        /// A description of the problem.
        why: String,
    },
    /// The table has another key column.
    #[error(
        "the key column of {uri} is {present:?}; to look rows up by {column:?} instead, run \
         `bireme index --table {uri} --key {column} --replace-key`"
    )]
    AnotherKey {
        /// The table.
        uri: String,
        /// The table's key column.
        present: String,
        /// The requested key column.
        column: String,
    },
    /// The column can't be the key: it is null in some rows.
    #[error(
        "column {column:?} of {uri} can't be its key: it is null in {}, which no key would find; fill it in, or index it \
         as it is with --scalar, and name it in look-ups with --key-column", counted(*rows, "row")
    )]
    NullKeys {
        /// The table.
        uri: String,
        /// The column.
        column: String,
        /// The number of live rows without a key.
        rows: u64,
    },
    /// The URI or the store's options can't be understood.
    #[error("can't use {uri}: {why}")]
    BadUri {
        /// The table's URI.
        uri: String,
        /// The reason, which lies in the URI or in the store's options.
        why: String,
    },
    /// No space left, or a quota is used up.
    #[error("no space for {uri}: {why}; free some, or choose another place")]
    StoreFull {
        /// The table.
        uri: String,
        /// The store's message.
        why: String,
    },
    /// The store can't be read or written: no permission, or read-only.
    #[error("{uri}: {why}")]
    StoreRefuses {
        /// The table.
        uri: String,
        /// The store's message.
        why: String,
    },
    /// The table names a file that it must not read: a base path or an external blob elsewhere, a symbolic link.
    #[error("{uri} names a file that it may not read: {why}")]
    OutsideTable {
        /// The table.
        uri: String,
        /// The file, and why the table must not read it.
        why: String,
    },
    /// Another writer committed at the same time, so the change was not committed; making it again may work.
    #[error(
        "another writer changed {uri} at the same time, so the change was not committed; run it again ({why})"
    )]
    Conflict {
        /// The table.
        uri: String,
        /// The conflict.
        why: String,
    },
    /// The rows or the index are committed, but the key column could not be recorded after that. Nothing must be
    /// written again.
    #[error(
        "{committed} in version {version} of {uri}, but the key {column:?} was not recorded: run \
         `bireme index --table {uri} --key {column}` ({why})"
    )]
    KeyNotRecorded {
        /// The table.
        uri: String,
        /// The subject and the verb of the message: "the rows are" or "the index is".
        committed: &'static str,
        /// The version that was committed.
        version: u64,
        /// The requested key column.
        column: String,
        /// The reason why it was not recorded.
        why: String,
    },
    /// The table uses a feature that this version of Lance doesn't support.
    #[error("{uri}: not supported: {why}")]
    Unsupported {
        /// The table.
        uri: String,
        /// The unsupported feature.
        why: String,
    },
    /// A file of the table is missing or damaged. Files of an old version are missing once that version was cleaned up.
    #[error("a file of {uri} is missing or damaged: {why}")]
    Corrupt {
        /// The table.
        uri: String,
        /// The file, and what is wrong with it.
        why: String,
    },
    /// [`Stop`](crate::Stop) interrupted the work before anything was committed.
    #[error("interrupted: nothing was committed")]
    Interrupted {
        /// The table.
        uri: String,
    },
    /// None of the above: a bug here or in Lance.
    #[error("internal error with {uri}: {why}")]
    Internal {
        /// The table, or what was worked on.
        uri: String,
        /// The error.
        why: String,
    },
}

impl LakeError {
    /// The error for a column that a table with `schema` doesn't have.
    pub(crate) fn column_not_found(column: &str, schema: &Schema) -> Self {
        Self::ColumnNotFound {
            column: column.to_owned(),
            available: schema.fields().iter().map(|field| field.name().clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line_and_count_what_they_omit() {
        let error = LakeError::RowNotFound {
            uri: "t".into(),
            version: 3,
            addresses: (0..10).map(|i| RowAddr::new(1, i)).collect(),
        };
        let text = error.to_string();
        assert!(text.starts_with("row addresses 4294967296 (1:0), "), "{text}");
        assert!(
            text.ends_with(" and 2 more not in version 3 of t (never there, or deleted)"),
            "{text}"
        );
        let error = LakeError::ColumnNotFound {
            column: "x".into(),
            available: vec!["a".into(), "b".into()],
        };
        assert_eq!(error.to_string(), r#"no column "x": the table has "a", "b""#);
        let error = LakeError::ColumnNotNamed { purpose: "vector", candidates: vec![] };
        assert_eq!(error.to_string(), "name the vector column: the table has none");
    }
}
