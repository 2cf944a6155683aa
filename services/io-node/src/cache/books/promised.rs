//! Checks that drives have space for the guarantees of tables, and chooses the guarantee of index and deletion files.

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
    let promised = promised(shares, segment_sectors);
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

/// The part of the drives that is guaranteed to index and deletion files: one in this many sectors. Indexes are much
/// smaller than their tables (IVF_RQ with one bit takes a thirty-second of the vectors, a key index 8 bytes a row), and
/// a guarantee that is not used costs nothing.
const FILES_PART: u64 = 10;

/// Returns the share of the index and deletion files of all tables: a guarantee of a tenth of the drives, or of what
/// the tables' own guarantees leave, less one segment, if that is smaller. Returns `None` if the guarantee would be
/// less than a segment.
pub fn files_share(
    shares: &[(TableTag, Share)],
    segment: ByteSize,
    drive_sectors: &[u64],
) -> Option<Share> {
    let segment_sectors = segment.as_u64() / SECTOR_BYTES as u64;
    let promised = promised(shares, segment_sectors).saturating_add(segment_sectors);
    let left = held_max_sectors(segment_sectors, drive_sectors).saturating_sub(promised);
    let guarantee = left.min(drive_sectors.iter().sum::<u64>() / FILES_PART);
    (guarantee >= segment_sectors).then_some(Share { guarantee, quota: u64::MAX, is_pinned: false })
}

/// Returns the maximum number of sectors that are held for tables with these shares.
fn promised(shares: &[(TableTag, Share)], segment_sectors: u64) -> u64 {
    // For a table that is not pinned, up to one extent more than its guarantee is held, and an extent is at most a
    // segment long.
    let promised = shares
        .iter()
        .filter(|(_, share)| share.guarantee > 0)
        .map(|(_, share)| share.guarantee + if share.is_pinned { 0 } else { segment_sectors });
    promised.fold(0, u64::saturating_add)
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

    #[test]
    fn files_get_a_tenth_of_the_drives_or_what_is_left() {
        let segment = ByteSize::mib(1);
        let drive = [HEAD_SECTORS + 40 * 256];
        let tenth = drive[0] / 10;
        let share =
            |guarantee| (TableTag(1), Share { guarantee, quota: u64::MAX, is_pinned: false });
        let guarantee =
            |shares: &[_]| files_share(shares, segment, &drive).map(|share| share.guarantee);
        assert_eq!(guarantee(&[]), Some(tenth));
        assert_eq!(guarantee(&[share(4096)]), Some(tenth));
        // 24 MiB can be guaranteed. The table takes 20 MiB and a segment of 1 MiB. The files' guarantee is what is
        // left, less a segment.
        assert_eq!(guarantee(&[share(20 * 256)]), Some(2 * 256));
        assert_eq!(guarantee(&[share(22 * 256)]), None);
        check_promised(&[share(20 * 256), share(2 * 256)], segment, &drive).unwrap();
    }
}
