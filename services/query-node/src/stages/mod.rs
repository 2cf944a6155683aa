//! The stages of a request, by the names that they have in metrics, traces and `explain` (`counters.rs`). `search.rs`,
//! `get.rs` and `take.rs` in `requests/` call them in the order in which data flows:
//!
//! validate → lookup → vector → search → filter → rerank → rank → fetch → assemble → reply
//!
//! Filter, rerank and fetch are in `fetch/`, and vector is a fetch of one row. `requests/by_key/find.rs` alternates
//! between lookup and fetch until each key has its row, or no candidates are left. `requests/search/filtered.rs`
//! alternates between search and filter until enough candidates pass.

mod all_rows;
mod assemble;
mod choose_setting;
mod distances;
mod every_row;
mod lookup;
mod rank;
mod reply;
mod search;
mod validate;

pub use all_rows::all_rows;
pub use assemble::finish;
pub use choose_setting::{Chosen, choose_setting};
pub use distances::at_least_0;
pub use lookup::{Keys, Lookup, Presence};
pub use rank::{fuse, rank};
pub use reply::{StreamReply, arrow_batch, ipc_stream, json_lines};
pub use search::{Hits, Path, Unfiltered, find_hits, index_of, search_further, search_text};
pub use validate::{
    By, KEY_BYTES_MAX, NPROBES, Question, REFINE_FACTOR, TakenRows, VECTORS_MAX, check_vector,
    column_of_vectors, key_column, row_format, validate_keys, validate_search, validate_take,
};
