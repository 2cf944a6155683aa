//! The errors of a query node, and the faults that they become on the wire.

use std::path::PathBuf;

use access::{AccessError, Denied, LimitReached};
use arrow_schema::ArrowError;
use connections::tls::TlsError;
use lake::LakeError;
use membership::MembershipError;
use pack::PackError;
use peers::SecretError;
use placement::MembersError;
use recall::NoSetting;
use spelling::nearest;
use telemetry::TelemetryError;
use wire::{Fault, MESSAGE_BYTES_MAX, RETRY_AFTER_MS, Reason};

use crate::call_rules::{BATCH_ROWS_MAX, KEY_ROWS_MAX};

/// The cause of refusals for lack of a permission.
const FORBIDDEN: &str = "forbidden";

/// The cause of refusals of tables that do not exist, or that the caller may not see.
const UNKNOWN_TABLE: &str = "unknown_table";

/// The maximum number of names that the error for an unknown table lists: folders may have thousands of tables.
pub const AVAILABLE_MAX: usize = 50;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, QueryError>;

/// An error that prevents a query node from starting or from answering a request.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// A field of the configuration is invalid, or contradicts another field.
    #[error("configuration: `{field}` {problem}")]
    Config {
        /// The field, as it is written in the file.
        field: String,
        /// The problem, and how to fix it.
        problem: String,
    },
    /// The list of I/O nodes is refused.
    #[error("configuration: `{field}`: {error}")]
    Members {
        /// The field that contains the list or names its source.
        field: &'static str,
        /// The problem.
        error: MembershipError,
    },
    /// Placement refuses a list that was already validated: a bug.
    #[error("internal error: {0}")]
    Placement(#[from] MembersError),
    /// TLS cannot be set up.
    #[error("configuration: `{field}`: {error}")]
    Tls {
        /// The configuration's section.
        field: &'static str,
        /// The reason.
        error: TlsError,
    },
    /// The file of the secret can't be used.
    #[error("configuration: `peer_secret`: {0}")]
    Secret(#[from] SecretError),
    /// Metrics or traces cannot be exported.
    #[error("configuration: {0}")]
    Telemetry(#[from] TelemetryError),
    /// The port can't be listened on.
    #[error("can't listen on {address}: {source}; choose another with --listen")]
    Listen {
        /// The configured address.
        address: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The gRPC server could not be set up, or failed; or work panicked, or a result could not be encoded.
    #[error("the gRPC server failed: {0}")]
    Server(String),
    /// The access policy can't be used.
    #[error("configuration: `access`: {0}")]
    Access(#[from] AccessError),
    /// The audit log can't be opened.
    #[error("configuration: `audit`: {} can't be opened: {source}", path.display())]
    Audit {
        /// The configured file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The caller's credentials are not accepted, or missing. The text is the same for all causes.
    #[error("{0}")]
    Denied(Denied),
    /// The policy does not let the caller do this with a table that it may see, or with the node.
    #[error(
        "no grant lets you {permission} {what}; ask the operator for one with `may = [\"{permission}\"]`"
    )]
    Forbidden {
        /// The permission that is missing.
        permission: &'static str,
        /// The table or the node, as the message names it.
        what: String,
    },
    /// The caller's grant shows only a part of the table, and the call does not know parts.
    #[error(
        "grant `{grant}` shows a part of table `{table}`, and {what} is not available under such a grant"
    )]
    PartRefused {
        /// The grant.
        grant: String,
        /// The table.
        table: String,
        /// The call, or the part of its request that is refused.
        what: &'static str,
    },
    /// The part of the table that the caller's grant shows can't be determined. The log has the cause.
    #[error(
        "grant `{grant}` shows a part of table `{table}` that does not fit this version of it; ask the operator of the \
         node, whose log has the cause"
    )]
    PartUnfit {
        /// The grant.
        grant: String,
        /// The table.
        table: String,
    },
    /// The policy has changed while the call lasted, and shows another part of the table than before.
    #[error("the access policy now shows another part of table `{table}`; send the request again")]
    PartChanged {
        /// The table.
        table: String,
    },
    /// The table can't be read, for a cause that the caller, to whom a part of the table is shown, may not see.
    #[error("table `{table}` can't be read; ask the operator of the node, whose log has the cause")]
    PartUnreadable {
        /// The table.
        table: String,
        /// The reason of the cause.
        reason: Reason,
    },
    /// A node is busy, in a way that the caller, to whom a part of the table is shown, may not see.
    #[error("the node was too busy to answer; try again later")]
    PartBusy {
        /// The reason of the cause.
        reason: Reason,
    },
    /// The caller has reached a limit of its grant.
    #[error(transparent)]
    LimitReached(#[from] LimitReached),
    /// No table of that name is served, or the caller may not see it.
    #[error(
        "no table `{table}` is served here; there is {}{}",
        listed(available),
        meant(table, available)
    )]
    TableUnknown {
        /// The requested name.
        table: String,
        /// The names of tables that the caller may see: at most [`AVAILABLE_MAX`], and one more if there are more.
        available: Vec<String>,
    },
    /// An error of the table or its store.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// A fault that was made before, for example by an I/O node, or by an earlier attempt to open the table.
    #[error("{0}")]
    Fault(Fault),
    /// A field of the request is missing or has an invalid value.
    #[error("`{field}` {problem}")]
    BadRequest {
        /// The field, as the proto file names it, or as the plain HTTP call does.
        field: &'static str,
        /// The problem, and how to fix it.
        problem: String,
    },
    /// A full-text query is invalid.
    #[error("`{field}` {problem}")]
    BadText {
        /// The path of the field, as in the proto file: `text.query.boolean.must[1].match.words`.
        field: String,
        /// The problem, and how to fix it.
        problem: String,
    },
    /// The query vector is unusable.
    #[error("the query vector {problem}")]
    BadVector {
        /// The problem.
        problem: String,
    },
    /// A search by `vector`, `vectors` or `like` on a table without vectors.
    #[error(
        "table `{table}` has no vector column: a search by `vector`, `vectors` or `like` needs one (a fixed-size \
         list of floats), and an index on it to be fast"
    )]
    NoVectors {
        /// The table.
        table: String,
    },
    /// A search by `recall` of an index that no known curve fits.
    #[error(
        "the recall of searches of column `{column}` of table `{table}` {}; measure it with `bireme tune {table}`, or \
         search with `nprobes` and `refine_factor` in place of `recall`",
        if *is_stale { "was measured on another index than it has now" } else { "was never measured" }
    )]
    RecallUnmeasured {
        /// The table.
        table: String,
        /// The vector column.
        column: String,
        /// Whether there is a curve of another index.
        is_stale: bool,
    },
    /// A search by `recall` for which the curve has no setting.
    #[error(
        "recall {recall} in column `{column}` of table `{table}`: {}",
        match reason {
            Some(reason) => reason.to_string(),
            None => "no measured setting reaches it; ask for less, or for an exact search".into(),
        }
    )]
    RecallUnreached {
        /// The table.
        table: String,
        /// The vector column.
        column: String,
        /// The wanted recall.
        recall: f64,
        /// The reason; `None` if the caller may not see what was measured.
        reason: Option<NoSetting>,
    },
    /// A Tune of a column whose recall can't be measured.
    #[error(
        "the recall of searches of column `{column}` of table `{table}` can't be measured: {reason}"
    )]
    RecallUnmeasurable {
        /// The table.
        table: String,
        /// The vector column.
        column: String,
        /// The reason.
        reason: String,
    },
    /// No row has the key that `like` names.
    #[error("no row of table `{table}` has the key `{key}` in column `{column}`")]
    KeyAbsent {
        /// The table.
        table: String,
        /// The key column.
        column: String,
        /// The key.
        key: String,
    },
    /// The admission queue is full.
    #[error("the admission queue is full, with {waiting} waiting; try again a little later")]
    Overloaded {
        /// Number of waiting requests.
        waiting: usize,
    },
    /// Callers hold so much of the memory for requests and replies that too little is left for this request.
    #[error("requests and replies of other callers hold all memory; try again a little later")]
    OutOfMemory,
    /// Rows for other requests under the caller's grant hold too much of the memory for requests and replies.
    #[error(
        "rows for other requests under the same grant hold {bytes} bytes of the core's memory; wait for their answers, \
         or try again a little later"
    )]
    GrantOutOfMemory {
        /// The bytes that those rows hold.
        bytes: u64,
    },
    /// The deadline had passed before the work was done.
    #[error("the deadline passed during {during}; allow more time")]
    DeadlinePassed {
        /// The stage.
        during: &'static str,
    },
    /// The table has no such tag.
    #[error("table `{table}` has no tag `{tag}`")]
    TagUnknown {
        /// The table.
        table: String,
        /// The requested tag.
        tag: String,
    },
    /// The table has no such index.
    #[error("table `{table}` has no index `{index}`")]
    IndexUnknown {
        /// The table.
        table: String,
        /// The requested name.
        index: String,
    },
    /// There is no such namespace.
    #[error("there is no namespace `{namespace}` here")]
    NamespaceUnknown {
        /// The requested namespace.
        namespace: String,
    },
    /// The request is one that other servers of LanceDB's or the Lance Namespace protocol answer, and Bireme does not.
    #[error("{problem}")]
    NotBuilt {
        /// The call that is not served, and the alternative.
        problem: String,
    },
    /// The answer does not fit a message.
    #[error(
        "the answer has {bytes} bytes, and {} fit a message; ask for fewer rows or columns, or use Take",
        MESSAGE_BYTES_MAX
    )]
    TooLarge {
        /// The answer's size.
        bytes: usize,
    },
    /// One key has more rows than a look-up returns.
    #[error(
        "key {key} in column `{column}` has more than {} rows; read them by a filter on the column instead",
        KEY_ROWS_MAX
    )]
    KeyRows {
        /// The key, quoted.
        key: String,
        /// The key column.
        column: String,
    },
    /// The keys of a batch have more rows than a look-up returns.
    #[error(
        "the keys of a batch have more than {} rows, most of them key {key} in column `{column}`; look up fewer keys at \
         a time",
        BATCH_ROWS_MAX
    )]
    BatchRows {
        /// The key with the most rows, quoted.
        key: String,
        /// The key column.
        column: String,
    },
    /// Rows can't be written as JSON.
    #[error("the rows can't be written as JSON: {0}; ask for Arrow")]
    Json(ArrowError),
    /// An error of the rows' encoding, such as an unsupported type.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// Arrow refuses data that should be valid: a bug.
    #[error("internal error: {0}")]
    Arrow(#[from] ArrowError),
}

