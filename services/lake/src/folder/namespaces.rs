//! Reads the namespaces of a folder, and the tables in them, from the folder's manifest: the table `__manifest`, which
//! Lance's directory namespace writes (its version 2).
//!
//! ```text
//! object_id   object_type   location         metadata
//! a           namespace     null             {"owner":"x"}   the namespace `a` and its properties
//! a$t         table         7c1aa33c_a$t     null            the table `t` of `a`, and its folder
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use futures::TryStreamExt;
use lance::Dataset;
use lance_core::{Error, Result as LanceResult};
use tables::{TableFolder, TableUri};

use crate::error::words::quoted;
use crate::error::{LakeError, Result};
use crate::opener::Opener;

/// The name of the manifest's folder.
pub(crate) const FOLDER: &str = "__manifest";

/// The maximum size of a manifest, in bytes: of its data files, and of its entries once they are read. An entry has
/// some hundred bytes.
const BYTES_MAX: u64 = 64 << 20;

/// The maximum number of entries in a batch of the manifest's scan.
const BATCH_ROWS: usize = 1024;

/// The key of the manifest's metadata that names, as bits of a number, the features that a reader has to know.
const READER_FLAGS: &str = "lance.namespace.manifest.reader_feature_flags";

/// The properties of a namespace.
pub type NamespaceProperties = BTreeMap<String, String>;

/// The entries of a folder's manifest.
#[derive(Debug, PartialEq, Eq)]
pub struct Namespaces {
    /// The version of the manifest, and the time of its commit, which distinguishes a folder that was deleted and
    /// created again.
    pub(crate) version: (u64, u128),
    /// The folder of each table, by the table's id: the parts of its namespace and its name, joined by `$`. Kept for
    /// the next listing, which may find other folders while the manifest is unchanged.
    pub(crate) tables: BTreeMap<String, String>,
    /// The properties of each namespace, by its id: its parts, joined by `$`.
    pub properties: BTreeMap<String, NamespaceProperties>,
    /// Whether the manifest has more tables.
    pub(crate) has_more_tables: bool,
    /// Whether the manifest has more namespaces.
    pub(crate) has_more_namespaces: bool,
}

