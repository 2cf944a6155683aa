//! The table whose rows key clients look up: keys are appended, updated, deleted, rewritten and compacted. Its rows do
//! not depend on the seed.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use address::RowAddr;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt32Array};
use arrow_schema::{DataType, Field, Schema};

use crate::dice::Dice;
use crate::truth::{TABLES, Version, text, version};

const URI: &str = "s3://sim/keyed";

/// A range that contains the number of every key of every version. No row has a key with a larger number.
pub const KEYS: Range<u32> = 0..1_300;

/// Returns the versions of the table.
pub fn keyed_versions() -> &'static [Version] {
    TABLES.iter().find(|versions| versions[0].uri == URI).expect("the table is there")
}

/// For each version, the address of each key's row: the lowest one, if several live rows have the key.
pub static ROWS_OF_KEYS: LazyLock<Vec<HashMap<String, RowAddr>>> =
    LazyLock::new(|| keyed_versions().iter().map(rows_of_keys).collect());

fn rows_of_keys(version: &Version) -> HashMap<String, RowAddr> {
    let mut rows = HashMap::new();
    for info in &version.infos {
        let keys = keys_of(version, info.id);
        for (offset, key) in (0..).zip(keys.as_string::<i32>()) {
            let addr = RowAddr::new(info.id, offset);
            if let Some(key) = key.filter(|_| version.has(addr)) {
                let row = rows.entry(key.to_owned()).or_insert(addr);
                *row = addr.min(*row);
            }
        }
    }
    rows
}

/// Returns the keys of all rows of a fragment, deleted ones included.
pub fn keys_of(version: &Version, fragment: u32) -> ArrayRef {
    let rows = version.infos.iter().find(|info| info.id == fragment).map(|it| it.physical_rows);
    let fragment = version.fragment(fragment).expect("the version has the fragment");
    Arc::clone(fragment.read(0..rows.unwrap_or(0), &["key".into()]).column(0))
}

/// Returns the key with a number.
pub fn key(number: u32) -> String {
    format!("key {number}")
}

/// The rows of one fragment while versions are written.
struct Part {
    id: u32,
    keys: Vec<Option<u32>>,
    rows: RecordBatch,
    forms: Vec<u32>,
    deleted: BTreeSet<u32>,
}

/// Writes one version after the other.
struct Writer {
    parts: Vec<Part>,
    next_id: u32,
    dice: Dice,
    versions: Vec<Version>,
}

/// Returns the table's versions.
pub fn keyed() -> Vec<Version> {
    let dice = Dice::new(0, "keyed");
    let mut writer = Writer { parts: Vec::new(), next_id: 8, dice, versions: Vec::new() };
    // Fragments 8 and 9. Every 50th row has no key.
    writer.append((0..350).map(|key| (key % 50 != 7).then_some(key)));
    writer.append((350..600).map(Some));
    writer.commit();
    // Fragment 10 has some keys a second time, and some keys several times.
    writer.append((600..700).chain(0..20).chain([13, 13, 650]).map(Some));
    writer.commit();
    writer.delete(|key| key.is_none_or(|key| key % 6 == 1));
    writer.commit();
    // Fragments 11 and 12: keys of several fragments, and of updated rows.
    writer.update(100..160);
    writer.commit();
    writer.update(140..380);
    writer.commit();
    // Fragment 13 brings deleted keys back. Fragment 14 has new keys.
    writer.append((0..100).filter(|key| key % 6 == 1).map(Some));
    writer.append((700..860).map(Some));
    writer.commit();
    // Fragment 15 takes the place of four others.
    writer.compact(&[10, 11, 12, 13]);
    writer.commit();
    writer.delete(|key| key.is_some_and(|key| (380..600).contains(&key) || key % 9 == 2));
    writer.commit();
    // The rows of fragment 14 get other keys.
    writer.rewrite_keys(14, |key| key + 400);
    writer.commit();
    // Fragment 16.
    writer.append((350..450).chain(700..720).map(Some));
    writer.commit();
    // Fragment 17 takes the place of all others.
    let all: Vec<u32> = writer.parts.iter().map(|part| part.id).collect();
    writer.compact(&all);
    writer.commit();
    // Fragment 18.
    writer.update(0..40);
    writer.commit();
    writer.versions
}

