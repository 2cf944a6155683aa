//! How rows lie on a drive, and how they become Arrow columns again.
//!
//! ```text
//! Schema ──plan_packs──► columns of each pack ──PackLayout::new──► layout of a pack's rows
//! a chunk's columns ──PackLayout::encode──► Extent: whole sectors, and an ExtentIndex for RAM
//! a row ──ExtentIndex::span──► bytes to read ──ExtentIndex::check──► Assembler::put … finish
//!     ──► physical columns ──(the wire, to_logical)──► wire columns ──restore──► the table's
//! ```
//!
//! Everything here is a pure function: no I/O, no clock, no threads. All integers are
//! little-endian. Three invariants: an extent's bytes follow from its columns alone, so every node
//! writes the same; a row of at most 1,365 bytes is in one sector; bytes from a drive may make an
//! error, but never a panic nor an invalid array.
//!
//! It doesn't know where extents are, who reads them, nor Lance.

mod assemble;
mod checksum;
mod encode;
mod error;
mod gather;
mod index;
mod index_bytes;
mod layout;
mod offsets;
mod physical;
mod placement;
mod plan;
mod restore;
mod shape;
mod source;
mod validity;
mod values;
mod wire;

pub use assemble::Assembler;
pub use checksum::crc32c;
pub use error::PackError;
pub use index::{Extent, ExtentIndex, Form};
pub use layout::{PackLayout, VectorElement, VectorType};
pub use physical::{physical_type, to_logical};
pub use placement::{RowSpan, SectorSpan};
pub use plan::{PackFields, WIDE_BYTES_MIN, plan_packs};
pub use restore::restore;
pub use wire::{wire_field, wire_schema, wire_type};
