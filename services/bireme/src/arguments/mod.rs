//! Parsers of arguments, and groups of arguments that several commands share. The parsers do no I/O, except to look up
//! host names, to see whether a drive exists, and to read files of vectors.

mod at_least_1;
mod column;
mod connection;
mod drive_spec;
mod duration;
mod expression;
mod filter;
mod io_endpoint;
mod listen;
mod named_uri;
mod order;
mod priority;
mod row_address;
mod row_range;
mod size;
mod source_file;
mod storage;
mod table_folders;
mod text_args;
mod vector_column;
mod vector_file;
mod vectors_file;

pub use at_least_1::parse_at_least_1;
pub use column::parse_column;
pub use connection::{Connection, TableArgs};
pub use drive_spec::DriveSpec;
pub use duration::{DURATION_EXPECTED, parse_duration};
pub use expression::parse_expression;
pub use filter::parse_filter;
pub use io_endpoint::IoEndpoint;
pub use listen::{ADDRESS_EXPECTED, parse_listen};
pub use named_uri::NamedUri;
pub use order::parse_order;
pub use priority::PriorityArgs;
pub use row_address::parse_row_address;
pub use row_range::parse_row_range;
pub use size::{SIZE_EXPECTED, parse_size};
pub use source_file::check_source;
pub use storage::{StorageArgs, secret_options};
pub use table_folders::folders;
pub use text_args::{TEXT, TextArgs};
pub use vector_column::VectorColumn;
pub use vector_file::read_vector;
pub use vectors_file::{Nulls, read_vectors};
