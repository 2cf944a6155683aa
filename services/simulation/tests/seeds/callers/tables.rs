//! The tables of callers with grants. Each row tells which table and which version it is from.
//!
//! The tables have the same columns, fragments, row counts and file names, so that a row of one would fit into an
//! answer from another.

use std::sync::Arc;

use access_model::TABLES;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};

use crate::dice::Dice;
use crate::truth::{Version, text, version};

/// The URIs of the [`TABLES`], in the same order.
const URIS: [&str; TABLES.len()] =
    ["s3://sim/abies", "s3://sim/larex", "s3://sim/larix", "s3://sim/larox", "s3://sim/larux"];

/// The column that tells where a row is from.
pub const ORIGIN: &str = "origin";

/// Returns all tables, each with its versions.
pub fn granted() -> impl Iterator<Item = Vec<Version>> {
    TABLES.into_iter().zip(URIS).map(|(name, uri)| versions(name, uri))
}

/// The number of versions of each table.
pub const VERSIONS: u64 = 4;

/// Returns a version of the table with this name.
pub fn version_of(name: &str, version: u64) -> &'static Version {
    let at = TABLES.iter().position(|table| *table == name).expect("the table is there");
    Version::find(URIS[at], version).expect("the version is there")
}

/// Returns the table and the version that a row is from.
pub fn origin(text: &str) -> Option<(&'static str, u64)> {
    let mut words = text.split(' ');
    let name = words.next()?;
    Some((TABLES.into_iter().find(|table| *table == name)?, words.next()?.parse().ok()?))
}

/// Each version rewrites the origins of all rows, and deletes other rows than the one before.
fn versions(name: &str, uri: &'static str) -> Vec<Version> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new(ORIGIN, DataType::Utf8, false),
        Field::new("note", DataType::Utf8, true),
    ]));
    let fragment = |number: u64, id: u32, rows: i64| {
        let dice = &mut Dice::new(id.into(), name);
        let origins = (0..rows).map(|row| Some(format!("{name} {number} {id}/{row}")));
        let notes = (0..rows).map(|_| text(dice, 600));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(0..rows)),
            Arc::new(origins.collect::<StringArray>()),
            Arc::new(notes.collect::<StringArray>()),
        ];
        let rows = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        (id, rows, vec![0, number as u32, 0])
    };
    let number = |number: u64| {
        let all = [(0, 150), (1, 90), (5, 70)];
        let fragments: Vec<_> = all[..if number < 3 { 2 } else { 3 }]
            .iter()
            .map(|&(id, rows)| fragment(number, id, rows))
            .collect();
        let deleted = move |_, row: u32| number > 1 && (row + number as u32).is_multiple_of(7);
        version(uri, number, &fragments, deleted)
    };
    (1..=VERSIONS).map(number).collect()
}
