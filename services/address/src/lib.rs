//! The address types that other crates share: where a row is, and where bytes are on a drive. Also [`without`], for
//! the positions of rows in a request.
//!
//! Pure newtypes without I/O. They keep the compiler from accepting one kind of number for another: a row
//! address is not an offset, and a sector number is not a byte offset.

mod chunk;
mod drive;
mod key;
mod positions;
mod row;

pub use chunk::{ChunkId, ChunkRows};
pub use drive::{ByteOffset, DriveNo, SECTOR_BYTES, SectorNo, sectors_for};
pub use key::{ExtentKey, PackKey, TableTag};
pub use positions::without;
pub use row::RowAddr;
