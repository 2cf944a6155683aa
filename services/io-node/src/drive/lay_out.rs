//! Makes slabs with journals of extents that were never written, to measure how long reading the journals takes.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use address::{ExtentKey, PackKey, SECTOR_BYTES, SectorNo};
use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::{DataType, Field};
use pack::{PackError, PackLayout};
use uuid::Uuid;

use super::journal::{
    BLOCK_SECTORS_MAX, BlockId, Record, block_sectors, record_bytes, sum_of, to_block,
};
use super::superblock::Superblock;
use crate::error::NodeError;
use crate::extent::{HEAD_SECTORS, segment_start};

/// The sizes of a slab that was laid out.
#[derive(Clone, Copy, Debug)]
pub struct LaidOut {
    /// The slab's length.
    pub slab_bytes: u64,
    /// Bytes of its journals.
    pub journal_bytes: u64,
}

/// Makes an extent of consecutive numbers with `sectors` sectors, for measurements.
///
/// # Errors
/// An error of [`PackLayout`]. No extent of numbers is known to cause one.
pub fn trial_extent(sectors: u32) -> Result<pack::Extent, PackError> {
    let numbers = i64::from(sectors) * (SECTOR_BYTES / size_of::<i64>()) as i64;
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..numbers));
    let field = Arc::new(Field::new("a", DataType::Int64, false));
    PackLayout::new(&[field])?.encode(&[column])
}

/// Makes a file with a superblock and the journals of `extents` extents of `sectors` sectors each. The file has holes
/// in place of the extents.
///
/// # Errors
/// An error of the file system; extents that fit no segment.
pub fn lay_out(
    path: &Path,
    extents: u32,
    sectors: u32,
    segment_bytes: u64,
) -> Result<LaidOut, NodeError> {
    let index = trial_extent(sectors)?.index;
    let a_block = (BLOCK_SECTORS_MAX as usize * SECTOR_BYTES / record_bytes(&index)).max(1) as u32;
    let segment_sectors = segment_bytes / SECTOR_BYTES as u64;
    let journal = |count: u32| {
        let (whole, rest) = (count / a_block, count % a_block);
        let sectors_of = |records: u32| block_sectors(records as usize * record_bytes(&index));
        u64::from(whole) * sectors_of(a_block) + if rest > 0 { sectors_of(rest) } else { 0 }
    };
    let fits =
        |count: &u32| u64::from(*count) * u64::from(sectors) + journal(*count) <= segment_sectors;
    let most = (segment_sectors / u64::from(sectors)) as u32;
    let Some(a_segment) = (1..=most).rev().find(fits) else {
        return Err(NodeError::Config { field: "segment", problem: "holds no such extent".into() });
    };
    let segments = extents.div_ceil(a_segment);
    let uuid = Uuid::new_v4();
    let slab_sectors = HEAD_SECTORS + u64::from(segments) * segment_sectors;
    let slab_bytes = slab_sectors * SECTOR_BYTES as u64;
    let os = |source| NodeError::Os { doing: "laying out a slab", source };
    let file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(os)?;
    file.set_len(slab_bytes).map_err(os)?;
    let superblock = Superblock { uuid, segment_sectors, sectors: slab_sectors };
    file.write_all_at(&superblock.to_sector(), 0).map_err(os)?;
    let mut journal_bytes = 0;
    for segment in 0..segments {
        let chunks: Vec<u32> =
            (segment * a_segment..extents.min((segment + 1) * a_segment)).collect();
        let mut end = segment_start(segment, segment_sectors).plus(segment_sectors);
        let mut previous = 0;
        for (number, chunks) in (0..).zip(chunks.chunks(a_block as usize)) {
            let record = |&chunk: &u32| Record {
                key: ExtentKey { pack: PackKey(u128::from(chunk).wrapping_mul(GOLDEN)), chunk },
                first: (chunk - segment * a_segment) * sectors,
                index: &index,
            };
            let records: Vec<_> = chunks.iter().map(record).collect();
            let id =
                BlockId { uuid, segment, epoch: 1 + u64::from(segment), number, log: 0, previous };
            let block = to_block(&id, &records);
            previous = sum_of(&block);
            end = SectorNo(end.0 - (block.len() / SECTOR_BYTES) as u64);
            file.write_all_at(&block, end.byte_offset().0).map_err(os)?;
            journal_bytes += block.len() as u64;
        }
    }
    file.sync_all().map_err(os)?;
    Ok(LaidOut { slab_bytes, journal_bytes })
}

/// 2^128 divided by the golden ratio. Multiples of it, modulo 2^128, look like hashes.
const GOLDEN: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
