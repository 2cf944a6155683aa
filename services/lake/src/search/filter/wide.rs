//! Ranges of values that very many rows have. A BTREE gives out the rows of a range one by one, so the list of such a
//! range costs more than to search first, and to compare the candidates with the filter.

use std::collections::BTreeSet;
use std::ops::Bound;

use arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;
use futures::future::{join_all, try_join_all};
use lance::Dataset;
use lance::index::DatasetIndexInternalExt;
use lance::index::scalar::load_named_scalar_segments;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::SargableQuery;
use lance_index::scalar::expression::{ScalarIndexExpr, ScalarIndexSearch};
use lance_table::format::IndexMetadata;
use serde::Deserialize;

use crate::search::keys::is_btree;

/// The minimum number of rows in a wide range. A BTREE takes about 8 ns for each row that it gives out, so it lists these
/// in 1.6 ms, which is the time of 800 to 1,600 comparisons of a candidate.
const ROWS_MIN: u64 = 200_000;

/// The minimum share of the rows that are in a wide range. Where fewer pass, most candidates are compared in vain.
const SHARE_MIN: f64 = 0.4;

/// The wide ranges of a filter. A row passes only if it is in all of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WideRanges {
    /// The names of the indexes that would answer them.
    pub indexes: BTreeSet<String>,
    /// Whether the filter has other conditions too.
    pub has_others: bool,
    /// The number of rows in the ranges, each of them counted. An estimate.
    pub rows: u64,
    /// The share of rows that are in all of the ranges. An estimate.
    pub share: f64,
}

impl WideRanges {
    /// Returns the wide ranges of `query`, which answers a whole filter, or `None` if there are none. The indexes cover
    /// `rows` live rows. Opens the BTREEs of the query's ranges, but reads none of their pages. A BTREE that can't be
    /// opened has no wide range: the search that needs it reports the error.
    pub async fn of(query: &ScalarIndexExpr, dataset: &Dataset, rows: u64) -> Option<Self> {
        if rows < ROWS_MIN {
            return None;
        }
        let mut searches = Vec::new();
        collect(query, true, &mut searches);
        let share = async |&(search, must_match): &(&ScalarIndexSearch, bool)| match must_match {
            true => share_in_index(search, dataset).await,
            false => None,
        };
        let shares = join_all(searches.iter().map(share)).await;
        let names = searches.iter().map(|(search, _)| search.index_name.as_str());
        Self::among(&names.zip(shares).collect::<Vec<_>>(), rows)
    }

    /// Chooses the wide ranges among `conditions`. Each has the name of its index, and the share of the `rows` for which
    /// it is true, if that is known. A range is not wide if its index answers another condition that is not.
    fn among(conditions: &[(&str, Option<f64>)], rows: u64) -> Option<Self> {
        let in_range = |share: f64| (share * rows as f64) as u64;
        let is_wide = |share: f64| share >= SHARE_MIN && in_range(share) >= ROWS_MIN;
        let narrow = conditions.iter().filter(|(_, share)| !share.is_some_and(is_wide));
        let others: BTreeSet<&str> = narrow.map(|(name, _)| *name).collect();
        let (mut indexes, mut listed, mut passing) = (BTreeSet::new(), 0, 1.0);
        for (name, share) in conditions {
            if let Some(share) = share.filter(|_| !others.contains(name)) {
                indexes.insert((*name).to_owned());
                listed += in_range(share);
                passing *= share;
            }
        }
        let has_others = !others.is_empty();
        let found = Self { indexes, has_others, rows: listed, share: passing };
        (!found.indexes.is_empty() && passing >= SHARE_MIN).then_some(found)
    }
}

/// Appends the searches of single indexes in `query` to `searches`, each with whether a row passes only if the search
/// finds it, provided that this holds for `query` if `must_match` is set.
fn collect<'a>(
    query: &'a ScalarIndexExpr,
    must_match: bool,
    searches: &mut Vec<(&'a ScalarIndexSearch, bool)>,
) {
    match query {
        ScalarIndexExpr::And(left, right) => {
            collect(left, must_match, searches);
            collect(right, must_match, searches);
        }
        ScalarIndexExpr::Or(left, right) => {
            collect(left, false, searches);
            collect(right, false, searches);
        }
        ScalarIndexExpr::Not(inner) => collect(inner, false, searches),
        ScalarIndexExpr::Query(search) => searches.push((search, must_match)),
    }
}

/// Statistics of a BTREE. Lance prints the values as text. `min` is null if the page with the least value has nulls.
#[derive(Deserialize)]
struct Statistics {
    min: String,
    max: String,
    /// The number of pages. All but the last have the same number of rows.
    num_pages: u32,
}

