//! Finds the rows that may have a key, mostly with one wait for memory per look-up.
//!
//! ```text
//! key ──KeyHasher::hash──► hash ──RunSet::lookup (a batch)──► candidates: row addresses ──► the rows prove the key
//!
//! key column of a data file ──KeyHashes──► Run::build ──► Run ──to_pieces──► bytes ──Loading──► Run
//!                                                          │               └─Run::merge (without the key column;
//!                                                          │                             next_merge says when)
//!                                                          └──head──► Paging ──► PagedRun
//!
//! hashes ──RunSet::needed_pages──► numbers of pages ──(the caller reads them)──► Pages ──RunSet::lookup──► candidates
//! ```
//!
//! A [`Run`] is the immutable index of the keys of one data file, or of several. It has a bucket of 64 bytes for every
//! nine keys (`line.rs` draws it; six keys in a wide run, which is one of fewer than 2.4 million keys), with a tag of
//! 16 bits (wide: 32) and a rank of 32 bits for each key. The rank is the number of the key's row among all rows of the
//! run's files. Buckets are ordered by hash (`geometry.rs`). A page of 4,096 bytes consists of 57 buckets and seven
//! lines for their overflow (wide: 56 and eight; `body.rs`). Entries that their page has no room for are spilled
//! (`spill.rs`). Pages are persisted as they are in memory, after a head with their checksums (`head.rs` draws the
//! file). Keys are not stored. A [`PagedRun`] is a run whose pages stay in its file: the caller reads the pages that a
//! look-up needs.
//!
//! With unique keys (Poisson-distributed over the buckets):
//!
//! | | narrow | wide (fewer than 2.4 million keys) |
//! |---|---|---|
//! | bytes per key, `4,096 / keys per page` and 0.02 for spilled entries | 7.78 | 11.90 |
//! | lines read for a present key | 1.096 | 1.103 |
//! | lines read for a missing key | 1.085 | 1.086 |
//! | look-ups with a wrong candidate, `keys / 2^hash bits` | 1 in 3,500 to 7,000 | 1 in 350 to 700 million |
//! | entries that have no room in their page | 0.08 % | 0.03 % |
//!
//! Invariants:
//! - A run depends only on its files, keys and seed, and on how many bits of each hash it keeps: if these are the same,
//!   a merged run has the same bytes as one that is built.
//! - A row that has a key is among the key's candidates. Candidates that do not have the key are rare but possible.
//! - A damaged run is refused when it is loaded, with the reason. If damage passes the checksums, look-ups and merges
//!   give wrong candidates, but do not panic.
//! - Rows whose key is null have no entry.
//! - If a page that a key needs is missing or damaged, the key gets no candidates, and [`Found::is_unread`] is true.
//! - [`RunSet`] probes at most [`RUNS_MAX`] runs in memory, and as many paged runs. It lists the data files of the
//!   table's version that none of these runs covers.
//!
//! This crate does no I/O, and has no clock, randomness or threads: the caller reads and writes the bytes, chooses the
//! seed, decides when to merge, and compares keys with rows. Deleted rows keep their entries; the caller says which
//! rows are live. Alternatives and figures: `docs/decisions/key-index.md`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod body;
mod build;
mod check;
mod error;
mod files;
mod fill;
mod found;
mod geometry;
mod head;
mod key;
mod key_type;
mod line;
mod merge;
mod paged_run;
mod pages;
mod paging;
mod policy;
mod run;
mod run_bytes;
mod run_set;
mod spill;
mod spill_bytes;

#[cfg(test)]
mod bytes_tests;
#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod paged_tests;

pub use build::{KeyHashes, SCRATCH_BYTES_MAX};
pub use error::KeyIndexError;
pub use files::DataFile;
pub use found::Found;
pub use head::HeadFacts;
pub use key::{Key, KeyHasher};
pub use key_type::KeyType;
pub use paged_run::{Page, PagedRun};
pub use pages::{PageId, Pages};
pub use paging::Paging;
pub use policy::{Merge, RUNS_MAX, RunFacts, covers_some, next_merge};
pub use run::Run;
pub use run_bytes::Loading;
pub use run_set::RunSet;
