//! Requests with several vectors: a search for each of them, some of which run at the same time. Plain HTTP and gRPC
//! share this module.

use std::sync::Arc;

use arrow_array::RecordBatch;
use futures::FutureExt;
use futures::future::try_join_all;
use spelling::counted;
use wire::query::search_request::By;
use wire::query::{SearchRequest, Vector};

use super::find_shaped;
use crate::call::Call;
use crate::counters::Stage;
use crate::error::{QueryError, Result};
use crate::selection::Shape;
use crate::stages::{VECTORS_MAX, check_vector, column_of_vectors, validate_search};
use crate::state::ShardState;
use crate::tables::OpenTable;

/// The number of searches of one request that run at the same time. A few suffice to search the index for one vector
/// while rows for another are fetched; more would take places in the admission queue from other requests.
const SEARCHES_AT_ONCE: usize = 4;

/// Joins `vectors` if they are one query: for a `column` of lists of vectors, if each of them is one vector. This is
/// what a list of vectors means to LanceDB. Returns `None` if each is a search of its own.
pub fn as_one_query(open: &OpenTable, column: &str, vectors: &[Vector]) -> Result<Option<Vector>> {
    if vectors.is_empty() || !open.table.has_vector_lists(column)? {
        return Ok(None);
    }
    let dimension = open.table.vector_dimension(column)?;
    let are_single = vectors.iter().all(|vector| vector.values.len() == dimension);
    let joined = || vectors.iter().flat_map(|vector| vector.values.iter().copied()).collect();
    Ok(are_single.then(|| Vector { values: joined() }))
}

/// Searches `open`, which `call` has opened, for each of `vectors`, with the other fields of `request`. Passes the rows
/// of each search to `write`, in the order of the vectors, whose positions are their column `query_index`. Returns
/// whether each vector was compared with every row that passes the filter.
///
/// # Errors
/// `BadRequest` if there are no vectors, too many, or the answer has another column of the name `query_index`;
/// `BadVector` for a vector that does not fit the column; and the errors of [`find`](super::find) and `write`.
pub async fn search_each(
    state: &ShardState,
    open: &Arc<OpenTable>,
    request: SearchRequest,
    vectors: Vec<Vector>,
    shape: &Shape,
    call: &mut Call,
    mut write: impl FnMut(&RecordBatch, &mut Call) -> Result<()>,
) -> Result<bool> {
    shape.check_query_index()?;
    let checked = checked(open, &request, &vectors).boxed();
    let (vector_column, charged_rows) = call.context.bound("validate", checked).await?;
    call.take_rows(charged_rows)?;
    let request = SearchRequest { vector_column, ..request };
    let (mut indexes, mut exhaustive) = (0.., true);
    let mut vectors = vectors.into_iter().peekable();
    while vectors.peek().is_some() {
        let searches = vectors.by_ref().take(SEARCHES_AT_ONCE).zip(&mut indexes);
        let searches = searches.map(|(vector, index)| {
            let request = SearchRequest { by: Some(By::Vector(vector)), ..request.clone() };
            let mut subcall = call.subcall();
            let search = async move {
                let found = find_shaped(state, open, request, shape, Some(index), &mut subcall);
                Ok::<_, QueryError>((found.await?, subcall))
            };
            search.boxed()
        });
        let searches: Vec<_> = searches.collect();
        for ((rows, is_exhaustive), mut subcall) in try_join_all(searches).await? {
            exhaustive &= is_exhaustive;
            call.join(&mut subcall);
            write(&rows, call)?;
            call.stage(Stage::Reply, || counted(rows.num_rows(), "row"));
        }
    }
    Ok(exhaustive)
}

/// Checks the vectors, and the request with the first of them; the other searches differ only in their vectors. Returns
/// the vectors' column, and the number of rows for which the request is charged. A vector for a column of lists of
/// vectors may be several.
async fn checked(
    open: &OpenTable,
    request: &SearchRequest,
    vectors: &[Vector],
) -> Result<(String, usize)> {
    let bad = |problem| Err(QueryError::BadRequest { field: "vectors", problem });
    let Some(first) = vectors.first() else {
        return bad("is empty; give at least one vector".to_owned());
    };
    if vectors.len() > VECTORS_MAX {
        return bad(format!("has {} vectors; give at most {VECTORS_MAX}", vectors.len()));
    }
    let named = Some(request.vector_column.as_str()).filter(|column| !column.is_empty());
    let column = column_of_vectors(open, named, Some(first.values.len())).await?;
    let mut count = 0;
    for (at, vector) in vectors.iter().enumerate() {
        count += check_vector(open, &column, &vector.values).map_err(|error| match error {
            QueryError::BadVector { problem } => {
                QueryError::BadVector { problem: format!("{at} {problem}") }
            }
            other => other,
        })?;
    }
    if count > VECTORS_MAX {
        return bad(format!("has {count} vectors in all; give at most {VECTORS_MAX}"));
    }
    let by = Some(By::Vector(first.clone()));
    let question = validate_search(
        SearchRequest { by, vector_column: column.clone(), ..request.clone() },
        open,
        false,
    );
    Ok((column, question.await?.k * count))
}
