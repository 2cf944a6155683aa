//! Queries without vectors and words. They return rows in the table's order or another one: all rows, the rows that
//! pass a filter, or the rows that a filter names by their ids or positions.
//!
//! The addresses of the rows are found first. The rows are then read from the I/O nodes and sent piece by piece, so
//! that an answer of any size takes bounded memory.

use std::sync::Arc;

use address::{RowAddr, without};
use axum::body::Bytes;
use futures::FutureExt;
use lake::{FilterHits, OrderBy};
use spelling::counted;
use wire::memory_of;

use super::answer::{Answer, ArrowWriter, Reply, body_of_pieces, response};
use super::columns::selection;
use super::query_body::QueryBody;
use super::row_filter::RowFilter;
use crate::call::Call;
use crate::call_rules::TAKE_ROWS_MAX;
use crate::counters::{IndexKind, SearchBy, SearchVia, Stage};
use crate::error::{QueryError, Result};
use crate::request_context::RequestContext;
use crate::requests::{Piece, Pieces, RowReader, in_pieces};
use crate::selection::{Selection, beside, check_order};
use crate::stages::Path;
use crate::state::{Ask, ShardState};
use crate::tables::{Measure, OpenTable};

/// Maximum number of rows that are put in order by columns without a fixed width, such as texts: as many as a search
/// over gRPC puts in order.
const ORDERED_ROWS_MAX: usize = 10_000;

/// Sorted rows take at most one part in this many of the memory that a core's callers may hold.
const SORTED_PART: u64 = 2;

/// The memory of a row while DataFusion finds the first rows in an order (`TopK`), without the row's values: its place
/// in the heap (40 bytes), the allocation of its key, and its address in four arrays (those that the heap refers to, as
/// many that it no longer refers to, and the result, before and after its parts are joined).
const SORTED_ROW_BYTES: usize = 96;

/// The number of copies of a row's values at that time: its key, and a value in each of these arrays.
const SORTED_VALUES: usize = 5;

/// The bytes that a row's values without a fixed width are taken to have, at least.
const OTHER_BYTES_MIN: usize = 200;

/// Answers a query without vectors and words.
pub async fn scan(
    state: &Arc<ShardState>,
    open: &Arc<OpenTable>,
    body: QueryBody,
    mut call: Call,
) -> Reply {
    let scan = match Scan::new(state, open, body, &mut call).await {
        Ok(scan) => scan,
        Err(error) => return Reply::Whole(Box::new(call), Err(error)),
    };
    if scan.reader.is_last() {
        let context = call.context;
        let answer = scan.whole(state, &mut call, context).await;
        return Reply::Whole(Box::new(call), answer);
    }
    let format = scan.writer.format();
    let state = Arc::clone(state);
    let sent = in_pieces(call, move |pieces, call| {
        async move { scan.send(&state, pieces, call).await }.boxed()
    });
    match sent.await {
        Ok((first, rest)) => {
            Reply::Pieces(response(body_of_pieces(first, rest), format.media_type()))
        }
        Err(fault) => Reply::Failed(fault),
    }
}

/// Finds the rows of a query, and reads the first piece of them, so that `call` records the stages.
pub async fn explain_scan(
    state: &Arc<ShardState>,
    open: &Arc<OpenTable>,
    body: QueryBody,
    call: &mut Call,
) -> Result<()> {
    let mut scan = Scan::new(state, open, body, call).await?;
    let context = call.context;
    scan.write_next(state, call, context).await.map(drop)
}

/// A query in progress.
struct Scan {
    reader: RowReader,
    selection: Selection,
    writer: ArrowWriter,
}

