//! Reads blobs, for which queries return only descriptors: the whole blobs of several rows, or bytes of one blob (all
//! or a range).
//!
//! The blobs of several rows come from the I/O nodes, like all columns. The bytes of one blob are read from the table,
//! piece by piece, because an I/O node can return only a whole blob.

use std::ops::Range;
use std::sync::Arc;

use address::RowAddr;
use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE};
use axum::http::{HeaderValue, StatusCode};
use futures::FutureExt;
use lake::{Blob, LakeError};
use serde::Deserialize;
use spelling::counted;
use wire::memory_of;

use super::answer::{Answer, ArrowWriter, Reply, body_of_pieces, response};
use crate::call::Call;
use crate::counters::Stage;
use crate::error::{QueryError, Result};
use crate::fetch::fetch_rows;
use crate::request_context::RequestContext;
use crate::requests::{Pieces, in_pieces};
use crate::state::{Ask, ShardState};
use crate::tables::OpenTable;

/// The maximum number of rows of one call. LanceDB's clients divide calls for more.
const ROWS_MAX: usize = 1024;

/// The maximum number of bytes of all blobs of one call, if the core's memory allows it. LanceDB's clients divide a
/// call that is refused because of this limit.
const BYTES_MAX: u64 = 64 << 20;

/// The blobs of one call take at most one part in this many of the memory that the core's callers may hold. A call
/// holds them up to four times: as rows and as the answer, each with the room that [`Call::hold_rows`] adds.
const MEMORY_PART: u64 = 8;

/// The number of bytes of a range that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// The body of a call for whole blobs.
#[derive(Deserialize)]
pub struct BlobsBody {
    pub id: Option<Vec<String>>,
    pub version: Option<u64>,
    pub branch: Option<String>,
    column: String,
    row_ids: Vec<u64>,
}

/// Answers with the blobs of a column, in the order of the call's `row_ids`. A blob that is null stays null.
pub async fn whole_blobs(
    state: &ShardState,
    open: &Arc<OpenTable>,
    body: BlobsBody,
    call: &mut Call,
) -> Result<Answer> {
    let BlobsBody { column, row_ids, .. } = body;
    let refused = |problem| Err(QueryError::BadRequest { field: "row_ids", problem });
    if row_ids.len() > ROWS_MAX {
        return refused(format!(
            "has {} ids; fetch_blobs accepts at most {ROWS_MAX}",
            row_ids.len()
        ));
    }
    call.take_rows(row_ids.len())?;
    let addrs: Vec<RowAddr> = row_ids.into_iter().map(RowAddr::from_u64).collect();
    let blobs = found(state, open, &column, addrs.clone(), call.context).await?;
    let bytes = blobs.iter().flatten().map(Blob::size).fold(0, u64::saturating_add);
    let most = BYTES_MAX.min(state.shared.core_traffic / MEMORY_PART);
    if bytes > most {
        // The clients recognise the limit by these words.
        return refused(format!(
            "name blobs of {bytes} bytes; fetch_blobs accepts at most {most} total blob bytes"
        ));
    }
    call.stage(Stage::Search, || counted(addrs.len(), "blob"));
    call.hold_rows(bytes as usize)?;
    let projection = open.project(&[column])?;
    let fetched = fetch_rows(state, open, &addrs, &projection, call.context).await?;
    let rows = fetched.rows;
    call.io_stage(Stage::Fetch, addrs.len(), fetched.cost);
    call.hold_rows(2 * memory_of(rows.columns()))?;
    if let Some(&at) = fetched.missing.first() {
        return Err(gone(open, addrs[at as usize]));
    }
    let mut writer = ArrowWriter::stream(rows.schema_ref())?;
    writer.write(&rows)?;
    writer.into_answer(call)
}

/// A call for the bytes of one blob.
pub struct BlobBytes {
    pub column: String,
    pub row_id: u64,
    pub wanted: Wanted,
    /// Whether only the blob's size is asked for.
    pub is_size_only: bool,
}

/// The bytes of a blob that a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All bytes.
    All,
    /// The bytes from the first offset to the second, inclusive.
    Between(u64, u64),
    /// The bytes from this offset to the end.
    From(u64),
    /// This number of bytes at the end.
    Last(u64),
}

impl Wanted {
    /// Reads the header `range`.
    ///
    /// # Errors
    /// `BadRequest` for a header that has none of these forms.
    pub fn of(header: Option<&str>) -> Result<Self> {
        let Some(text) = header else { return Ok(Self::All) };
        let bounds = text.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
        let number = |text: &str| text.parse::<u64>().ok();
        let wanted = match bounds {
            Some(("", count)) => number(count).map(Self::Last),
            Some((first, "")) => number(first).map(Self::From),
            Some((first, last)) => match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => Some(Self::Between(first, last)),
                _ => None,
            },
            None => None,
        };
        let problem = || "is not one range of bytes, such as `bytes=0-99`".to_owned();
        wanted.ok_or_else(|| QueryError::BadRequest { field: "range", problem: problem() })
    }

    /// Returns the wanted range of a blob of `size` bytes; `None` if a part is wanted of which the blob has no byte.
    fn within(self, size: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::All => return Some(0..size),
            Self::Between(first, last) => first..last.saturating_add(1).min(size),
            Self::From(first) => first..size,
            Self::Last(count) => size.saturating_sub(count)..size,
        };
        (range.start < range.end).then_some(range)
    }
}

