//! Validate: converts messages to validated requests, once, at the edge.

use std::sync::Arc;

use address::RowAddr;
use lake::LakeError;
use wire::query::search_request::By as WireBy;
use wire::query::{GetRequest, RowFormat, SearchRequest, TakeRequest, Text};

use crate::call_rules::{KEYS_MAX, TAKE_ROWS_MAX};
use crate::error::{QueryError, Result};
use crate::recall_curves::Chosen;
use crate::tables::{OpenTable, Projection};

/// Maximum number of rows that a Search returns.
const K_MAX: u32 = 10_000;

/// Maximum number of candidates (k times the refine factor) that a Search scores exactly.
const CANDIDATES_MAX: u64 = 100_000;

/// Maximum size of a key, in bytes: a BTREE compares it with many other keys, and an error message shows it.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// The number of index partitions that a vector search searches, unless its request sets one.
pub const NPROBES: u32 = 20;

/// The number of candidates scored exactly per returned row, unless the request sets one.
pub const REFINE_FACTOR: u32 = 10;

/// The criterion of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum By {
    /// The rows nearest to a vector, which is finite and has the column's dimension.
    Vector {
        /// The column.
        column: String,
        /// The vector.
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
    /// The rows that match words best.
    Text(Words),
    /// The first rows that pass the filter.
    Filter {
        /// The filter.
        filter: String,
    },
}

/// Words to search for.
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    /// The column; `None` for all that have a text index.
    pub column: Option<String>,
    /// The words.
    pub words: String,
}

/// A validated search.
#[derive(Clone, Debug)]
pub struct Question {
    /// The criterion.
    pub by: By,
    /// Words whose ranking is fused with that of the vector, and the weight of their ranks.
    pub fused_with: Option<(Words, f32)>,
    /// The filter that rows must pass.
    pub filter: Option<String>,
    /// The number of rows to return.
    pub k: usize,
    /// The number of index partitions to search.
    pub nprobes: usize,
    /// The number of candidates to score exactly for each requested row; 0 for none.
    pub refine_factor: usize,
    /// The wanted recall, by which the number of partitions and of candidates are chosen.
    pub recall: Option<f64>,
    /// The choice, once it was made.
    pub chosen: Option<Chosen>,
    /// Columns to return.
    pub projection: Arc<Projection>,
}

