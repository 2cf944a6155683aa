//! Checks that drives have space for the guarantees of tables.

use address::{SECTOR_BYTES, TableTag};
use bytesize::ByteSize;

use super::segments::{OTHERS_MIN, held_max_sectors};
use crate::config::Share;
use crate::error::NodeError;

/// Checks that drives with `drive_sectors` sectors have space for the guarantees.
///
/// # Errors
/// [`NodeError::Config`] with the sum of the guarantees and its maximum.
pub fn check_promised(
    shares: &[(TableTag, Share)],
    segment: ByteSize,
    drive_sectors: &[u64],
) -> Result<(), NodeError> {
    let segment_sectors = segment.as_u64() / SECTOR_BYTES as u64;
    // A table that is not pinned may hold up to one extent, of at most a segment, more than its minimum.
    let promised = shares
        .iter()
        .filter(|(_, share)| share.guarantee > 0)
        .map(|(_, share)| share.guarantee + if share.is_pinned { 0 } else { segment_sectors });
    let promised = promised.fold(0u64, u64::saturating_add);
    let most = held_max_sectors(segment_sectors, drive_sectors);
    if promised <= most {
        return Ok(());
    }
    let bytes = |sectors: u64| ByteSize::b(sectors.saturating_mul(SECTOR_BYTES as u64));
    let problem = format!(
        "promise {} of the drives (minima, with a segment each, and what is pinned), and at most {} can be: \
         two thirds of all segments but {OTHERS_MIN} a drive. Promise less, or give more drives",
        bytes(promised),
        bytes(most),
    );
    Err(NodeError::Config { field: "shares", problem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::HEAD_SECTORS;

    #[test]
    fn more_than_can_be_promised_is_refused_with_what_can() {
        let share = |guarantee, is_pinned| Share { guarantee, quota: u64::MAX, is_pinned };
        let segment = ByteSize::mib(1);
        // Ten segments of 1 MiB behind the head: 4 MiB can be guaranteed.
        let drive = [HEAD_SECTORS + 10 * 256];
        let check = |shares: &[(TableTag, Share)]| check_promised(shares, segment, &drive);
        check(&[(TableTag(1), share(1024, true))]).unwrap();
        check(&[(TableTag(1), share(768, false)), (TableTag(2), share(0, false))]).unwrap();
        let both = [(TableTag(1), share(768, false)), (TableTag(2), share(1, true))];
        let error = check(&both).unwrap_err().to_string();
        assert!(error.contains("promise 4.0 MiB") && error.contains("at most 4.0 MiB"), "{error}");
    }
}
