//! Filters whose literals do not have the type of the column.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
    Float32Array, Int8Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use client::query::CountRequest;
use wire::Reason;

use crate::node::serve;
use crate::table::TestTable;

#[tokio::test(flavor = "multi_thread")]
async fn the_error_says_how_to_write_a_literal() {
    let decimals = Decimal128Array::from(vec![100, 250]).with_precision_and_scale(10, 2).unwrap();
    let whole = Decimal128Array::from(vec![1, 2]).with_precision_and_scale(10, 0).unwrap();
    let fixed = FixedSizeBinaryArray::try_from_iter([[1u8, 2], [3, 4]].iter()).unwrap();
    let columns: [(&str, ArrayRef); 10] = [
        ("price", Arc::new(decimals)),
        ("whole", Arc::new(whole)),
        ("day", Arc::new(Date32Array::from(vec![19_000, 20_000]))),
        ("at", Arc::new(TimestampMicrosecondArray::from(vec![0, 1_800_000_000_000_000]))),
        ("name", Arc::new(StringArray::from(vec!["1", "2"]))),
        ("flag", Arc::new(BooleanArray::from(vec![true, false]))),
        ("small", Arc::new(Int8Array::from(vec![1, 2]))),
        ("real", Arc::new(Float32Array::from(vec![1.0, 2.0]))),
        ("bytes", Arc::new(BinaryArray::from_vec(vec![b"a", b"b"]))),
        ("hash", Arc::new(fixed)),
    ];
    let table = TestTable::of(RecordBatch::try_from_iter(columns).unwrap()).await;
    let (_node, client) = serve(&[("t", &table)]).await;
    let count = async |filter: String| {
        let request = CountRequest { table: "t".into(), filter, ..Default::default() };
        client.count(request).await.map(|counted| counted.rows)
    };
    // The example of each message is a literal that the column can be compared with.
    for (column, wrong, shown, written) in [
        ("price", "1.5", "1.5", "CAST(1.00 AS decimal(10, 2))"),
        ("price", "'1'", "'1'", "CAST(1.00 AS decimal(10, 2))"),
        ("whole", "true", "true", "CAST(1 AS decimal(10, 0))"),
        ("day", "'2024-01-31'", "'2024-01-31'", "date '2024-01-31'"),
        ("day", "20240131", "20240131", "date '2024-01-31'"),
        ("at", "1700000000", "1700000000", "timestamp '2024-01-31 12:00:00'"),
        ("name", "1", "1", "'text'"),
        ("flag", "1", "1", "true"),
        ("small", "1000", "1000", "12"),
        ("real", "'1'", "'1'", "1.5"),
        ("bytes", "'a'", "'a'", "X'0a0b'"),
        ("hash", "12", "12", "arrow_cast(X'0a0b', 'FixedSizeBinary(2)')"),
    ] {
        let fault = count(format!("{column} = {wrong}")).await.unwrap_err();
        assert_eq!(fault.reason, Reason::BadFilter, "{fault}");
        for part in [
            format!("{shown} can't be compared with a column of type "),
            format!("; write a value as `{written}`"),
        ] {
            assert!(fault.message.contains(&part), "`{fault}` does not say `{part}`");
        }
        let rows = count(format!("{column} = {written} OR {column} != {written}")).await;
        assert_eq!(rows.unwrap(), 2, "{column} = {written}");
    }
    for (filter, rows) in [
        ("price = CAST(2.5 AS decimal(10, 2))", 1),
        ("day >= date '2024-01-31'", 1),
        ("at > timestamp '2024-01-31 12:00:00'", 1),
    ] {
        assert_eq!(count(filter.into()).await.unwrap(), rows, "{filter}");
    }
}
