//! The tables of all runs. Their rows do not depend on the seed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use address::RowAddr;
use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};
use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, Int64Array, LargeBinaryArray,
    RecordBatch, StringArray, UInt32Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::interleave::interleave_record_batch;
use arrow_select::take::take_record_batch;
use tables::{DeletedRows, FragmentInfo};

use crate::callers::granted;
use crate::dice::Dice;
use crate::keyed::keyed;

/// The dimension of vectors, which take 1 KiB each.
pub const DIMENSION: usize = 256;

/// All tables, each with its versions. Versions are numbered from 1.
pub static TABLES: LazyLock<Vec<Vec<Version>>> = LazyLock::new(|| {
    [vectors(), documents(), scanned(), keyed()].into_iter().chain(granted()).collect()
});

/// One version of a table.
pub struct Version {
    pub uri: &'static str,
    pub version: u64,
    pub schema: SchemaRef,
    pub fragments: Vec<Fragment>,
    pub infos: Vec<FragmentInfo>,
}

/// One fragment of a version.
pub struct Fragment {
    /// All of its rows, including deleted ones.
    rows: RecordBatch,
    /// For each column, a number that its values and the name of its file depend on. Rewriting a column changes its
    /// number.
    forms: Vec<u32>,
    deleted: Arc<DeletedRows>,
}

impl Version {
    /// Returns the version of the table with this URI.
    pub fn find(uri: &str, version: u64) -> Option<&'static Self> {
        let of_uri = TABLES.iter().find(|versions| versions[0].uri == uri)?;
        of_uri.iter().find(|it| it.version == version)
    }

    /// Returns the number of the latest version of the table with this URI.
    pub fn latest(uri: &str) -> Option<u64> {
        let of_uri = TABLES.iter().find(|versions| versions[0].uri == uri)?;
        of_uri.iter().map(|it| it.version).max()
    }

    /// Returns the fragment with this id.
    pub fn fragment(&self, id: u32) -> Option<&Fragment> {
        let at = self.infos.iter().position(|info| info.id == id)?;
        Some(&self.fragments[at])
    }

    /// Returns whether the version has a row at this address.
    pub fn has(&self, addr: RowAddr) -> bool {
        self.fragment(addr.fragment()).is_some_and(|fragment| {
            (addr.offset() as usize) < fragment.rows.num_rows()
                && !fragment.deleted.contains(addr.offset())
        })
    }

    /// Returns the rows at `addrs`, all of which must exist.
    pub fn rows(&self, addrs: &[RowAddr], columns: &[String]) -> RecordBatch {
        let columns: Vec<_> = columns.iter().map(|it| self.schema.index_of(it).unwrap()).collect();
        let batches: Vec<_> =
            self.fragments.iter().map(|it| it.rows.project(&columns).unwrap()).collect();
        let batches: Vec<_> = batches.iter().collect();
        let place = |addr: &RowAddr| {
            let fragment = self.infos.iter().position(|info| info.id == addr.fragment()).unwrap();
            (fragment, addr.offset() as usize)
        };
        match addrs {
            [] => batches[0].slice(0, 0),
            addrs => {
                let places: Vec<_> = addrs.iter().map(place).collect();
                interleave_record_batch(&batches, &places).unwrap()
            }
        }
    }

    /// Returns the number of the version's extents. The table must have two packs, as `vectors` and `documents` do. A
    /// chunk has 64 rows.
    pub fn extents(&self) -> u64 {
        2 * self.infos.iter().map(|info| u64::from(info.physical_rows.div_ceil(64))).sum::<u64>()
    }

    /// Returns the vector of a row, which must exist.
    pub fn vector(&self, addr: RowAddr) -> Vec<f32> {
        let rows = self.rows(&[addr], &["vector".into()]);
        let lists = rows.column(0).as_any().downcast_ref::<FixedSizeListArray>().unwrap();
        let values = lists.value(0);
        values.as_any().downcast_ref::<Float32Array>().unwrap().values().to_vec()
    }
}

impl Fragment {
    /// Returns a range of the fragment's physical rows.
    pub fn read(&self, rows: std::ops::Range<u32>, columns: &[String]) -> RecordBatch {
        let columns: Vec<_> =
            columns.iter().map(|it| self.rows.schema().index_of(it).unwrap()).collect();
        let rows = UInt32Array::from_iter_values(rows);
        // Copy instead of slicing, because arrays that are read from a store have no offset.
        take_record_batch(&self.rows.project(&columns).unwrap(), &rows).unwrap()
    }

    /// Returns the name of the file of a column.
    pub fn identity(&self, id: u32, column: usize) -> String {
        format!("{column}:{id}-{}.data", self.forms[column])
    }

    /// Returns the fragment's rows that are deleted in this version.
    pub fn deleted(&self) -> &Arc<DeletedRows> {
        &self.deleted
    }
}

/// Returns the versions of a table of vectors with an id and a name. Version 2 deletes rows; version 3 deletes others
/// instead, rewrites the names of one fragment and adds a fragment.
fn vectors() -> Vec<Version> {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let vector = DataType::FixedSizeList(item, DIMENSION as i32);
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("vector", vector, true),
    ]));
    let make = |id: u32, rows: usize, name_form: u32| {
        let dice = &mut Dice::new(id.into(), &format!("vectors {name_form}"));
        let names = (0..rows).map(|_| text(dice, 60));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(ids(id, rows)),
            Arc::new(names.collect::<StringArray>()),
            Arc::new(vectors_of(id, rows)),
        ];
        (id, RecordBatch::try_new(Arc::clone(&schema), columns).unwrap(), vec![0, name_form, 0])
    };
    let deleted = |of: u32| move |id: u32, row: u32| (row + 7 * id).is_multiple_of(of);
    vec![
        version("s3://sim/vectors", 1, &[make(0, 900, 0), make(1, 700, 0)], |_, _| false),
        version("s3://sim/vectors", 2, &[make(0, 900, 0), make(1, 700, 0)], deleted(11)),
        version(
            "s3://sim/vectors",
            3,
            &[make(0, 900, 1), make(1, 700, 0), make(5, 500, 0)],
            deleted(5),
        ),
    ]
}

