//! Tests how tables are opened, and their versions, fragments, and metadata that needs no reads.

use std::sync::Arc;

use arrow::array::RecordBatchIterator;
use arrow::datatypes::{DataType, Field, Schema};
use lake::{BranchName, Lake, LakeError, LakeOptions, Table, VersionInfo};
use lance::Dataset;
use lance::dataset::{NewColumnTransform, WriteMode, WriteParams};
use tables::Table as _;
use wire::Reason;

use crate::fixture::{
    KINDS, PLAIN, STABLE_IDS, TablePlace, is_deleted, lake, modern_kinds, rows, search_vector,
    write, write_with_history,
};

#[tokio::test]
async fn a_table_knows_its_metadata() {
    for kind in KINDS {
        let place = TablePlace::new();
        let dataset = write_with_history(&place.uri(), kind).await;
        let table = lake().open(&place.uri()).await.unwrap();
        assert_eq!(table.uri(), place.uri());
        assert_eq!(table.version(), dataset.version_id());
        assert_eq!(table.row_count(), dataset.count_rows(None).await.unwrap() as u64);
        let counts: Vec<_> = table.fragments().iter().map(|it| (it.id, it.physical_rows)).collect();
        assert_eq!(counts, [(0, 300), (1, 200), (2, 100)]);
        for (fragment, ids) in [(0, 0..300), (1, 300..500), (2, 500..600)] {
            let deleted = table.deleted(fragment).await.unwrap();
            let info = table.fragment(fragment).unwrap();
            assert_eq!(deleted.len(), info.deleted_rows as usize);
            for (offset, id) in ids.enumerate() {
                assert_eq!(deleted.contains(offset as u32), is_deleted(id), "{kind:?} {id}");
            }
            assert!(info.first_file_bytes.unwrap() > 100, "{kind:?}");
        }
        assert!(table.fragment(3).is_none());
        let columns: Vec<_> = table.schema().fields().iter().map(|it| it.name().as_str()).collect();
        assert_eq!(columns, ["id", "name", "text", "vector", "added"]);
    }
}

#[tokio::test]
async fn a_version_reads_only_deletion_files_that_no_open_version_has_loaded() {
    for kind in [PLAIN, STABLE_IDS] {
        let place = TablePlace::new();
        let mut main = write_with_history(&place.uri(), kind).await;
        let first = main.version_id();
        let mut exp = main.create_branch("exp", first, None).await.unwrap();
        let files = std::fs::read_dir(place.file("table/_deletions")).unwrap();
        let of_first: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        assert_eq!(of_first.len(), 3, "{kind:?}: each fragment has a file");
        main.delete("id = 5").await.unwrap();
        exp.delete("id = 305").await.unwrap();

        // A cache that keeps nothing.
        let lake = Lake::new(LakeOptions { metadata_cache_bytes: 1, ..Default::default() });
        let before = lake.open_version(&place.uri(), first).await.unwrap();
        for fragment in 0..3 {
            before.deleted(fragment).await.unwrap();
        }
        // To read one of them would fail.
        of_first.iter().for_each(|file| std::fs::remove_file(file).unwrap());
        let main = lake.open(&place.uri()).await.unwrap();
        let name = BranchName::of_request("exp").unwrap();
        let exp = lake.open_branch(main.canonical_uri(), name.as_ref()).await.unwrap();
        for (table, also) in [(&main, 5), (&exp, 305)] {
            for (fragment, ids) in [(0, 0..300), (1, 300..500), (2, 500..600)] {
                let deleted = table.deleted(fragment).await.unwrap();
                for (offset, id) in ids.enumerate() {
                    let expected = is_deleted(id) || id == also;
                    assert_eq!(deleted.contains(offset as u32), expected, "{table:?} {id}");
                }
            }
        }
        drop((before, main, exp));
        let again = lake.open(&place.uri()).await.unwrap();
        assert!(again.deleted(0).await.unwrap().contains(5));
        let unread = again.deleted(1).await;
        assert!(unread.is_err(), "{kind:?}: no open version has it");
    }
}

