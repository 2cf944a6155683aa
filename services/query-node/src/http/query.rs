//! The `query` call: a search by vectors or words becomes a Search request (one for each vector), and takes the same
//! path. A query that has neither reads rows (`scan.rs`).

use std::sync::Arc;

use arrow_array::RecordBatch;
use futures::FutureExt;
use lake::{LakeError, fault_of};
use wire::memory_of;
use wire::query::search_request::By;
use wire::query::{SearchRequest, Stage, Vector};

use super::answer::{Answer, ArrowWriter, Reply, json};
use super::columns::selection;
use super::query_body::{QueryBody, Vectors};
use super::scan::{explain_scan, scan};
use super::text_body::text_of;
use crate::call::Call;
use crate::error::{QueryError, Result};
use crate::requests::{as_one_query, find_shaped, search_each};
use crate::selection::{Ordering, Shape};
use crate::stages::column_of_vectors;
use crate::state::ShardState;
use crate::tables::{Measure, OpenTable};

/// LanceDB's sentence for a search by words in columns without a full-text index.
const NO_TEXT_INDEX: &str = "Cannot perform full text search unless an INVERTED index has been created on at least one \
                             column";

/// Answers a `query` call of the table that `call` has opened.
pub async fn query(
    state: &Arc<ShardState>,
    open: &Arc<OpenTable>,
    body: QueryBody,
    mut call: Call,
) -> Reply {
    if body.is_scan() {
        return scan(state, open, body, call).await;
    }
    let answer = searched(state, open, body, &mut call).await;
    Reply::Whole(Box::new(call), answer)
}

/// Answers a query by vectors or words.
async fn searched(
    state: &ShardState,
    open: &Arc<OpenTable>,
    mut body: QueryBody,
    call: &mut Call,
) -> Result<Answer> {
    let (vectors, are_several) = match std::mem::take(&mut body.vector) {
        Vectors::None => return by_words(state, open, body, call).await,
        Vectors::One(vector) => (vec![vector], false),
        Vectors::Several(vectors) => (vectors, true),
    };
    match body.has_words() {
        false => by_vectors(state, open, body, (vectors, are_several), call).await,
        true => Err(QueryError::BadRequest {
            field: "full_text_query",
            problem: "is given beside `vector`; send two queries, and fuse their rows".into(),
        }),
    }
}

async fn by_vectors(
    state: &ShardState,
    open: &Arc<OpenTable>,
    mut body: QueryBody,
    (vectors, mut are_several): (Vec<Vec<f32>>, bool),
    call: &mut Call,
) -> Result<Answer> {
    let numbers = vectors.first().map(Vec::len);
    let of_vectors = column_of_vectors(open, body.vector_column.as_deref(), numbers).boxed();
    let vector_column = call.context.bound("validate", of_vectors).await?;
    let vectors = vectors.into_iter().map(|values| Vector { values });
    let mut vectors: Vec<Vector> = vectors.collect();
    if are_several && let Some(one) = as_one_query(open, &vector_column, &vectors)? {
        (vectors, are_several) = (vec![one], false);
    }
    let shape = form(&mut body, Measure::Distance, open)?;
    let request = SearchRequest {
        vector_column,
        nprobes: body.nprobes(),
        nprobes_max: body.nprobes_max(),
        refine_factor: body.refine_factor,
        lower_bound: body.lower_bound,
        upper_bound: body.upper_bound,
        ef: body.ef.unwrap_or_default(),
        metric: body.distance_type.take().unwrap_or_default(),
        exact: body.bypass_vector_index.unwrap_or(false),
        ..search_request(&mut body, open, &shape)?
    };
    if !are_several {
        let request = SearchRequest { by: vectors.pop().map(By::Vector), ..request };
        let found = find_shaped(state, open, request, &shape, None, call).boxed();
        let (rows, _) = found.await?;
        return whole(&rows, call);
    }
    let mut answer = None;
    let write = |rows: &RecordBatch, call: &mut Call| write(&mut answer, rows, call);
    let searches = search_each(state, open, request, vectors, &shape, call, write);
    searches.boxed().await?;
    finish(answer, call)
}

