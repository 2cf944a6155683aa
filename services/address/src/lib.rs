//! The words that every other crate shares: where a row is, and how bytes on a drive are counted.
//!
//! Pure newtypes without I/O. A number that crosses a crate boundary as one of these cannot be
//! mistaken for another: a row address is not an offset, a sector number is not a byte offset.

mod chunk;
mod drive;
mod key;
mod row;

pub use chunk::{ChunkId, ChunkRows};
pub use drive::{ByteOffset, DriveNo, SECTOR_BYTES, SectorNo, sectors_for};
pub use key::{ExtentKey, PackKey, TableTag};
pub use row::RowAddr;
