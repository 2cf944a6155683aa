//! The errors of an I/O node, and their form on the wire.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::ArrowError;
use connections::tls::TlsError;
use pack::PackError;
use peers::SecretError;
use ring::{SlabError, StartError};
use telemetry::TelemetryError;
use wire::{Fault, Reason};

/// The reason why an I/O node cannot start, or a request cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// An error of the table or its store.
    #[error(transparent)]
    Table(#[from] Fault),
    /// An error of encoding or decoding rows.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A projection names a column twice.
    #[error("column `{column}` is asked for twice; ask for it once")]
    ColumnTwice {
        /// The column.
        column: String,
    },
    /// The table was dropped and recreated since the client opened it.
    #[error(
        "version {version} of {uri} is not the one asked for: the table was made anew; open it again"
    )]
    AnotherTable {
        /// The table.
        uri: String,
        /// The version.
        version: u64,
    },
    /// The node is not configured to serve the table, or the requested URI is invalid or not canonical.
    #[error(
        "this node does not serve that table, or its URI is not in canonical form; the node's setting `serve` lists \
         the tables that it serves, by absolute paths or s3://, gs:// and az:// URIs"
    )]
    NotServed,
    /// The path does not name a file that an I/O node reads: one in the table's folder that never changes.
    #[error(
        "that is no file which an I/O node reads; give the path, in the table's folder, of a file in `_indices`, \
         `_deletions` or `_bireme`, without `.` and `..`"
    )]
    NoFile,
    /// The rows of a batch exceed a reply.
    #[error(
        "the batch's {rows} rows come to more than the {bytes_max} bytes that a reply holds; ask for fewer rows a batch, or fewer columns"
    )]
    BatchTooLarge {
        /// The number of rows.
        rows: usize,
        /// The maximum number of bytes.
        bytes_max: u64,
    },
    /// The rows of a chunk exceed a segment.
    #[error(
        "a chunk of {rows} rows comes to more than the {bytes_max} bytes of a segment; raise `segment` to cache it"
    )]
    ChunkTooLarge {
        /// The number of rows.
        rows: usize,
        /// The size of a segment.
        bytes_max: u64,
        /// The bytes of the rows that were read.
        bytes: u64,
    },
    /// A setting is invalid, or contradicts another one.
    #[error("configuration: `{field}` {problem}")]
    Config {
        /// The field, as written in the file.
        field: &'static str,
        /// The problem, and how to fix it.
        problem: String,
    },
    /// A drive's slab cannot be used.
    #[error(transparent)]
    Slab(#[from] SlabError),
    /// A drive holds data that must not be overwritten.
    #[error(
        "the drive {} is left alone: {why}; name another, or give --overwrite to lose what is on it",
        path.display()
    )]
    NotOurs {
        /// The drive.
        path: PathBuf,
        /// The reason why the drive is left alone.
        why: NotOurs,
    },
    /// A drive to be inspected has no slab.
    #[error("{} is no I/O node's slab: {why}", path.display())]
    NoSlab {
        /// The drive.
        path: PathBuf,
        /// The reason why it is no slab.
        why: String,
    },
    /// A ring cannot start.
    #[error("the ring of core {core} can't start: {source}")]
    Ring {
        /// The number of the core.
        core: usize,
        /// The reason.
        source: StartError,
    },
    /// The node cannot listen on its address.
    #[error("can't listen on {address}: {source}; choose another with --listen")]
    Listen {
        /// The configured address.
        address: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The TLS configuration is invalid.
    #[error("configuration: `tls`: {0}")]
    Tls(#[from] TlsError),
    /// The file of the secret can't be used.
    #[error("configuration: `peer_secret`: {0}")]
    Secret(#[from] SecretError),
    /// The audit log can't be opened.
    #[error("configuration: `audit`: {} can't be opened: {source}", path.display())]
    Audit {
        /// The configured file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// Metrics or traces cannot be exported.
    #[error("configuration: {0}")]
    Telemetry(#[from] TelemetryError),
    /// An extent cannot be filled.
    #[error("an extent can't be filled: {why}")]
    Fill {
        /// The reason.
        why: Arc<str>,
    },
    /// A predicate can't be evaluated.
    #[error("a predicate can't be evaluated: {0}")]
    Predicate(ArrowError),
    /// A system call that the node needs has failed.
    #[error("{doing}: {source}")]
    Os {
        /// The action that failed.
        doing: &'static str,
        /// The reason.
        source: std::io::Error,
    },
}

/// The reason why a drive does not begin with a valid superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOurs {
    /// The bytes were written by another program.
    #[error("it holds something that Bireme did not write")]
    Foreign,
    /// The drive's first MiB, which is checked for foreign data, can't be read.
    #[error("its beginning can't be read")]
    Unreadable,
    /// The first sector is a superblock, but a damaged one.
    #[error("its superblock is damaged")]
    Damaged,
    /// The superblock was written by a newer version of Bireme.
    #[error("its format is {found}, and this version of Bireme reads format {known}")]
    Version {
        /// The format of the superblock.
        found: u32,
        /// The newest format that this version reads.
        known: u32,
    },
}

/// Returns a function that wraps an I/O error of the action `doing` in [`NodeError::Os`].
pub fn os_error(doing: &'static str) -> impl Fn(std::io::Error) -> NodeError {
    move |source| NodeError::Os { doing, source }
}

/// Converts an error to the fault for clients. The fault's reason depends on whether the caller or the node made the
/// mistake.
pub fn fault_of(error: &NodeError) -> Fault {
    match error {
        NodeError::Table(fault) => fault.clone(),
        NodeError::Pack(error) => pack_fault(error),
        NodeError::ColumnTwice { column } => {
            Fault::new(Reason::BadArgument, error.to_string()).with("column", column)
        }
        NodeError::AnotherTable { uri, version } => {
            Fault::new(Reason::VersionNotFound, error.to_string())
                .with("table", uri)
                .with("version", version)
        }
        NodeError::NotServed => Fault::new(Reason::TableNotServed, error.to_string()),
        NodeError::NoFile => Fault::new(Reason::BadArgument, error.to_string()),
        NodeError::BatchTooLarge { .. } | NodeError::ChunkTooLarge { .. } => {
            Fault::new(Reason::TooLarge, error.to_string())
        }
        NodeError::Config { .. }
        | NodeError::Slab(_)
        | NodeError::NotOurs { .. }
        | NodeError::NoSlab { .. }
        | NodeError::Ring { .. }
        | NodeError::Listen { .. }
        | NodeError::Tls(_)
        | NodeError::Secret(_)
        | NodeError::Audit { .. }
        | NodeError::Telemetry(_)
        | NodeError::Fill { .. }
        | NodeError::Predicate(_)
        | NodeError::Os { .. } => Fault::new(Reason::Internal, error.to_string()),
    }
}

fn pack_fault(error: &PackError) -> Fault {
    let reason = match error {
        PackError::Unsupported { .. } => Reason::UnsupportedType,
        PackError::ReplyTooLarge { .. } => Reason::TooLarge,
        _ => Reason::Internal,
    };
    Fault::new(reason, error.to_string())
}
