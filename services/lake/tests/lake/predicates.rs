//! Compares predicates that are made of filters with Lance's own evaluation of the filters.

use std::sync::Arc;

use address::RowAddr;
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array, Int64Array, LargeStringArray,
    RecordBatch, StringArray, TimestampMicrosecondArray, UInt16Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int8Type};
use lake::Table;
use predicate::Evaluator;

use crate::fixture::{PLAIN, TablePlace, lake, write};

/// Returns the rows of a table whose columns have the types that predicates compare. Every column has nulls.
fn rows() -> RecordBatch {
    let (nan, floats) = (f64::NAN, [0.0, -0.0, 1.5, -1.5, f64::INFINITY, 2.0]);
    let number = |row: usize| (row % 7 != 3).then_some(row as i64 % 5 - 2);
    let float = |row: usize| match row % 9 {
        8 => None,
        7 => Some(nan),
        6 => Some(-nan),
        at => Some(floats[at]),
    };
    let text = |row: usize| (row % 6 != 1).then(|| ["", "a", "A", "ab", "ä", "b"][row % 11 % 6]);
    let all = || 0..200usize;
    let tags: DictionaryArray<Int8Type> = all().map(text).collect();
    let fixed = all().map(|row| text(row).map(|_| [row as u8 % 3, 1]));
    let decimals = all().map(|row| number(row).map(i128::from));
    let columns: [(&str, ArrayRef); 14] = [
        ("i8", Arc::new(Int8Array::from_iter(all().map(|row| number(row).map(|it| it as i8))))),
        (
            "u16",
            Arc::new(UInt16Array::from_iter(all().map(|row| number(row).map(|it| it as u16 % 4)))),
        ),
        ("i64", Arc::new(Int64Array::from_iter(all().map(|row| number(row / 3))))),
        ("f32", Arc::new(Float32Array::from_iter(all().map(|row| float(row).map(|it| it as f32))))),
        ("f64", Arc::new(Float64Array::from_iter(all().map(|row| float(row / 2))))),
        (
            "flag",
            Arc::new(BooleanArray::from_iter(
                all().map(|row| (row % 4 > 0).then_some(row % 4 > 2)),
            )),
        ),
        ("text", Arc::new(StringArray::from_iter(all().map(text)))),
        ("large", Arc::new(LargeStringArray::from_iter(all().map(|row| text(row / 2))))),
        ("bytes", Arc::new(BinaryArray::from_iter(all().map(|row| text(row).map(str::as_bytes))))),
        (
            "fixed",
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 2).unwrap()),
        ),
        (
            "day",
            Arc::new(Date32Array::from_iter(
                all().map(|row| number(row).map(|it| it as i32 * 100)),
            )),
        ),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from_iter(
                all().map(|row| number(row).map(|it| it * 1_000_000)),
            )),
        ),
        (
            "price",
            Arc::new(Decimal128Array::from_iter(decimals).with_precision_and_scale(10, 2).unwrap()),
        ),
        ("tag", Arc::new(tags)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .unwrap()
}

/// Returns the rows that pass `filter` by its predicate; `None` if the filter has no predicate.
async fn passing(table: &Table, rows: &RecordBatch, filter: &str) -> Option<Vec<RowAddr>> {
    let predicate = table.predicate(filter, 0, 8).await.unwrap()?;
    let column = |name: &String| match rows[name.as_str()].data_type() {
        DataType::Dictionary(_, values) => cast(&rows[name.as_str()], values).unwrap(),
        _ => Arc::clone(&rows[name.as_str()]),
    };
    let columns: Vec<_> = predicate.columns.iter().map(column).collect();
    let types: Vec<_> = columns.iter().map(|it| it.data_type()).collect();
    let evaluator = Evaluator::new(&predicate.steps, &types).unwrap();
    let passing = evaluator.passing(&columns).unwrap();
    Some(passing.into_iter().map(|row| RowAddr::new(0, row)).collect())
}

