//! The curves of one table, for all its versions. They are looked for again from time to time.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use lake::{LakeError, Table};
use recall::{CURVE_BYTES_MAX, Curve, CurveError, CurveFileError, CurveFiles, decode};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;
use tracing::{info, warn};

/// The interval at which a table's curves are looked for. Each time costs one listing, so a table costs 1,440 requests
/// a day.
pub const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The value of k for which the log warns if the default refine factor does not make up for the compression of an
/// index.
pub(super) const WARNED_K: u32 = 10;

/// The number of times that the node has refused a file of a recall curve, since its start.
#[derive(Debug, Default)]
pub struct CurveCounts {
    refused: AtomicU64,
}

impl CurveCounts {
    /// Returns the number.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// The curves of one table.
#[derive(Debug)]
pub struct TableCurves {
    /// The table's name, for the log.
    table: String,
    /// Files that the configuration names.
    files: Vec<PathBuf>,
    counts: Arc<CurveCounts>,
    /// The curves that are known. All cores read them, and they rarely change.
    known: ArcSwap<Vec<Arc<Curve>>>,
    /// Locked while curves are looked for, so that callers that wait share the result.
    looked: tokio::sync::Mutex<Looked>,
}

/// The result of the last call of [`TableCurves::look`].
#[derive(Debug, Default)]
struct Looked {
    at: Option<Instant>,
    /// The curve of each file by its path, with a hash of its contents; `None` if the file was refused or could not be
    /// read. The contents of files beside the table are not hashed, because they never change.
    files: HashMap<String, (u64, Option<Arc<Curve>>)>,
    /// The last error of the store, so that it is logged once.
    fault: Option<String>,
}

impl TableCurves {
    /// Creates the curves of `table`, none of which is known yet.
    pub fn new(table: &str, files: &[PathBuf], counts: Arc<CurveCounts>) -> Self {
        let (known, looked) = Default::default();
        Self { table: table.to_owned(), files: files.to_vec(), counts, known, looked }
    }

    /// Returns the curves that are known.
    pub fn known(&self) -> Arc<Vec<Arc<Curve>>> {
        self.known.load_full()
    }

    /// Looks for curves of `table`, unless that was done less than `every` ago. Waits for a call that is in progress.
    /// If the store does not answer, the known curves stay, and files that the configuration names are read all the
    /// same.
    pub async fn look(&self, table: &Table, every: Duration) {
        let mut looked = self.looked.lock().await;
        if looked.at.is_some_and(|at| at.elapsed() < every) {
            return;
        }
        let fault = match self.read_new(table, &mut looked).await {
            Ok(()) => None,
            Err(error) => Some(error.to_string()),
        };
        // Set after the read, so that a read that is dropped with its request is repeated by the next call.
        looked.at = Some(Instant::now());
        if let Some(fault) = fault.as_ref().filter(|fault| looked.fault.as_ref() != Some(fault)) {
            warn!(table = self.table, "its recall curves can't be read: {fault}");
        }
        looked.fault = fault;
    }

    /// Reads the files that are new, and publishes all curves that are known then, also if some files can't be read.
    ///
    /// Errors: the first one of the store.
    async fn read_new(&self, table: &Table, looked: &mut Looked) -> Result<(), LakeError> {
        for path in &self.files {
            self.read_given(path, looked).await;
        }
        let read = self.read_beside(table, looked).await;
        self.publish(looked);
        read
    }

    /// Reads the files beside the table that are new, and forgets those that are gone. A file that can't be read is
    /// tried again by the next call.
    ///
    /// Errors: the first one of the store.
    async fn read_beside(&self, table: &Table, looked: &mut Looked) -> Result<(), LakeError> {
        let files = CurveFiles::of(table).await?;
        let names = files.list().await?;
        let mut read = Ok(());
        for name in &names {
            let path = files.path_of(name);
            if looked.files.contains_key(&path) {
                continue;
            }
            let curve = match files.read(name).await {
                Ok(None) => continue,
                Ok(Some(curve)) => Some(self.read(&path, curve)),
                Err(CurveFileError::Refused(error)) => self.refuse(&path, &error),
                Err(CurveFileError::Table(error)) => {
                    read = read.and(Err(error));
                    continue;
                }
            };
            looked.files.insert(path, (0, curve));
        }
        let present: Vec<String> = names.iter().map(|name| files.path_of(name)).collect();
        let given = |path: &String| self.files.iter().any(|it| it.display().to_string() == *path);
        looked.files.retain(|path, _| present.contains(path) || given(path));
        read
    }

    /// Makes the curves in `looked` those that are known.
    fn publish(&self, looked: &Looked) {
        let curves = looked.files.values().filter_map(|(_, curve)| curve.clone());
        let mut curves: Vec<_> = curves.collect();
        // The newest ones first.
        curves.sort_by_key(|curve| std::cmp::Reverse((curve.measured_at, curve.version)));
        let before = self.known.load();
        let is_new = before.len() != curves.len()
            || !before.iter().zip(&curves).all(|(a, b)| Arc::ptr_eq(a, b));
        if is_new {
            self.known.store(Arc::new(curves));
        }
    }

    /// Reads a file that the configuration names, and takes its curve if the contents have changed. A file that can't
    /// be read keeps the curve that it had.
    async fn read_given(&self, path: &Path, looked: &mut Looked) {
        let name = path.display().to_string();
        let bytes = match read_bounded(path).await {
            Ok(bytes) => bytes,
            Err(error) => {
                looked.files.entry(name).or_insert_with_key(|name| {
                    warn!(table = self.table, "the recall curve {name} can't be read: {error}");
                    (0, None)
                });
                return;
            }
        };
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let hash = hasher.finish();
        if looked.files.get(&name).is_some_and(|(before, _)| *before == hash) {
            return;
        }
        let curve = match decode(&bytes) {
            Ok(curve) => Some(self.read(&name, curve)),
            Err(error) => self.refuse(&name, &error),
        };
        looked.files.insert(name, (hash, curve));
    }

    fn read(&self, path: &str, curve: Curve) -> Arc<Curve> {
        let (table, column, questions) = (&self.table, &curve.column, curve.question_count);
        info!(table, column, questions, "recall curve of version {} from {path}", curve.version);
        if let Some(warning) = curve.refine_warning(WARNED_K) {
            warn!(table, column, "{warning}");
        }
        Arc::new(curve)
    }

    fn refuse(&self, path: &str, error: &CurveError) -> Option<Arc<Curve>> {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        let table = &self.table;
        warn!(table, "{path} is not used: {error}; measure again: `bireme tune {table}`");
        None
    }
}

/// Reads at most one byte more than a curve may have.
async fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = tokio::fs::File::open(path).await?;
    file.take(CURVE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).await?;
    Ok(bytes)
}