impl Scan {
    async fn new(
        state: &ShardState,
        open: &Arc<OpenTable>,
        mut body: QueryBody,
        call: &mut Call,
    ) -> Result<Self> {
        let with_row_id = body.with_row_id.unwrap_or(false);
        let selection = selection(body.columns.take(), with_row_id, Measure::Nothing, open)?;
        let projection = open.project(&selection.requested(open))?;
        let context = call.context;
        let mut sorting = Sorting::of(&mut body, open, state.shared.core_traffic)?;
        if let Some(sorting) = &mut sorting {
            if let Some(filter) = open.table.filter_or_condition(filter_of(&body)) {
                // The rows that pass, which the filter's list has, are often fewer than the limit.
                let (open, filter) = (Arc::clone(open), filter.to_owned());
                let count = async move { Ok(open.table.count_filter(&filter).await?) };
                let ask = Ask { during: "search", rows: 1, context };
                let passing = state.shared.admission.run_in_background(ask, count.boxed()).await?;
                sorting.rows = sorting.rows.min(usize::try_from(passing).unwrap_or(usize::MAX));
            }
            sorting.check()?;
        }
        let rows = sorting.as_ref().map_or(1, |sorting| sorting.rows.max(1));
        call.hold_rows(sorting.as_ref().map_or(0, Sorting::held_bytes))?;
        let find = find(Arc::clone(open), body, sorting).boxed();
        let ask = Ask { during: "search", rows, context };
        let Found { addrs, searched } = state.shared.admission.run_in_background(ask, find).await?;
        // The rows are sorted.
        drop(call.take_held());
        if let Some((via, rows)) = searched {
            state.metrics.searched(SearchBy::Filter, via, IndexKind::Planned, None, rows);
        }
        if addrs.len() > TAKE_ROWS_MAX {
            let problem = format!(
                "is missing or too large: more than {TAKE_ROWS_MAX} rows would be returned, which is the most; give a \
                 limit"
            );
            return Err(QueryError::BadRequest { field: "k", problem });
        }
        call.stage(Stage::Search, || counted(addrs.len(), "row"));
        call.hold_rows(size_of_val(addrs.as_slice()))?;
        let rows = &projection.answer(Measure::Nothing)?.schema;
        let writer = ArrowWriter::new(selection.schema(rows, false)?.as_ref())?;
        let reader = RowReader::new(Arc::clone(open), addrs, projection).holding_addresses();
        Ok(Self { reader, selection, writer })
    }

    /// Reads the only piece.
    async fn whole(
        mut self,
        state: &ShardState,
        call: &mut Call,
        context: RequestContext,
    ) -> Result<Answer> {
        self.write_next(state, call, context).await?;
        self.writer.into_answer(call)
    }

    /// Reads and sends all pieces. Returns early if the caller is gone.
    async fn send(
        mut self,
        state: &ShardState,
        pieces: &Pieces<Bytes>,
        call: &mut Call,
    ) -> Result<()> {
        loop {
            let is_last = self.reader.is_last();
            let context = call.context.for_piece();
            let rows = self.write_next(state, call, context).await?;
            if is_last {
                self.writer.finish()?;
            }
            let bytes = self.writer.take();
            call.count_rows(rows, bytes.len());
            call.stage(Stage::Assemble, || counted(bytes.len(), "byte"));
            if pieces.send(Ok(bytes)).await.is_err() || is_last {
                return Ok(());
            }
            call.stage(Stage::Reply, || "until the caller had room for it".into());
        }
    }

    /// Reads and encodes the next piece. Returns the number of its rows.
    async fn write_next(
        &mut self,
        state: &ShardState,
        call: &mut Call,
        context: RequestContext,
    ) -> Result<usize> {
        let Piece { rows, .. } = self.reader.next(state, call, context).await?;
        let measure = Measure::Nothing;
        let Self { selection, reader, .. } = &*self;
        let beside =
            beside(state, selection, &reader.open, &rows, measure, context).boxed().await?;
        let fetched = reader.held() + memory_of(rows.columns());
        let mut hold = |computed: usize| {
            context.check("assemble")?;
            call.hold_rows(fetched + computed)
        };
        let rows = selection.select(&rows, measure, beside, None, &mut hold).await?;
        // This may be more than the fetched rows take: the answer may have a column several times.
        call.hold_rows(self.reader.held() + memory_of(rows.columns()))?;
        self.writer.write(&rows)?;
        Ok(rows.num_rows())
    }
}

/// The rows of a query.
struct Found {
    addrs: Vec<RowAddr>,
    /// If the rows were searched for by a filter: the way, and the number of rows that the search found.
    searched: Option<(SearchVia, usize)>,
}

/// The sorting that an order of rows takes. Lance sorts the first rows in that order in memory, which nothing else bounds.
struct Sorting {
    by: Vec<OrderBy>,
    /// The number of rows that are sorted.
    rows: usize,
    /// The number of rows that may be sorted for an answer.
    rows_max: usize,
    /// The memory that a sorted row takes.
    row_bytes: usize,
    /// The maximum number of bytes to hold: the size of values without a fixed width is only an estimate.
    held_bytes_max: usize,
}

impl Sorting {
    /// Returns the sorting of a query's rows; `None` if they need none. `core_traffic` is the memory of a core's callers.
    ///
    /// # Errors
    /// `BadRequest` for an order by too many columns or by blobs, and `ColumnNotFound`.
    fn of(body: &mut QueryBody, open: &OpenTable, core_traffic: u64) -> Result<Option<Self>> {
        let by = body.take_order();
        if by.is_empty() {
            return Ok(None);
        }
        check_order(&by)?;
        let (fixed_bytes, is_fixed) = open.table.order_width(&by)?;
        // Texts may take most of what a row has in the table's files beside vectors and blobs.
        let other_bytes = if is_fixed { 0 } else { open.packed_row_bytes.max(OTHER_BYTES_MIN) };
        let values_bytes = fixed_bytes.saturating_add(other_bytes);
        let row_bytes = SORTED_ROW_BYTES.saturating_add(SORTED_VALUES.saturating_mul(values_bytes));
        let held_bytes_max = (core_traffic / SORTED_PART) as usize;
        let rows_max = match is_fixed {
            true => (held_bytes_max / row_bytes).min(TAKE_ROWS_MAX),
            false => ORDERED_ROWS_MAX,
        };
        let (offset, k) = offset_and_k(body);
        let in_table = usize::try_from(open.table.row_count()).unwrap_or(usize::MAX);
        let rows = offset.saturating_add(k).min(rows_max + 1).min(in_table);
        Ok(Some(Self { by, rows, rows_max, row_bytes, held_bytes_max }))
    }