impl QueryError {
    /// Returns every cause that [`refusal`](Self::refusal) can return.
    pub fn refusals() -> impl Iterator<Item = &'static str> {
        let credentials = Denied::ALL.iter().map(|denied| denied.as_str());
        credentials.chain([FORBIDDEN, UNKNOWN_TABLE]).chain(LimitReached::ALL)
    }

    /// If the access policy refuses the request, returns the cause, as metrics name it.
    pub fn refusal(&self) -> Option<&'static str> {
        match self {
            Self::Denied(denied) => Some(denied.as_str()),
            Self::Forbidden { .. }
            | Self::PartRefused { .. }
            | Self::PartUnfit { .. }
            | Self::PartChanged { .. } => Some(FORBIDDEN),
            Self::TableUnknown { .. } => Some(UNKNOWN_TABLE),
            Self::LimitReached(reached) => Some(reached.limit),
            _ => None,
        }
    }

    /// Returns whether an I/O node or this node refused the work as too much for it, so that a way to the same answer
    /// that asks less of the I/O nodes and of the memory for requests may succeed.
    pub fn asked_too_much(&self) -> bool {
        match self {
            Self::Overloaded { .. }
            | Self::OutOfMemory
            | Self::GrantOutOfMemory { .. }
            | Self::TooLarge { .. } => true,
            Self::Fault(fault) => {
                matches!(fault.reason, Reason::Overloaded | Reason::LimitReached | Reason::TooLarge)
            }
            _ => false,
        }
    }

    /// Creates [`Members`](Self::Members).
    pub(crate) fn members(field: &'static str, error: MembershipError) -> Self {
        Self::Members { field, error }
    }
}

