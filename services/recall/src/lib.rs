//! The recall of vector searches by their settings, as it was measured with questions whose exact answers are known.
//! Pure, except for `files.rs`.
//!
//! ```text
//! Trial ──Tally::add, once for each question──► Curve ──encode──► TABLE/_bireme/recall/*.curve ──decode──► Curve
//!                                                                                                           │
//!                                     k and the wanted recall ──────────────Curve::choose──────────────► Setting
//! ```
//!
//! A *setting* is a number of partitions to search (nprobes) and a number of candidates to score exactly. A curve
//! keeps, for each of several k, the settings that no other setting beats in cost, recall and certainty together.
//!
//! Invariants:
//! - A curve is accepted only if its checksum is right and every value is within its bounds.
//! - The chosen setting's recall was measured, not interpolated, for the requested k or the next larger one.
//! - A curve is used only for an index that it fits ([`Fit`]): one that still has the segments that were measured, or
//!   an earlier or later build of the same index of the same table, with the same parameters and number of partitions.
//!
//! This crate deliberately makes no claim about filtered searches. They search more partitions than the setting says,
//! but their recall was not measured.

mod choose;
mod curve;
mod file;
mod files;
mod grid;
mod tally;

pub use choose::{NoSetting, Setting};
pub use curve::{Curve, CurveOfK, Fit, IndexBuild, Point, Questions, Shown};
pub use file::{CURVE_BYTES_MAX, CurveError, decode, encode};
pub use files::{CurveFileError, CurveFiles};
pub use grid::{CANDIDATES_MAX, K_MAX, factors, nprobes_ladder, searched_candidates};
pub use tally::{Measured, SearchesFor, Tally, Trial};
