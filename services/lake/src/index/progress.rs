//! Reports the progress of building an index.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use lance_index::progress::IndexBuildProgress;

/// The progress of one step. Most steps run one after another; some overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexProgress {
    /// The step's name: Lance's own (`train_ivf`, `shuffle`, `build_partitions`, ...), or `check_keys` for the search
    /// for duplicate keys.
    pub stage: String,
    /// Units done in this step.
    pub done: u64,
    /// The total number of units, if known beforehand.
    pub total: Option<u64>,
    /// The unit: `rows`, `partitions`, `batches`, ...; empty for `check_keys`.
    pub unit: String,
    /// Whether the step has ended.
    pub ended: bool,
}

/// The total of a step, and its unit.
type Total = (Option<u64>, String);

/// Forwards Lance's progress reports, and those of the search for duplicate keys.
pub(crate) struct Reporter {
    report: Arc<dyn Fn(IndexProgress) + Send + Sync>,
    totals: Mutex<HashMap<String, Total>>,
}

impl Reporter {
    pub(crate) fn new(report: impl Fn(IndexProgress) + Send + Sync + 'static) -> Self {
        Self { report: Arc::new(report), totals: Mutex::default() }
    }

    /// Reports the progress of a step.
    pub(crate) fn report(&self, stage: &str, done: u64, ended: bool) {
        let (total, unit) = match self.totals.lock() {
            Ok(totals) => totals.get(stage).cloned().unwrap_or_default(),
            Err(_) => Total::default(),
        };
        (self.report)(IndexProgress { stage: stage.to_owned(), done, total, unit, ended });
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reporter")
    }
}

#[async_trait::async_trait]
impl IndexBuildProgress for Reporter {
    async fn stage_start(&self, stage: &str, total: Option<u64>, unit: &str) -> lance::Result<()> {
        if let Ok(mut totals) = self.totals.lock() {
            totals.insert(stage.to_owned(), (total, unit.to_owned()));
        }
        self.report(stage, 0, false);
        Ok(())
    }

    async fn stage_progress(&self, stage: &str, completed: u64) -> lance::Result<()> {
        self.report(stage, completed, false);
        Ok(())
    }

    async fn stage_complete(&self, stage: &str) -> lance::Result<()> {
        let total =
            self.totals.lock().ok().and_then(|totals| totals.get(stage).and_then(|it| it.0));
        self.report(stage, total.unwrap_or_default(), true);
        Ok(())
    }
}