/// Estimates the share of a BTREE's rows that `search` finds, if the column's values are spread evenly. Returns `None`
/// if the index is no BTREE, if the search is not for a range of numbers or times, or if the least or the greatest value
/// is not known.
async fn share_in_index(search: &ScalarIndexSearch, dataset: &Dataset) -> Option<f64> {
    let query = search.query.as_any().downcast_ref::<SargableQuery>();
    let Some(SargableQuery::Range(from, to)) = query else { return None };
    let (from, to) = (value_of(from), value_of(to));
    let of = from.or(to)?.data_type();
    let number_of = |value: Option<&ScalarValue>| match value {
        Some(value) => number(value).map(Some),
        None => Some(None),
    };
    let range = (number_of(from)?, number_of(to)?);
    let segments = load_named_scalar_segments(dataset, &search.column, &search.index_name);
    let segments = segments.await.ok()?;
    if !segments.iter().all(is_btree) {
        return None;
    }
    let open = |segment: &IndexMetadata| {
        let uuid = segment.uuid;
        async move { dataset.open_scalar_index(&search.column, &uuid, &NoOpMetricsCollector).await }
    };
    let (mut found, mut pages) = (0.0, 0.0);
    for index in try_join_all(segments.iter().map(open)).await.ok()? {
        let of_index: Statistics = serde_json::from_value(index.statistics().ok()?).ok()?;
        let values = (parsed(&of_index.min, &of)?, parsed(&of_index.max, &of)?);
        let of_index = f64::from(of_index.num_pages);
        found += of_index * share_of_range(range, values);
        pages += of_index;
    }
    (pages > 0.0).then_some(found / pages)
}

/// Returns the value of a bound, if it has one.
fn value_of(bound: &Bound<ScalarValue>) -> Option<&ScalarValue> {
    match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(value),
        Bound::Unbounded => None,
    }
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
    text.parse().ok().or_else(value).filter(|value| value.is_finite())
}

/// Returns `value` as a number, if it is a number or a time, and neither null nor NaN.
fn number(value: &ScalarValue) -> Option<f64> {
    let of = value.data_type();
    let value = match of.is_temporal() {
        true => value.cast_to(&DataType::Int64).ok()?,
        false if of.is_numeric() => value.clone(),
        false => return None,
    };
    match value.cast_to(&DataType::Float64) {
        Ok(ScalarValue::Float64(number)) => number.filter(|number| !number.is_nan()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_range_is_that_of_its_width() {
        let share = |from, to| share_of_range((from, to), (0.0, 1_000.0));
        assert_eq!(share(None, Some(250.0)), 0.25);
        assert_eq!(share(Some(900.0), None), 0.1);
        assert_eq!(share(Some(-50.0), Some(f64::INFINITY)), 1.0);
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
        for float in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(printed(ScalarValue::from(float)), None);
        }
        assert_eq!(number(&ScalarValue::from(f64::NAN)), None);
        assert_eq!(printed(ScalarValue::from("12 apples")), None);
        assert_eq!(number(&ScalarValue::from("12")), None);
        assert_eq!(printed(ScalarValue::Int64(None)), None);
        assert_eq!(number(&ScalarValue::Int64(None)), None);
    }

    #[test]
    fn ranges_are_wide_that_many_rows_and_much_of_the_table_are_in() {
        let among = |conditions: &[(&str, Option<f64>)], rows| {
            let wide = WideRanges::among(conditions, rows)?;
            let names: Vec<_> = wide.indexes.into_iter().collect();
            Some((names.join(" "), wide.has_others, wide.rows, wide.share))
        };
        let found = |names: &str, has_others, rows, share| {
            Some((names.to_owned(), has_others, rows, share))
        };
        assert_eq!(among(&[("day", Some(0.5))], 1_000_000), found("day", false, 500_000, 0.5));
        assert_eq!(among(&[("day", Some(0.5))], 300_000), None);
        assert_eq!(among(&[("day", Some(0.25))], 1_000_000), None);
        assert_eq!(among(&[("day", None)], 1_000_000), None);
        let conditions = [("topic", None), ("day", Some(0.5)), ("size", Some(1.0))];
        assert_eq!(among(&conditions, 1_000_000), found("day size", true, 1_500_000, 0.5));
        // Together, hardly any row may be in both ranges.
        assert_eq!(among(&[("day", Some(0.5)), ("size", Some(0.5))], 1_000_000), None);
        // The index on days also answers a condition that few rows meet.
        assert_eq!(among(&[("day", Some(0.5)), ("day", None)], 1_000_000), None);
    }
}
