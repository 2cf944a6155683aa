//! Stable row ids that a manifest has inline, fragment by fragment.
//!
//! Lance turns a fragment's ids into bitmaps. A range of ids takes a few bytes in the file, and 3 MB in memory for each
//! 2^32 ids. So the ranges of a fragment may not be longer than the fragment, and no id may be above [`ROWS_MAX`].

use super::Checked;
use super::message::{Field, Fields};

/// The maximum number of rows of a table, and the largest row id. Lance gives each row that is written a new id.
pub const ROWS_MAX: u64 = 1 << 40;

/// Checks the ids of a fragment with `rows` rows: Lance's message `RowIdSequence`.
pub fn check(sequence: &[u8], rows: u64) -> Checked {
    // A range may have ids that are no row's. Each of them takes at least a bit in the file.
    let spanned_max = rows.saturating_add(8 * sequence.len() as u64);
    let mut spanned = 0u64;
    for segment in Fields(sequence) {
        if let Field::Bytes(1, segment) = segment? {
            spanned = spanned.saturating_add(check_segment(segment)?);
        }
    }
    match spanned <= spanned_max {
        true => Ok(()),
        false => Err(format!("a fragment of {rows} rows has ranges of {spanned} row ids")),
    }
}

/// Checks a message `U64Segment`. Returns the length of its range, or 0 if it is an array of ids.
fn check_segment(segment: &[u8]) -> Checked<u64> {
    let mut fields = Fields(segment);
    let field = fields.next().transpose()?;
    // Lance would merge several fields into one segment.
    let (Some(Field::Bytes(kind, inner)), None) = (field, fields.next()) else {
        return Err("a segment of row ids in it is not one range or array".into());
    };
    match kind {
        // A range, a range with holes, a range with a bitmap.
        1..=3 => range_len(inner),
        // An array of ids that ascend, or not.
        _ => check_array(inner).map(|()| 0),
    }
}

fn range_len(range: &[u8]) -> Checked<u64> {
    let (mut start, mut end) = (0, 0);
    for field in Fields(range) {
        match field? {
            Field::Number(1, number) => start = number,
            Field::Number(2, number) => end = number,
            _ => {}
        }
    }
    check_id(end).map(|()| end.saturating_sub(start))
}

/// Checks a message `EncodedU64Array`: offsets of two or four bytes from a base (fields 1 and 2), or ids of eight bytes
/// (field 3).
fn check_array(array: &[u8]) -> Checked {
    for field in Fields(array) {
        let Field::Bytes(width, inner) = field? else { continue };
        for field in Fields(inner) {
            match field? {
                Field::Number(1, base) => check_id(base)?,
                Field::Bytes(2, ids) if width == 3 => {
                    let ids = ids.as_chunks::<8>().0.iter();
                    ids.copied().map(u64::from_le_bytes).try_for_each(check_id)?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn check_id(id: u64) -> Checked {
    match id <= ROWS_MAX {
        true => Ok(()),
        false => Err(format!("it has the row id {id}, and {ROWS_MAX} is the largest that is read")),
    }
}