impl From<Fault> for QueryError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<QueryError> for Fault {
    fn from(error: QueryError) -> Self {
        let fault = |reason| Fault::new(reason, error.to_string());
        match &error {
            QueryError::Lake(error) => lake::fault_of(error),
            QueryError::Fault(fault) => fault.clone(),
            QueryError::Config { .. }
            | QueryError::Members { .. }
            | QueryError::Placement(_)
            | QueryError::Listen { .. }
            | QueryError::Tls { .. }
            | QueryError::Secret(_)
            | QueryError::Telemetry(_)
            | QueryError::Access(_)
            | QueryError::Audit { .. }
            | QueryError::Server(_)
            | QueryError::Arrow(_) => fault(Reason::Internal),
            QueryError::Denied(_) => fault(Reason::Unauthenticated),
            QueryError::Forbidden { .. }
            | QueryError::PartRefused { .. }
            | QueryError::PartUnfit { .. }
            | QueryError::PartChanged { .. } => fault(Reason::Forbidden),
            QueryError::PartUnreadable { reason, .. } | QueryError::PartBusy { reason } => {
                fault(*reason)
            }
            QueryError::LimitReached(limit) => fault(Reason::LimitReached)
                .with("grant", &limit.grant)
                .with("limit", limit.limit)
                .with(RETRY_AFTER_MS, limit.retry_after.as_millis().max(1)),
            QueryError::TableUnknown { table, .. } => {
                fault(Reason::TableNotFound).with("table", table)
            }
            QueryError::BadRequest { field, .. } => fault(Reason::BadArgument).with("field", field),
            QueryError::BadText { field, .. } => fault(Reason::BadArgument).with("field", field),
            QueryError::BadVector { .. } => fault(Reason::BadVector),
            QueryError::NoVectors { table } => fault(Reason::NoIndex).with("table", table),
            QueryError::RecallUnmeasured { table, column, .. }
            | QueryError::RecallUnreached { table, column, .. }
            | QueryError::RecallUnmeasurable { table, column, .. } => {
                fault(Reason::RecallUnknown).with("table", table).with("column", column)
            }
            QueryError::KeyAbsent { table, column, key } => fault(Reason::KeyNotFound)
                .with("table", table)
                .with("column", column)
                .with("key", key),
            QueryError::TagUnknown { table, tag } => {
                fault(Reason::VersionNotFound).with("table", table).with("tag", tag)
            }
            QueryError::IndexUnknown { table, index } => {
                fault(Reason::VersionNotFound).with("table", table).with("index", index)
            }
            QueryError::NamespaceUnknown { namespace } => {
                fault(Reason::TableNotFound).with("namespace", namespace)
            }
            QueryError::NotBuilt { .. } => fault(Reason::Unimplemented),
            QueryError::Overloaded { .. }
            | QueryError::OutOfMemory
            | QueryError::GrantOutOfMemory { .. } => fault(Reason::Overloaded),
            QueryError::DeadlinePassed { .. } => fault(Reason::DeadlineExceeded),
            QueryError::TooLarge { .. }
            | QueryError::KeyRows { .. }
            | QueryError::BatchRows { .. } => fault(Reason::TooLarge),
            QueryError::Json(_) => fault(Reason::UnsupportedType),
            QueryError::Pack(error) => fault(reason_of_pack(error)),
        }
    }
}

