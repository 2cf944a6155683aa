//! Validate: converts messages to validated requests, once, at the edge.

mod text;

use std::sync::Arc;

use address::RowAddr;
use lake::{LakeError, Metric, OrderBy, TextExpr};
use wire::query::search_request::By as WireBy;
use wire::query::{GetRequest, RowFormat, SearchRequest, TakeRequest};

use self::text::validate_text;
use super::choose_setting::Chosen;
use super::distances::Distances;
use crate::call_rules::{KEYS_MAX, TAKE_ROWS_MAX};
use crate::error::{QueryError, Result};
use crate::selection::{check_order, order_of, rows_to_find};
use crate::tables::{OpenTable, Projection};

/// Maximum number of candidates (k times the refine factor) that a Search scores exactly. It allows the default refine
/// factor for every k.
const CANDIDATES_MAX: u64 = 100_000;

/// Maximum size of a key, in bytes: a BTREE compares it with many other keys, and an error message shows it.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// The number of index partitions that a vector search searches, unless its request sets one. With the default refine
/// factor, this finds 0.966 of the ten nearest rows of WordNet's embeddings (`docs/performance.md`).
pub const NPROBES: u32 = 20;

/// The number of candidates scored exactly per returned row, unless the request sets one. It makes up for the
/// compression of some indexes only; `bireme tune` shows for which.
pub const REFINE_FACTOR: u32 = 10;

/// The criterion of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum By {
    /// The rows nearest to a query vector, or to several ([`Question::vectors`]). All values are finite.
    Vector {
        /// The column.
        column: String,
        /// The query vectors, one after the other. Each has the column's dimension.
        vector: Vec<f32>,
    },
    /// The rows nearest to the vector of the row with this key.
    Like {
        /// The vector column.
        column: String,
        /// The key.
        key: String,
        /// The column that the key is looked up in.
        key_column: String,
    },
    /// The rows that match a full-text query best.
    Text(TextExpr),
    /// The first rows that pass the filter.
    Filter {
        /// The filter.
        filter: String,
        /// The order of the rows; empty for that of the table.
        order: Vec<OrderBy>,
    },
}

/// A validated search.
#[derive(Clone, Debug)]
pub struct Question {
    /// The criterion.
    pub by: By,
    /// The number of query vectors: several only for a column of lists of vectors.
    pub vectors: usize,
    /// A full-text query whose ranking is fused with that of the vector, and the weight of its ranks.
    pub fused_with: Option<(TextExpr, f32)>,
    /// The filter that rows must pass.
    pub filter: Option<String>,
    /// The filter that is applied to the rows only after they were found.
    pub filter_after: Option<String>,
    /// The number of rows to find, including those that `offset` leaves out.
    pub k: usize,
    /// The number of the best rows to leave out.
    pub offset: usize,
    /// The number of index partitions to search.
    pub nprobes: usize,
    /// The maximum number of index partitions to search with a filter, at least `nprobes`; `None` for no maximum.
    pub nprobes_max: Option<usize>,
    /// The number of candidates to score exactly for each requested row; 0 for none.
    pub refine_factor: usize,
    /// The wanted recall, for which the numbers of partitions and candidates are chosen.
    pub recall: Option<f64>,
    /// The setting that was chosen for `recall`; `None` before.
    pub chosen: Option<Chosen>,
    /// The distances that are wanted.
    pub distances: Distances,
    /// The lower bound for the distances that the index estimates. Set only for a second search, if all candidates of
    /// the first may be below the lower bound of `distances`.
    pub estimated_from: Option<f32>,
    /// The number of candidates that the graph search keeps, if the request sets it.
    pub ef: Option<usize>,
    /// The metric by which the vector is compared with every row, without the index.
    pub exact: Option<Metric>,
    /// Whether rows that the index does not cover are left out.
    pub indexed_only: bool,
    /// Whether the filter may be evaluated for candidates, if the rows that pass it are not known.
    pub filters_candidates: bool,
    /// Columns to return.
    pub projection: Arc<Projection>,
}

impl Question {
    /// Returns the number of candidates that an index is asked for, if they are scored exactly.
    pub fn candidates(&self) -> usize {
        self.k * self.refine_factor.max(1)
    }

    /// Returns the number of rows for which the search is charged: `k` for each query vector.
    pub fn charged_rows(&self) -> usize {
        self.k * self.vectors
    }
}

