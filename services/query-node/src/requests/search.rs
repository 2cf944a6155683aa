//! Search: returns rows in rank order, unless the request asks for another order. It only calls the stages.

mod each_vector;
mod filtered;

use std::sync::Arc;

use address::RowAddr;
use arrow_array::RecordBatch;
use futures::FutureExt;
use futures::future::try_join;
use spelling::counted;
use wire::memory_of;
use wire::query::search_request::By as WireBy;
use wire::query::{SearchRequest, SearchResponse, Vector};

pub use self::each_vector::{as_one_query, search_each};
use self::filtered::{filter_found, search_filtered};
use crate::call::Call;
use crate::counters::Stage;
use crate::error::{QueryError, Result};
use crate::fetch::{
    FetchParts, Fetched, SCORED_AT_ONCE, Scoring, Vectors, fetch_rows, open_ahead, present,
    score_rows,
};
use crate::request_context::RequestContext;
use crate::requests::by_key::find_rows;
use crate::selection::Shape;
use crate::stages::{
    By, Chosen, Hits, Keys, Question, StreamReply, at_least_0, choose_setting, column_of_vectors,
    finish, fuse, rank, search_text, validate_search,
};
use crate::state::{Ask, ShardState};
use crate::tables::{AskedVersion, Measure, OpenTable, Projection};

/// Memory of a row that is scored: its address, and its address with the distance.
const SCORED_ROW_BYTES: usize = 24;

/// The rows that a search found.
pub struct SearchedRows {
    /// The requested columns, with the table's types, then row addresses and, unless `measure` is [`Measure::Nothing`],
    /// distances or scores; best first.
    pub rows: RecordBatch,
    /// The projection of `rows`.
    pub projection: Arc<Projection>,
    /// The meaning of the numbers in the last column.
    pub measure: Measure,
    /// Whether the vector was compared with every row that passes the filter, because there is no index or the search
    /// is exact.
    pub exhaustive: bool,
}

/// Answers a Search request.
pub async fn search(
    state: &ShardState,
    mut request: SearchRequest,
    call: &mut Call,
) -> Result<SearchResponse> {
    call.context = call.context.with_priority(request.priority)?;
    if request.explain {
        call.explain();
    }
    let SearchRequest { table, branch, version, .. } = &request;
    let asked = AskedVersion { table, branch, version: *version };
    let open = call.open_shown(asked).boxed().await?;
    if request.explain {
        // The details of stages count rows that may be hidden.
        call.check_shown_whole("`explain`")?;
    }
    let shape = Shape::of(&mut request, &open)?;
    let mut rows = StreamReply::default();
    let by = match request.by.take() {
        Some(WireBy::Vectors(several)) => {
            check_alone(&request)?;
            let one = one_query(&open, &request, &several.vectors).boxed();
            let one = call.context.bound("validate", one).await?;
            Some(one.map_or(WireBy::Vectors(several), WireBy::Vector))
        }
        by => by,
    };
    let exhaustive = match (shape, by) {
        (Some(shape), Some(WireBy::Vectors(vectors))) => {
            let vectors = vectors.vectors;
            let write = |part: &RecordBatch, call: &mut Call| {
                call.hold_rows(rows.bytes() + memory_of(part.columns()))?;
                rows.append(part)
            };
            search_each(state, &open, request, vectors, &shape, call, write).boxed().await?
        }
        (Some(shape), by) => {
            let request = SearchRequest { by, ..request };
            let found = find_shaped(state, &open, request, &shape, None, call).boxed();
            let (found, exhaustive) = found.await?;
            rows.append(&found)?;
            exhaustive
        }
        (None, by) => {
            let found = find(state, &open, SearchRequest { by, ..request }, call).await?;
            let SearchedRows { rows: found, projection, measure, exhaustive } = found;
            rows = StreamReply::of(&projection.answer(measure)?.head);
            rows.append(&found)?;
            exhaustive
        }
    };
    let (rows, count) = rows.finish()?;
    call.count_rows(count, rows.len());
    call.stage(Stage::Reply, || counted(rows.len(), "byte"));
    Ok(SearchResponse { rows, version: open.version(), stages: call.explained(), exhaustive })
}

/// Returns the query that `vectors` are together, if they are one ([`as_one_query`]).
async fn one_query(
    open: &OpenTable,
    request: &SearchRequest,
    vectors: &[Vector],
) -> Result<Option<Vector>> {
    let Some(first) = vectors.first() else { return Ok(None) };
    let named = Some(request.vector_column.as_str()).filter(|column| !column.is_empty());
    let column = column_of_vectors(open, named, Some(first.values.len())).await?;
    as_one_query(open, &column, vectors)
}