/// Validates a search of `open`.
///
/// # Errors
/// A field out of range, an unknown column, or a vector that does not fit the column.
pub async fn validate_search(request: SearchRequest, open: &OpenTable) -> Result<Question> {
    let k = request.k;
    if k == 0 || k > K_MAX {
        return bad("k", format!("is {k}; ask for 1 to {K_MAX} rows"));
    }
    check_fields(&request)?;
    let projection = open.project(&request.columns)?;
    let filter = Some(request.filter).filter(|filter| !filter.trim().is_empty());
    let vector_column = Some(request.vector_column).filter(|column| !column.is_empty());
    let vector_column = vector_column.as_deref();
    let by = match (request.by, &filter) {
        (Some(WireBy::Vector(vector)), _) => {
            let column = column_of_vectors(open, vector_column).await?;
            check_vector(open, &column, &vector.values)?;
            By::Vector { column, vector: vector.values }
        }
        (Some(WireBy::Like(key)), _) => {
            check_key("like", &key)?;
            let column = column_of_vectors(open, vector_column).await?;
            By::Like { column, key, key_column: key_column(open, &request.key_column)? }
        }
        (Some(WireBy::Text(text)), _) => By::Text(words("text.words", text)?),
        (None, Some(filter)) => By::Filter { filter: filter.clone() },
        (None, None) => {
            return bad("by", "is missing; give a vector, like, text, or a filter".into());
        }
    };
    let fused_with = match request.fused_with {
        Some(text) => {
            let weight = text_weight(request.text_weight.unwrap_or(1.0))?;
            Some((words("fused_with.words", text)?, weight))
        }
        None => None,
    };
    let refine_factor = refine_factor(k, request.refine_factor)?;
    let nprobes = if request.nprobes == 0 { NPROBES } else { request.nprobes } as usize;
    let recall = request.recall.map(recall).transpose()?;
    Ok(Question {
        by,
        fused_with,
        filter,
        k: k as usize,
        nprobes,
        refine_factor,
        recall,
        chosen: None,
        projection,
    })
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
    let of_near = "applies only to searches by `vector` or `like`; leave it out";
    for (field, is_set, fits, problem) in [
        ("vector_column", !request.vector_column.is_empty(), is_near, of_near),
        ("nprobes", request.nprobes > 0, is_near, of_near),
        ("refine_factor", request.refine_factor.is_some(), is_near, of_near),
        ("recall", request.recall.is_some(), is_near, of_near),
        ("fused_with", request.fused_with.is_some(), is_near, of_near),
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
    for (field, is_set) in
        [("nprobes", request.nprobes > 0), ("refine_factor", request.refine_factor.is_some())]
    {
        if is_set && request.recall.is_some() {
            return bad(
                field,
                "is set beside `recall`, which chooses it; leave one of them out".into(),
            );
        }
    }
    Ok(())
}

/// Validates the words of the field `field`.
fn words(field: &'static str, text: Text) -> Result<Words> {
    if text.words.trim().is_empty() {
        return bad(field, "is empty; give words to search for".into());
    }
    Ok(Words { column: Some(text.column).filter(|column| !column.is_empty()), words: text.words })
}

fn text_weight(weight: f32) -> Result<f32> {
    match weight.is_finite() && weight >= 0.0 {
        true => Ok(weight),
        false => bad("text_weight", format!("is {weight}; give a finite number, at least 0")),
    }
}

/// Returns the vector column that the request names, or else the table's.
pub async fn column_of_vectors(open: &OpenTable, named: Option<&str>) -> Result<String> {
    match open.table.vector_column(named).await {
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

/// Returns the refine factor. A requested factor must be within the limit of candidates; the default is lowered to it.
fn refine_factor(k: u32, asked: Option<u32>) -> Result<usize> {
    let fitting = CANDIDATES_MAX / u64::from(k);
    let factor = u64::from(asked.unwrap_or(REFINE_FACTOR));
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

/// Checks that `vector` fits the column, and is finite.
///
/// # Errors
/// `BadVector`, and those of the table.
pub fn check_vector(open: &OpenTable, column: &str, vector: &[f32]) -> Result<()> {
    let dimension = open.table.vector_dimension(column)?;
    let problem = if vector.len() != dimension {
        let given = vector.len();
        format!("has {given} dimensions; column `{column}` has {dimension}")
    } else if let Some(at) = vector.iter().position(|value| !value.is_finite()) {
        format!("has {} at position {at}; send finite numbers", vector[at])
    } else {
        return Ok(());
    };
    Err(QueryError::BadVector { problem })
}

/// Validates the keys of a Get.
///
/// # Errors
/// If there are no keys, too many, or one is too long.
pub fn validate_keys(request: &GetRequest) -> Result<()> {
    match request.keys.len() {
        0 => bad("keys", "is empty; give at least one key".into()),
        keys if keys > KEYS_MAX => bad("keys", format!("has {keys} keys; give at most {KEYS_MAX}")),
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

/// Validates the addresses of a Take.
///
/// # Errors
/// If there are no addresses, or too many.
pub fn validate_take(request: &TakeRequest) -> Result<Vec<RowAddr>> {
    match request.row_addrs.len() {
        0 => bad("row_addrs", "is empty; give at least one row address".into()),
        rows if rows > TAKE_ROWS_MAX => {
            bad("row_addrs", format!("has {rows} addresses; give at most {TAKE_ROWS_MAX}"))
        }
        _ => Ok(request.row_addrs.iter().copied().map(RowAddr::from_u64).collect()),
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
    fn the_default_refine_factor_is_lowered_and_a_requested_one_must_fit() {
        assert_eq!(refine_factor(10, None).unwrap(), 10);
        assert_eq!(refine_factor(10, Some(0)).unwrap(), 0);
        assert_eq!(refine_factor(10_000, Some(10)).unwrap(), 10);
        assert_eq!(refine_factor(30_000, None).unwrap(), 3);
        let error = refine_factor(30_000, Some(4)).unwrap_err().to_string();
        assert!(error.contains("120000 candidates") && error.contains("at most 3"), "{error}");
    }
}