fn reason_of_pack(error: &PackError) -> Reason {
    match error {
        PackError::Unsupported { .. } | PackError::TooWide { .. } => Reason::UnsupportedType,
        PackError::ReplyTooLarge { .. } => Reason::TooLarge,
        PackError::DictionaryOverflow { .. } => Reason::UnsupportedType,
        PackError::Columns { .. }
        | PackError::Type { .. }
        | PackError::Rows { .. }
        | PackError::TooLarge { .. }
        | PackError::TooLong { .. }
        | PackError::Projection { .. }
        | PackError::NoSuchRow { .. }
        | PackError::Put { .. }
        | PackError::Missing { .. }
        | PackError::Checksum { .. }
        | PackError::Corrupt { .. }
        | PackError::CorruptIndex { .. }
        | PackError::Arrow { .. } => Reason::Internal,
    }
}

/// Returns a hint at the available name that `name` was probably meant to be, or nothing if none is similar.
fn meant(name: &str, available: &[String]) -> String {
    match nearest(name, available.iter().map(String::as_str)) {
        Some(meant) => format!("; did you mean `{meant}`?"),
        None => String::new(),
    }
}

/// Formats at most [`AVAILABLE_MAX`] of the names as `a, b, c`, or `none` if there are none.
fn listed(names: &[String]) -> String {
    match names {
        [] => "none".into(),
        _ if names.len() > AVAILABLE_MAX => format!("{}, …", names[..AVAILABLE_MAX].join(", ")),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_table_is_recognised_among_those_available() {
        let said = |table: &str| {
            let available = vec!["docs".to_owned(), "words".to_owned()];
            QueryError::TableUnknown { table: table.to_owned(), available }.to_string()
        };
        assert_eq!(
            said("wrods"),
            "no table `wrods` is served here; there is docs, words; did you mean `words`?"
        );
        assert_eq!(said("orders"), "no table `orders` is served here; there is docs, words");
        let available = (0..AVAILABLE_MAX + 1).map(|it| format!("t{it}")).collect();
        let table = "orders".to_owned();
        let said = QueryError::TableUnknown { table, available }.to_string();
        assert!(said.contains("there is t0, t1, ") && said.ends_with(", t49, …"), "{said}");
    }
}
