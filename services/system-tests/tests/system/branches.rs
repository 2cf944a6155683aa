//! Tests branches of a table through both tiers. Lance's own reads of the same branch and version are the oracle.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, StringArray};
use client::fetch::{Instant, TableFile, TableVersion};
use client::query::GottenRows;
use futures::StreamExt;
use lake::{
    BranchName, IndexRequest, IngestOptions, Lake, LakeOptions, Metric, TableUri, UriPrefix,
    VectorIndex, build_index, ingest,
};
use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use wire::query::{DescribeTableRequest, GetRequest, IndexFiles, SearchRequest, TakeRequest, Text};
use wire::query::{WarmRequest, search_request::By};
use wire::{Fault, Reason};

use crate::cluster::{Cluster, folder, joined, sample, soon, total};
use crate::store::S3;
use crate::words::{by_vector, read, synsets, words};

/// A word that only rows of [`renamed`] have.
const WORD: &str = "zyzzyva";

/// A table with branches that have diverged from the main one and from each other, though their versions have the same
/// numbers.
struct Branched {
    _folder: tempfile::TempDir,
    uri: PathBuf,
    source: RecordBatch,
    main: Dataset,
    exp: Dataset,
    nested: Dataset,
}

/// Returns the first rows of `source`, with keys that begin with `name` and texts that contain [`WORD`].
fn renamed(source: &RecordBatch, rows: usize, name: &str) -> RecordBatch {
    let part = source.slice(0, rows);
    let keys = StringArray::from_iter_values((0..rows).map(|row| format!("{name}-{row}")));
    let texts = StringArray::from_iter_values((0..rows).map(|row| format!("{WORD} {name} {row}")));
    let schema = part.schema();
    let columns = schema.fields().iter().zip(part.columns()).map(|(field, column)| {
        let column: ArrayRef = match field.name().as_str() {
            "synset" => Arc::new(keys.clone()),
            "gloss" => Arc::new(texts.clone()),
            _ => Arc::clone(column),
        };
        column
    });
    RecordBatch::try_new(part.schema(), columns.collect()).unwrap()
}

async fn append(dataset: &mut Dataset, rows: RecordBatch) {
    let schema = rows.schema();
    let rows = RecordBatchIterator::new([Ok(rows)], schema);
    dataset.append(rows, None).await.unwrap();
}

impl Branched {
    async fn new() -> Self {
        let folder = folder();
        let real = folder.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let uri = real.join("words");
        let lake = Lake::new(LakeOptions::default());
        let options = IngestOptions { key: Some("synset".into()), ..Default::default() };
        let text = uri.to_str().unwrap();
        ingest(&lake, &[sample()], text, &options, |_| {}).await.unwrap();
        let vector =
            VectorIndex { column: "vector".into(), metric: Metric::Cosine, ..Default::default() };
        for request in [
            IndexRequest::Vector(vector),
            IndexRequest::Text { column: "gloss".into(), positions: false },
            IndexRequest::Key { column: "synset".into(), replace: false },
        ] {
            build_index(&lake, text, &request, |_| {}).await.unwrap();
        }
        // The writer of the branches names the table by a symbolic link, so their base paths have one.
        let link = folder.path().canonicalize().unwrap().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut main = Dataset::open(link.join("words").to_str().unwrap()).await.unwrap();
        let source = read(&sample());
        let mut exp = main.create_branch("exp", main.version_id(), None).await.unwrap();
        append(&mut exp, renamed(&source, 100, "exp")).await;
        exp.delete("synset < 'n02'").await.unwrap();
        let mut nested =
            main.create_branch("team/nested", ("exp", exp.version_id()), None).await.unwrap();
        append(&mut nested, renamed(&source, 30, "nested")).await;
        append(&mut main, renamed(&source, 50, "main")).await;
        main.delete("synset > 'n1'").await.unwrap();
        append(&mut main, renamed(&source, 7, "main-late")).await;
        append(&mut exp, renamed(&source, 9, "exp-late")).await;
        Self { _folder: folder, uri, source, main, exp, nested }
    }

