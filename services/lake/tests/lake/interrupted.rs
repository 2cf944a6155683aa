//! Interrupted work leaves the table as it was.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use lake::{
    IndexRequest, IngestMode, IngestOptions, Lake, LakeError, LakeOptions, Stop, VectorIndex,
    build_index, ingest,
};

use crate::fixture::{PLAIN, TablePlace, lake, rows, write};
use crate::ingest::{write_parquet, write_text};

fn stoppable() -> (Lake, Stop) {
    let stop = Stop::default();
    (Lake::new(LakeOptions { stop: stop.clone(), ..Default::default() }), stop)
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// Ingests many small fragments, and interrupts the ingest when a few are written.
async fn interrupt_ingest(place: &TablePlace, uri: &str, mode: IngestMode) {
    let file = place.file("rows.csv");
    let ids: String = (0..200_000).map(|id| format!("{id}\n")).collect();
    write_text(&file, &format!("id\n{ids}"));
    let (lake, stop) = stoppable();
    let options = IngestOptions { mode, max_rows_per_file: 5_000, ..Default::default() };
    let files = [file];
    let done = ingest(&lake, &files, uri, &options, move |progress| {
        if progress.rows > 50_000 {
            stop.pull();
        }
    });
    let error = done.await.unwrap_err();
    assert!(matches!(error, LakeError::Interrupted { .. }), "{error:?}");
    assert_eq!(error.to_string(), "interrupted: nothing was committed");
}

#[tokio::test]
async fn an_interrupted_ingest_removes_its_files() {
    let place = TablePlace::new();
    let deep = place.file("new/deep/table");
    interrupt_ingest(&place, deep.to_str().unwrap(), IngestMode::Create).await;
    assert!(!place.file("new").exists(), "the folders that it made are gone");
    std::fs::create_dir_all(place.uri()).unwrap();
    interrupt_ingest(&place, &place.uri(), IngestMode::Create).await;
    assert!(files_in(Path::new(&place.uri())).is_empty());
    assert!(Path::new(&place.uri()).exists(), "the folder that was there stays");
    let first = place.file("first.csv");
    write_text(&first, "id\n7\n");
    ingest(&lake(), &[first], &place.uri(), &IngestOptions::default(), |_| ()).await.unwrap();
    let before = files_in(Path::new(&place.uri()));
    for mode in [IngestMode::Append, IngestMode::Overwrite] {
        interrupt_ingest(&place, &place.uri(), mode).await;
        assert_eq!(files_in(Path::new(&place.uri())), before, "{mode}");
    }
    assert_eq!(lake().open(&place.uri()).await.unwrap().row_count(), 1);
}

#[tokio::test]
async fn committed_work_stays_committed() {
    let place = TablePlace::new();
    let file = place.file("rows.parquet");
    write_parquet(&file, &[rows(0, 10)]);
    let (lake, stop) = stoppable();
    ingest(&lake, &[file], &place.uri(), &IngestOptions::default(), |_| ()).await.unwrap();
    stop.pull();
    let key = IndexRequest::Key { column: "id".into(), replace: false };
    let error = build_index(&lake, &place.uri(), &key, |_| ()).await.unwrap_err();
    assert!(matches!(error, LakeError::Interrupted { .. }), "{error:?}");
    assert_eq!(lake.open(&place.uri()).await.unwrap().row_count(), 10, "reading goes on");
}

#[tokio::test]
async fn an_interrupted_index_build_removes_its_files() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 3_000)], PLAIN).await;
    let before = files_in(Path::new(&place.uri()));
    let requests = [
        IndexRequest::Vector(VectorIndex { column: "vector".into(), ..Default::default() }),
        IndexRequest::Text { column: "text".into(), positions: false },
        IndexRequest::Key { column: "id".into(), replace: false },
    ];
    for request in &requests {
        let (lake, stop) = stoppable();
        let reported = AtomicBool::new(false);
        let uri = place.uri();
        let built = build_index(&lake, &uri, request, move |_| {
            // Stop at the second report, when work has begun.
            if reported.swap(true, Ordering::Relaxed) {
                stop.pull();
            }
        });
        let error = built.await.unwrap_err();
        assert!(matches!(error, LakeError::Interrupted { .. }), "{request:?}: {error:?}");
        assert_eq!(files_in(Path::new(&place.uri())), before, "{request:?}");
    }
    for request in &requests {
        build_index(&lake(), &place.uri(), request, |_| ()).await.unwrap();
    }
    assert_eq!(lake().open(&place.uri()).await.unwrap().indexes().await.unwrap().len(), 3);
}
