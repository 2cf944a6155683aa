//! Divides the rows of one fetch into parts, if all of them at once might take much memory.
//!
//! The size of rows without a fixed width is known only after they have been fetched. Their caller holds memory for the
//! rows of a part before it fetches the next one. So a call that wants more than there is fails before all of its rows
//! are in memory.

use address::RowAddr;
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use wire::memory_of;

use super::cost::Cost;
use super::rows::Fetched;
use crate::error::Result;
use crate::tables::Projection;

/// The size in bytes of the rows of a part. As much of a call may be in memory before it is counted. 10,000 rows are one
/// part if each has 1.6 KB in the files.
const PART_BYTES: usize = 64 << 20;

/// The factor by which rows are assumed to be larger than their share of the data files, which may be compressed.
const COMPRESSION: usize = 4;

/// The number of rows that are fetched first if the data files do not tell how large rows are, as in tables of blobs.
const ROWS_FIRST: usize = 16;

/// The parts of a fetch, and the rows of those that were fetched.
pub struct FetchParts<'a> {
    addrs: &'a [RowAddr],
    /// Index in `addrs` of the first row that has not been fetched.
    from: usize,
    /// The maximum number of rows in the next part.
    rows_next: usize,
    part_bytes: usize,
    fetched: Vec<RecordBatch>,
    missing: Vec<u32>,
    bytes: usize,
}

impl<'a> FetchParts<'a> {
    /// Divides the rows at `addrs`. A row's share of the table's data files has `file_row_bytes` bytes; `None` if that
    /// is not known. Rows of fixed width are one part, because their size is known before.
    pub fn new(addrs: &'a [RowAddr], projection: &Projection, file_row_bytes: Option<u64>) -> Self {
        Self::of(addrs, projection, file_row_bytes, PART_BYTES)
    }

    fn of(
        addrs: &'a [RowAddr],
        projection: &Projection,
        file_row_bytes: Option<u64>,
        part_bytes: usize,
    ) -> Self {
        let rows_next = match projection.row_bytes {
            Some(_) => usize::MAX,
            None => rows_likely(file_row_bytes, part_bytes),
        };
        let (fetched, missing) = Default::default();
        Self { addrs, from: 0, rows_next, part_bytes, fetched, missing, bytes: 0 }
    }

    /// Returns the addresses of the next part; `None` if all rows have been fetched. Without rows there is one empty
    /// part.
    pub fn next(&self) -> Option<&'a [RowAddr]> {
        let rest = &self.addrs[self.from..];
        (!rest.is_empty() || self.fetched.is_empty())
            .then(|| &rest[..rest.len().min(self.rows_next)])
    }

    /// Returns the memory of the rows that were fetched, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the rows of the next part. Returns the cost of their fetch.
    pub fn add(&mut self, Fetched { rows, missing, cost }: Fetched) -> Cost {
        let (bytes, from) = (memory_of(rows.columns()), self.from as u32);
        self.from += self.next().map_or(0, <[RowAddr]>::len);
        self.missing.extend(missing.into_iter().map(|at| from + at));
        self.bytes = self.bytes.saturating_add(bytes);
        if rows.num_rows() > 0 {
            self.rows_next = (self.part_bytes / (bytes / rows.num_rows()).max(1)).max(1);
        }
        self.fetched.push(rows);
        cost
    }

    /// Returns the rows of all parts, and the positions of addresses without a row, ascending.
    pub fn finish(mut self) -> Result<(RecordBatch, Vec<u32>)> {
        let rows = match self.fetched.as_slice() {
            [_] => self.fetched.swap_remove(0),
            all => concat_batches(&all[0].schema(), all)?,
        };
        Ok((rows, self.missing))
    }
}

/// Returns the number of rows, at least 1, that are likely to have at most `bytes_max` bytes, if a row's share of the data
/// files has `file_row_bytes`.
pub fn rows_likely(file_row_bytes: Option<u64>, bytes_max: usize) -> usize {
    let Some(bytes) = file_row_bytes else { return ROWS_FIRST };
    let row_bytes = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_mul(COMPRESSION);
    (bytes_max / row_bytes.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::BinaryBuilder;
    use arrow_array::{ArrayRef, cast::AsArray};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    fn projection(data_type: DataType) -> Projection {
        let schema = Schema::new(vec![Field::new("value", data_type, true)]);
        Projection::new(vec!["value".into()], Arc::new(schema))
    }

    fn addrs(count: u32) -> Vec<RowAddr> {
        (0..count).map(|offset| RowAddr::new(0, offset)).collect()
    }

    /// Fetches all parts. Each value has its row's offset in `bytes` bytes, and every tenth row is missing. Returns the
    /// numbers of rows in the parts, the offsets of the rows, and the missing positions.
    fn fetch(mut parts: FetchParts<'_>, bytes: usize) -> (Vec<usize>, Vec<u8>, Vec<u32>) {
        let mut counts = Vec::new();
        while let Some(part) = parts.next() {
            counts.push(part.len());
            let is_missing = |row: &&RowAddr| row.offset() % 10 == 9;
            let there: Vec<_> = part.iter().filter(|row| !is_missing(row)).collect();
            let mut values = BinaryBuilder::with_capacity(there.len(), there.len() * bytes);
            there.iter().for_each(|row| values.append_value(vec![row.offset() as u8; bytes]));
            let column: ArrayRef = Arc::new(values.finish());
            let rows = RecordBatch::try_from_iter_with_nullable([("value", column, true)]).unwrap();
            let missing = part.iter().enumerate().filter(|(_, row)| is_missing(row));
            let missing = missing.map(|(at, _)| at as u32).collect();
            parts.add(Fetched { rows, missing, cost: Cost::default() });
        }
        let (rows, missing) = parts.finish().unwrap();
        let values = rows["value"].as_binary::<i32>();
        (counts, values.iter().map(|value| value.unwrap()[0]).collect(), missing)
    }

    #[test]
    fn the_next_part_has_as_many_rows_as_the_size_of_the_first_ones_allows() {
        let (addrs, binary) = (addrs(64), projection(DataType::Binary));
        let there: Vec<u8> = (0..64).filter(|at| at % 10 != 9).collect();
        let missing: Vec<u32> = (0..64).filter(|at| at % 10 == 9).collect();
        let of = |file_row_bytes| FetchParts::of(&addrs, &binary, file_row_bytes, 64 << 10);
        // By the files, rows may take 16 KiB each. They take 1 KiB, and the offset of a value.
        assert_eq!(
            fetch(of(Some(4 << 10)), 1 << 10),
            (vec![4, 60], there.clone(), missing.clone())
        );
        // They take more than by the files.
        let counts = vec![40, 7, 7, 7, 3];
        assert_eq!(fetch(of(Some(400)), 8 << 10), (counts, there.clone(), missing.clone()));
        assert_eq!(fetch(of(Some(10)), 9), (vec![64], there, missing));
    }

    #[test]
    fn rows_of_fixed_width_are_one_part_and_no_rows_too() {
        let many = addrs(3_000);
        let fixed = projection(DataType::Int64);
        assert_eq!(FetchParts::new(&many, &fixed, Some(1 << 30)).next().unwrap().len(), 3_000);
        let binary = projection(DataType::Binary);
        assert_eq!(FetchParts::new(&many, &binary, None).next().unwrap().len(), 16);
        assert_eq!(FetchParts::new(&many, &binary, Some(u64::MAX)).next().unwrap().len(), 1);
        assert_eq!(fetch(FetchParts::new(&[], &binary, None), 3), (vec![0], vec![], vec![]));
    }
}