#[tokio::test]
async fn a_recreated_table_has_deleted_rows_of_its_own() {
    let (place, lake) = (TablePlace::new(), lake());
    // The versions stay open.
    let mut tables = Vec::new();
    for (filter, expected) in [("id < 10", 0..10), ("id >= 90", 90..100)] {
        let mut dataset = write(&place.uri(), &[rows(0, 100)], PLAIN).await;
        dataset.delete(filter).await.unwrap();
        let table = lake.open(&place.uri()).await.unwrap();
        let deleted = table.deleted(0).await.unwrap();
        assert!((0..100).all(|row| deleted.contains(row) == expected.contains(&row)), "{filter}");
        tables.push(table);
        std::fs::remove_dir_all(place.uri()).unwrap();
    }
}

#[tokio::test]
async fn identities_distinguish_data_files() {
    for &kind in modern_kinds() {
        let place = TablePlace::new();
        write_with_history(&place.uri(), kind).await;
        let lake = lake();
        let before = lake.open_version(&place.uri(), 2).await.unwrap();
        let table = lake.open(&place.uri()).await.unwrap();
        let id = table.file_identity(0, "id").unwrap();
        assert_eq!(
            id,
            before.file_identity(0, "id").unwrap(),
            "columns added later leave others alone"
        );
        assert_eq!(
            table.fragment(0).unwrap().first_file_bytes,
            before.fragment(0).unwrap().first_file_bytes
        );
        let bytes_of = |table: &Table| table.fragment(0).unwrap().data_bytes.unwrap();
        assert_eq!(bytes_of(&before), before.fragment(0).unwrap().first_file_bytes.unwrap());
        assert!(bytes_of(&table) > bytes_of(&before), "{kind:?}: the file of an added column");
        assert!(id.contains("int32:") && id.ends_with(".lance"), "{id}");
        assert_ne!(id, table.file_identity(1, "id").unwrap());
        let path = |identity: &str| identity.rsplit(':').next().unwrap().to_owned();
        assert_ne!(path(&id), path(&table.file_identity(0, "added").unwrap()));
        assert!(matches!(table.file_identity(0, "nope"), Err(LakeError::ColumnNotFound { .. })));
        assert!(matches!(
            table.file_identity(9, "id"),
            Err(LakeError::FragmentNotFound { fragment: 9, .. })
        ));
        // Rows written without the column have no data for it.
        let mut dataset = Dataset::open(&place.uri()).await.unwrap();
        let batch = rows(600, 610);
        let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
        dataset.append(reader, None).await.unwrap();
        let table = lake.open(&place.uri()).await.unwrap();
        let absent = table.file_identity(3, "added").unwrap();
        assert!(absent.contains(":absent from "), "{kind:?}: {absent}");
        dataset.drop_columns(&["added"]).await.unwrap();
        let table = table.newer().await.unwrap().unwrap();
        assert!(matches!(table.file_identity(3, "added"), Err(LakeError::ColumnNotFound { .. })));
    }
}

#[tokio::test]
async fn a_column_without_data_has_an_identity_for_each_branch() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 10)], PLAIN).await;
    let mut main = Dataset::open(&place.uri()).await.unwrap();
    let column = Field::new("none", DataType::Int64, true);
    let added = NewColumnTransform::AllNulls(Arc::new(Schema::new(vec![column])));
    main.add_columns(added, None, None).await.unwrap();
    let mut exp = main.create_branch("exp", main.version_id(), None).await.unwrap();
    for (dataset, batch) in [(&mut main, rows(10, 110)), (&mut exp, rows(10, 60))] {
        let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
        dataset.append(reader, None).await.unwrap();
    }
    let lake = lake();
    let uri = lake.canonical(&place.uri()).await.unwrap();
    let name = BranchName::of_request("exp").unwrap();
    let main = lake.open(&place.uri()).await.unwrap();
    let exp = lake.open_branch(&uri, name.as_ref()).await.unwrap();
    let rows_of = |table: &Table| table.fragment(1).unwrap().physical_rows;
    assert_eq!((rows_of(&main), rows_of(&exp)), (100, 50));
    let identity = |table: &Table, fragment| table.file_identity(fragment, "none").unwrap();
    assert_eq!(identity(&main, 0), identity(&exp, 0), "both branches have the fragment");
    assert_ne!(identity(&main, 1), identity(&exp, 1));
}

