//! What goes wrong on a query node, and how it is said on the wire.

use arrow_schema::ArrowError;
use connections::tls::TlsError;
use lake::LakeError;
use membership::MembershipError;
use pack::PackError;
use placement::MembersError;
use telemetry::TelemetryError;
use wire::{Fault, MESSAGE_BYTES_MAX, Reason};

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, QueryError>;

/// Why a query node can't start, or a request can't be answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The configuration contradicts itself.
    #[error("configuration: `{field}` {problem}")]
    Config {
        /// The field, as it is written in the file.
        field: String,
        /// What is wrong with it and how to mend it.
        problem: String,
    },
    /// The list of I/O nodes is refused.
    #[error("configuration: `{field}`: {error}")]
    Members {
        /// The field that has the list, or says where it is.
        field: &'static str,
        /// What is wrong with it.
        error: MembershipError,
    },
    /// A list that was checked can't be placed over: a defect.
    #[error("internal error: {0}")]
    Placement(#[from] MembersError),
    /// TLS can't be spoken.
    #[error("configuration: `{field}`: {error}")]
    Tls {
        /// The section.
        field: &'static str,
        /// Why.
        error: TlsError,
    },
    /// Metrics or traces can't be told.
    #[error("configuration: {0}")]
    Telemetry(#[from] TelemetryError),
    /// The port can't be listened on.
    #[error("can't listen on {address}: {source}; choose another with --listen")]
    Listen {
        /// As configured.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The gRPC server could not be put together, or broke.
    #[error("the gRPC server failed: {0}")]
    Server(String),
    /// No table of that name is configured.
    #[error("no table `{table}` is served here; there is {}", listed(available))]
    TableUnknown {
        /// The name.
        table: String,
        /// The names that there are.
        available: Vec<String>,
    },
    /// From the table.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// From an I/O node, or kept from an earlier attempt.
    #[error("{0}")]
    Fault(Fault),
    /// A field of the request is out of its bounds.
    #[error("`{field}` {problem}")]
    BadRequest {
        /// The field, as in the proto file.
        field: &'static str,
        /// What is wrong with it and how to mend it.
        problem: String,
    },
    /// A query vector that can't be searched with.
    #[error("the query vector {problem}")]
    BadVector {
        /// What is wrong with it.
        problem: String,
    },
    /// A search by vector or by likeness, of a table without vectors.
    #[error(
        "table `{table}` has no vector column: a search by `vector` or `like` needs one (a fixed-size \
         list of floats), and an index on it to be fast"
    )]
    NoVectors {
        /// The table.
        table: String,
    },
    /// `like` names no row.
    #[error("no row of table `{table}` has the key `{key}` in column `{column}`")]
    KeyAbsent {
        /// The table.
        table: String,
        /// The key column.
        column: String,
        /// The key.
        key: String,
    },
    /// Too many searches wait for a core.
    #[error("{waiting} searches wait for a core already; try again a little later")]
    Overloaded {
        /// How many.
        waiting: usize,
    },
    /// Callers hold all memory that there is for them.
    #[error("others' requests and replies hold all memory for them; try again a little later")]
    OutOfMemory,
    /// The deadline had passed before the work was done.
    #[error("the deadline passed during {during}; allow more time")]
    DeadlinePassed {
        /// The stage.
        during: &'static str,
    },
    /// The answer does not fit a message.
    #[error(
        "the answer has {bytes} bytes, and {} fit a message; ask for fewer rows or columns, or use Take",
        MESSAGE_BYTES_MAX
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Rows can't be written as JSON.
    #[error("the rows can't be written as JSON: {0}; ask for Arrow")]
    Json(ArrowError),
    /// From the rows' types.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// Arrow refuses what should be right: a defect.
    #[error("internal error: {0}")]
    Arrow(#[from] ArrowError),
}

impl QueryError {
    /// A list that is refused, by the field that has it or says where it is.
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
            | QueryError::Telemetry(_)
            | QueryError::Server(_)
            | QueryError::Arrow(_) => fault(Reason::Internal),
            QueryError::TableUnknown { table, .. } => {
                fault(Reason::TableNotFound).with("table", table)
            }
            QueryError::BadRequest { field, .. } => fault(Reason::BadArgument).with("field", field),
            QueryError::BadVector { .. } => fault(Reason::BadVector),
            QueryError::NoVectors { table } => fault(Reason::NoIndex).with("table", table),
            QueryError::KeyAbsent { table, column, key } => fault(Reason::KeyNotFound)
                .with("table", table)
                .with("column", column)
                .with("key", key),
            QueryError::Overloaded { .. } | QueryError::OutOfMemory => fault(Reason::Overloaded),
            QueryError::DeadlinePassed { .. } => fault(Reason::DeadlineExceeded),
            QueryError::TooLarge { .. } => fault(Reason::TooLarge),
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

/// `a, b, c`, or `none`.
fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