/// Returns the columns of the answer, and the order of its rows.
fn form(body: &mut QueryBody, measure: Measure, open: &OpenTable) -> Result<Shape> {
    let with_row_id = body.with_row_id.unwrap_or(false);
    let selection = selection(body.columns.take(), with_row_id, measure, open)?;
    let offset = small("offset", body.offset)?;
    Ok(Shape::new(selection, Ordering::new(body.take_order(), offset, measure, open)?))
}

async fn by_words(
    state: &ShardState,
    open: &Arc<OpenTable>,
    mut body: QueryBody,
    call: &mut Call,
) -> Result<Answer> {
    let shape = form(&mut body, Measure::Score, open)?;
    let words = text_of(body.full_text_query.take().unwrap_or_default())?;
    let request =
        SearchRequest { by: Some(By::Text(words)), ..search_request(&mut body, open, &shape)? };
    let found = find_shaped(state, open, request, &shape, None, call).boxed().await;
    let (rows, _) = found.map_err(in_lancedbs_words)?;
    whole(&rows, call)
}

/// Begins the error for a missing full-text index with the sentence that LanceDB has for it. Programs look for it.
fn in_lancedbs_words(error: QueryError) -> QueryError {
    match error {
        QueryError::Lake(error @ (LakeError::NoIndex { .. } | LakeError::NoTextIndex { .. })) => {
            let mut fault = fault_of(&error);
            fault.message = format!("{NO_TEXT_INDEX}: {}", fault.message);
            QueryError::Fault(fault)
        }
        other => other,
    }
}

/// Runs a query, and returns its stages as text.
pub async fn explain(
    state: &Arc<ShardState>,
    open: &Arc<OpenTable>,
    body: QueryBody,
    call: &mut Call,
) -> Result<Answer> {
    call.explain();
    match body.is_scan() {
        true => explain_scan(state, open, body, call).await?,
        false => drop(searched(state, open, body, call).await?),
    }
    let line = |it: Stage| format!("{} ({} µs): {}\n", it.name, it.time_us, it.detail);
    json(call.explained().into_iter().map(line).collect::<String>())
}

/// Returns a number of rows as a search takes it; 0 if the body has none.
fn small(field: &'static str, number: Option<u64>) -> Result<u32> {
    let number = number.unwrap_or(0);
    let problem = || format!("is {number}, which is too large for a search; give a smaller number");
    u32::try_from(number).map_err(|_| QueryError::BadRequest { field, problem: problem() })
}

/// Returns a request with the fields that all kinds of searches share.
fn search_request(body: &mut QueryBody, open: &OpenTable, shape: &Shape) -> Result<SearchRequest> {
    let k = match body.k {
        None => 10,
        k => small("k", k)?,
    };
    let (k, offset) = shape.k_and_offset(k, small("offset", body.offset)?)?;
    Ok(SearchRequest {
        table: open.name.clone(),
        version: open.version(),
        filter: body.filter.take().unwrap_or_default(),
        filter_after: body.prefilter == Some(false),
        indexed_only: body.fast_search.unwrap_or(false),
        k,
        offset,
        columns: shape.requested(open),
        ..Default::default()
    })
}

/// Returns rows as the whole answer.
fn whole(rows: &RecordBatch, call: &mut Call) -> Result<Answer> {
    let mut answer = None;
    write(&mut answer, rows, call)?;
    finish(answer, call)
}

/// Adds rows to an answer.
fn write(answer: &mut Option<ArrowWriter>, rows: &RecordBatch, call: &mut Call) -> Result<()> {
    let writer = match answer {
        Some(writer) => writer,
        None => answer.insert(ArrowWriter::new(rows.schema_ref())?),
    };
    // The writer still has the rows of earlier vectors.
    call.hold_rows(writer.bytes() + memory_of(rows.columns()))?;
    writer.write(rows)
}

fn finish(answer: Option<ArrowWriter>, call: &mut Call) -> Result<Answer> {
    let nothing = || QueryError::Server("an answer has no batch of rows".into());
    answer.ok_or_else(nothing)?.into_answer(call)
}