#[tokio::test]
async fn names_of_branches_may_have_letters_outside_ascii() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 10)], PLAIN).await;
    let mut main = Dataset::open(&place.uri()).await.unwrap();
    main.create_branch("größe", main.version_id(), None).await.unwrap();
    let lake = lake();
    let uri = lake.canonical(&place.uri()).await.unwrap();
    let name = BranchName::of_request("größe").unwrap();
    let branch = lake.open_branch(&uri, name.as_ref()).await.unwrap();
    assert_eq!(branch.row_count(), 10);
    let versions = branch.versions().await.unwrap();
    let infos = branch.version_infos(versions).await.unwrap();
    let manifest = format!("{}/{}", place.uri(), infos[0].manifest_path);
    assert!(std::fs::exists(&manifest).unwrap(), "{manifest}");
    assert!(manifest.contains("/tree/größe/_versions/"), "{manifest}");
}

#[tokio::test]
async fn versions_are_described_as_lance_does_except_for_removed_ones() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 10), rows(10, 20), rows(20, 30)], PLAIN).await;
    let by_lance = Dataset::open(&place.uri()).await.unwrap().versions().await.unwrap();
    assert!(by_lance.len() >= 3, "{by_lance:?}");
    let table = lake().open(&place.uri()).await.unwrap();
    let versions = table.versions().await.unwrap();
    assert_eq!(versions, by_lance.iter().map(|it| it.version).collect::<Vec<_>>());
    let infos = table.version_infos(versions.clone()).await.unwrap();
    for (info, by_lance) in infos.iter().zip(&by_lance) {
        let micros = info.time.duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
        assert_eq!(micros as i64, by_lance.timestamp.timestamp_micros());
        assert_eq!((info.version, &info.metadata), (by_lance.version, &by_lance.metadata));
    }
    std::fs::remove_file(format!("{}/{}", place.uri(), infos[0].manifest_path)).unwrap();
    let backwards = table.version_infos(versions.into_iter().rev().collect()).await.unwrap();
    assert_eq!(backwards, infos[1..].iter().rev().cloned().collect::<Vec<_>>());
}

/// The manifests of a table may be named by two schemes while a writer renames them.
#[tokio::test]
async fn versions_are_described_if_some_manifests_are_named_by_the_other_scheme() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 10), rows(10, 20), rows(20, 30)], PLAIN).await;
    let table = lake().open(&place.uri()).await.unwrap();
    let infos = table.version_infos(vec![3, 2, 1]).await.unwrap();
    let latest = table.version_info().unwrap();
    assert_eq!(latest, infos[0]);
    let path = |info: &VersionInfo| format!("{}/{}", place.uri(), info.manifest_path);
    let renamed = VersionInfo { manifest_path: "_versions/2.manifest".into(), ..infos[1].clone() };
    assert_ne!(renamed, infos[1]);
    std::fs::rename(path(&infos[1]), path(&renamed)).unwrap();
    let table = lake().open(&place.uri()).await.unwrap();
    let versions = table.versions().await.unwrap();
    let found = table.version_infos(versions.into_iter().rev().collect()).await.unwrap();
    assert_eq!(found, [infos[0].clone(), renamed, infos[2].clone()]);
}

