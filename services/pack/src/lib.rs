//! Encodes the rows of a chunk for a drive and decodes them into Arrow columns.
//!
//! ```text
//! Schema ──plan_packs──► columns of each pack ──PackLayout::new──► layout of a pack's rows
//! columns of a chunk ──PackLayout::encode──► Extent: whole sectors, and an ExtentIndex for RAM
//! a row ──ExtentIndex::span──► bytes to read ──ExtentIndex::check──► Assembler::put … finish
//!     ──► physical columns ──(the wire, to_logical)──► wire columns ──restore──► table columns
//! ```
//!
//! All functions are pure: no I/O, no clock, no threads. All integers are little-endian.
//!
//! Invariants:
//! - An extent's bytes depend only on its columns, so every node writes the same bytes.
//! - A row of at most 1,365 bytes lies within one sector.
//! - Damaged bytes from a drive fail the check of their sector. If damage passes the check, it causes an error or wrong
//!   values, but never a panic or an invalid array.
//!
//! This crate does not know where extents are stored or who reads them, and it does not depend on Lance.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod assemble;
mod checksum;
mod column;
mod encode;
mod error;
mod gather;
mod index;
mod index_bytes;
mod layout;
mod offsets;
mod physical;
mod plan;
mod restore;
mod row_placement;
mod shape;
mod validity;
mod values;
mod wire;

pub use assemble::Assembler;
pub use checksum::crc32c;
pub use error::PackError;
pub use index::{Extent, ExtentIndex, Form};
pub use layout::{PackLayout, VectorElement, VectorType};
pub use physical::{physical_type, to_logical};
pub use plan::{PackFields, WIDE_BYTES_MIN, plan_packs};
pub use restore::restore;
pub use row_placement::{RowSpan, SectorSpan};
pub use wire::{wire_field, wire_schema, wire_type};