/// Refuses a request with several vectors that searches for words too: the words would be searched for once for each
/// vector.
fn check_alone(request: &SearchRequest) -> Result<()> {
    match &request.fused_with {
        None => Ok(()),
        Some(_) => Err(QueryError::BadRequest {
            field: "fused_with",
            problem: "is set beside `vectors`; send a request for each vector".into(),
        }),
    }
}

/// Finds the rows of `open`, which `call` has opened, and gives them the form `shape`. Returns them, and whether the
/// search was exhaustive ([`SearchedRows::exhaustive`]).
pub async fn find_shaped(
    state: &ShardState,
    open: &Arc<OpenTable>,
    request: SearchRequest,
    shape: &Shape,
    query_index: Option<i32>,
    call: &mut Call,
) -> Result<(RecordBatch, bool)> {
    let SearchedRows { rows, measure, exhaustive, .. } = find(state, open, request, call).await?;
    let shaped = shape.apply(state, open, rows, measure, query_index, call);
    let rows = shaped.boxed().await?;
    call.hold_rows(memory_of(rows.columns()))?;
    call.stage(Stage::Assemble, || {
        format!("{} of the answer", counted(rows.num_columns(), "column"))
    });
    Ok((rows, exhaustive))
}

/// Finds the rows of `open`, which `call` has opened, that a Search request asks for.
pub async fn find(
    state: &ShardState,
    open: &Arc<OpenTable>,
    request: SearchRequest,
    call: &mut Call,
) -> Result<SearchedRows> {
    let context = call.context;
    let question = validate_search(request, open, call.is_plain()).boxed();
    let question = context.bound("validate", question).await?;
    call.take_rows(question.charged_rows())?;
    call.stage(Stage::Validate, || match open.branch() {
        "" => format!("table `{}`, version {}", open.name, open.version()),
        branch => format!("table `{}`, branch `{branch}`, version {}", open.name, open.version()),
    });
    let question = look_up(state, open, question, call).await?;
    let question = with_setting(state, open, question, context).await?;
    let fetched = match &question.by {
        By::Vector { column, .. } if question.refine_factor > 0 => std::slice::from_ref(column),
        _ => &question.projection.columns,
    };
    open_ahead(state, open, fetched, question.k, context);
    let found = by_criterion(state, open, &question, call).boxed();
    let (Found { mut winners, mut measure, exhaustive }, matches) = match &question.fused_with {
        None => (found.await?, None),
        // Both halves of a hybrid search run at the same time. Each of them waits for its own permit, and neither keeps
        // one while it waits for the other.
        Some((query, weight)) => {
            let matches = search_text(state, open, &question, query, context).boxed();
            let (found, matches) = try_join(found, matches).await?;
            (found, Some((matches, *weight)))
        }
    };
    if let Some((matches, weight)) = matches {
        let detail = || format!("{}, at the same time", matches.detail(&question));
        call.stage(Stage::Search, detail);
        let both = counted(winners.len() + matches.rows.len(), "rank");
        (winners, measure) =
            (fuse(&winners, &matches.rows, weight, question.k), Measure::Relevance);
        call.stage(Stage::Rank, || format!("{}, fused from {both}", counted(winners.len(), "row")));
    }
    if let Some(filter) = &question.filter_after {
        let found = counted(winners.len(), "row");
        winners = filter_found(state, open, filter, winners, call).boxed().await?;
        call.stage(Stage::Search, || format!("{} of {found} pass the filter", winners.len()));
    }
    let winners = winners.get(question.offset..).unwrap_or_default();
    let projection = question.projection;
    let rows = answer(state, open, &projection, winners, measure, call).await?;
    Ok(SearchedRows { rows, projection, measure, exhaustive })
}

/// The rows that a search found by its criterion, before a hybrid search fuses them with those that words found.
struct Found {
    /// The best rows with their distances or scores, best first.
    winners: Vec<(RowAddr, f32)>,
    measure: Measure,
    /// As [`SearchedRows::exhaustive`].
    exhaustive: bool,
}

