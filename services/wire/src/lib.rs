//! The wire: services generated from `proto/`, Arrow record batches inside their messages, and
//! errors that say what is at fault.
//!
//! Messages are turned into domain types once, at the edge of each node; nothing here knows how
//! they are served.

mod arrow_batch;
mod codec;
mod fault;
mod parent_span;
mod pieces;
mod received;
mod row_stream;
mod schema;
mod spares;

pub use arrow_batch::{ArrowBatch, BatchError};
pub use codec::Codec;
pub use fault::{ERROR_DOMAIN, Fault, Reason, status_of};
pub use parent_span::ParentSpan;
pub use pieces::grpc_pieces;
pub use received::{Received, ReceivedError};
pub use row_stream::RowStream;
pub use schema::{schema_from_bytes, schema_to_bytes};
pub use spares::Spares;

pub use bireme::fetch::v1 as fetch;
pub use bireme::query::v1 as query;

/// Nested as the packages are, so that one can name messages of the other.
#[allow(missing_docs, clippy::all)]
mod bireme {
    pub mod fetch {
        /// The I/O tier.
        pub mod v1 {
            tonic::include_proto!("bireme.fetch.v1");
        }
    }

    pub mod query {
        /// The query tier.
        pub mod v1 {
            tonic::include_proto!("bireme.query.v1");
        }
    }
}

/// The descriptors of both services, for gRPC server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Where Fetch is called: both sides do without tonic's codec of its messages.
pub const FETCH_PATH: &str = "/bireme.fetch.v1.FetchService/Fetch";

/// The stages of a batch, as metrics and traces of both tiers name them: until its rows were located; until its first
/// read was asked of a drive; until its last row was there; gathering its columns, or scoring.
pub const BATCH_STAGES: [&str; 4] = ["locate", "queue", "read", "assemble"];

/// The largest message of a Fetch stream that an I/O node accepts, in bytes: a batch with its query vector is
/// far smaller.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;

/// Bytes of batches after which a client adds no more to a message.
pub const REQUEST_BYTES_FILLED: usize = 1 << 20;

/// The largest other message that either side accepts, in bytes: a reply of `batch_rows_max` wide rows.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;
