//! Reads many rows by address, piece by piece.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::RecordBatch;
use wire::memory_of;

use crate::call::Call;
use crate::counters::Stage;
use crate::error::Result;
use crate::fetch::{fetch_rows, present, rows_likely};
use crate::request_context::RequestContext;
use crate::stages::finish;
use crate::state::ShardState;
use crate::tables::{Measure, OpenTable, Projection};

/// The size in bytes of a piece's rows. Up to [`PIECES_AHEAD_MAX`](crate::requests::pieces::PIECES_AHEAD_MAX) pieces
/// wait while the next one is made, so an answer has about 12 MiB in memory.
const PIECE_BYTES: usize = 4 << 20;

/// The minimum number of rows in the first piece if rows have no fixed size. The size of these rows determines how many
/// rows the next piece has. Rows of up to 16 KiB on average fit into [`PIECE_BYTES`].
const ROWS_FIRST: usize = 256;

/// The maximum number of rows in the first piece if rows have no fixed size. Rows that no I/O node has are read from
/// the table piece by piece, so a further piece would take as long as the first.
const ROWS_FIRST_MAX: usize = 1024;

/// Maximum number of rows in a piece. It is a quarter of the rows that a stream to an I/O node may have outstanding by
/// default, so other requests get credit too.
const ROWS_MAX: usize = 16_384;

/// Reads the rows at some addresses, in the order of the addresses.
pub struct RowReader {
    pub open: Arc<OpenTable>,
    pub addrs: Vec<RowAddr>,
    pub projection: Arc<Projection>,
    /// Index in `addrs` of the first row that has not been read.
    from: usize,
    /// Number of rows in the next piece.
    rows_next: usize,
    /// The bytes that the call holds for the addresses, in addition to those of a piece; 0 if the addresses arrived
    /// with the request.
    held: usize,
}

/// Some of the rows.
pub struct Piece {
    /// The rows that exist, with their addresses.
    pub rows: RecordBatch,
    /// Index, in all addresses, of the first row of the piece.
    pub from: usize,
    /// The positions, within the piece, of addresses without a row, ascending.
    pub missing: Vec<u32>,
}

impl RowReader {
    pub fn new(open: Arc<OpenTable>, addrs: Vec<RowAddr>, projection: Arc<Projection>) -> Self {
        let rows_first = || rows_first(open.file_row_bytes);
        let rows_next = projection.row_bytes.map_or_else(rows_first, rows_of_fixed_width);
        Self { open, addrs, projection, from: 0, rows_next, held: 0 }
    }

    /// Makes the call hold the memory of the addresses too, because they did not arrive with the request.
    pub fn holding_addresses(self) -> Self {
        Self { held: size_of_val(self.addrs.as_slice()), ..self }
    }

    /// Returns the bytes that the call holds in addition to those of a piece.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Returns whether the next piece has all remaining rows.
    pub fn is_last(&self) -> bool {
        self.addrs.len() - self.from <= self.rows_next
    }

    /// Reads the next piece. Authorizes the call again, and charges the rows to its grant.
    ///
    /// # Errors
    /// The errors of [`Call::renew`], [`Call::await_rows`], [`Call::hold_rows`] and [`fetch_rows`].
    pub async fn next(
        &mut self,
        state: &ShardState,
        call: &mut Call,
        context: RequestContext,
    ) -> Result<Piece> {
        let from = self.from;
        let end = self.addrs.len().min(from + self.rows_next);
        let addrs = &self.addrs[from..end];
        call.renew()?;
        if !addrs.is_empty() {
            call.await_rows(addrs.len(), context).await?;
            call.hold_rows(self.held + self.projection.bytes_of(addrs.len()))?;
        }
        let fetched = fetch_rows(state, &self.open, addrs, &self.projection, context).await?;
        let bytes = memory_of(fetched.rows.columns());
        call.hold_rows(self.held + bytes)?;
        call.io_stage(Stage::Fetch, addrs.len(), fetched.cost);
        let mut there = Vec::with_capacity(addrs.len());
        there.extend(present(addrs.len(), &fetched.missing).map(|at| addrs[at].to_u64()));
        let measure = Measure::Nothing;
        let rows = finish(&fetched.rows, &self.projection, measure, there, Vec::new())?;
        // Rows that were not found don't count: they may be hidden from the caller, and were read nevertheless.
        let found = fetched.rows.num_rows();
        if self.projection.row_bytes.is_none() && found > 0 {
            self.rows_next = rows_of_piece(bytes / found);
        }
        self.from = end;
        Ok(Piece { rows, from, missing: fetched.missing })
    }
}

/// Returns the number of rows of the first piece if rows have no fixed size, and a row's share of the table's data
/// files has `file_row_bytes` bytes; `None` if that is not known.
fn rows_first(file_row_bytes: Option<u64>) -> usize {
    rows_likely(file_row_bytes, PIECE_BYTES).clamp(ROWS_FIRST, ROWS_FIRST_MAX)
}

/// Returns the number of rows of a piece if the columns of a row have `row_bytes` bytes. Each row also has an address.
fn rows_of_fixed_width(row_bytes: usize) -> usize {
    rows_of_piece(row_bytes.saturating_add(size_of::<u64>()))
}

/// Returns the number of rows of `row_bytes` bytes in a piece: at least 1, at most [`ROWS_MAX`].
fn rows_of_piece(row_bytes: usize) -> usize {
    (PIECE_BYTES / row_bytes.max(1)).clamp(1, ROWS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_piece_has_more_rows_if_the_files_tell_that_they_are_small() {
        assert_eq!(rows_first(None), 256);
        assert_eq!(rows_first(Some(54)), 1024);
        assert_eq!(rows_first(Some(2 << 10)), 512);
        assert_eq!(rows_first(Some(1 << 20)), 256);
        assert_eq!(rows_first(Some(u64::MAX)), 256);
    }
}
