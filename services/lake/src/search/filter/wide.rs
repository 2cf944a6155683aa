//! Ranges of values that very many rows have. A BTREE gives out the rows of a range one by one, so the list of such a
//! range costs more than to search first, and to compare the candidates with the filter.

use std::collections::BTreeSet;
use std::ops::Bound;

use arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;
use lance::Dataset;
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt};
use lance_core::Result;
use lance_index::IndexType;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::SargableQuery;
use lance_index::scalar::expression::{ScalarIndexExpr, ScalarIndexSearch};
use serde::Deserialize;

/// The minimum number of rows in a wide range. A BTREE lists as many in about the time in which 1,000 candidates are
/// compared with a filter.
const ROWS_MIN: u64 = 100_000;

/// The minimum share of the rows that a wide range has. Where fewer pass, a search needs many candidates, and most of
/// them are compared in vain.
const SHARE_MIN: f64 = 0.25;

/// The wide ranges of a filter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WideRanges {
    /// The names of the indexes that would answer them.
    pub indexes: BTreeSet<String>,
    /// The number of rows in the ranges, in all. An estimate.
    pub rows: u64,
    /// The share of rows for which the part of the filter that consists of these ranges is true. An estimate.
    pub share: f64,
}

impl WideRanges {
    /// Returns the wide ranges of `query`, or `None` if it has none. `table_rows` is the number of the table's rows.
    /// Opens the BTREEs that have ranges of the query, but reads none of their pages.
    pub async fn of(
        query: &ScalarIndexExpr,
        dataset: &Dataset,
        table_rows: u64,
    ) -> Result<Option<Self>> {
        if table_rows < ROWS_MIN {
            return Ok(None);
        }
        let mut searches = Vec::new();
        collect(query, &mut searches);
        let (mut shares, mut indexes, mut rows) = (Vec::new(), BTreeSet::new(), 0);
        for search in searches {
            let share = share_in_index(search, dataset).await?;
            let in_range = share.map_or(0, |share| (share * table_rows as f64) as u64);
            let is_wide = in_range >= ROWS_MIN && share >= Some(SHARE_MIN);
            shares.push(share.filter(|_| is_wide));
            if is_wide {
                indexes.insert(search.index_name.clone());
                rows += in_range;
            }
        }
        let share = passing(query, &mut shares.into_iter());
        Ok(share.map(|share| Self { indexes, rows, share }))
    }
}

/// Appends the searches of single indexes in `query` to `searches`, from left to right.
fn collect<'a>(query: &'a ScalarIndexExpr, searches: &mut Vec<&'a ScalarIndexSearch>) {
    match query {
        ScalarIndexExpr::Not(inner) => collect(inner, searches),
        ScalarIndexExpr::And(left, right) | ScalarIndexExpr::Or(left, right) => {
            collect(left, searches);
            collect(right, searches);
        }
        ScalarIndexExpr::Query(search) => searches.push(search),
    }
}

/// Estimates the share of rows for which `query` is true, from the shares of its single searches from left to right.
/// Searches without a share are left out; returns `None` if all are.
fn passing(query: &ScalarIndexExpr, shares: &mut impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut both = |left, right, join: fn(f64, f64) -> f64| {
        let (left, right) = (passing(left, shares), passing(right, shares));
        left.zip(right).map(|(left, right)| join(left, right)).or(left).or(right)
    };
    match query {
        ScalarIndexExpr::And(left, right) => both(left, right, |left, right| left * right),
        ScalarIndexExpr::Or(left, right) => both(left, right, |a, b| a + b - a * b),
        ScalarIndexExpr::Not(inner) => passing(inner, shares).map(|share| 1.0 - share),
        ScalarIndexExpr::Query(_) => shares.next().flatten(),
    }
}

/// What Lance tells of the values in a BTREE. The values are printed. If a page has nulls and the least values, `min` is
/// null.
#[derive(Deserialize)]
struct Values {
    min: String,
    max: String,
    /// The number of pages, which have the same number of rows except for the last one.
    num_pages: u32,
}