/// Reads the manifest of `folder`, unless `before` is its current state. Keeps at most `entries_max` tables, and as
/// many namespaces, in the order of their ids. Returns `None` if the manifest has no version yet: Lance is about to
/// make it, or was interrupted.
///
/// Errors: `Unsupported` for a manifest that a newer Lance has written, or a very large one, and those of opening a
/// table.
pub(crate) async fn read(
    opener: &Opener,
    folder: &TableFolder,
    before: Option<&Arc<Namespaces>>,
    entries_max: usize,
) -> Result<Option<Arc<Namespaces>>> {
    let unsupported = |why: String| LakeError::Unsupported {
        uri: format!("{folder}{FOLDER}"),
        why: format!("the manifest of namespaces {why}"),
    };
    let uri: TableUri =
        folder.below(FOLDER).ok_or_else(|| unsupported("has no valid path".into()))?;
    let dataset = match opener.dataset(&uri, None).await {
        Ok((dataset, _)) => dataset,
        Err(LakeError::TableNotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let manifest = dataset.manifest();
    let version = (manifest.version, manifest.timestamp_nanos);
    if let Some(before) = before.filter(|before| before.version == version) {
        return Ok(Some(Arc::clone(before)));
    }
    if let Some(flags) = manifest.table_metadata.get(READER_FLAGS).filter(|flags| *flags != "0") {
        let why = format!("needs a newer Bireme (reader features {})", quoted(flags));
        return Err(unsupported(why));
    }
    let too_large = || unsupported(format!("is larger than the {BYTES_MAX} bytes that are read"));
    let files = manifest.fragments.iter().flat_map(|fragment| &fragment.files);
    let bytes: u64 = files.filter_map(|file| file.file_size_bytes.get()).map(u64::from).sum();
    if bytes > BYTES_MAX {
        return Err(too_large());
    }
    let mut found = Namespaces { version, ..Namespaces::NONE };
    match opener.with_open_timeout(uri.as_str(), found.read(&dataset, entries_max)).await? {
        true => Ok(Some(Arc::new(found))),
        false => Err(too_large()),
    }
}

impl Namespaces {
    /// A manifest without entries.
    pub(crate) const NONE: Self = Self {
        version: (0, 0),
        tables: BTreeMap::new(),
        properties: BTreeMap::new(),
        has_more_tables: false,
        has_more_namespaces: false,
    };

    /// Returns whether the manifest has, or may have, a table of that name.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        let last = self.tables.last_key_value().filter(|_| self.has_more_tables);
        self.tables.contains_key(name) || last.is_some_and(|(last, _)| name > last.as_str())
    }

    /// Returns whether all entries together have at most [`BYTES_MAX`]. A manifest's own sizes may be wrong, and its
    /// files are compressed.
    async fn read(&mut self, dataset: &Dataset, entries_max: usize) -> LanceResult<bool> {
        let mut scanner = dataset.scan();
        scanner.batch_size(BATCH_ROWS).batch_size_bytes(BYTES_MAX);
        scanner.project(&["object_id", "object_type", "location", "metadata"])?;
        let mut batches = scanner.try_into_stream().await?;
        let mut bytes = 0;
        while let Some(batch) = batches.try_next().await? {
            bytes += batch.get_array_memory_size() as u64;
            if bytes > BYTES_MAX {
                return Ok(false);
            }
            self.add(&batch)?;
            self.has_more_tables |= keep_first(&mut self.tables, entries_max);
            self.has_more_namespaces |= keep_first(&mut self.properties, entries_max);
        }
        Ok(true)
    }

    fn add(&mut self, entries: &RecordBatch) -> LanceResult<()> {
        let [ids, kinds, locations, metadata] =
            [text(entries, 0)?, text(entries, 1)?, text(entries, 2)?, text(entries, 3)?];
        for row in 0..entries.num_rows() {
            let at =
                |column: &StringArray| column.is_valid(row).then(|| column.value(row).to_owned());
            match (at(ids), kinds.value(row), at(locations)) {
                (Some(id), "table", Some(location)) => drop(self.tables.insert(id, location)),
                (Some(id), "namespace", _) => {
                    let properties = at(metadata).map(|text| properties(&text)).unwrap_or_default();
                    self.properties.insert(id, properties);
                }
                // Later versions of Lance may have entries of other kinds.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Removes all but the first `max` entries. Returns whether there were more.
fn keep_first<T>(entries: &mut BTreeMap<String, T>, max: usize) -> bool {
    let is_over = entries.len() > max;
    while entries.len() > max {
        entries.pop_last();
    }
    is_over
}

fn text(entries: &RecordBatch, column: usize) -> LanceResult<&StringArray> {
    let texts = entries.column(column).as_string_opt::<i32>();
    texts.ok_or_else(|| {
        let schema = entries.schema();
        let field = schema.field(column);
        let (name, kind) = (field.name(), field.data_type());
        Error::not_supported(format!("the column {name:?} of {FOLDER} is {kind}, not Utf8"))
    })
}

/// Returns the properties that a JSON object has. Values that are no texts are left out.
fn properties(json: &str) -> NamespaceProperties {
    let values: HashMap<String, serde_json::Value> = serde_json::from_str(json).unwrap_or_default();
    let texts = values.into_iter().filter_map(|(key, value)| match value {
        serde_json::Value::String(text) => Some((key, text)),
        _ => None,
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow::datatypes::{DataType, Field, Schema};
    use arrow::record_batch::RecordBatchIterator;
    use lance::dataset::{WriteMode, WriteParams};

    use super::*;
    use crate::{Lake, LakeOptions};

    /// Entries of a manifest: id, type, location and metadata.
    type Entry = (&'static str, &'static str, Option<&'static str>, Option<&'static str>);

    const ENTRIES: [Entry; 6] = [
        ("a", "namespace", None, Some(r#"{"owner":"x","n":1}"#)),
        ("a$b", "namespace", None, Some("no JSON")),
        ("a$b$t", "table", Some("42059180_a$b$t"), None),
        ("a$t", "table", Some("7c1aa33c_a$t"), None),
        ("a$v", "view", Some("v"), None),
        ("t", "table", Some("t.lance"), None),
    ];

    async fn write(folder: &Path, entries: &[Entry]) -> Dataset {
        let fields = ["object_id", "object_type", "location", "metadata"];
        let fields = fields.map(|name| Field::new(name, DataType::Utf8, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let ids: StringArray = entries.iter().map(|it| Some(it.0)).collect();
        let kinds: StringArray = entries.iter().map(|it| Some(it.1)).collect();
        let locations: StringArray = entries.iter().map(|it| it.2).collect();
        let metadata: StringArray = entries.iter().map(|it| it.3).collect();
        let columns: Vec<Arc<dyn Array>> =
            vec![Arc::new(ids), Arc::new(kinds), Arc::new(locations), Arc::new(metadata)];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        let uri = folder.join(FOLDER);
        let params = WriteParams { mode: WriteMode::Overwrite, ..Default::default() };
        let batches = RecordBatchIterator::new([Ok(batch)], schema);
        Dataset::write(batches, uri.to_str().unwrap(), Some(params)).await.unwrap()
    }

    fn texts(entries: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
        entries.iter().map(|(id, text)| (id.as_str(), text.as_str())).collect()
    }

    #[tokio::test]
    async fn a_manifest_is_read_when_it_has_changed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap();
        let folder = TableFolder::of_config(path.to_str().unwrap()).unwrap();
        let lake = Lake::new(LakeOptions::default());
        let of = async |before: Option<&Arc<Namespaces>>, max: usize| {
            read(lake.opener(), &folder, before, max).await
        };
        let found = async |before, max| of(before, max).await.unwrap().unwrap();
        std::fs::create_dir(path.join(FOLDER)).unwrap();
        assert_eq!(of(None, 9).await.unwrap(), None);

        write(&path, &ENTRIES).await;
        let first = found(None, 9).await;
        let tables = [("a$b$t", "42059180_a$b$t"), ("a$t", "7c1aa33c_a$t"), ("t", "t.lance")];
        assert_eq!(texts(&first.tables), tables);
        let ids: Vec<_> = first.properties.keys().map(String::as_str).collect();
        assert_eq!(ids, ["a", "a$b"]);
        assert!(!first.has_more_tables && !first.has_more_namespaces);
        assert_eq!(texts(&first.properties["a"]), [("owner", "x")]);
        assert!(first.properties["a$b"].is_empty());
        assert!(Arc::ptr_eq(&found(Some(&first), 9).await, &first));

        let cut = found(None, 2).await;
        assert_eq!((texts(&cut.tables), cut.has_more_tables), (tables[..2].to_vec(), true));
        assert!(cut.may_have("t") && !cut.has_more_namespaces);

        // Namespaces beyond the maximum do not hide folders whose names come after the last table.
        write(&path, &[ENTRIES[0], ENTRIES[1], ENTRIES[3]]).await;
        let cut = found(Some(&first), 1).await;
        assert_eq!((cut.properties.len(), cut.has_more_namespaces), (1, true));
        assert!(cut.may_have("a$t") && !cut.may_have("t"));

        write(&path, &ENTRIES[5..]).await;
        let second = found(Some(&first), 9).await;
        assert_eq!((texts(&second.tables), second.properties.len()), (vec![tables[2]], 0));
        // A folder that was made anew may have a manifest of the same version.
        std::fs::remove_dir_all(path.join(FOLDER)).unwrap();
        write(&path, &ENTRIES[..1]).await;
        let anew = found(Some(&first), 9).await;
        assert_eq!((anew.tables.len(), anew.properties.len()), (0, 1));

        // Equal texts take little space in a file.
        let long: &'static str = "x".repeat(1 << 20).leak();
        write(&path, &[("a", "namespace", None, Some(long)); 65]).await;
        let error = of(Some(&anew), 9).await.unwrap_err().to_string();
        assert!(error.contains("is larger than the 67108864 bytes"), "{error}");

        let mut written = write(&path, &ENTRIES[..1]).await;
        written.update_metadata([(READER_FLAGS, Some("2"))]).await.unwrap();
        let error = of(Some(&anew), 9).await.unwrap_err().to_string();
        assert!(error.contains("needs a newer Bireme (reader features `2`)"), "{error}");
    }
}