/// Validates a search of `open`. `is_plain` says whether its caller sent it over plain HTTP ([`validate_text`]).
///
/// # Errors
/// A field out of range, an unknown column, or a vector that does not fit the column.
pub async fn validate_search(
    request: SearchRequest,
    open: &OpenTable,
    is_plain: bool,
) -> Result<Question> {
    let offset = request.offset;
    let k = rows_to_find(request.k, offset)?;
    check_fields(&request)?;
    let distances = distances(&request)?;
    if u64::from(request.ef) > CANDIDATES_MAX {
        let problem = format!("is {}; keep at most {CANDIDATES_MAX} candidates", request.ef);
        return bad("ef", problem);
    }
    let (ef, indexed_only) = (request.ef, request.indexed_only);
    let projection = open.project(&request.columns)?;
    let metric = metric(&request.metric)?;
    let (exact, is_after) = (request.exact, request.filter_after);
    let filter = Some(request.filter).filter(|filter| !filter.trim().is_empty());
    let vector_column = Some(request.vector_column).filter(|column| !column.is_empty());
    let vector_column = vector_column.as_deref();
    let mut vectors = 1;
    let by = match (request.by, &filter) {
        (Some(WireBy::Vector(vector)), _) => {
            let numbers = Some(vector.values.len());
            let column = column_of_vectors(open, vector_column, numbers).await?;
            vectors = check_vector(open, &column, &vector.values)?;
            By::Vector { column, vector: vector.values }
        }
        (Some(WireBy::Vectors(_)), _) => {
            // The caller has already made a request of each vector.
            return bad("vectors", "are several; search for each of them".into());
        }
        (Some(WireBy::Like(key)), _) => {
            check_key("like", &key)?;
            let column = column_of_vectors(open, vector_column, None).await?;
            if open.table.schema().field_with_name(&column).is_err() {
                let problem = format!("`{column}` is nested; search by its `vector` instead");
                return bad("vector_column", problem);
            }
            By::Like { column, key, key_column: key_column(open, &request.key_column)? }
        }
        (Some(WireBy::Text(text)), _) => By::Text(validate_text("text", text, is_plain)?),
        (None, Some(filter)) => {
            let order = order_of(request.order_by);
            check_order(&order)?;
            By::Filter { filter: filter.clone(), order }
        }
        (None, None) => {
            return bad("by", "is missing; give a vector, like, text, or a filter".into());
        }
    };
    let fused_with = match request.fused_with {
        Some(text) => {
            let weight = text_weight(request.text_weight.unwrap_or(1.0))?;
            Some((validate_text("fused_with", text, is_plain)?, weight))
        }
        None => None,
    };
    // Vectors that the I/O nodes can't score are read from the table, which is too slow to do unasked.
    let unasked = match &by {
        By::Vector { column, .. } if !open.is_scored_on_io_nodes(column) => 0,
        _ => REFINE_FACTOR,
    };
    let refine_factor = refine_factor(k, request.refine_factor, unasked)?;
    let (nprobes, nprobes_max) = nprobes(request.nprobes, request.nprobes_max)?;
    let exact = match &by {
        By::Vector { column, .. } | By::Like { column, .. } if exact || metric.is_some() => {
            let of_index = open.table.vector_metric(column).await?;
            let metric = metric.unwrap_or(of_index);
            open.table.check_metric(column, metric)?;
            (exact || metric != of_index).then_some(metric)
        }
        _ => None,
    };
    if let By::Vector { column, vector } = &by {
        check_direction(open, column, vector, exact).await?;
    }
    let is_after = is_after && !matches!(by, By::Filter { .. });
    let (filter, filter_after) = if is_after { (None, filter) } else { (filter, None) };
    // Hidden rows are left out before the search, also if the caller's filter is applied after it.
    let filter = open.table.filter_or_condition(filter.as_deref()).map(str::to_owned);
    let recall = request.recall.map(recall).transpose()?;
    // The full-text search needs the list of the rows that pass anyway.
    let filters_candidates = filter.is_some() && fused_with.is_none();
    Ok(Question {
        by,
        vectors,
        fused_with,
        filter,
        filter_after,
        k: k as usize,
        offset: offset as usize,
        nprobes,
        nprobes_max,
        refine_factor,
        recall,
        chosen: None,
        distances,
        estimated_from: None,
        ef: Some(ef as usize).filter(|&ef| ef > 0),
        exact,
        indexed_only,
        filters_candidates,
        projection,
    })
}

