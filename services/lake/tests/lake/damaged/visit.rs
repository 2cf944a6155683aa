//! Uses a table, which may be damaged, as nodes do: reads chunks, rows and deletions, searches, looks keys up, loads
//! indexes, and opens other versions.

use std::future::Future;
use std::panic::set_hook;
use std::sync::Mutex;
use std::time::Duration;

use address::RowAddr;
use lake::{
    Fuzziness, Lake, LakeOptions, Table, TextBoolean, TextExpr, TextMatch, TextPhrase, TextQuery,
    VectorQuery,
};

use crate::fixture::search_vector;
use crate::key_texts::KeyTexts;

/// Full-text queries of several forms.
fn text_queries() -> [TextExpr; 5] {
    let phrase = TextPhrase { column: None, words: "oak tree".into(), slop: 1 };
    let fuzzy = Fuzziness::Edits(1);
    let fuzzy = TextMatch { words: "birhc".into(), fuzziness: fuzzy, ..Default::default() };
    let compound = TextBoolean {
        must: vec![TextExpr::words("tree"), TextExpr::Phrase(phrase.clone())],
        should: vec![TextExpr::Match(fuzzy.clone())],
        must_not: vec![TextExpr::words("41")],
    };
    [
        TextExpr::words("oak tree"),
        TextExpr::words("birch 41"),
        TextExpr::Phrase(phrase),
        TextExpr::Match(fuzzy),
        TextExpr::Boolean(compound),
    ]
}

/// Maximum time for one use of a table, such as a search.
pub const USE_MAX: Duration = Duration::from_secs(60);

/// Maximum number of rows of a fragment that are read: a damaged table may claim any number.
const ROWS_READ_MAX: u32 = 4_000;

/// Maximum number of columns that are read: a manifest may repeat a column 2,000 times, and a development build takes a
/// long time to read them all.
const COLUMNS_READ_MAX: usize = 16;

/// The location and message of the last panic.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Installs a panic hook that records panics, and prints them in one line.
pub fn record_panics() {
    set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        // Show only the crate and the file of a dependency.
        let place = place.rsplit_once("/src/index.crates.io-").map_or(place.as_str(), |it| it.1);
        let what = info.payload();
        let text = what
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| what.downcast_ref::<&str>().copied())
            .unwrap_or_default();
        let text: String = text.chars().take(120).collect();
        eprintln!("panicked at {place}: {text}");
        *PANIC.lock().unwrap() = format!("{place}: {text}");
    }));
}

/// Uses the table at `uri` in the ways that the head of this file lists. Returns the first result that was neither an
/// answer nor an error.
pub async fn visit(uri: String) -> Option<String> {
    let lake = Lake::new(LakeOptions {
        index_cache_bytes: 64 << 20,
        metadata_cache_bytes: 64 << 20,
        ..Default::default()
    });
    let mut failure = FirstFailure(None);
    let opened = {
        let (lake, uri) = (lake.clone(), uri.clone());
        failure.record("open", async move { lake.open(&uri).await }).await
    };
    let Some(Ok(table)) = opened else { return failure.0 };
    rows(&table, &mut failure).await;
    searches(&table, &mut failure).await;
    // An earlier version has another manifest.
    let version = table.version() / 2 + 1;
    failure
        .record("earlier", async move { lake.open_version(&uri, version).await.map(drop) })
        .await;
    failure.0
}

/// The first failure of a case.
struct FirstFailure(Option<String>);

impl FirstFailure {
    /// Runs `work` as a task of its own, as nodes do, and records how it failed. Does nothing after a failure.
    async fn record<T: Send + 'static>(
        &mut self,
        what: &str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        if self.0.is_some() {
            return None;
        }
        let mut task = tokio::spawn(work);
        match tokio::time::timeout(USE_MAX, &mut task).await {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(error)) if error.is_panic() => {
                self.0 = Some(format!("panics at {}", PANIC.lock().unwrap()));
            }
            Ok(Err(error)) => self.0 = Some(format!("is cancelled: {error}")),
            Err(_) => {
                task.abort();
                self.0 = Some(format!("{what} hangs"));
            }
        }
        None
    }
}