const EXPRESSIBLE: &[&str] = &[
    "i8 = 1",
    "i8 != 1",
    "i8 <> -2 AND u16 < 3",
    "u16 >= 2",
    "u16 <= 0 OR i8 IS NULL",
    "i64 > -1",
    "i64 < 1",
    "1 < i64",
    "i64 IN (1, 2)",
    "i64 IN (-2, -1, 0, 1, 7)",
    "i64 NOT IN (-2, -1, 0, 1, 7)",
    "NOT (i64 IN (-2, -1, 0, 1, 7) OR i8 = 2)",
    "i64 BETWEEN -1 AND 1",
    "i64 NOT BETWEEN -1 AND 1",
    "i8 IS NOT NULL",
    "NOT (i8 > 0)",
    "NOT (i8 > 0 AND text = 'a')",
    "i8 > 0 OR (text = 'a' AND NOT flag)",
    "f32 > 0.0",
    "f32 >= 0.0",
    "f32 < 0.0",
    "f32 <= -0.0",
    "f32 = 0.0",
    "f32 != 0.0",
    "f32 = 1.5",
    "f32 > 1.4",
    "f64 > 1.5",
    "f64 < 1.5",
    "f64 = -0.0",
    "f64 >= -0.0",
    "f64 IN (1.5, 2.0, -1.5, 3.5)",
    "f64 NOT IN (1.5, 2.0, -1.5, 3.5)",
    "flag",
    "NOT flag",
    "flag = true",
    "flag = false",
    "flag IS NULL",
    "flag AND i8 > 0",
    "text = 'a'",
    "text > 'a'",
    "text <= 'ab'",
    "text = ''",
    "text != 'A'",
    "text >= 'ä'",
    "text IN ('a', 'ä', '', 'zzz')",
    "text NOT IN ('a', 'ä', '', 'zzz')",
    "large = 'ab'",
    "large < 'b' AND large IS NOT NULL",
    "bytes = X'6162'",
    "bytes > X'61'",
    "day > DATE '1970-02-01'",
    "day = DATE '1970-04-11'",
    "time >= TIMESTAMP '1970-01-01 00:00:01'",
    "time < TIMESTAMP '1970-01-01 00:00:00'",
    "tag = 'a'",
    "tag IN ('a', 'ä', '', 'zzz')",
    "tag IS NULL OR tag > 'a'",
];

/// Filters that may have a predicate, as Lance's planner decides.
const PERHAPS: &[&str] = &[
    "f32 IN (0.0, 2.0, 1.5, 7.0)",
    "f64 NOT IN (0.0, 2.0, 1.5, 7.0)",
    "price > 0.01",
    "price > CAST(0.01 AS decimal(10, 2))",
    "price IS NULL",
    "price = CAST(0.02 AS decimal(10, 2))",
    "fixed = arrow_cast(X'0101', 'FixedSizeBinary(2)')",
    "i8 < 300",
    "i8 IN (1, 300)",
    "u16 > -1",
    "i64 = 1.5",
    "f32 > 0.1",
    "flag IS TRUE",
    "i8 IN (1, NULL)",
    "i8 = NULL",
    "true",
    "false",
    "i8 IS NOT DISTINCT FROM 1",
    "text < large",
    "i64 < 2 AND true",
];

const NOT_EXPRESSIBLE: &[&str] = &[
    "i64 % 2 = 0",
    "i64 + 1 > 2",
    "abs(i64) > 1",
    "i8 > i64",
    "text LIKE '%b'",
    "starts_with(text, 'a')",
    "i64 > 0 AND length(text) > 1",
];

#[tokio::test]
async fn the_same_rows_pass_as_by_lances_own_evaluation() {
    let place = TablePlace::new();
    let rows = rows();
    write(&place.uri(), std::slice::from_ref(&rows), PLAIN).await;
    let table = lake().open(&place.uri()).await.unwrap();
    for (filters, has_predicate) in
        [(EXPRESSIBLE, Some(true)), (PERHAPS, None), (NOT_EXPRESSIBLE, Some(false))]
    {
        for filter in filters {
            let Ok(by_lance) = table.scan_filter(filter, 1_000).await else {
                assert!(has_predicate.is_none(), "`{filter}`");
                assert!(table.predicate(filter, 0, 8).await.is_err(), "`{filter}`");
                continue;
            };
            let passing = passing(&table, &rows, filter).await;
            if let Some(has_predicate) = has_predicate {
                assert_eq!(passing.is_some(), has_predicate, "`{filter}`");
            }
            if let Some(passing) = passing {
                assert_eq!(passing, by_lance, "`{filter}`");
            }
        }
    }
    assert!(table.predicate("i64 >", 0, 8).await.is_err());
}

#[tokio::test]
async fn predicates_are_bounded() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows()], PLAIN).await;
    let table = lake().open(&place.uri()).await.unwrap();
    let list = |items: usize| {
        let items: Vec<_> = (0..items).map(|it| it.to_string()).collect();
        format!("i64 IN ({})", items.join(", "))
    };
    assert!(table.predicate(&list(1_024), 0, 8).await.unwrap().is_some());
    assert!(table.predicate(&list(1_025), 0, 8).await.unwrap().is_none());
    let terms = |terms: usize| {
        let terms: Vec<_> = (0..terms).map(|it| format!("(i8 = {it} AND i64 > {it})")).collect();
        terms.join(" OR ")
    };
    assert!(table.predicate(&terms(32), 0, 8).await.unwrap().is_some());
    assert!(table.predicate(&terms(64), 0, 8).await.unwrap().is_none());
}