fn distances(request: &SearchRequest) -> Result<Distances> {
    let bounds = [("lower_bound", request.lower_bound), ("upper_bound", request.upper_bound)];
    for (field, bound) in bounds {
        if bound.is_some_and(f32::is_nan) {
            return bad(field, "is not a number; give one, or leave it out".into());
        }
    }
    Ok(Distances { lower: request.lower_bound, upper: request.upper_bound })
}

fn metric(name: &str) -> Result<Option<Metric>> {
    match name {
        "" => Ok(None),
        name => match name.parse() {
            Ok(metric) => Ok(Some(metric)),
            Err(problem) => bad("metric", format!("is wrong: {problem}")),
        },
    }
}

/// Validates a wanted recall. Returns it with the decimals that the caller wrote.
fn recall(recall: f32) -> Result<f64> {
    match recall > 0.0 && recall < 1.0 {
        true => Ok((f64::from(recall) * 1e6).round() / 1e6),
        false => bad(
            "recall",
            format!(
                "is {recall}; give a number between 0 and 1, such as 0.95: an index promises no more"
            ),
        ),
    }
}

/// Refuses fields that the request's kind of search would silently ignore.
fn check_fields(request: &SearchRequest) -> Result<()> {
    let is_near = matches!(request.by, Some(WireBy::Vector(_) | WireBy::Like(_)));
    let is_like = matches!(request.by, Some(WireBy::Like(_)));
    let is_ranked = is_near || matches!(request.by, Some(WireBy::Text(_)));
    let of_near = "applies only to searches by `vector`, `vectors` or `like`; leave it out";
    let of_ranked =
        "applies only to searches by `vector`, `vectors`, `like` or `text`; leave it out";
    for (field, is_set, fits, problem) in [
        ("vector_column", !request.vector_column.is_empty(), is_near, of_near),
        ("nprobes", request.nprobes > 0, is_near, of_near),
        ("nprobes_max", request.nprobes_max > 0, is_near, of_near),
        ("refine_factor", request.refine_factor.is_some(), is_near, of_near),
        ("recall", request.recall.is_some(), is_near, of_near),
        (
            "fused_with",
            request.fused_with.is_some(),
            is_near,
            "applies only to searches by `vector` or `like`; leave it out",
        ),
        ("lower_bound", request.lower_bound.is_some(), is_near, of_near),
        ("upper_bound", request.upper_bound.is_some(), is_near, of_near),
        ("ef", request.ef > 0, is_near, of_near),
        ("metric", !request.metric.is_empty(), is_near, of_near),
        ("exact", request.exact, is_near, of_near),
        ("indexed_only", request.indexed_only, is_ranked, of_ranked),
        (
            "text_weight",
            request.text_weight.is_some(),
            request.fused_with.is_some(),
            "applies only to searches with `fused_with`; leave it out",
        ),
        (
            "key_column",
            !request.key_column.is_empty(),
            is_like,
            "applies only to searches by `like`; leave it out",
        ),
    ] {
        if is_set && !fits {
            return bad(field, problem.into());
        }
    }
    for (field, is_set) in [
        ("nprobes", request.nprobes > 0),
        ("nprobes_max", request.nprobes_max > 0),
        ("refine_factor", request.refine_factor.is_some()),
    ] {
        if is_set && request.recall.is_some() {
            return bad(
                field,
                "is set beside `recall`, which chooses it; leave one of them out".into(),
            );
        }
    }
    Ok(())
}

/// Returns the number of partitions to search, and the maximum number with a filter, from a request's numbers; 0 stands for
/// the default, or for no maximum.
fn nprobes(asked: u32, most: u32) -> Result<(usize, Option<usize>)> {
    match (asked, most) {
        (0, 0) => Ok((NPROBES as usize, None)),
        (asked, 0) => Ok((asked as usize, None)),
        (0, most) => Ok((NPROBES.min(most) as usize, Some(most as usize))),
        (asked, most) if most < asked => bad(
            "nprobes_max",
            format!("is {most}, less than `nprobes` ({asked}); give at least that"),
        ),
        (asked, most) => Ok((asked as usize, Some(most as usize))),
    }
}

fn text_weight(weight: f32) -> Result<f32> {
    match weight.is_finite() && weight >= 0.0 {
        true => Ok(weight),
        false => bad("text_weight", format!("is {weight}; give a finite number, at least 0")),
    }
}

