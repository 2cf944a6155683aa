//! Tests of lake with tables that Lance wrote, and with files to ingest.

mod fixture;

mod blobs;
mod candidates;
mod damaged;
mod deep_filters;
mod fences;
mod filter_functions;
mod filters;
mod fuzz_filters;
mod histories;
mod ingest;
mod ingest_faults;
mod ingest_text;
mod interrupted;
mod key_texts;
mod keys;
mod live_rows;
mod lookups;
mod narrowed;
mod predicates;
mod rows;
mod small_segments;
mod stale_rows;
mod stores;
mod tables;
mod text;
mod text_forms;
mod text_fresh;
mod types;
mod vectors;
mod wordnet;
