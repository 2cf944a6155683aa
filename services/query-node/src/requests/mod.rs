//! The work of each request, in files with the names of the rpcs of `bireme.query.v1`. `service.rs` and plain HTTP
//! (`http/`) call them.
//!
//! ```text
//! search                 by vectors, words or a filter; search/filtered: a filter that is evaluated for the candidates
//! get ─► by_key/         rows by their keys; requests that wait on a core are looked up together
//! get_stream ─► get      a Get for each of its requests
//! lookups/ ─► by_key/    a stream of batches of keys
//! take ─► row_reader     rows by address, in pieces; pieces: the pieces of any answer, made ahead
//! tune, warm             work in the background, which reports its progress
//! describe, count, history, placement, status
//! ```
//!
//! A request's work is done by the steps in `stages/` and by `fetch/`.

mod by_key;
mod count;
mod describe;
mod get;
mod get_stream;
mod history;
mod lookups;
mod pieces;
mod placement;
mod row_reader;
mod search;
mod status;
mod take;
mod tune;
mod warm;

pub use count::{count, count_rows};
pub use describe::{describe_table, indexes_of, list_tables, millis, of_table};
pub use get::get;
pub use get_stream::get_stream;
pub use history::{list_tags, list_versions};
pub use lookups::LookupStream;
pub use pieces::{PIECES_AHEAD_MAX, Pieces, in_pieces};
pub use placement::placement;
pub use row_reader::{Piece, RowReader};
pub use search::{as_one_query, find_shaped, search, search_each};
pub use status::status;
pub use take::Take;
pub use tune::Tune;
pub use warm::Warm;