impl Writer {
    fn append(&mut self, keys: impl Iterator<Item = Option<u32>>) {
        let keys: Vec<_> = keys.collect();
        let rows = self.rows(&keys);
        self.add(keys, rows);
    }

    /// Adds a fragment.
    fn add(&mut self, keys: Vec<Option<u32>>, rows: RecordBatch) {
        let (id, forms) = (self.next_id, vec![0; 2]);
        self.next_id += 1;
        self.parts.push(Part { id, keys, rows, forms, deleted: BTreeSet::new() });
    }

    fn rows(&mut self, keys: &[Option<u32>]) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![
            Field::new("key", DataType::Utf8, true),
            Field::new("value", DataType::Utf8, true),
        ]));
        let values = keys.iter().map(|_| text(&mut self.dice, 900));
        let columns: Vec<ArrayRef> =
            vec![key_column(keys), Arc::new(values.collect::<StringArray>())];
        RecordBatch::try_new(schema, columns).unwrap()
    }

    /// Deletes the live rows whose keys `is_deleted` selects, and returns their keys.
    fn delete(&mut self, is_deleted: impl Fn(Option<u32>) -> bool) -> Vec<Option<u32>> {
        let mut gone = Vec::new();
        for part in &mut self.parts {
            for (row, &key) in (0..).zip(&part.keys) {
                if is_deleted(key) && part.deleted.insert(row) {
                    gone.push(key);
                }
            }
        }
        gone
    }

    /// Gives the rows with these keys other values: deletes them, and appends new ones.
    fn update(&mut self, keys: Range<u32>) {
        let updated = self.delete(|key| key.is_some_and(|key| keys.contains(&key)));
        self.append(updated.into_iter());
    }

    /// Replaces fragments by one that has their live rows.
    fn compact(&mut self, ids: &[u32]) {
        let (compacted, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.parts).into_iter().partition(|part| ids.contains(&part.id));
        self.parts = others;
        let batches: Vec<RecordBatch> = compacted.iter().map(Part::live_rows).collect();
        let rows = arrow_select::concat::concat_batches(&batches[0].schema(), &batches).unwrap();
        let keys = compacted.iter().flat_map(|part| part.live().map(|row| part.keys[row as usize]));
        self.add(keys.collect(), rows);
    }

    /// Writes the key column of a fragment again, with other keys.
    fn rewrite_keys(&mut self, id: u32, other: impl Fn(u32) -> u32) {
        let part = self.parts.iter_mut().find(|part| part.id == id).expect("it is there");
        part.keys.iter_mut().flatten().for_each(|key| *key = other(*key));
        let columns = vec![key_column(&part.keys), Arc::clone(part.rows.column(1))];
        part.rows = RecordBatch::try_new(part.rows.schema(), columns).unwrap();
        part.forms[0] += 1;
    }

    fn commit(&mut self) {
        let keys = self.parts.iter().flat_map(|part| &part.keys).flatten();
        assert!(keys.clone().all(|key| KEYS.contains(key)), "keys are outside of `KEYS`");
        self.parts.retain(|part| part.live().next().is_some());
        let is_deleted = |id: u32, row: u32| {
            self.parts.iter().any(|part| part.id == id && part.deleted.contains(&row))
        };
        let parts: Vec<_> =
            self.parts.iter().map(|it| (it.id, it.rows.clone(), it.forms.clone())).collect();
        let number = self.versions.len() as u64 + 1;
        self.versions.push(version(URI, number, &parts, is_deleted));
    }
}

impl Part {
    fn live(&self) -> impl Iterator<Item = u32> {
        (0..self.keys.len() as u32).filter(|row| !self.deleted.contains(row))
    }

    fn live_rows(&self) -> RecordBatch {
        let rows = UInt32Array::from_iter_values(self.live());
        arrow_select::take::take_record_batch(&self.rows, &rows).unwrap()
    }
}

fn key_column(keys: &[Option<u32>]) -> ArrayRef {
    Arc::new(keys.iter().map(|it| it.map(key)).collect::<StringArray>())
}
