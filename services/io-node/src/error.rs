//! What goes wrong on an I/O node, and how it is said on the wire.

use std::path::PathBuf;
use std::sync::Arc;

use connections::tls::TlsError;
use pack::PackError;
use ring::{SlabError, StartError};
use telemetry::TelemetryError;
use wire::{Fault, Reason};

use crate::slab::NotOurs;

/// Why an I/O node can't start, or a request can't be answered.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// From the table.
    #[error(transparent)]
    Table(#[from] Fault),
    /// From the rows' encoding.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A projection names a column twice.
    #[error("column `{column}` is asked for twice; ask for it once")]
    ColumnTwice {
        /// The column.
        column: String,
    },
    /// The table was dropped and made anew since the client opened it.
    #[error(
        "version {version} of {uri} is not the one asked for: the table was made anew; open it again"
    )]
    AnotherTable {
        /// The table.
        uri: String,
        /// The version.
        version: u64,
    },
    /// A table that the node is not configured to serve, or a text that names none.
    #[error(
        "this node does not serve that table, or its URI is not in canonical form; the node's setting `serve` lists \
         the tables that it serves, by absolute paths or s3://, gs:// and az:// URIs"
    )]
    NotServed,
    /// Rows that together are larger than may be held at once.
    #[error(
        "{rows} rows come to more than {bytes_max} bytes; ask for fewer, or raise `segment` to cache them"
    )]
    RowsTooLarge {
        /// How many.
        rows: usize,
        /// The bound.
        bytes_max: u64,
    },
    /// The configuration contradicts itself.
    #[error("configuration: `{field}` {problem}")]
    Config {
        /// The field, as it is written in the file.
        field: &'static str,
        /// What is wrong with it and how to mend it.
        problem: String,
    },
    /// A drive's slab can't be used.
    #[error(transparent)]
    Slab(#[from] SlabError),
    /// A drive holds what is not to be overwritten.
    #[error(
        "the drive {} is left alone: {why}; name another, or give --overwrite to lose what is on it",
        path.display()
    )]
    NotOurs {
        /// The drive.
        path: PathBuf,
        /// What is there.
        why: NotOurs,
    },
    /// A drive that is to be looked at, and has no slab.
    #[error("{} is no I/O node's slab: {why}", path.display())]
    NoSlab {
        /// The drive.
        path: PathBuf,
        /// What it has instead.
        why: String,
    },
    /// A ring can't start.
    #[error("the ring of core {core} can't start: {source}")]
    Ring {
        /// The CPU.
        core: usize,
        /// Why.
        source: StartError,
    },
    /// The port can't be listened on.
    #[error("can't listen on {address}: {source}; choose another with --listen")]
    Listen {
        /// As configured.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// TLS can't be spoken.
    #[error("configuration: `tls`: {0}")]
    Tls(#[from] TlsError),
    /// Metrics or traces can't be told.
    #[error("configuration: {0}")]
    Telemetry(#[from] TelemetryError),
    /// An extent can't be written.
    #[error("an extent can't be filled: {why}")]
    Fill {
        /// Why.
        why: Arc<str>,
    },
    /// The operating system refuses something that a node needs.
    #[error("{doing}: {source}")]
    Os {
        /// What was being done.
        doing: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// Said to clients: who is at fault decides the reason.
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
        NodeError::RowsTooLarge { .. } => Fault::new(Reason::TooLarge, error.to_string()),
        NodeError::Config { .. }
        | NodeError::Slab(_)
        | NodeError::NotOurs { .. }
        | NodeError::NoSlab { .. }
        | NodeError::Ring { .. }
        | NodeError::Listen { .. }
        | NodeError::Tls(_)
        | NodeError::Telemetry(_)
        | NodeError::Fill { .. }
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
