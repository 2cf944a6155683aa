//! Tests reads and searches of WordNet through both tiers. Answers are compared with the source file, brute-force
//! search and Lance.
//!
//! `BIREME_WORDNET` names a larger file with the same columns, which is used instead of the shipped sample.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int16Type, UInt64Type};
use arrow_array::{
    Array, FixedSizeListArray, Float32Array, RecordBatch, RecordBatchIterator, RecordBatchReader,
};
use futures::StreamExt;
use lake::{
    IndexRequest, IngestOptions, Lake, LakeOptions, Metric, VectorIndex, VectorQuery, build_index,
    ingest,
};
use lance::Dataset;
use lance::index::DatasetIndexExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio::sync::OnceCell;
use wire::Reason;
use wire::query::{
    GetRequest, SearchRequest, TakeRequest, Text, TextBoolean, TextMatch, TextPhrase, TextQuery,
    Vector, WarmRequest, search_request::By, text_query::Kind as TextKind,
};

use crate::cluster::{Cluster, Io, folder, joined, sample, total};

/// The table of WordNet, built once for all tests.
pub struct Words {
    _folder: tempfile::TempDir,
    pub uri: PathBuf,
    source: RecordBatch,
}

pub async fn words() -> &'static Words {
    static WORDS: OnceCell<Words> = OnceCell::const_new();
    WORDS.get_or_init(|| Box::pin(build())).await
}

async fn build() -> Words {
    let file = std::env::var_os("BIREME_WORDNET").filter(|f| !f.is_empty());
    let file = file.map_or_else(sample, PathBuf::from);
    println!("WordNet from {}", file.display());
    let folder = folder();
    let uri = folder.path().join("words");
    let source = read(&file);
    let lake = Lake::new(LakeOptions::default());
    let text = uri.to_str().unwrap();
    let options = IngestOptions {
        key: Some("synset".into()),
        max_rows_per_file: 50_000,
        ..Default::default()
    };
    let summary = ingest(&lake, &[file], text, &options, |_| {}).await.unwrap();
    assert_eq!(summary.rows, source.num_rows() as u64);
    let vector =
        VectorIndex { column: "vector".into(), metric: Metric::Cosine, ..Default::default() };
    for request in [
        IndexRequest::Vector(vector),
        IndexRequest::Text { column: "gloss".into(), positions: true },
        IndexRequest::Scalar { column: "domain".into() },
        IndexRequest::Key { column: "synset".into(), replace: false },
    ] {
        build_index(&lake, text, &request, |_| {}).await.unwrap();
    }
    Words { _folder: folder, uri, source }
}

pub fn read(file: &Path) -> RecordBatch {
    let file = std::fs::File::open(file).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let schema = reader.schema();
    let batches: Vec<_> = reader.collect::<Result<_, _>>().unwrap();
    arrow_select::concat::concat_batches(&schema, &batches).unwrap()
}

impl Words {
    pub async fn serve(&self, io_nodes: usize) -> Cluster {
        Cluster::start(io_nodes, &[("words", &self.uri)]).await
    }

    pub fn keys(&self) -> Vec<String> {
        let keys = self.source["synset"].as_string::<i32>();
        keys.iter().map(|key| key.unwrap().to_owned()).collect()
    }

    pub fn vector(&self, row: usize) -> Vec<f32> {
        let vectors = self.source["vector"].as_fixed_size_list();
        vectors.value(row).as_primitive::<Float32Type>().values().to_vec()
    }

    /// Returns the `k` nearest rows by cosine distance, found by brute force.
    pub fn nearest(&self, query: &[f32], k: usize) -> Vec<usize> {
        let vectors = self.source["vector"].as_fixed_size_list();
        let values = vectors.values().as_primitive::<Float32Type>().values();
        let norm = |v: &[f32]| v.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
        let mut scored: Vec<(f64, usize)> = values
            .chunks(query.len())
            .enumerate()
            .map(|(row, v)| {
                let dot: f64 = v.iter().zip(query).map(|(a, b)| f64::from(a * b)).sum();
                (1.0 - dot / (norm(v) * norm(query)), row)
            })
            .collect();
        scored.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        scored.into_iter().take(k).map(|(_, row)| row).collect()
    }
}