/// Returns the vector column that the request names. If it names none, the candidates are the table's vector columns, or
/// with `numbers` those that a query vector of so many numbers fits best. Returns the only candidate, or the only one
/// with an index.
pub async fn column_of_vectors(
    open: &OpenTable,
    named: Option<&str>,
    numbers: Option<usize>,
) -> Result<String> {
    match open.table.vector_column(named, numbers).await {
        Err(LakeError::ColumnNotNamed { candidates, .. }) if candidates.is_empty() => {
            Err(QueryError::NoVectors { table: open.name.clone() })
        }
        found => Ok(found?),
    }
}

/// Returns the key column that the request names, or else the table's.
///
/// # Errors
/// `ColumnNotFound`; `KeyColumnUnknown` if the table records no key column; `CompositeKey` if several columns are named or
/// declared.
pub fn key_column(open: &OpenTable, named: &str) -> Result<String> {
    if !named.is_empty() {
        open.table.check_key_column(named)?;
        return Ok(named.to_owned());
    }
    Ok(open.key_column.clone().ok_or_else(|| open.table.no_key_column())?)
}

/// Returns the format of rows that a request names.
///
/// # Errors
/// `BadRequest`.
pub fn row_format(format: i32) -> Result<RowFormat> {
    let unknown = |_| QueryError::BadRequest {
        field: "format",
        problem: format!("is {format}, which is no format; give 0 (Arrow) or 1 (JSON)"),
    };
    RowFormat::try_from(format).map_err(unknown)
}

/// Returns the refine factor. A requested factor must be within the limit of candidates; the default, `unasked`, is
/// lowered to it.
fn refine_factor(k: u32, asked: Option<u32>, unasked: u32) -> Result<usize> {
    let fitting = CANDIDATES_MAX / u64::from(k);
    let factor = u64::from(asked.unwrap_or(unasked));
    match asked {
        Some(asked) if factor > fitting => bad(
            "refine_factor",
            format!(
                "is {asked}, which makes {} candidates for k = {k}; at most {CANDIDATES_MAX} are \
                 scored, so ask for at most {fitting}",
                factor * u64::from(k),
            ),
        ),
        _ => Ok(factor.min(fitting) as usize),
    }
}

/// Maximum number of vectors of one search of a column of lists of vectors, and of all searches of one request. At
/// 1.6 ms of CPU for a search on both tiers (`docs/performance.md`), they take 160 ms.
pub const VECTORS_MAX: usize = 100;

/// Checks that `vector` fits the column, and is finite. For a column of lists of vectors it may be several vectors, one
/// after the other. Returns the number of vectors.
///
/// # Errors
/// `BadVector`, and those of the table.
pub fn check_vector(open: &OpenTable, column: &str, vector: &[f32]) -> Result<usize> {
    let (dimension, given) = (open.table.vector_dimension(column)?, vector.len());
    let most = if open.table.has_vector_lists(column)? { VECTORS_MAX } else { 1 };
    let problem = if given == 0 || given % dimension != 0 || given / dimension > most {
        let several = match most {
            1 => String::new(),
            _ => format!(", and a search of it takes up to {most} vectors, one behind the other"),
        };
        format!("has {given} dimensions; column `{column}` has {dimension}{several}")
    } else if let Some(at) = vector.iter().position(|value| !value.is_finite()) {
        format!("has {} at position {at}; send finite numbers", vector[at])
    } else {
        return Ok(given / dimension);
    };
    Err(QueryError::BadVector { problem })
}

/// Checks that `vector`, which is compared by the metric `exact` or that of the index, has a direction if the metric is
/// cosine. It may be several vectors, one after the other.
async fn check_direction(
    open: &OpenTable,
    column: &str,
    vector: &[f32],
    exact: Option<Metric>,
) -> Result<()> {
    let mut vectors = vector.chunks(open.table.vector_dimension(column)?);
    // Searches by cosine divide by the length, which they compute in 32-bit floats.
    if !vectors.any(|vector| vector.iter().map(|number| number * number).sum::<f32>() == 0.0) {
        return Ok(());
    }
    let metric = match exact {
        Some(metric) => metric,
        None => open.table.vector_metric(column).await?,
    };
    if metric != Metric::Cosine {
        return Ok(());
    }
    let problem = "has a length of 0 in 32-bit floats, and so no cosine distance; send a vector with a direction";
    Err(QueryError::BadVector { problem: problem.into() })
}