/// Searches by the criterion of `question`, and scores the candidates exactly if the search is to be refined.
async fn by_criterion(
    state: &ShardState,
    open: &Arc<OpenTable>,
    question: &Question,
    call: &mut Call,
) -> Result<Found> {
    let mut hits = search_filtered(state, open, question, call).boxed().await?;
    let Refined { mut winners, has_nearer } = refine(state, open, question, &hits, call).await?;
    let lower = question.distances.lower;
    if has_nearer && hits.rows.len() >= question.candidates() {
        // Candidates that are nearer than the lower bound took the places of others, which are looked for.
        let estimated_from = estimate_of(open, question, lower, call.context).await?;
        let further = Question { estimated_from, ..question.clone() };
        hits = search_filtered(state, open, &further, call).boxed().await?;
        // They are all scored already.
        hits.to_score = Arc::default();
        winners.extend(refine(state, open, &further, &hits, call).await?.winners);
        winners = rank(winners, question.k);
    }
    let Hits { measure, exhaustive, .. } = hits;
    if measure == Measure::Distance {
        winners.retain(|(_, distance)| question.distances.contains(*distance));
    }
    Ok(Found { winners, measure, exhaustive })
}

/// Returns the distance by which the index that `question` searches estimates the distance `exact`.
async fn estimate_of(
    open: &OpenTable,
    question: &Question,
    exact: Option<f32>,
    context: RequestContext,
) -> Result<Option<f32>> {
    let (Some(exact), By::Vector { column, .. }) = (exact, &question.by) else { return Ok(exact) };
    let index = async { Ok(open.table.vector_index(column).await?) }.boxed();
    let index = context.bound("search", index).await?;
    Ok(Some(index.map_or(exact, |index| index.estimate_of(exact))))
}

/// Replaces the key of a `like` search by the vector of its row.
///
/// # Errors
/// `KeyAbsent` if no row has the key, `BadVector` if its row has no finite vector, and those of [`find_rows`].
async fn look_up(
    state: &ShardState,
    open: &Arc<OpenTable>,
    question: Question,
    call: &mut Call,
) -> Result<Question> {
    let By::Like { column, key, key_column } = question.by else { return Ok(question) };
    let vector = open.project(std::slice::from_ref(&column))?;
    let value = open.table.key_values(&key_column, std::slice::from_ref(&key))?;
    let keys = Keys { open, column: &key_column, keys: &value };
    let found = find_rows(state, keys, &vector, Stage::Vector, call).boxed().await?;
    let addr = found.addrs.first().ok_or_else(|| QueryError::KeyAbsent {
        table: open.name.clone(),
        column: key_column.clone(),
        key: key.clone(),
    })?;
    let vectors = Vectors::of(found.rows.column(0))?;
    let vector = vectors.finite(0).ok_or_else(|| QueryError::BadVector {
        problem: format!(
            "of row {addr:?} in column `{column}` is null or not finite; search by another row"
        ),
    })?;
    Ok(Question { by: By::Vector { vector: vector.to_vec(), column }, ..question })
}

/// Chooses the setting of a search that asks for a recall.
///
/// # Errors
/// The errors of [`choose_setting`].
async fn with_setting(
    state: &ShardState,
    open: &Arc<OpenTable>,
    mut question: Question,
    context: RequestContext,
) -> Result<Question> {
    // A search that compares every row finds all of the nearest rows anyway.
    let (By::Vector { column, .. }, Some(recall), None) =
        (&question.by, question.recall, question.exact)
    else {
        return Ok(question);
    };
    question.chosen = match open.curves.is_chosen(column) {
        true => {
            let choose = choose_setting(open, column, question.k, recall).boxed();
            context.bound("validate", choose).await?
        }
        false => {
            let (open, column, k) = (Arc::clone(open), column.clone(), question.k);
            let choose = async move { choose_setting(&open, &column, k, recall).await }.boxed();
            let ask = Ask { during: "validate", rows: k, context };
            state.shared.admission.run_in_background(ask, choose).await?
        }
    };
    if let Some(Chosen { setting, .. }) = &question.chosen {
        question.nprobes = setting.nprobes as usize;
        question.refine_factor = setting.refine_factor as usize;
    }
    Ok(question)
}

/// The best candidates of a search.
struct Refined {
    /// The best rows with their distances or scores, best first.
    winners: Vec<(RowAddr, f32)>,
    /// Whether the index found rows that are nearer than the lower bound.
    has_nearer: bool,
}