    /// Returns the bytes to hold before rows are sorted. [`Call::hold_rows`] holds twice as many.
    fn held_bytes(&self) -> usize {
        self.rows.saturating_mul(self.row_bytes).min(self.held_bytes_max) / 2
    }

    /// Refuses to put the rows in order, if these are too many.
    fn check(&self) -> Result<()> {
        if self.rows <= self.rows_max {
            return Ok(());
        }
        let most = self.rows_max;
        let problem = format!(
            "is missing or too large: at most {most} rows are put in this order, `offset` and `k` added; give a lower \
             limit, or a filter that fewer rows pass"
        );
        Err(QueryError::BadRequest { field: "k", problem })
    }
}

/// Returns the number of rows to leave out at the start, and the maximum number of rows to return: at most one more than
/// may be returned.
fn offset_and_k(body: &QueryBody) -> (usize, usize) {
    let offset = usize::try_from(body.offset.unwrap_or(0)).unwrap_or(usize::MAX);
    let k = usize::try_from(body.k.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    (offset, k.min(TAKE_ROWS_MAX + 1))
}

/// Returns the filter that a query asks for.
fn filter_of(body: &QueryBody) -> Option<&str> {
    body.filter.as_deref().filter(|filter| !filter.trim().is_empty())
}

/// Finds the rows of a query, up to one more than may be returned.
async fn find(open: Arc<OpenTable>, body: QueryBody, sorting: Option<Sorting>) -> Result<Found> {
    let table = &open.table;
    let (offset, k) = offset_and_k(&body);
    let end = offset.saturating_add(k);
    let asked = filter_of(&body);
    let filter = table.filter_or_condition(asked);
    if filter.is_none() && sorting.is_none() {
        let addrs = table.live_rows(offset as u64..end as u64).await?;
        return Ok(Found { addrs, searched: None });
    }
    if offset > TAKE_ROWS_MAX {
        let problem =
            format!("is {offset}; with a filter or an order, skip at most {TAKE_ROWS_MAX} rows");
        return Err(QueryError::BadRequest { field: "offset", problem });
    }
    let named = asked.filter(|_| sorting.is_none());
    let named = named.map(|filter| RowFilter::parse(filter, TAKE_ROWS_MAX)).transpose()?;
    let lists_rows = match &named {
        // A filter that is false of all rows lists none.
        Some(Some(RowFilter::Ids(ids))) => !ids.is_empty(),
        Some(Some(RowFilter::Positions(_))) => true,
        _ => false,
    };
    if lists_rows && open.hides_rows() {
        let problem = "lists rows by ids or positions, which is not available under a grant that shows only some rows; \
                       compare columns with values instead";
        return Err(QueryError::BadRequest { field: "filter", problem: problem.into() });
    }
    let mut searched = None;
    let found: Vec<RowAddr> = match named.flatten() {
        Some(RowFilter::Ids(ids)) => {
            let addrs: Vec<RowAddr> = ids.into_iter().map(RowAddr::from_u64).collect();
            // The offset and the limit count only rows that exist. If all rows are returned, reading them leaves out
            // those that do not exist.
            if offset == 0 && k >= addrs.len() {
                addrs
            } else {
                let missing = table.missing(&addrs).await?;
                without(0..addrs.len(), &missing).map(|at| addrs[at]).collect()
            }
        }
        Some(RowFilter::Positions(positions)) => {
            table.live_rows_at(&positions).await?.into_iter().flatten().collect()
        }
        None => {
            let hits = match (filter, sorting) {
                (_, Some(sorting)) => {
                    let rows = table.scan_ordered(filter, &sorting.by, sorting.rows).await?;
                    FilterHits { rows, allowed: None }
                }
                (filter, None) => table.search_filter(filter.unwrap_or_default(), end).await?,
            };
            let via = Path::Filter(hits.allowed).via();
            searched = filter.map(|_| (via, hits.rows.len()));
            hits.rows
        }
    };
    Ok(Found { addrs: found.into_iter().skip(offset).take(k).collect(), searched })
}