    /// Returns the branches with their names. The main branch has an empty name.
    fn branches(&self) -> [(&'static str, &Dataset); 3] {
        [("", &self.main), ("exp", &self.exp), ("team/nested", &self.nested)]
    }

    /// Serves the table. The I/O nodes are configured to serve its URI only, and no URI below it, where the branches
    /// are.
    async fn serve(&self) -> Cluster {
        let uri = self.uri.to_str().unwrap();
        Cluster::start_with(2, &[("words", &self.uri)], |io, _| {
            io.serve = vec![UriPrefix::of_config(uri).unwrap()];
        })
        .await
    }
}

/// Returns all rows as Lance reads them, with their addresses in the last column.
async fn all_rows(dataset: &Dataset) -> RecordBatch {
    dataset.scan().with_row_address().try_into_batch().await.unwrap()
}

fn addresses(rows: &RecordBatch) -> Vec<u64> {
    rows["_rowaddr"].as_primitive::<UInt64Type>().values().to_vec()
}

async fn take(cluster: &Cluster, branch: &str, version: u64, rows: &RecordBatch) -> RecordBatch {
    let schema = rows.schema();
    let columns = schema.fields().iter().map(|field| field.name().clone());
    let request = TakeRequest {
        table: "words".into(),
        branch: branch.into(),
        version,
        row_addrs: addresses(rows),
        columns: columns.filter(|name| name != "_rowaddr").collect(),
        ..Default::default()
    };
    let taken = cluster.client.take(request).await.unwrap().collect().await.unwrap();
    assert_eq!((taken.missing.len(), taken.version), (0, version));
    joined(&taken)
}

async fn describe(cluster: &Cluster, branch: &str, version: u64) -> Result<(u64, u64), Fault> {
    let (table, branch) = ("words".into(), branch.into());
    let request = DescribeTableRequest { table, branch, version };
    let described = cluster.client.describe_version(request).await?.response;
    Ok((described.version, described.rows))
}

async fn search(cluster: &Cluster, branch: &str, by: By) -> Vec<String> {
    let request = SearchRequest {
        table: "words".into(),
        branch: branch.into(),
        by: Some(by),
        k: 200,
        columns: vec!["synset".into()],
        ..Default::default()
    };
    synsets(&cluster.client.search(request).await.unwrap().rows)
}

/// Returns the keys that have a row.
async fn get(cluster: &Cluster, branch: &str, keys: &[String]) -> Vec<String> {
    let (table, branch, columns) = ("words".into(), branch.into(), vec!["synset".into()]);
    let keys = keys.to_vec();
    let request = GetRequest { table, branch, keys, columns, ..Default::default() };
    let answer = cluster.client.get(request).await.unwrap();
    let GottenRows::Arrow(rows) = answer.rows else { panic!("not Arrow") };
    synsets(&rows)
}

async fn from_table(cluster: &Cluster) -> u64 {
    let mut rows = 0;
    for io in &cluster.io {
        rows += total(&io.describe().await, |core| core.table_rows);
    }
    rows
}

async fn warm(cluster: &Cluster, branch: &str) -> (u64, u64) {
    let request =
        WarmRequest { table: "words".into(), branch: branch.into(), ..Default::default() };
    let steps: Vec<_> = cluster.client.warm(request).await.unwrap().collect().await;
    let last = steps.last().unwrap().as_ref().unwrap();
    assert_eq!((last.extents_failed, last.extents_done), (0, last.extents_total));
    (last.extents_total, last.extents_found)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_version_of_each_branch_is_read_as_lance_reads_it() {
    let table = Box::pin(Branched::new()).await;
    let cluster = table.serve().await;
    let mut several = 0;
    for (branch, dataset) in table.branches() {
        for version in dataset.version_refs().await.unwrap() {
            let version = version.version;
            let dataset = dataset.checkout_version(version).await.unwrap();
            let wanted = all_rows(&dataset).await;
            let rows = wanted.num_rows() as u64;
            assert_eq!(describe(&cluster, branch, version).await.unwrap(), (version, rows));
            let taken = take(&cluster, branch, version, &wanted).await;
            for field in wanted.schema().fields() {
                let name = field.name().as_str();
                let (taken, wanted) = (&taken[name], &wanted[name]);
                assert!(taken.as_ref() == wanted.as_ref(), "{name} of {branch:?} {version}");
            }
            several += 1;
        }
        let latest = dataset.version_id();
        let rows = dataset.count_rows(None).await.unwrap() as u64;
        assert_eq!(describe(&cluster, branch, 0).await.unwrap(), (latest, rows));
    }
    assert!(several > 8, "{several} versions");
    assert_eq!(cluster.query.fallback_rows(), 0, "the I/O nodes open branches");
    let versions: BTreeSet<u64> = table.branches().map(|(_, it)| it.version_id()).into();
    assert!(versions.len() < 3, "branches have the same number of another version: {versions:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_and_keys_do_not_mix_branches() {
    let table = Box::pin(Branched::new()).await;
    let cluster = table.serve().await;
    let names = ["exp-0", "exp-99", "exp-late-8", "nested-29", "main-0", "main-late-6"];
    let mut keys: Vec<String> = names.map(String::from).into();
    keys.extend(synsets(&table.source).into_iter().step_by(100));
    let vectors = table.source["vector"].as_fixed_size_list();
    let first = vectors.value(0);
    let first = first.as_primitive::<arrow_array::types::Float32Type>().values().to_vec();
    // Two rounds: keys are looked up in the table until the key index, which all branches share, covers their files.
    // The first look-up begins to build it.
    for round in 0..2 {
        for (branch, dataset) in table.branches() {
            let all = all_rows(dataset).await;
            let live: BTreeSet<String> = synsets(&all).into_iter().collect();
            let wanted: Vec<String> =
                keys.iter().filter(|key| live.contains(*key)).cloned().collect();
            assert!(wanted.len() > 10 && wanted.len() < keys.len() - 2, "{}", wanted.len());
            assert_eq!(get(&cluster, branch, &keys).await, wanted, "{branch:?}, round {round}");

            let text = Text { words: WORD.into(), ..Default::default() };
            let found: BTreeSet<_> =
                search(&cluster, branch, By::Text(text)).await.into_iter().collect();
            let has_word = |key: &&String| names.iter().any(|name| key.starts_with(prefix(name)));
            let with_word: BTreeSet<_> = live.iter().filter(has_word).cloned().collect();
            assert_eq!(found, with_word, "{branch:?}");

            // The nearest rows are all rows with this vector, which are copies of the source's first row.
            let nearest = search(&cluster, branch, by_vector(first.clone())).await;
            let same = all["vector"].as_fixed_size_list();
            let same = (0..all.num_rows()).filter(|&row| {
                same.value(row).as_primitive::<arrow_array::types::Float32Type>().values()[..]
                    == first[..]
            });
            let synset = all["synset"].as_string::<i32>();
            let same: BTreeSet<String> = same.map(|row| synset.value(row).to_owned()).collect();
            let found: BTreeSet<String> = nearest[..same.len()].iter().cloned().collect();
            assert_eq!(found, same, "{branch:?}");
        }
    }
    cluster.stop().await;
}

fn prefix(name: &str) -> &str {
    &name[..=name.rfind('-').unwrap()]
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_branches_share_are_cached_once() {
    let table = Box::pin(Branched::new()).await;
    let cluster = table.serve().await;
    let (of_main, _) = warm(&cluster, "main").await;
    let before = from_table(&cluster).await;
    // The rows that the branch has from the main one are on the drives already.
    let fork = table.main.version_refs().await.unwrap().len() as u64 - 3;
    let shared = table.main.checkout_version(fork).await.unwrap();
    let shared = all_rows(&shared).await;
    let exp = all_rows(&table.exp.checkout_version(fork + 1).await.unwrap()).await;
    let both = shared.num_rows().min(exp.num_rows());
    take(&cluster, "exp", fork + 1, &exp.slice(0, both)).await;
    assert_eq!(from_table(&cluster).await, before);
    let (of_exp, found) = warm(&cluster, "exp").await;
    assert!(found > 0 && found < of_exp, "{found} of {of_exp}; main has {of_main}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_is_followed_until_it_is_deleted() {
    let table = Box::pin(Branched::new()).await;
    let cluster = table.serve().await;
    let Branched { mut main, mut exp, ref source, .. } = table;
    let before = describe(&cluster, "exp", 0).await.unwrap();
    append(&mut exp, renamed(source, 3, "new")).await;
    until(&cluster, "exp", |now| now == Ok((before.0 + 1, before.1 + 3))).await;
    assert_eq!(get(&cluster, "exp", &["new-2".into()]).await, ["new-2"]);
    let of_main = describe(&cluster, "", 0).await.unwrap();
    assert_eq!(of_main.0, main.version_id());

    // The files of a deleted branch remain if another branch is below it. The branch is gone nevertheless.
    let mut below = main.create_branch("exp/below", main.version_id(), None).await.unwrap();
    main.delete_branch("team/nested").await.unwrap();
    main.delete_branch("exp").await.unwrap();
    assert!(table.uri.join("tree/exp/_versions").exists());
    until(&cluster, "exp", |now| now == Err(Reason::VersionNotFound)).await;
    let rows = main.count_rows(None).await.unwrap() as u64;
    assert_eq!(describe(&cluster, "exp/below", 0).await.unwrap().1, rows);

    // A new branch with the name of a deleted one is another branch.
    below.delete_branch("exp/below").await.unwrap();
    main.force_delete_branch("exp").await.unwrap();
    let mut again = main.create_branch("exp", main.version_id(), None).await.unwrap();
    append(&mut again, renamed(source, 4, "again")).await;
    let wanted = (again.version_id(), rows + 4);
    until(&cluster, "exp", |now| now == Ok(wanted)).await;
    let found = get(&cluster, "exp", &["again-3".into(), "exp-0".into()]).await;
    assert_eq!(found, ["again-3"]);
    cluster.stop().await;
}

async fn until(cluster: &Cluster, branch: &str, is: impl Fn(Result<(u64, u64), Reason>) -> bool) {
    let deadline = soon();
    loop {
        let now = describe(cluster, branch, 0).await;
        if is(now.clone().map_err(|fault| fault.reason)) {
            return;
        }
        assert!(Instant::now() < deadline, "{now:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_in_a_bucket_is_read_through_the_io_nodes() {
    let Some(s3) = S3::start(false).await else { return };
    let uri = "s3://lake/words";
    s3.put_folder(&words().await.uri, "/lake/words");
    let mut options = s3.options();
    options.insert("allow_http".into(), "true".into());
    let dataset = DatasetBuilder::from_uri(uri).with_storage_options(options).load();
    let mut main = Box::pin(dataset).await.unwrap();
    // Letters outside ASCII are in the branch's objects as they are.
    let name = "größe";
    let mut exp = main.create_branch(name, main.version_id(), None).await.unwrap();
    append(&mut exp, renamed(&read(&sample()), 20, "exp")).await;
    exp.delete("synset > 'n1'").await.unwrap();
    let cluster = Cluster::start_with(2, &[("words", uri.as_ref())], |io, query| {
        io.serve = vec![UriPrefix::of_config(uri).unwrap()];
        (io.storage, query.storage) = (s3.options(), s3.options());
    })
    .await;
    let wanted = all_rows(&exp).await;
    let version = exp.version_id();
    let rows = wanted.num_rows() as u64;
    assert_eq!(describe(&cluster, name, 0).await.unwrap(), (version, rows));
    let taken = take(&cluster, name, version, &wanted).await;
    for field in wanted.schema().fields().iter().filter(|field| field.name() != "_rowaddr") {
        let name = field.name().as_str();
        assert!(taken[name].as_ref() == wanted[name].as_ref(), "{name}");
    }
    assert_eq!(cluster.query.fallback_rows(), 0);
    let text = By::Text(Text { words: WORD.into(), ..Default::default() });
    assert_eq!(search(&cluster, name, text.clone()).await.len(), 20);
    assert_eq!(search(&cluster, "main", text).await, [""; 0]);

    // The index files of the table and the deletion file of the branch are filled as files of the table.
    let indexes = Some(IndexFiles::default());
    let request =
        WarmRequest { table: "words".into(), branch: name.into(), indexes, ..Default::default() };
    let steps: Vec<_> = cluster.client.warm(request).await.unwrap().collect().await;
    let last = steps.last().unwrap().as_ref().unwrap();
    assert_eq!((last.extents_failed, last.extents_done), (0, last.extents_total));
    let lake = Lake::new(LakeOptions { storage: s3.options(), ..Default::default() });
    let branch = BranchName::of_request(name).unwrap();
    let table = lake.open_branch(&TableUri::parse(uri).unwrap(), branch.as_ref()).await.unwrap();
    let files = table.files(&[]).await.unwrap();
    let paths = files.iter().map(|file| file.path.as_str());
    assert!(paths.clone().any(|path| path.starts_with("_indices/")));
    let path = paths.clone().find(|path| path.starts_with("tree/größe/_deletions/")).unwrap();
    let mut opened = 0;
    for io in &cluster.io {
        let file = TableFile { uri, path, bytes: 0 };
        opened += usize::from(io.client.open_file(file, soon()).await.is_ok());
    }
    assert_eq!(opened, cluster.io.len(), "{path}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_no_branch_are_refused_with_a_sentence() {
    let table = Box::pin(Branched::new()).await;
    let cluster = table.serve().await;
    for (branch, reason, said) in [
        ("absent", Reason::VersionNotFound, "<words> has no branch `absent`"),
        ("team", Reason::VersionNotFound, "<words> has no branch `team`"),
        ("../words", Reason::BadArgument, "`branch` `../words` is no branch's name"),
        ("a//b", Reason::BadArgument, "`a//b`"),
    ] {
        let fault = describe(&cluster, branch, 0).await.unwrap_err();
        assert_eq!(fault.reason, reason, "{fault}");
        assert!(fault.message.contains(said), "{fault}");
        assert!(!fault.message.contains(table.uri.to_str().unwrap()), "{fault}");
    }
    let fault = describe(&cluster, "exp", 99).await.unwrap_err();
    assert!(fault.message.contains("<words> has no version 99"), "{fault}");

    // I/O nodes check the name too, and serve a branch only as a branch of its table.
    let uri = table.uri.to_str().unwrap();
    let inside = format!("{uri}/tree/exp");
    for (uri, branch, reason) in [
        (uri, "..", Reason::BadArgument),
        (uri, "absent", Reason::VersionNotFound),
        (inside.as_str(), "", Reason::TableNotServed),
    ] {
        let version = TableVersion { uri, branch, version: 1, identity: "" };
        let columns = ["synset".to_owned()];
        let fault = cluster.io[0].client.open(version, &columns, soon()).await.unwrap_err();
        assert_eq!(fault.reason, reason, "{fault}");
    }
    cluster.stop().await;
}