#[tokio::test]
async fn versions_are_followed() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 10)], PLAIN).await;
    let lake = lake();
    let first = lake.open(&place.uri()).await.unwrap();
    assert_eq!(first.latest_version().await.unwrap(), 1);
    assert!(first.newer().await.unwrap().is_none());
    let batch = rows(10, 15);
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    Dataset::open(&place.uri()).await.unwrap().append(reader, None).await.unwrap();
    assert_eq!(first.latest_version().await.unwrap(), 2);
    assert_eq!(lake.latest_version(&place.uri()).await.unwrap(), 2);
    let second = first.newer().await.unwrap().unwrap();
    assert_eq!((first.row_count(), second.row_count()), (10, 15));
    assert!(!second.replaces_dropped());
    assert_eq!(lake.open_version(&place.uri(), 1).await.unwrap().row_count(), 10);
    let batch = rows(0, 3);
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    let params = WriteParams { mode: WriteMode::Overwrite, ..Default::default() };
    Dataset::write(reader, &place.uri(), Some(params)).await.unwrap();
    let third = second.newer().await.unwrap().unwrap();
    assert_eq!(third.row_count(), 3);
    assert!(!third.replaces_dropped(), "the table was overwritten, not dropped");
    assert_eq!(
        second.take(&[address::RowAddr::new(1, 4)], &["id".into()]).await.unwrap().num_rows(),
        1
    );
    match lake.open_version(&place.uri(), 99).await {
        Err(LakeError::VersionNotFound { version: 99, latest: 3, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_recreated_table_is_noticed() {
    let place = TablePlace::new();
    write(&place.uri(), &[rows(0, 10)], PLAIN).await;
    let lake = lake();
    let old = lake.open(&place.uri()).await.unwrap();
    std::fs::remove_dir_all(place.uri()).unwrap();
    write(&place.uri(), &[rows(0, 20)], PLAIN).await;
    let new = old.newer().await.unwrap().expect("another table, though version 1 again");
    assert_eq!(new.row_count(), 20);
    assert_eq!(
        new.take(&[address::RowAddr::new(0, 19)], &["id".into()]).await.unwrap().num_rows(),
        1
    );
    assert!(new.replaces_dropped());

    std::fs::remove_dir_all(place.uri()).unwrap();
    write(&place.uri(), &[rows(0, 30), rows(30, 35)], PLAIN).await;
    let third = new.newer().await.unwrap().expect("another table, with more versions");
    assert_eq!((third.version(), third.row_count()), (2, 35));
    assert!(third.replaces_dropped());
    assert!(third.newer().await.unwrap().is_none());
    // A clean-up deletes the manifest of the version that is open.
    let manifest = third.version_info().unwrap().manifest_path;
    let batch = rows(35, 40);
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    Dataset::open(&place.uri()).await.unwrap().append(reader, None).await.unwrap();
    std::fs::remove_file(format!("{}/{manifest}", place.uri())).unwrap();
    let fourth = third.newer().await.unwrap().unwrap();
    assert_eq!(fourth.row_count(), 40);
    assert!(!fourth.replaces_dropped());
}

#[tokio::test]
async fn tables_that_are_not_there() {
    let place = TablePlace::new();
    for uri in [place.uri(), format!("file://{}", place.uri())] {
        match lake().open(&uri).await {
            Err(error @ LakeError::TableNotFound { .. }) => {
                assert!(error.to_string().contains(&place.uri()))
            }
            other => panic!("{other:?}"),
        }
    }
    // A folder that is not a table.
    std::fs::create_dir_all(place.uri()).unwrap();
    assert!(matches!(lake().open(&place.uri()).await, Err(LakeError::TableNotFound { .. })));
    assert!(matches!(
        lake().open_version(&place.uri(), 1).await,
        Err(LakeError::TableNotFound { .. })
    ));
    assert!(matches!(lake().open("").await, Err(LakeError::BadUri { .. })));
    match lake().open("nope://x/y").await {
        Err(error @ LakeError::BadUri { .. }) => {
            let said = error.to_string();
            assert!(said.ends_with("a table is at a path, or at s3://, gs:// or az://"), "{said}");
        }
        other => panic!("{other:?}"),
    }
}

/// Nodes run these futures on multi-threaded runtimes, so the futures must be `Send`.
#[test]
fn futures_can_be_sent() {
    fn sent<T: Send>(_: T) {}
    fn all(lake: &lake::Lake, table: &lake::Table) {
        let (key, columns): (Vec<String>, Vec<String>) = Default::default();
        let keys = arrow::array::new_empty_array(&arrow::datatypes::DataType::Utf8);
        sent(lake.open(""));
        sent(lake.open_version("", 1));
        sent(lake.latest_version(""));
        sent(table.latest_version());
        sent(table.newer());
        sent(table.deleted(0));
        sent(table.indexes());
        sent(table.prewarm());
        sent(table.read_chunk(0, 0..1, &columns));
        sent(table.take(&[], &columns));
        sent(table.missing(&[]));
        sent(search_vector(table, &Default::default()));
        sent(table.search_text(&Default::default()));
        sent(table.search_filter("", 1));
        sent(table.lookup("", &keys));
        sent(table.vector_metric(""));
        sent(lake::ingest(lake, &[], "", &Default::default(), |_| ()));
        sent(lake::build_index(
            lake,
            "",
            &lake::IndexRequest::Text { column: key.concat(), positions: false },
            |_| (),
        ));
    }
    let _: fn(&lake::Lake, &lake::Table) = all;
}

#[tokio::test]
async fn positions_are_those_of_a_scan_after_deletes_and_compaction() {
    use arrow::array::AsArray;
    use arrow::datatypes::Int32Type;
    use lance::dataset::optimize::{CompactionOptions, compact_files};

    let place = TablePlace::new();
    let batches = [rows(0, 50), rows(50, 100), rows(100, 500)];
    let mut dataset = write(&place.uri(), &batches, PLAIN).await;
    // The first two fragments become one with a higher id.
    let options = CompactionOptions { target_rows_per_fragment: 200, ..Default::default() };
    compact_files(&mut dataset, options, None).await.unwrap();
    dataset.delete("id < 3 OR id = 17 OR id = 18 OR id = 120 OR id > 495").await.unwrap();
    let table = lake().open(&place.uri()).await.unwrap();
    assert_eq!(table.fragments().iter().map(|info| info.id).collect::<Vec<_>>(), [2, 3]);
    let scanned = dataset.scan().project(&["id"]).unwrap().try_into_batch().await.unwrap();
    let scanned = scanned["id"].as_primitive::<Int32Type>().values().to_vec();
    let count = scanned.len() as u64;
    assert_eq!(table.row_count(), count);
    for positions in [0..count, 0..1, 15..40, 100..count, count - 1..count, 7..u64::MAX] {
        let end = positions.end.min(count);
        let expected = &scanned[positions.start as usize..end as usize];
        let mut ids = Vec::new();
        for found in table.rows_at(positions.clone()).await.unwrap() {
            let deleted = table.deleted(found.fragment).await.unwrap();
            let columns = ["id".to_owned()];
            let rows =
                table.read_chunk(found.fragment, found.offsets.clone(), &columns).await.unwrap();
            let read = rows["id"].as_primitive::<Int32Type>();
            let live = found.offsets.clone().filter(|&offset| !deleted.contains(offset));
            ids.extend(live.map(|offset| read.value((offset - found.offsets.start) as usize)));
            // A range that is not a whole fragment begins with a requested row, not with deleted ones.
            let whole =
                found.offsets.len() as u32 == table.fragment(found.fragment).unwrap().physical_rows;
            assert!(whole || !deleted.contains(found.offsets.start));
        }
        assert_eq!(ids, expected, "{positions:?}");
    }
    for positions in [5..5, 0..count + 1, count..u64::MAX] {
        let error = table.rows_at(positions).await.unwrap_err();
        assert_eq!(error.reason, Reason::BadArgument);
        assert!(error.to_string().contains(&format!("which has {count} rows")), "{error}");
    }
}