/// Estimates the share of a BTREE's rows that `search` finds, if the column's values are spread evenly. Returns `None`
/// if the index is no BTREE, if the search is not for a range of numbers or times, or if the least value is not known.
async fn share_in_index(search: &ScalarIndexSearch, dataset: &Dataset) -> Result<Option<f64>> {
    let query = search.query.as_any().downcast_ref::<SargableQuery>();
    let Some(SargableQuery::Range(from, to)) = query else { return Ok(None) };
    let bound = |bound: &Bound<ScalarValue>| match bound {
        Bound::Included(value) | Bound::Excluded(value) => (number(value), Some(value.data_type())),
        Bound::Unbounded => (None, None),
    };
    let ((from, from_type), (to, to_type)) = (bound(from), bound(to));
    let Some(of) = from_type.or(to_type).filter(|_| from.is_some() || to.is_some()) else {
        return Ok(None);
    };
    let (mut found, mut pages) = (0.0, 0.0);
    for segment in dataset.load_indices_by_name(&search.index_name).await? {
        let (column, metrics) = (&search.column, &NoOpMetricsCollector);
        let index = dataset.open_scalar_index(column, &segment.uuid, metrics).await?;
        if index.index_type() != IndexType::BTree {
            return Ok(None);
        }
        let Ok(values) = serde_json::from_value::<Values>(index.statistics()?) else {
            return Ok(None);
        };
        let parsed = (parsed(&values.min, &of), parsed(&values.max, &of));
        let (Some(min), Some(max)) = parsed else { return Ok(None) };
        let of_segment = f64::from(values.num_pages);
        found += of_segment * share_of_range((from, to), (min, max));
        pages += of_segment;
    }
    Ok((pages > 0.0).then_some(found / pages))
}

/// Returns the share of the values from `min` to `max` that are within the bounds, if they are spread evenly.
fn share_of_range((from, to): (Option<f64>, Option<f64>), (min, max): (f64, f64)) -> f64 {
    let (from, to) = (from.unwrap_or(min).max(min), to.unwrap_or(max).min(max));
    match max > min {
        true => ((to - from) / (max - min)).max(0.0),
        false => f64::from(u8::from(from <= to)),
    }
}

/// Returns a value that Lance has printed as a number. Times are printed as numbers, dates as dates.
fn parsed(text: &str, of: &DataType) -> Option<f64> {
    let value = || number(&ScalarValue::try_from_string(text.to_owned(), of).ok()?);
    text.parse().ok().or_else(value)
}

/// Returns `value` as a number, if it is a number or a time, and not null.
fn number(value: &ScalarValue) -> Option<f64> {
    let of = value.data_type();
    let whole = || value.cast_to(&DataType::Int64).ok();
    let value = if of.is_temporal() { whole()? } else { value.clone() };
    match value.cast_to(&DataType::Float64) {
        Ok(ScalarValue::Float64(number)) if of.is_numeric() || of.is_temporal() => number,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_share_of_a_range_is_that_of_its_width() {
        let share = |from, to| share_of_range((from, to), (0.0, 1_000.0));
        assert_eq!(share(None, Some(250.0)), 0.25);
        assert_eq!(share(Some(900.0), None), 0.1);
        assert_eq!(share(Some(-50.0), Some(2_000.0)), 1.0);
        assert_eq!(share(Some(2_000.0), None), 0.0);
        assert_eq!(share(Some(3.0), Some(2.0)), 0.0);
        assert_eq!(share_of_range((None, Some(7.0)), (7.0, 7.0)), 1.0);
        assert_eq!(share_of_range((Some(8.0), None), (7.0, 7.0)), 0.0);
    }

    #[test]
    fn values_are_read_as_lance_prints_them() {
        let printed = |value: ScalarValue| parsed(&value.to_string(), &value.data_type());
        assert_eq!(printed(ScalarValue::from(-3_i64)), Some(-3.0));
        assert_eq!(printed(ScalarValue::from(0.5_f32)), Some(0.5));
        assert_eq!(printed(ScalarValue::Date32(Some(20_000))), Some(20_000.0));
        let micros = ScalarValue::TimestampMicrosecond(Some(1_700_000_000_000_000), None);
        assert_eq!(printed(micros.clone()), Some(1.7e15));
        assert_eq!(number(&micros), Some(1.7e15));
        assert_eq!(printed(ScalarValue::from("12 apples")), None);
        assert_eq!(number(&ScalarValue::from("12")), None);
        assert_eq!(number(&ScalarValue::Int64(None)), None);
    }

    #[test]
    fn shares_are_joined_as_the_conditions_are() {
        let search = |column: &str| {
            ScalarIndexExpr::Query(ScalarIndexSearch {
                column: column.into(),
                index_name: format!("{column}_idx"),
                index_type: "BTree".into(),
                query: Arc::new(SargableQuery::IsNull()),
                needs_recheck: false,
                fragment_bitmap: None,
            })
        };
        let and = |a, b| ScalarIndexExpr::And(Box::new(a), Box::new(b));
        let or = |a, b| ScalarIndexExpr::Or(Box::new(a), Box::new(b));
        let query = and(
            search("topic"),
            or(search("price"), ScalarIndexExpr::Not(Box::new(search("day")))),
        );
        let share = |shares: [Option<f64>; 3]| passing(&query, &mut shares.into_iter());
        assert_eq!(share([Some(0.5), Some(0.5), Some(0.5)]), Some(0.375));
        assert_eq!(share([None, None, Some(0.25)]), Some(0.75));
        assert_eq!(share([Some(0.5), None, None]), Some(0.5));
        assert_eq!(share([None, None, None]), None);
    }
}