/// Validates the keys of a Get.
///
/// # Errors
/// If there are no keys, too many, or one is too long.
pub fn validate_keys(request: &GetRequest) -> Result<()> {
    match request.keys.len() {
        0 => bad("keys", "is empty; give at least one key".into()),
        keys if keys > KEYS_MAX => bad("keys", format!("has {keys} keys; give at most {KEYS_MAX}")),
        _ if request.partial && request.all_rows => {
            let problem = "is set, but `all_rows` is too; set one of the two";
            bad("partial", problem.into())
        }
        _ => request.keys.iter().try_for_each(|key| check_key("keys", key)),
    }
}

fn check_key(field: &'static str, key: &str) -> Result<()> {
    match key.len() > KEY_BYTES_MAX {
        true => {
            bad(field, format!("has a key of {} bytes; {KEY_BYTES_MAX} is the most", key.len()))
        }
        false => Ok(()),
    }
}

/// The rows that a Take asks for.
pub enum TakenRows {
    /// The rows at these addresses.
    Addresses(Vec<RowAddr>),
    /// The rows at these positions of the table, counted without deleted rows.
    Offsets(Vec<u64>),
}

/// Validates the addresses or offsets of a Take.
///
/// # Errors
/// If there are none, too many, or both.
pub fn validate_take(request: &mut TakeRequest) -> Result<TakenRows> {
    let (addrs, offsets) = (request.row_addrs.len(), request.row_offsets.len());
    match (addrs, offsets) {
        (0, 0) => {
            bad("row_addrs", "is empty; give at least one row address, or `row_offsets`".into())
        }
        (1.., 1..) => bad("row_offsets", "is set beside `row_addrs`; leave one of them out".into()),
        (addrs, _) if addrs > TAKE_ROWS_MAX => {
            bad("row_addrs", format!("has {addrs} addresses; give at most {TAKE_ROWS_MAX}"))
        }
        (_, offsets) if offsets > TAKE_ROWS_MAX => {
            bad("row_offsets", format!("has {offsets} offsets; give at most {TAKE_ROWS_MAX}"))
        }
        (_, 0) => {
            let addrs = std::mem::take(&mut request.row_addrs);
            Ok(TakenRows::Addresses(addrs.into_iter().map(RowAddr::from_u64).collect()))
        }
        _ => Ok(TakenRows::Offsets(std::mem::take(&mut request.row_offsets))),
    }
}

fn bad<T>(field: &'static str, problem: String) -> Result<T> {
    Err(QueryError::BadRequest { field, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recall_keeps_its_decimals_and_must_be_between_0_and_1() {
        assert_eq!(recall(0.95).unwrap(), 0.95);
        assert_eq!(recall(0.9999).unwrap(), 0.9999);
        for bad in [0.0, 1.0, -0.5, 95.0, f32::NAN, f32::INFINITY] {
            let error = recall(bad).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`recall` is {bad}")), "{error}");
        }
    }

    #[test]
    fn partitions_have_a_default_and_a_maximum() {
        assert_eq!(nprobes(0, 0).unwrap(), (20, None));
        assert_eq!(nprobes(7, 0).unwrap(), (7, None));
        assert_eq!(nprobes(0, 7).unwrap(), (7, Some(7)));
        assert_eq!(nprobes(0, 70).unwrap(), (20, Some(70)));
        assert_eq!(nprobes(7, 7).unwrap(), (7, Some(7)));
        let error = nprobes(8, 7).unwrap_err().to_string();
        assert!(error.starts_with("`nprobes_max` is 7, less than `nprobes` (8)"), "{error}");
    }

    #[test]
    fn the_default_refine_factor_is_lowered_and_a_requested_one_must_fit() {
        let refine_factor = |k, asked| refine_factor(k, asked, REFINE_FACTOR);
        assert_eq!(refine_factor(10, None).unwrap(), 10);
        assert_eq!(refine_factor(10, Some(0)).unwrap(), 0);
        assert_eq!(refine_factor(10_000, Some(10)).unwrap(), 10);
        assert_eq!(refine_factor(30_000, None).unwrap(), 3);
        let error = refine_factor(30_000, Some(4)).unwrap_err().to_string();
        assert!(error.contains("120000 candidates") && error.contains("at most 3"), "{error}");
    }
}
