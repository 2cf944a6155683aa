//! Every use that nodes make of a table, of one that may be damaged.

use std::future::Future;
use std::panic::set_hook;
use std::sync::Mutex;
use std::time::Duration;

use address::RowAddr;
use lake::{Lake, LakeOptions, Table, TextQuery, VectorQuery};

/// What one use may take.
pub const USE_MAX: Duration = Duration::from_secs(60);

/// Rows of a table that are read, of those that it says it has.
const ROWS_READ_MAX: u32 = 4_000;

/// Columns of a table that are read: a manifest may repeat one 2,000 times, and a development build takes its time.
const COLUMNS_READ_MAX: usize = 16;

/// Where the last panic was.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Has panics noted, and told in one line.
pub fn note_panics() {
    set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        // Only the crate and the file of a dependency.
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

/// Uses the table at `uri` in every way. Returns what it ended with that was neither an answer nor an error.
pub async fn visit(uri: String) -> Option<String> {
    let lake = Lake::new(LakeOptions {
        index_cache_bytes: 64 << 20,
        metadata_cache_bytes: 64 << 20,
        ..Default::default()
    });
    let mut wrong = Wrong(None);
    let opened = {
        let (lake, uri) = (lake.clone(), uri.clone());
        wrong.note("open", async move { lake.open(&uri).await }).await
    };
    let Some(Ok(table)) = opened else { return wrong.0 };
    rows(&table, &mut wrong).await;
    searches(&table, &mut wrong).await;
    // An earlier version is another manifest.
    let version = table.version() / 2 + 1;
    wrong.note("earlier", async move { lake.open_version(&uri, version).await.map(drop) }).await;
    wrong.0
}

struct Wrong(Option<String>);

impl Wrong {
    /// Does `work` as a task of its own, as nodes do.
    async fn note<T: Send + 'static>(
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

/// What an I/O node does: fills, single rows, deletions.
async fn rows(table: &Table, wrong: &mut Wrong) {
    let fields = table.schema().fields().iter().take(COLUMNS_READ_MAX);
    let columns: Vec<_> = fields.map(|it| it.name().clone()).collect();
    for fragment in table.fragments().to_vec() {
        let of = |table: &Table| table.clone();
        let it = of(table);
        wrong.note("deleted", async move { it.deleted(fragment.id).await.map(drop) }).await;
        let end = fragment.physical_rows.min(ROWS_READ_MAX);
        for column in &columns {
            let (it, column) = (of(table), vec![column.clone()]);
            let range = 0..end;
            wrong
                .note("fill", async move { it.read_chunk(fragment.id, range, &column).await })
                .await;
        }
        let (it, all) = (of(table), columns.clone());
        let range = end / 3..end / 2;
        wrong.note("fill all", async move { it.read_chunk(fragment.id, range, &all).await }).await;
        let (it, all) = (of(table), columns.clone());
        let wanted: Vec<_> = [0, 1, end / 2, fragment.physical_rows.saturating_sub(1)]
            .map(|offset| RowAddr::new(fragment.id, offset))
            .into();
        wrong.note("take", async move { it.take(&wanted, &all).await }).await;
    }
    let it = table.clone();
    wrong
        .note("identity", async move {
            let _ = it.identity();
            let _ = it.key_column().map(str::to_owned);
            let _ = it.row_count();
        })
        .await;
}

/// What a query node does.
async fn searches(table: &Table, wrong: &mut Wrong) {
    let it = table.clone();
    wrong.note("indexes", async move { it.indexes().await.map(drop) }).await;
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
                };
                if it.vector_dimension(column).is_ok() {
                    wrong.note("vector", async move { it.search_vector(&query).await }).await;
                }
            }
        }
    }
    for words in ["oak tree", "name-7", "birch 41"] {
        let it = table.clone();
        let query = TextQuery { column: None, words: words.into(), k: 10, filter: None };
        wrong.note("text", async move { it.search_text(&query).await }).await;
    }
    let keys = ["3", "599", "77"].map(str::to_owned).to_vec();
    for _ in 0..2 {
        let (it, keys) = (table.clone(), keys.clone());
        let work = async move {
            it.lookup(Some("id"), &keys).await.map(drop)?;
            match it.direct_lookup(Some("id"), &keys)? {
                Some(direct) => direct.await.map(drop),
                None => Ok(()),
            }
        };
        wrong.note("key", work).await;
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
        wrong.note("filter", async move { it.search_filter(filter, 50).await }).await;
    }
    let it = table.clone();
    wrong.note("prewarm", async move { it.prewarm().await }).await;
    let it = table.clone();
    wrong.note("newer", async move { it.newer().await.map(drop) }).await;
}