pub async fn warm(cluster: &Cluster) {
    let request = WarmRequest { table: "words".into(), ..Default::default() };
    let steps: Vec<_> = cluster.client.warm(request).await.unwrap().collect().await;
    let last = steps.last().unwrap().as_ref().unwrap();
    assert_eq!((last.extents_failed, last.extents_done), (0, last.extents_total));
}

pub fn search(by: By) -> SearchRequest {
    SearchRequest { table: "words".into(), by: Some(by), k: 10, ..Default::default() }
}

pub fn by_vector(values: Vec<f32>) -> By {
    By::Vector(Vector { values })
}

pub fn synsets(rows: &RecordBatch) -> Vec<String> {
    rows["synset"].as_string::<i32>().iter().map(|key| key.unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_through_both_tiers_equals_the_source() {
    let words = words().await;
    let cluster = words.serve(2).await;
    let dataset = Dataset::open(words.uri.to_str().unwrap()).await.unwrap();
    let addrs: Vec<u64> = dataset
        .get_fragments()
        .iter()
        .flat_map(|f| {
            let rows = f.metadata().physical_rows.unwrap() as u64;
            (0..rows).map(|offset| (f.id() as u64) << 32 | offset)
        })
        .collect();
    let columns: Vec<_> = words.source.schema().fields().iter().map(|f| f.name().clone()).collect();
    // Read half of the rows cold, from the table, and then all rows from the drives.
    for part in [&addrs[..addrs.len() / 2], &addrs[..]] {
        let request = TakeRequest {
            table: "words".into(),
            row_addrs: part.to_vec(),
            columns: columns.clone(),
            ..Default::default()
        };
        let taken = cluster.client.take(request).await.unwrap().collect().await.unwrap();
        assert!(taken.missing.is_empty());
        let rows = joined(&taken);
        let source = words.source.slice(0, part.len());
        for column in &columns {
            // Cast, because Parquet has another name for a list's items.
            let (got, wanted) = (&rows[column.as_str()], &source[column.as_str()]);
            let wanted = arrow_cast::cast(wanted, got.data_type()).unwrap();
            assert!(*got == wanted, "{column}");
        }
        warm(&cluster).await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vector_search_with_refinement_finds_what_brute_force_finds() {
    let words = words().await;
    let cluster = words.serve(2).await;
    warm(&cluster).await;
    let keys = words.keys();
    let (mut found, mut wanted) = (0, 0);
    for row in (0..keys.len()).step_by(keys.len() / 40) {
        let query = words.vector(row);
        // Search more partitions than by default, because different builds of the index partition the rows differently.
        // The remaining misses are caused by quantization.
        let asked = SearchRequest { nprobes: 60, ..search(by_vector(query.clone())) };
        let answer = cluster.client.search(asked).await.unwrap();
        let nearest: Vec<_> =
            words.nearest(&query, 10).into_iter().map(|at| keys[at].clone()).collect();
        let got = synsets(&answer.rows);
        assert_eq!(got.len(), 10);
        let distances = answer.rows["_distance"].as_primitive::<Float32Type>();
        assert!(distances.values().is_sorted(), "nearest first");
        found += nearest.iter().filter(|key| got.contains(key)).count();
        wanted += nearest.len();
    }
    let recall = found as f64 / wanted as f64;
    println!("recall@10 {recall}");
    assert!(recall >= 0.95, "recall@10 {recall}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_by_key_equals_a_search_by_its_vector() {
    let words = words().await;
    let cluster = words.serve(1).await;
    let keys = words.keys();
    for row in [0, keys.len() / 2, keys.len() - 1] {
        let like = cluster.client.search(search(By::Like(keys[row].clone()))).await.unwrap();
        let vector = cluster.client.search(search(by_vector(words.vector(row)))).await.unwrap();
        assert_eq!(like.rows, vector.rows);
        assert!(synsets(&like.rows).contains(&keys[row]));
    }
    let absent = cluster.client.search(search(By::Like("n99999999".into()))).await.unwrap_err();
    assert_eq!(absent.reason, Reason::KeyNotFound);
    cluster.stop().await;
}

/// Returns the words of a gloss, in lower case.
fn words_of(gloss: &str) -> Vec<String> {
    let words = gloss.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Returns whether the index takes `word` for a form of `wanted`, which is a stem.
fn is_form(word: &str, wanted: &str) -> bool {
    word == wanted || word.strip_suffix('s') == Some(wanted)
}

fn has_word(gloss: &str, wanted: &str) -> bool {
    words_of(gloss).iter().any(|word| is_form(word, wanted))
}

fn has_phrase(gloss: &str, wanted: &[&str]) -> bool {
    let words = words_of(gloss);
    let mut places = words.windows(wanted.len());
    places.any(|place| place.iter().zip(wanted).all(|(word, wanted)| is_form(word, wanted)))
}

fn matching(words: &str) -> TextMatch {
    TextMatch { words: words.into(), column: "gloss".into(), ..Default::default() }
}

fn phrase(words: &str) -> TextKind {
    TextKind::Phrase(TextPhrase { words: words.into(), ..Default::default() })
}

fn of(kind: TextKind) -> TextQuery {
    TextQuery { kind: Some(kind) }
}

#[tokio::test(flavor = "multi_thread")]
async fn text_queries_find_the_glosses_that_they_describe() {
    let words = words().await;
    let cluster = words.serve(2).await;
    let glosses = words.source["gloss"].as_string::<i32>();
    let keys = words.keys();
    let find = async |kind: TextKind| {
        let by = By::Text(Text { query: Some(of(kind)), ..Default::default() });
        let request = SearchRequest { k: 10_000, explain: true, ..search(by) };
        let answer = cluster.client.search(request).await.unwrap();
        let stage = answer.stages.iter().find(|stage| stage.name == "search").unwrap();
        assert!(stage.detail.contains("from the full-text index"), "{}", stage.detail);
        let mut found = synsets(&answer.rows);
        found.sort();
        found
    };
    let of_glosses = |has: &dyn Fn(&str) -> bool| {
        let all = keys.iter().zip(glosses).filter(|(_, gloss)| gloss.is_some_and(has));
        let mut keys: Vec<_> = all.map(|(key, _)| key.clone()).collect();
        keys.sort();
        assert!(!keys.is_empty());
        keys
    };
    for text in ["north american", "strong wind", "hot water"] {
        let wanted: Vec<_> = text.split(' ').collect();
        let expected = of_glosses(&|gloss| has_phrase(gloss, &wanted));
        assert_eq!(find(phrase(text)).await, expected, "{text}");
    }
    let boolean = TextBoolean {
        must: vec![
            of(TextKind::Match(TextMatch { all_words: true, ..matching("america north") })),
            of(TextKind::Boolean(TextBoolean {
                should: vec![of(phrase("north america")), of(TextKind::Match(matching("small")))],
                ..Default::default()
            })),
        ],
        should: vec![of(TextKind::Match(matching("sea")))],
        must_not: vec![of(TextKind::Match(matching("brown river")))],
    };
    let expected = of_glosses(&|gloss| {
        let has = |word| has_word(gloss, word);
        has("north")
            && has("america")
            && (has_phrase(gloss, &["north", "america"]) || has("small"))
            && !has("brown")
            && !has("river")
    });
    assert_eq!(find(TextKind::Boolean(boolean)).await, expected);
    // With fuzziness, a misspelt word finds the rows that have the intended word.
    assert_eq!(find(TextKind::Match(matching("whalle"))).await, [""; 0]);
    let expected = of_glosses(&|gloss| has_word(gloss, "whale"));
    let one_edit = TextMatch { fuzziness: 1, ..matching("whalle") };
    let auto = TextMatch { fuzziness_auto: true, ..matching("WHALLE") };
    for fuzzy in [one_edit, auto] {
        let found = find(TextKind::Match(fuzzy.clone())).await;
        assert!(expected.iter().all(|key| found.contains(key)), "{fuzzy:?}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_and_filtered_searches_return_what_lance_returns() {
    let words = words().await;
    let cluster = words.serve(1).await;
    let dataset = Dataset::open(words.uri.to_str().unwrap()).await.unwrap();
    assert!(!dataset.load_indices().await.unwrap().is_empty());
    for (text, filter) in [("hot soup", ""), ("large animal of africa", "domain = 5"), ("zzzz", "")]
    {
        let mut request = search(By::Text(Text { words: text.into(), ..Default::default() }));
        request.filter = filter.into();
        let answer = cluster.client.search(request).await.unwrap();
        let query = lance_index::scalar::FullTextSearchQuery::new(text.into());
        let mut scan = dataset.scan();
        scan.full_text_search(query).unwrap().limit(Some(10), None).unwrap();
        if !filter.is_empty() {
            scan.filter(filter).unwrap().prefilter(true);
        }
        let expected = scan.try_into_batch().await.unwrap();
        let scores = |rows: &RecordBatch| {
            let by_key = synsets(rows).into_iter();
            let scores = rows["_score"].as_primitive::<Float32Type>().values().to_vec();
            by_key.zip(scores).collect::<HashMap<_, _>>()
        };
        // Several rows may share the lowest of these scores, and any of them is correct, so compare only the scores.
        let (got, wanted) = (scores(&answer.rows), scores(&expected));
        assert_eq!(got.len(), wanted.len(), "{text}");
        let sorted = |scores: HashMap<String, f32>| {
            let mut scores: Vec<_> = scores.into_values().collect();
            scores.sort_by(f32::total_cmp);
            scores
        };
        assert_eq!(sorted(got), sorted(wanted), "{text}");
    }
    let request = SearchRequest {
        table: "words".into(),
        filter: "domain = 43".into(),
        k: 10_000,
        columns: vec!["synset".into(), "domain".into()],
        ..Default::default()
    };
    let answer = cluster.client.search(request).await.unwrap();
    let domains = words.source["domain"].as_primitive::<Int16Type>();
    let expected: Vec<_> =
        words.keys().into_iter().zip(domains.values()).filter(|(_, d)| **d == 43).collect();
    assert_eq!(answer.rows.num_rows(), expected.len());
    let got = synsets(&answer.rows);
    assert!(expected.iter().all(|(key, _)| got.contains(key)));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filtered_vector_search_ranks_only_matching_rows() {
    let words = words().await;
    let cluster = words.serve(1).await;
    let mut request = search(by_vector(words.vector(3)));
    request.filter = "domain = 13".into();
    let answer = cluster.client.search(request).await.unwrap();
    assert_eq!(answer.rows.num_rows(), 10);
    let domains = answer.rows["domain"].as_primitive::<Int16Type>();
    assert!(domains.values().iter().all(|&domain| domain == 13));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn get_finds_every_key_and_no_other() {
    let words = words().await;
    let cluster = words.serve(2).await;
    warm(&cluster).await;
    let keys = words.keys();
    for part in keys.chunks(5_000) {
        let mut asked = part.to_vec();
        asked.insert(1, "n99999999".into());
        let request = GetRequest {
            table: "words".into(),
            keys: asked,
            columns: vec!["synset".into(), "gloss".into()],
            ..Default::default()
        };
        let answer = cluster.client.get(request).await.unwrap();
        assert_eq!(answer.not_found, [1]);
        let client::query::GottenRows::Arrow(rows) = answer.rows else { panic!("not Arrow") };
        assert_eq!(synsets(&rows), part);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_says_where_the_time_went() {
    let words = words().await;
    let cluster = words.serve(1).await;
    let mut request = search(by_vector(words.vector(9)));
    request.explain = true;
    let answer = cluster.client.search(request).await.unwrap();
    let names: Vec<_> = answer.stages.iter().map(|stage| stage.name.as_str()).collect();
    for stage in ["search", "rerank", "locate", "read", "rank", "fetch", "assemble"] {
        assert!(names.contains(&stage), "{stage} is not in {names:?}");
    }
    let addrs = answer.rows["_rowaddr"].as_primitive::<UInt64Type>();
    assert_eq!(addrs.values().len(), 10);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_the_index_does_not_cover_are_scored_on_the_io_nodes() {
    const FRESH: usize = 50;
    let folder = folder();
    let uri = folder.path().join("appended");
    let text = uri.to_str().unwrap();
    let lake = Lake::new(LakeOptions::default());
    ingest(&lake, &[sample()], text, &IngestOptions::default(), |_| {}).await.unwrap();
    let vector =
        VectorIndex { column: "vector".into(), metric: Metric::Cosine, ..Default::default() };
    build_index(&lake, text, &IndexRequest::Vector(vector), |_| {}).await.unwrap();
    // Append the first rows once more, with the opposite vectors.
    let mut dataset = Dataset::open(text).await.unwrap();
    let rows =
        dataset.scan().limit(Some(FRESH as i64), None).unwrap().try_into_batch().await.unwrap();
    let at = rows.schema().index_of("vector").unwrap();
    let (field, size, values, nulls) = rows.column(at).as_fixed_size_list().clone().into_parts();
    let opposite: Float32Array = values.as_primitive::<Float32Type>().unary(|value| -value);
    let mut columns = rows.columns().to_vec();
    columns[at] = Arc::new(FixedSizeListArray::new(field, size, Arc::new(opposite), nulls));
    let fresh = RecordBatch::try_new(rows.schema(), columns).unwrap();
    let reader = RecordBatchIterator::new([Ok(fresh.clone())], fresh.schema());
    dataset.append(reader, None).await.unwrap();

    let cluster = Cluster::start(2, &[("words", &uri)]).await;
    warm(&cluster).await;
    let scored = async || {
        let mut rows = 0;
        for io in &cluster.io {
            rows += total(&io.describe().await, |core| core.rows);
        }
        rows
    };
    for row in [0, 7, FRESH - 1] {
        let vectors = fresh["vector"].as_fixed_size_list().value(row);
        let query = vectors.as_primitive::<Float32Type>().values().to_vec();
        let before = scored().await;
        let asked = SearchRequest { explain: true, ..search(by_vector(query)) };
        let answer = cluster.client.search(asked).await.unwrap();
        let distances = answer.rows["_distance"].as_primitive::<Float32Type>().values();
        assert!(distances.is_sorted() && distances[0].abs() < 1e-5, "{distances:?}");
        let expected = fresh["synset"].as_string::<i32>().value(row);
        assert_eq!(synsets(&answer.rows)[0], expected);
        let details: Vec<_> = answer.stages.iter().map(|stage| &stage.detail).collect();
        let told = format!("{FRESH} rows that it does not cover");
        assert!(details.iter().any(|detail| detail.contains(&told)), "{details:?}");
        assert!(scored().await >= before + FRESH as u64, "each search scores all fresh rows");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exact_search_finds_what_lances_scan_finds_on_the_io_nodes() {
    let words = words().await;
    let cluster = words.serve(2).await;
    warm(&cluster).await;
    let table = Lake::new(LakeOptions::default()).open(words.uri.to_str().unwrap()).await.unwrap();
    let all = format!("{} candidates, every row", words.source.num_rows());
    for (metric, filter, lower_bound) in [
        (Metric::Cosine, None, None),
        (Metric::L2, None, Some(0.7)),
        (Metric::Dot, Some("domain < 20"), None),
        (Metric::L2, Some("length(gloss) > 40"), Some(0.5)),
    ] {
        let vector = words.vector(77);
        let query = VectorQuery {
            column: Some("vector".into()),
            vector: vector.clone(),
            k: 10,
            filter: filter.map(str::to_owned),
            distances: (lower_bound, None),
            exact: Some(metric),
            ..Default::default()
        };
        let wanted = table.planned_search(&query).await.unwrap();
        let asked = SearchRequest {
            metric: metric.to_string(),
            exact: true,
            filter: filter.unwrap_or_default().into(),
            lower_bound,
            explain: true,
            ..search(by_vector(vector))
        };
        let found = cluster.client.search(asked).await.unwrap();
        let addrs = found.rows["_rowaddr"].as_primitive::<UInt64Type>().values();
        let distances = found.rows["_distance"].as_primitive::<Float32Type>().values();
        let context = format!("{metric} {filter:?} {lower_bound:?}");
        assert_eq!(addrs.len(), 10, "{context}");
        for ((addr, distance), wanted) in addrs.iter().zip(distances).zip(&wanted) {
            assert!((distance - wanted.distance).abs() < 1e-4, "{context}: {distance} {wanted:?}");
            let tie = wanted.distance * (1.0 - 1e-5)..=wanted.distance * (1.0 + 1e-5);
            assert!(*addr == wanted.addr.to_u64() || tie.contains(distance), "{context}");
        }
        assert!(found.exhaustive);
        let said = found.stages.iter().find(|stage| stage.name == "search").unwrap();
        match filter {
            None => assert_eq!(said.detail, all),
            Some(_) => assert!(said.detail.ends_with("candidates, every row that passes")),
        }
        let table_rows = async |io: &Io| total(&io.describe().await, |core| core.table_rows);
        for io in &cluster.io {
            assert_eq!(table_rows(io).await, 0, "the rows come from the drives");
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lower_bound_beyond_all_candidates_finds_rows_behind_it() {
    let words = words().await;
    let cluster = words.serve(1).await;
    for bound in [0.6, 0.8, 1.0] {
        let asked =
            SearchRequest { lower_bound: Some(bound), ..search(by_vector(words.vector(77))) };
        let exact = SearchRequest { exact: true, ..asked.clone() };
        let mut distances = Vec::new();
        for asked in [exact, asked] {
            let found = cluster.client.search(asked).await.unwrap().rows;
            distances.push(found["_distance"].as_primitive::<Float32Type>().values().to_vec());
        }
        // The index estimates distances by codes, so rows just behind the bound may be missed.
        let [exact, found] = &distances[..] else { unreachable!() };
        assert_eq!((exact.len(), found.len()), (10, 10), "{bound}");
        let farthest = exact[9] + 0.02;
        assert!(
            found.iter().all(|it| (bound..farthest).contains(it)),
            "{bound}: {found:?}, {exact:?}"
        );
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_is_followed_and_old_ones_can_be_asked_for() {
    let folder = folder();
    let uri = folder.path().join("copy");
    let lake = Lake::new(LakeOptions::default());
    let options = IngestOptions { key: Some("synset".into()), ..Default::default() };
    let text = uri.to_str().unwrap();
    ingest(&lake, &[sample()], text, &options, |_| {}).await.unwrap();
    let cluster = Cluster::start(1, &[("words", &uri)]).await;
    let count = |version| {
        let request = SearchRequest {
            table: "words".into(),
            version,
            filter: "domain = 43".into(),
            k: 1000,
            columns: vec!["synset".into()],
            ..Default::default()
        };
        let client = cluster.client.clone();
        async move { client.search(request).await.map(|found| (found.rows.num_rows(), found.version)) }
    };
    let (rows, version) = count(0).await.unwrap();
    assert!(rows > 0);
    Dataset::open(text).await.unwrap().delete("domain = 43").await.unwrap();
    let mut followed = count(0).await.unwrap();
    for _ in 0..100 {
        if followed.1 > version {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        followed = count(0).await.unwrap();
    }
    assert_eq!(followed.0, 0, "the latest version has no deleted rows");
    assert_eq!(count(version).await.unwrap(), (rows, version), "the old version still has them");
    assert_eq!(count(999).await.unwrap_err().reason, Reason::VersionNotFound);
    cluster.stop().await;
}
