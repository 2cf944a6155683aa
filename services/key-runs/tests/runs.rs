//! The runs that `write_runs` leaves beside a table that Lance wrote, changed and cleaned up.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
use key_index::{DataFile, KeyIndexError, Run};
use key_runs::{
    KnownRuns, RunFileError, RunFiles, RunWriteError, RunsSummary, VersionSearch, WriteBudget,
    data_files, write_runs, write_runs_beside,
};
use lake::{Lake, LakeError, LakeOptions, Table};
use lance::Dataset;
use lance::dataset::cleanup::CleanupPolicyBuilder;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance::dataset::{WriteMode, WriteParams};
use tempfile::TempDir;

struct Place {
    _folder: TempDir,
    uri: String,
}

impl Place {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("table").to_str().unwrap().to_owned();
        let place = Self { _folder: folder, uri };
        place.append(0..3_000).await;
        place
    }

    async fn append(&self, ids: std::ops::Range<i64>) {
        let other = Int64Array::from_iter_values(ids.clone().map(|id| id / 2));
        let columns: [(&str, ArrayRef); 2] =
            [("id", Arc::new(Int64Array::from_iter_values(ids))), ("other", Arc::new(other))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let exists = std::fs::exists(&self.uri).unwrap();
        let mode = if exists { WriteMode::Append } else { WriteMode::Create };
        let params = WriteParams { mode, ..Default::default() };
        let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
        Dataset::write(reader, self.uri.as_str(), Some(params)).await.unwrap();
    }

    async fn dataset(&self) -> Dataset {
        Dataset::open(&self.uri).await.unwrap()
    }

    async fn compact(&self) {
        compact_files(&mut self.dataset().await, CompactionOptions::default(), None).await.unwrap();
    }

    /// Removes all versions but the latest.
    async fn clean_up(&self) {
        self.retain_latest(1).await;
    }

    /// Removes all versions but the latest `count`.
    async fn retain_latest(&self, count: usize) {
        let dataset = self.dataset().await;
        let policy = CleanupPolicyBuilder::default();
        let policy = policy.retain_n_versions(&dataset, count).await.unwrap();
        dataset.cleanup_with_policy(policy.build()).await.unwrap();
        assert_eq!(dataset.count_versions().await.unwrap(), count as u64);
    }

    fn folder(&self) -> PathBuf {
        Path::new(&self.uri).join("_bireme/keys")
    }

    fn names(&self) -> BTreeSet<String> {
        let Ok(files) = std::fs::read_dir(self.folder()) else { return BTreeSet::new() };
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    async fn table(&self) -> Table {
        lake().open(&self.uri).await.unwrap()
    }

    async fn write_runs(&self) -> RunsSummary {
        write_runs(&lake(), &self.uri, "id", |_| ()).await.unwrap()
    }

    /// Loads all runs.
    async fn runs(&self) -> Vec<Run> {
        let files = RunFiles::of(&self.table().await).await.unwrap();
        let mut runs = Vec::new();
        for file in files.list().await.unwrap() {
            let head = files.open(&file.name).await.unwrap().unwrap().head().await.unwrap();
            runs.push(head.load().await.unwrap());
        }
        runs
    }

    /// Asserts that all runs together, and no fewer, cover the latest version.
    async fn assert_covered(&self) {
        let runs = self.runs().await;
        let mut missing = data_files(&self.table().await, "id").unwrap();
        for run in &runs {
            let before = missing.len();
            missing.retain(|file| !run.files().contains(file));
            assert!(missing.len() < before, "a run covers nothing");
            assert_eq!(run.seed(), runs[0].seed());
        }
        assert_eq!(missing, [] as [DataFile; 0]);
    }
}

fn lake() -> Lake {
    Lake::new(LakeOptions::default())
}

#[tokio::test]
async fn runs_of_unchanged_files_are_used_again() {
    let place = Place::new().await;
    let first = place.write_runs().await;
    assert_eq!((first.rows, first.runs, first.written, first.deleted), (3_000, 1, 1, 0));
    let names = place.names();
    assert_eq!(names.len(), 1);
    let [only] = place.runs().await.try_into().unwrap();
    assert_eq!((only.rows(), only.entries()), (3_000, 3_000));
    assert_eq!(first.bytes, only.to_bytes().len() as u64);
    let again = place.write_runs().await;
    assert_eq!((again.runs, again.written, again.deleted), (1, 0, 0));
    assert_eq!(place.names(), names);

    place.append(3_000..3_010).await;
    let mut dataset = place.dataset().await;
    dataset.delete("id % 7 = 0").await.unwrap();
    let appended = place.write_runs().await;
    assert_eq!((appended.rows, appended.runs, appended.written), (3_010, 2, 1));
    assert_eq!(appended.version, dataset.version_id());
    assert!(place.names().is_superset(&names));
    place.assert_covered().await;
    // Lance's clean-up leaves the files alone.
    let names = place.names();
    place.clean_up().await;
    assert_eq!(place.names(), names);
}

#[tokio::test]
async fn small_runs_are_merged_and_the_merged_ones_deleted() {
    let place = Place::new().await;
    let mut written = 0;
    for append in 0..12 {
        let from = 3_000 + append * 20;
        place.append(from..from + 20).await;
        let summary = place.write_runs().await;
        assert!(summary.runs <= 4, "{summary:?}");
        assert_eq!(place.names().len(), summary.runs);
        place.assert_covered().await;
        written += summary.written;
    }
    assert_eq!(written, 12 + 1 - 1, "one for each append, the first together with the old rows");
}

#[tokio::test]
async fn runs_of_old_versions_are_deleted_once_no_version_has_their_files() {
    let place = Place::new().await;
    place.append(3_000..4_000).await;
    place.write_runs().await;
    let old = place.names();
    place.compact().await;
    let compacted = place.write_runs().await;
    assert_eq!((compacted.runs, compacted.written, compacted.deleted), (1, 1, 0));
    assert!(place.names().is_superset(&old) && place.names().len() > old.len());
    let again = place.write_runs().await;
    assert_eq!((again.written, again.deleted), (0, 0), "old versions have the old files");
    place.clean_up().await;
    let after = place.write_runs().await;
    assert_eq!((after.runs, after.written, after.deleted), (1, 0, old.len()));
    assert!(place.names().is_disjoint(&old));
    place.assert_covered().await;
}

#[tokio::test]
async fn runs_of_another_column_stay_while_it_has_its_files() {
    let place = Place::new().await;
    write_runs(&lake(), &place.uri, "other", |_| ()).await.unwrap();
    let of_other = place.names();
    place.write_runs().await;
    assert!(place.names().is_superset(&of_other) && place.names().len() == 2);
    place.dataset().await.drop_columns(&["other"]).await.unwrap();
    assert_eq!(place.write_runs().await.deleted, 0, "an old version has the column");
    place.clean_up().await;
    assert_eq!(place.write_runs().await.deleted, 1);
    assert!(place.names().is_disjoint(&of_other));
    place.assert_covered().await;
}

/// Returns the warning of a call that writes one run anew after all files were changed by `damage`.
async fn repaired(damage: impl Fn(&mut Vec<u8>)) -> String {
    let place = Place::new().await;
    place.write_runs().await;
    let names = place.names();
    for name in &names {
        let path = place.folder().join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        damage(&mut bytes);
        std::fs::write(path, bytes).unwrap();
    }
    let summary = place.write_runs().await;
    assert_eq!((summary.runs, summary.written, summary.deleted), (1, 1, 1), "{summary:?}");
    assert!(place.names().is_disjoint(&names));
    place.assert_covered().await;
    let [warning] = summary.warnings.try_into().unwrap();
    let path = place.folder().join(names.first().unwrap());
    assert!(warning.starts_with(path.to_str().unwrap()), "{warning}");
    assert!(warning.ends_with("is written again"), "{warning}");
    warning
}

#[tokio::test]
async fn damaged_files_are_replaced() {
    let flipped = |at: usize| move |bytes: &mut Vec<u8>| bytes[at] ^= 4;
    assert!(repaired(flipped(3)).await.contains("the file is none"));
    assert!(repaired(flipped(20)).await.contains("its head has a wrong checksum"));
    assert!(repaired(flipped(9_000)).await.contains("page 1: wrong checksum"));
    assert!(repaired(|bytes| bytes.truncate(20_000)).await.contains("truncated"));
    assert!(repaired(|bytes| bytes.truncate(3_000)).await.contains("truncated"));
    assert!(repaired(Vec::clear).await.contains("truncated"));
    assert!(repaired(|bytes| bytes.push(0)).await.contains("bytes after its end"));
    // A head that claims to be longer than the file.
    assert!(repaired(|bytes| bytes[15] = 0xff).await.contains("truncated"));
}

#[tokio::test]
async fn files_of_an_unknown_format_are_kept() {
    let place = Place::new().await;
    place.write_runs().await;
    let newer = place.names();
    let path = place.folder().join(newer.first().unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 9;
    std::fs::write(&path, bytes).unwrap();
    let others = ["notes.txt", "notes.keys", &"G".repeat(32), &("G".repeat(32) + ".keys")];
    for name in others {
        std::fs::write(place.folder().join(name), "not ours").unwrap();
    }
    let summary = place.write_runs().await;
    assert_eq!((summary.runs, summary.written, summary.deleted), (1, 1, 0));
    assert!(summary.warnings[0].contains("version 9 of its format"), "{:?}", summary.warnings);
    assert!(place.names().is_superset(&newer));
    assert!(others.iter().all(|name| place.names().contains(*name)));
    let files = RunFiles::of(&place.table().await).await.unwrap();
    let refused = files.open(newer.first().unwrap()).await.map(|_| ()).unwrap_err();
    let expected = KeyIndexError::UnknownVersion { found: 9, known: 1 };
    assert!(matches!(refused, RunFileError::Refused(error) if error == expected));
    assert!(files.open("gone.keys").await.unwrap().is_none());
}

#[tokio::test]
async fn of_runs_with_several_seeds_one_seed_stays() {
    let place = Place::new().await;
    place.write_runs().await;
    // The folder is as two commands leave it if they write its first runs at the same time.
    let aside = place.folder().with_file_name("aside");
    std::fs::rename(place.folder(), &aside).unwrap();
    place.append(3_000..3_100).await;
    place.write_runs().await;
    let newer = place.names();
    for file in std::fs::read_dir(&aside).unwrap() {
        let file = file.unwrap();
        std::fs::rename(file.path(), place.folder().join(file.file_name())).unwrap();
    }
    let summary = place.write_runs().await;
    assert_eq!((summary.runs, summary.written, summary.deleted), (1, 0, 1));
    assert_eq!(place.names(), newer);
}

/// Moves files of runs into the table's folder at the first report of `stage`, as another writer does.
fn disturb(place: &Place, aside: &Path, stage: &'static str) -> impl Fn(lake::IndexProgress) {
    let (folder, aside) = (place.folder(), aside.to_owned());
    move |step| {
        let files = std::fs::read_dir(&aside).into_iter().flatten();
        for file in files.filter(|_| step.stage == stage).map(Result::unwrap) {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::rename(file.path(), folder.join(file.file_name())).unwrap();
        }
    }
}

#[tokio::test]
async fn runs_that_another_writer_writes_meanwhile_are_not_written_again() {
    let place = Place::new().await;
    place.write_runs().await;
    let names = place.names();
    let aside = place.folder().with_file_name("aside");
    std::fs::rename(place.folder(), &aside).unwrap();
    let progress = disturb(&place, &aside, "read_keys");
    let summary = write_runs(&lake(), &place.uri, "id", progress).await.unwrap();
    assert_eq!((summary.runs, summary.written, summary.deleted), (1, 0, 0));
    assert_eq!(place.names(), names);
}

#[tokio::test]
async fn nothing_is_deleted_if_another_writer_writes_meanwhile() {
    let place = Place::new().await;
    for from in [3_000, 3_100, 3_200] {
        place.append(from..from + 100).await;
        place.write_runs().await;
    }
    let (before, aside) = (place.names(), place.folder().with_file_name("aside"));
    assert!(before.len() > 1);
    std::fs::create_dir(&aside).unwrap();
    let other = "f".repeat(32) + ".keys";
    std::fs::copy(place.folder().join(before.first().unwrap()), aside.join(&other)).unwrap();
    place.compact().await;
    place.clean_up().await;
    let progress = disturb(&place, &aside, "write_runs");
    let summary = write_runs(&lake(), &place.uri, "id", progress).await.unwrap();
    assert_eq!((summary.runs, summary.written, summary.deleted), (1, 1, 0));
    assert!(place.names().is_superset(&before) && place.names().contains(&other));
    let after = place.write_runs().await;
    assert_eq!((after.written, after.deleted), (0, before.len() + 1));
    place.assert_covered().await;
}

/// A budget of some bytes. Nobody else builds runs.
struct Budget(u64);

impl WriteBudget for Budget {
    type Held = ();

    fn reserve(&self, bytes: u64) -> Option<()> {
        (bytes <= self.0).then_some(())
    }

    fn turn(&self) -> impl Future<Output = impl Send> + Send {
        std::future::ready(())
    }
}

impl Place {
    async fn write_beside(
        &self,
        known: KnownRuns,
        bytes: u64,
    ) -> Result<RunsSummary, RunWriteError> {
        let (table, mut search) = (self.table().await, VersionSearch::default());
        write_runs_beside(&lake(), &table, "id", known, &mut search, &Budget(bytes)).await
    }

    /// Writes like a node that goes on with its search for obsolete runs. Returns the number of deleted files.
    async fn deleted_beside(&self, search: &mut VersionSearch) -> usize {
        let (table, known) = (self.table().await, KnownRuns::default());
        let written =
            write_runs_beside(&lake(), &table, "id", known, search, &Budget(1 << 20)).await;
        written.unwrap().deleted
    }
}

#[tokio::test]
async fn runs_in_memory_are_written_without_building_or_reading_them() {
    let place = Place::new().await;
    let nothing = place.write_beside(KnownRuns::default(), 0).await.unwrap_err();
    assert!(matches!(nothing, RunWriteError::Full { .. }), "{nothing}");
    let elsewhere = Place::new().await;
    let built = write_runs(&lake(), &elsewhere.uri, "id", |_| ()).await.unwrap();
    let foreign = elsewhere.runs().await.into_iter().map(Arc::new).collect();
    let known = || KnownRuns { in_memory: Vec::clone(&foreign), ..Default::default() };
    assert!(built.runs == 1 && place.write_beside(known(), 0).await.is_err(), "of another table");

    place.write_runs().await;
    let in_memory: Vec<Arc<Run>> = place.runs().await.into_iter().map(Arc::new).collect();
    std::fs::remove_dir_all(place.folder()).unwrap();
    let known = || KnownRuns { in_memory: in_memory.clone(), ..Default::default() };
    let written = place.write_beside(known(), 0).await.unwrap();
    assert_eq!((written.runs, written.written, written.bytes > 0), (1, 1, true));
    place.assert_covered().await;
    // Heads are read, and little else is needed for small appends.
    let enough = 200_000;
    let again = place.write_beside(known(), enough).await.unwrap();
    assert_eq!((again.runs, again.written, again.deleted), (1, 0, 0));
    let mut written = 0;
    for append in 0..12 {
        let from = 3_000 + append * 20;
        place.append(from..from + 20).await;
        let summary = place.write_beside(KnownRuns::default(), enough).await.unwrap();
        assert!(summary.runs <= 4, "{summary:?}");
        assert_eq!(place.names().len(), summary.runs);
        place.assert_covered().await;
        written += summary.written;
    }
    assert_eq!(written, 12);
}

#[tokio::test]
async fn a_run_in_memory_of_another_seed_does_not_replace_a_written_one() {
    let place = Place::new().await;
    place.write_runs().await;
    let of_one_seed: Vec<Arc<Run>> = place.runs().await.into_iter().map(Arc::new).collect();
    std::fs::remove_dir_all(place.folder()).unwrap();
    place.write_runs().await;
    let names = place.names();
    place.append(3_000..3_100).await;
    let known = KnownRuns { in_memory: of_one_seed, ..Default::default() };
    let summary = place.write_beside(known, 1 << 20).await.unwrap();
    assert_eq!((summary.runs, summary.written, summary.deleted), (2, 1, 0));
    assert!(place.names().is_superset(&names));
    place.assert_covered().await;
}

#[tokio::test]
async fn files_that_the_caller_knows_to_be_damaged_are_replaced() {
    let place = Place::new().await;
    place.write_runs().await;
    let damaged = place.names().into_iter().collect();
    let known = KnownRuns { damaged, ..Default::default() };
    let summary = place.write_beside(known, 1 << 20).await.unwrap();
    assert_eq!((summary.runs, summary.written, summary.deleted), (1, 1, 1));
    place.assert_covered().await;
    // Nobody knows of this damage until the run has to be merged, with others of its size.
    let damaged = place.names();
    let path = place.folder().join(damaged.first().unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[9_000] ^= 4;
    std::fs::write(path, bytes).unwrap();
    for append in 1..5 {
        assert!(place.names().is_superset(&damaged));
        place.append(append * 3_000..(append + 1) * 3_000).await;
        place.write_beside(KnownRuns::default(), 1 << 22).await.unwrap();
    }
    assert!(place.names().is_disjoint(&damaged));
    place.assert_covered().await;
}

#[tokio::test]
async fn a_search_of_many_versions_for_obsolete_runs_goes_on_with_the_next_write() {
    let place = Place::new().await;
    place.append(3_000..4_000).await;
    place.write_runs().await;
    let old = place.names();
    place.compact().await;
    for id in 4_000..4_024 {
        place.append(id..id + 1).await;
    }
    // The first versions have the old data files, and are more than 20 versions behind the latest.
    let mut search = VersionSearch::default();
    for _ in 0..4 {
        assert_eq!(place.deleted_beside(&mut search).await, 0);
    }
    assert!(place.names().is_superset(&old));

    place.retain_latest(22).await;
    let mut search = VersionSearch::default();
    assert_eq!(place.deleted_beside(&mut search).await, 0, "20 of the versions are searched");
    // A newer version is searched too.
    place.append(4_024..4_025).await;
    assert_eq!(place.deleted_beside(&mut search).await, old.len());
    assert!(place.names().is_disjoint(&old));
    place.assert_covered().await;
}

#[tokio::test]
async fn runs_of_another_table_cover_nothing() {
    let (place, other) = (Place::new().await, Place::new().await);
    other.write_runs().await;
    let foreign = other.names();
    std::fs::create_dir_all(place.folder()).unwrap();
    for name in &foreign {
        std::fs::copy(other.folder().join(name), place.folder().join(name)).unwrap();
    }
    let summary = place.write_runs().await;
    assert_eq!((summary.runs, summary.written, summary.deleted), (1, 1, 1));
    assert!(place.names().is_disjoint(&foreign));
    place.assert_covered().await;
}

#[tokio::test]
async fn columns_that_have_no_keys_are_refused() {
    let place = Place::new().await;
    let missing = write_runs(&lake(), &place.uri, "no", |_| ()).await.unwrap_err();
    assert!(matches!(missing, LakeError::ColumnNotFound { .. }), "{missing}");
    let column = arrow_array::Float64Array::from(vec![1.5]);
    let batch = RecordBatch::try_from_iter([("x", Arc::new(column) as ArrayRef)]).unwrap();
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    let uri = format!("{}-x", place.uri);
    Dataset::write(reader, uri.as_str(), None).await.unwrap();
    let refused = write_runs(&lake(), &uri, "x", |_| ()).await.unwrap_err();
    assert!(matches!(refused, LakeError::UnsupportedType { .. }), "{refused}");
}