/// Answers with bytes of one blob.
pub async fn blob_bytes(
    state: &Arc<ShardState>,
    open: &Arc<OpenTable>,
    asked: BlobBytes,
    mut call: Call,
) -> Reply {
    let BlobBytes { column, row_id, wanted, is_size_only } = asked;
    let found = async {
        call.take_rows(1)?;
        let addrs = vec![RowAddr::from_u64(row_id)];
        let mut blobs = found(state, open, &column, addrs, call.context).await?;
        call.stage(Stage::Search, || "1 blob".into());
        Ok(blobs.pop().flatten())
    };
    let blob = match found.await {
        Ok(Some(blob)) => blob,
        Ok(None) => return Reply::Whole(Box::new(call), Ok(Answer::Absent)),
        Err(error) => return Reply::Whole(Box::new(call), Err(error)),
    };
    let size = blob.size();
    if is_size_only {
        return Reply::Whole(Box::new(call), Ok(Answer::Size(size)));
    }
    let Some(range) = wanted.within(size) else {
        return Reply::Whole(Box::new(call), Ok(Answer::NoRange { size }));
    };
    let mut head = response(Body::empty(), "application/octet-stream");
    let headers = head.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_LENGTH, (range.end - range.start).into());
    if wanted != Wanted::All {
        let of = format!("bytes {}-{}/{size}", range.start, range.end - 1);
        if let Ok(of) = HeaderValue::from_str(&of) {
            headers.insert(CONTENT_RANGE, of);
        }
        *head.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    let state = Arc::clone(state);
    let sent = in_pieces(call, move |pieces, call| send(state, blob, range, pieces, call).boxed());
    match sent.await {
        Ok((first, rest)) => {
            *head.body_mut() = body_of_pieces(first, rest);
            Reply::Pieces(head)
        }
        Err(fault) => Reply::Failed(fault),
    }
}

/// Reads and sends a range of a blob piece by piece. Returns early if the caller is gone.
async fn send(
    state: Arc<ShardState>,
    blob: Blob,
    range: Range<u64>,
    pieces: &Pieces<Bytes>,
    call: &mut Call,
) -> Result<()> {
    let mut start = range.start;
    loop {
        let end = range.end.min(start + PIECE_BYTES);
        call.renew()?;
        // The pieces that wait for the caller, and the piece that is being read.
        call.hold_rows(3 * (end - start) as usize)?;
        let context = call.context.for_piece();
        let ask = Ask { during: "fetch", rows: 1, context };
        let blob = blob.clone();
        let read = async move { Ok(blob.read(start..end).await?) }.boxed();
        let bytes = state.shared.admission.run_in_background(ask, read).await?;
        call.stage(Stage::Fetch, || counted(bytes.len(), "byte"));
        call.count_rows(usize::from(start == range.start), bytes.len());
        if pieces.send(Ok(bytes)).await.is_err() || end == range.end {
            return Ok(());
        }
        start = end;
    }
}

/// Finds the blobs of a column in some rows.
async fn found(
    state: &ShardState,
    open: &OpenTable,
    column: &str,
    addrs: Vec<RowAddr>,
    context: RequestContext,
) -> Result<Vec<Option<Blob>>> {
    let (table, column) = (open.table.clone(), column.to_owned());
    let ask = Ask { during: "search", rows: addrs.len().max(1), context };
    let find = async move { Ok(table.blobs(&column, &addrs).await?) }.boxed();
    state.shared.admission.run_in_background(ask, find).await
}

fn gone(open: &OpenTable, addr: RowAddr) -> QueryError {
    let (uri, version) = (open.table.uri().to_owned(), open.version());
    LakeError::RowNotFound { uri, version, addresses: vec![addr] }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_the_end_of_a_blob() {
        for (text, within_10, within_0) in [
            (None, Some(0..10), Some(0..0)),
            (Some("bytes=0-0"), Some(0..1), None),
            (Some("bytes=3-6"), Some(3..7), None),
            (Some("bytes=3-99"), Some(3..10), None),
            (Some("bytes=3-"), Some(3..10), None),
            (Some("bytes=-4"), Some(6..10), None),
            (Some("bytes=-40"), Some(0..10), None),
            (Some("bytes=-0"), None, None),
            (Some("bytes=10-12"), None, None),
            (Some("bytes=0-18446744073709551615"), Some(0..10), None),
        ] {
            let wanted = Wanted::of(text).unwrap();
            assert_eq!((wanted.within(10), wanted.within(0)), (within_10, within_0), "{text:?}");
        }
        for bad in ["bytes=", "bytes=-", "bytes=5-2", "0-1", "bytes=0-1,3-4", "lines=0-1"] {
            assert!(Wanted::of(Some(bad)).is_err(), "{bad}");
        }
    }
}
