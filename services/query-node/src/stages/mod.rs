//! The stages of a request. `search.rs`, `get.rs` and `take.rs`, beside this folder, call them in the order in which
//! data flows:
//!
//! validate → lookup → search → plan → stream (→ table) → rank → assemble → reply

mod assemble;
mod key;
mod lookup;
mod plan;
mod rank;
mod reply;
mod score;
mod search;
mod stream;
mod table;
mod validate;

pub use assemble::{finish, present};
pub use key::has_key;
pub use lookup::{look_up, row_like, vector_of};
pub use rank::rank;
pub use reply::{ipc_stream, json_lines};
pub use search::{Hits, search};
pub use stream::{Cost, Fetched, Scoring, fetch_rows, score_rows};
pub use validate::{By, Question, key_column, validate_keys, validate_search, validate_take};