/// Scores the candidates exactly and returns the `k` best, if the search is to be refined. Otherwise returns the hits
/// unchanged.
async fn refine(
    state: &ShardState,
    open: &Arc<OpenTable>,
    question: &Question,
    hits: &Hits,
    call: &mut Call,
) -> Result<Refined> {
    let (Some(metric), By::Vector { column, vector }) = (hits.refine, &question.by) else {
        return Ok(Refined { winners: hits.rows.clone(), has_nearer: false });
    };
    let count = hits.rows.len() + hits.to_score.len();
    if count > SCORED_AT_ONCE {
        call.hold_rows(count * SCORED_ROW_BYTES)?;
    }
    // I/O nodes break ties by the rows' order, and `rank` by their addresses. `to_score` is ascending already.
    let mut found: Vec<RowAddr> = hits.rows.iter().map(|(addr, _)| *addr).collect();
    found.sort_unstable();
    let addrs = merged(found, Arc::clone(&hits.to_score));
    // Rows below the lower bound are dropped afterwards, so they must not take the places of rows above it.
    let k = if question.distances.lower.is_some() { count } else { question.k };
    let scoring = Scoring { column, query: vector, metric, k };
    let score = score_rows(state, open, addrs, scoring, call.context).boxed();
    let (mut scored, cost) = if count > SCORED_AT_ONCE {
        // So many rows would keep other requests waiting for the I/O nodes, so they need a permit.
        let ask = Ask { during: "rerank", rows: count, context: call.context };
        state.shared.admission.run_on_core(ask, score).await?
    } else {
        score.await?
    };
    let is_nearer = |(addr, distance): &(RowAddr, f32)| {
        let is_below = question.distances.lower.is_some_and(|lower| *distance < lower);
        is_below && hits.to_score.binary_search(addr).is_err()
    };
    let has_nearer = scored.iter().any(is_nearer);
    scored.retain(|(_, distance)| question.distances.contains(*distance));
    call.io_stage(Stage::Rerank, count, cost);
    let winners = rank(scored, question.k);
    let detail = || format!("{} of {}", winners.len(), counted(count, "candidate"));
    call.stage(Stage::Rank, detail);
    Ok(Refined { winners, has_nearer })
}

/// Merges two ascending lists of rows.
fn merged(found: Vec<RowAddr>, others: Arc<[RowAddr]>) -> impl Iterator<Item = RowAddr> {
    let (mut found, mut at) = (found.into_iter().peekable(), 0);
    std::iter::from_fn(move || {
        let other = others.get(at).copied();
        let is_first = |row: &RowAddr| other.is_none_or(|other| *row <= other);
        found.next_if(is_first).or_else(|| {
            at += 1;
            other
        })
    })
}

/// Fetches the winners' columns, and adds their addresses and distances or scores.
async fn answer(
    state: &ShardState,
    open: &Arc<OpenTable>,
    projection: &Projection,
    winners: &[(RowAddr, f32)],
    measure: Measure,
    call: &mut Call,
) -> Result<RecordBatch> {
    let addrs: Vec<RowAddr> = winners.iter().map(|(addr, _)| *addr).collect();
    let mut parts = FetchParts::new(&addrs, projection, open.file_row_bytes);
    while let Some(part) = parts.next() {
        let fetched = match projection.columns.as_slice() {
            // The index and the I/O nodes have already left out deleted rows.
            [] if !open.hides_rows() => Fetched::of_no_columns(part.len())?,
            _ => {
                call.hold_rows(parts.bytes() + projection.bytes_of(part.len()))?;
                fetch_rows(state, open, part, projection, call.context).await?
            }
        };
        let cost = parts.add(fetched);
        call.hold_rows(parts.bytes())?;
        call.io_stage(Stage::Fetch, part.len(), cost);
    }
    let (rows, missing) = parts.finish()?;
    let there = present(winners.len(), &missing).map(|at| winners[at]);
    let (addrs, mut numbers): (Vec<u64>, Vec<f32>) =
        there.map(|(addr, number)| (addr.to_u64(), number)).unzip();
    if measure == Measure::Distance {
        numbers.iter_mut().for_each(|number| *number = at_least_0(*number));
    }
    let rows = finish(&rows, projection, measure, addrs, numbers)?;
    call.stage(Stage::Assemble, || counted(rows.num_rows(), "row"));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_merged_in_the_order_of_their_addresses() {
        let rows = |numbers: &[u32]| -> Vec<RowAddr> {
            numbers.iter().map(|&number| RowAddr::new(number, 7)).collect()
        };
        for (found, others, expected) in [
            (&[2, 5, 9][..], &[1, 3, 9, 11][..], &[1, 2, 3, 5, 9, 9, 11][..]),
            (&[], &[4], &[4]),
            (&[4, 6], &[], &[4, 6]),
            (&[], &[], &[]),
        ] {
            let all: Vec<_> = merged(rows(found), rows(others).into()).collect();
            assert_eq!(all, rows(expected));
        }
    }
}