/// Uses the table like an I/O node: reads chunks, single rows and deletions.
async fn rows(table: &Table, failure: &mut FirstFailure) {
    let fields = table.schema().fields().iter().take(COLUMNS_READ_MAX);
    let columns: Vec<_> = fields.map(|it| it.name().clone()).collect();
    for fragment in table.fragments().to_vec() {
        let it = table.clone();
        failure.record("deleted", async move { it.deleted(fragment.id).await.map(drop) }).await;
        let end = fragment.physical_rows.min(ROWS_READ_MAX);
        for column in &columns {
            let (it, column) = (table.clone(), vec![column.clone()]);
            let range = 0..end;
            failure
                .record("fill", async move { it.read_chunk(fragment.id, range, &column).await })
                .await;
        }
        let (it, all) = (table.clone(), columns.clone());
        let range = end / 3..end / 2;
        failure
            .record("fill all", async move { it.read_chunk(fragment.id, range, &all).await })
            .await;
        let (it, all) = (table.clone(), columns.clone());
        let wanted: Vec<_> = [0, 1, end / 2, fragment.physical_rows.saturating_sub(1)]
            .map(|offset| RowAddr::new(fragment.id, offset))
            .into();
        failure.record("take", async move { it.take(&wanted, &all).await }).await;
    }
    let it = table.clone();
    failure
        .record("identity", async move {
            let _ = it.identity();
            let _ = it.key_column().map(str::to_owned);
            let _ = it.row_count();
        })
        .await;
}

/// Uses the table like a query node.
async fn searches(table: &Table, failure: &mut FirstFailure) {
    let it = table.clone();
    failure.record("indexes", async move { it.indexes().await.map(drop) }).await;
    for column in ["vector", "pq", "rq", "hnsw"] {
        for nprobes in [None, Some(3)] {
            for filter in [None, Some("id > 100".to_owned())] {
                let it = table.clone();
                let query = VectorQuery {
                    column: Some(column.into()),
                    vector: crate::fixture::vector(3),
                    k: 10,
                    nprobes,
                    ef: None,
                    filter,
                    ..Default::default()
                };
                if it.vector_dimension(column).is_ok() {
                    let search = async move { search_vector(&it, &query).await };
                    failure.record("vector", search).await;
                }
            }
        }
    }
    for query in text_queries() {
        let it = table.clone();
        let query = TextQuery { query, k: 10, filter: None, ..Default::default() };
        failure.record("text", async move { it.search_text(&query).await }).await;
    }
    let keys = ["3", "599", "77"].map(str::to_owned).to_vec();
    for _ in 0..2 {
        let (it, keys) = (table.clone(), keys.clone());
        let work = async move {
            it.lookup_texts(Some("id"), &keys).await.map(drop)?;
            match it.direct_lookup_texts(Some("id"), &keys)? {
                Some(direct) => direct.await.map(drop),
                None => Ok(()),
            }
        };
        failure.record("key", work).await;
    }
    for filter in [
        "id >= 10 AND id < 20",
        "id IN (3, 500)",
        "repeated = 3",
        "array_has_any(labels, [1, 2])",
        "contains(name, 'ame-1')",
        "flag = true",
        "tag = 'red'",
        "name = 'name-3'",
        "runs > 2 AND constant = 7",
        "added > 10",
    ] {
        let it = table.clone();
        failure.record("filter", async move { it.search_filter(filter, 50).await }).await;
    }
    let it = table.clone();
    failure.record("prewarm", async move { it.prewarm().await }).await;
    let it = table.clone();
    failure.record("newer", async move { it.newer().await.map(drop) }).await;
}
