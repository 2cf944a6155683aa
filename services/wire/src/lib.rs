//! The wire protocol: services generated from `proto/`, Arrow record batches inside messages, and errors.
//!
//! Each node validates messages into domain types once, at its edge. This crate does not know how requests are served.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod array_memory;
mod arrow_batch;
mod buffer_pool;
mod code;
mod codec;
mod deadline;
mod fault;
mod lookup;
mod parent_span;
mod pieces;
mod request_decoder;
mod response_decoder;
mod row_stream;
mod schema;
mod value_bytes;

pub use array_memory::{HeldMemory, memory_of};
pub use arrow_batch::{ArrowBatch, BatchError};
pub use buffer_pool::BufferPool;
pub use code::{CODES, code_name};
pub use codec::Codec;
pub use deadline::{DEADLINE_MAX, asked_timeout};
pub use fault::{ERROR_DOMAIN, Fault, RETRY_AFTER_MS, Reason, status_of};
pub use lookup::{LOOKUP_BYTES_MAX, LOOKUP_PROJECTIONS_MAX};
pub use parent_span::ParentSpan;
pub use pieces::grpc_pieces;
pub use request_decoder::FetchRequestDecoder;
pub use response_decoder::{ResponseDecodeError, ResponseDecoder};
pub use row_stream::RowStream;
pub use schema::{schema_from_bytes, schema_to_bytes};
pub use value_bytes::{bytes_of_arrays, bytes_of_values};

pub use bireme::fetch::v1 as fetch;
pub use bireme::query::v1 as query;

// The modules are nested like the packages, because the generated code of one package refers to messages of the other
// by relative paths.
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

/// The HTTP path of the Fetch method. Both sides need it, because they handle this method without the code that tonic
/// generates.
pub const FETCH_PATH: &str = "/bireme.fetch.v1.FetchService/Fetch";

/// The HTTP path of the Warm method.
pub const WARM_PATH: &str = "/bireme.fetch.v1.FetchService/Warm";

/// The HTTP path of the Release method.
pub const RELEASE_PATH: &str = "/bireme.fetch.v1.FetchService/Release";

/// The HTTP path of the Describe method.
pub const DESCRIBE_PATH: &str = "/bireme.fetch.v1.FetchService/Describe";

/// The names of a batch's stages in the metrics and traces of both tiers. The stages end, in this order, when the
/// batch's rows are located, when its first read is submitted, when its last row has arrived, and when its columns are
/// gathered or its vectors scored.
pub const BATCH_STAGES: [&str; 4] = ["locate", "queue", "read", "assemble"];

/// The largest message of a Fetch stream that an I/O node accepts, in bytes. A batch with its query vector is far
/// smaller: 4,096 addresses have 32 KiB, and a vector of 100,000 dimensions 400 KB.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;

/// A client adds no further batch to a message that has at least this many bytes. So a message with one batch more
/// stays far below [`REQUEST_BYTES_MAX`].
pub const REQUEST_BYTES_FILLED: usize = 1 << 20;

/// The largest reply that a node sends and a client accepts, in bytes. In a reply of an I/O node, half of it is for
/// rows: `batch_rows_max` rows (4,096) of 32 KiB. The limits of requests are lower.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;