/// Returns the only version of a table that is larger than the drives of most nodes, so that its fills evict rows of
/// other tables that are read often.
fn scanned() -> Vec<Version> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("page", DataType::LargeBinary, true),
    ]));
    let make = |id: u32, rows: usize| {
        let dice = &mut Dice::new(id.into(), "scanned");
        let page =
            |dice: &mut Dice| (0..192).flat_map(|_| dice.any().to_le_bytes()).collect::<Vec<_>>();
        let pages: LargeBinaryArray = (0..rows).map(|_| Some(page(dice))).collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(ids(id, rows)), Arc::new(pages)];
        (id, RecordBatch::try_new(Arc::clone(&schema), columns).unwrap(), vec![0; 2])
    };
    vec![version("s3://sim/scanned", 1, &[make(6, 4000), make(7, 4000)], |_, _| false)]
}

/// Returns the only version of a table of texts and blobs of many lengths, some of them null.
fn documents() -> Vec<Version> {
    let mark = HashMap::from([("lance-encoding:blob".to_owned(), "true".to_owned())]);
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("text", DataType::Utf8, true),
        Field::new("flag", DataType::Boolean, true),
        Field::new("blob", DataType::LargeBinary, true).with_metadata(mark),
    ]));
    let make = |id: u32, rows: usize| {
        let dice = &mut Dice::new(id.into(), "documents");
        let texts = (0..rows).map(|_| text(dice, 9000));
        let texts: StringArray = texts.collect();
        let flag = |dice: &mut Dice| [None, Some(false), Some(true)][dice.below(3)];
        let flags: BooleanArray = (0..rows).map(|_| flag(dice)).collect();
        let blobs = (0..rows).map(|_| text(dice, 20_000));
        let blobs: LargeBinaryArray = blobs.map(|it| it.map(String::into_bytes)).collect();
        let columns: Vec<ArrayRef> =
            vec![Arc::new(ids(id, rows)), Arc::new(texts), Arc::new(flags), Arc::new(blobs)];
        (id, RecordBatch::try_new(Arc::clone(&schema), columns).unwrap(), vec![0; 4])
    };
    let all = [make(2, 130), make(3, 90)];
    vec![version("s3://sim/documents", 1, &all, |_, row| row % 13 == 5)]
}

/// Returns a version of fragments, each with its id, its rows and the forms of its columns.
pub fn version(
    uri: &'static str,
    version: u64,
    fragments: &[(u32, RecordBatch, Vec<u32>)],
    is_deleted: impl Fn(u32, u32) -> bool,
) -> Version {
    let fragment = |(id, rows, forms): &(u32, RecordBatch, Vec<u32>)| {
        let all = 0..rows.num_rows() as u32;
        let deleted: DeletedRows = all.filter(|&row| is_deleted(*id, row)).collect();
        Fragment { rows: rows.clone(), forms: forms.clone(), deleted: Arc::new(deleted) }
    };
    let info = |(id, rows, _): &(u32, RecordBatch, Vec<u32>)| FragmentInfo {
        id: *id,
        physical_rows: rows.num_rows() as u32,
        deleted_rows: (0..rows.num_rows() as u32).filter(|&row| is_deleted(*id, row)).count()
            as u32,
        // The bytes per row are chosen so that a chunk has 64 rows.
        first_file_bytes: Some(rows.num_rows() as u64 * 65_536),
        data_bytes: Some(rows.num_rows() as u64 * 65_536),
    };
    Version {
        uri,
        version,
        schema: fragments[0].1.schema(),
        fragments: fragments.iter().map(fragment).collect(),
        infos: fragments.iter().map(info).collect(),
    }
}

fn ids(fragment: u32, rows: usize) -> Int64Array {
    Int64Array::from_iter_values((0..rows as i64).map(|row| i64::from(fragment) << 32 | row))
}

fn vectors_of(fragment: u32, rows: usize) -> FixedSizeListArray {
    let dice = &mut Dice::new(fragment.into(), "vector");
    let mut lists = FixedSizeListBuilder::new(Float32Builder::new(), DIMENSION as i32);
    for _ in 0..rows {
        (0..DIMENSION).for_each(|_| lists.values().append_value(dice.unit()));
        lists.append(true);
    }
    lists.finish()
}

/// Returns a text of up to `bytes_max` bytes, mostly short, or none.
pub fn text(dice: &mut Dice, bytes_max: usize) -> Option<String> {
    let len = match dice.below(10) {
        0 => return None,
        1 => 0,
        2 => dice.below(bytes_max),
        _ => dice.below(bytes_max / 10),
    };
    Some((0..len).map(|_| char::from(b'a' + dice.below(26) as u8)).collect())
}

/// Returns addresses at which no table has a row.
pub fn nowhere() -> BTreeSet<u64> {
    [RowAddr::new(0, 900), RowAddr::new(4, 0), RowAddr::new(u32::MAX, u32::MAX)]
        .map(RowAddr::to_u64)
        .into()
}
