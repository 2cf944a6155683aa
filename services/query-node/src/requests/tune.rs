//! Tune: measures the recall of searches of a vector index, for different settings of the searches.
//!
//! ```text
//! questions ──► exact answers: each chunk of rows is compared with all questions by the I/O nodes
//!     └───────► the index's candidates, with more and more partitions ──► Tally ──► Curve
//! ```
//!
//! Rows that the index does not cover are left out: every search compares them exactly.

mod exact;
mod questions;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use access::Permission;
use address::RowAddr;
use client::fetch::Metric;
use futures::{FutureExt, StreamExt, stream};
use lake::{COMPARED_PER_SCORED, IndexInfo, MeasurableIndex, VectorQuery, quoted};
use recall::{
    Curve, Measured, Questions, SearchesFor, Tally, Trial, encode, nprobes_ladder,
    searched_candidates,
};
use tokio::sync::mpsc;
use wire::Fault;
use wire::query::{TuneProgress, TuneRequest};

use self::exact::{KEPT, exact_answers};
use self::questions::{Asked, TuneQuestion, draw};
use crate::call::Call;
use crate::call_rules::QUESTIONS_MAX;
use crate::error::{QueryError, Result};
use crate::recall_curves::{build_of, hash_of};
use crate::request_context::RequestContext;
use crate::stages::{NPROBES, REFINE_FACTOR, column_of_vectors, index_of};
use crate::state::{Ask, ShardState};
use crate::tables::{AskedVersion, OpenTable};

/// The number of rows that are drawn as questions by default. Their mean recall has a standard error of about 0.006
/// near 0.95, which is about as much as the choice of a setting tolerates.
const ROWS_DEFAULT: u32 = 256;

/// The timeout of each part of a Tune: the fetch of rows that are questions, a chunk of rows compared with a question,
/// or a question answered by the index with all numbers of partitions. It is the longest deadline that a batch may have
/// (`wire::DEADLINE_MAX`).
const PART_TIMEOUT: Duration = Duration::from_secs(300);

/// The number of questions that the index answers concurrently. It is low because other requests wait for the same
/// permits.
const QUESTIONS_CONCURRENT: usize = 2;

/// The channel of progress reports to the caller.
pub type Progress = mpsc::Sender<std::result::Result<TuneProgress, Fault>>;

/// A validated Tune request.
pub struct Tune {
    open: Arc<OpenTable>,
    column: String,
    metric: Metric,
    index: IndexInfo,
    measurable: MeasurableIndex,
    asked: Asked,
}

impl Tune {
    /// Validates a request, and opens the index.
    pub async fn new(request: TuneRequest, call: &mut Call) -> Result<Self> {
        let TuneRequest { table, branch, version, .. } = &request;
        let asked = AskedVersion { table, branch, version: *version };
        let open = call.open(asked, Permission::Warm).await?;
        if open.table.branch().is_some() {
            let problem = format!(
                "is {}; recall is measured on the main branch, so leave the branch out",
                quoted(branch)
            );
            return Err(QueryError::BadRequest { field: "branch", problem });
        }
        let named = Some(request.vector_column.as_str()).filter(|column| !column.is_empty());
        let column = column_of_vectors(&open, named, None).await?;
        let unmeasurable = |reason: String| QueryError::RecallUnmeasurable {
            table: open.name.clone(),
            column: column.clone(),
            reason,
        };
        let asked = Asked::of(&open, &column, request)?;
        let index = open.table.vector_index(&column).await?.cloned().ok_or_else(|| {
            unmeasurable("it has no index, so every row is compared and none is missed".into())
        })?;
        let metric = index_of(&open, &column).await?.1.ok_or_else(|| {
            unmeasurable("I/O nodes can't compute the exact distances of such vectors".into())
        })?;
        let measurable = open.table.measurable_index(&column).await?;
        let measurable = measurable.map_err(|reason| unmeasurable(reason.to_string()))?;
        // The questions and their exact answers are held until the end.
        let vector_bytes = open.table.vector_dimension(&column)? * size_of::<f32>();
        let answer_bytes = KEPT * size_of::<(RowAddr, f32)>();
        call.hold_rows(asked.count() * (vector_bytes + answer_bytes))?;
        Ok(Self { open, column, metric, index, measurable, asked })
    }

    /// Returns the ids of the fragments that the index covers, ascending, each with its number of rows, deleted ones
    /// included.
    fn covered_fragments(&self) -> Vec<(u32, u32)> {
        let uncovered = &self.measurable.uncovered;
        let is_uncovered =
            |id: u32| uncovered.binary_search_by_key(&id, |addr| addr.fragment()).is_ok();
        let fragments = self.open.table.fragments().iter();
        let covered = fragments.filter(|info| !is_uncovered(info.id));
        covered.map(|info| (info.id, info.physical_rows)).collect()
    }

    /// Measures, and reports progress. The last message has the curve. If the caller goes away, the service drops the
    /// future.
    ///
    /// # Errors
    /// Errors of the store, of the I/O tier and of the admission queue, and [`QueryError::RecallUnmeasurable`] if no
    /// question has an answer, or Lance would have to plan the searches.
    pub async fn run(
        self,
        state: &ShardState,
        progress: &Progress,
        context: RequestContext,
    ) -> Result<()> {
        let last = self.measure(state, progress, context.as_batch()).await?;
        // The caller may be gone.
        let _ = progress.send(Ok(last)).await;
        Ok(())
    }

    /// Measures, and reports progress. Returns the last message.
    async fn measure(
        &self,
        state: &ShardState,
        progress: &Progress,
        context: RequestContext,
    ) -> Result<TuneProgress> {
        // A node measures one index at a time, which bounds the memory of questions and answers. A Tune that has its turn
        // does not wait for its caller to read, because the other Tunes would wait too.
        let _turn = state.shared.tunes.acquire().await;
        let questions = draw(state, self, &self.asked, context).await?;
        let mut answers = exact_answers(state, self, &questions, progress, context).await?;
        // A vector without a direction has no cosine distances.
        let has_answer = |at: &usize| !answers[*at].is_empty();
        let with_answer: Vec<_> = (0..questions.len()).filter(has_answer).collect();
        if with_answer.is_empty() {
            return Err(QueryError::RecallUnmeasurable {
                table: self.open.name.clone(),
                column: self.column.clone(),
                reason: "the index covers no row that could be the answer of a question".into(),
            });
        }
        let k_max = with_answer.iter().map(|at| answers[*at].len()).min().unwrap_or(0);
        let nprobes = nprobes_ladder(self.measurable.partitions, NPROBES as usize);
        let tally = Arc::new(Mutex::new(Tally::new(&nprobes, k_max, COMPARED_PER_SCORED)));
        let total = with_answer.len() as u64;
        let trials = with_answer.into_iter().map(|at| {
            let exact = std::mem::take(&mut answers[at]);
            let (nprobes, tally) = (nprobes.clone(), Arc::clone(&tally));
            self.trial(state, &questions[at], exact, nprobes, tally, context).boxed()
        });
        let trials: Vec<_> = trials.collect();
        let mut trials = stream::iter(trials).buffer_unordered(QUESTIONS_CONCURRENT);
        let mut done = 0;
        while let Some(trial) = trials.next().await {
            trial?;
            done += 1;
            report(progress, "index", done, total);
        }
        drop(trials);
        let curve = self.curve(&tally.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(TuneProgress { step: "index".into(), done, total, curve: curve.into() })
    }

    /// Has the index answer a question with all numbers of partitions, and adds the result to `tally`.
    async fn trial(
        &self,
        state: &ShardState,
        question: &TuneQuestion,
        exact: Vec<(u64, f32)>,
        nprobes: Vec<usize>,
        tally: Arc<Mutex<Tally>>,
        context: RequestContext,
    ) -> Result<()> {
        let context = context.with_timeout(PART_TIMEOUT);
        let (open, is_flat) = (Arc::clone(&self.open), self.measurable.is_flat);
        let unmeasurable = (self.open.name.clone(), self.column.clone());
        let (own, vector, column) = (question.row, question.vector.clone(), self.column.clone());
        let work = async move {
            let mut searches = Vec::new();
            for candidates in searched_candidates(is_flat) {
                // One more, because the question's own row does not count.
                let k = candidates + usize::from(own.is_some());
                let query = VectorQuery {
                    column: Some(column.clone()),
                    vector: vector.clone(),
                    k,
                    ..Default::default()
                };
                let rungs = open.table.search_ladder(&query, &nprobes).await?;
                let rungs = rungs.map_err(|reason| {
                    let (table, column) = unmeasurable.clone();
                    QueryError::RecallUnmeasurable { table, column, reason: reason.to_string() }
                })?;
                let ids = |rung: lake::Rung| {
                    let others = rung.hits.iter().filter(|hit| Some(hit.addr) != own);
                    (others.map(|hit| hit.addr.to_u64()).collect(), rung.compared)
                };
                let rungs = rungs.into_iter().map(ids).collect();
                searches.push(SearchesFor { candidates, rungs });
            }
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.add(&Trial { exact: &exact, searches: &searches });
            Ok(())
        };
        let ask = Ask { during: "tune", rows: 1, context };
        state.shared.admission.run_in_background(ask, work.boxed()).await
    }

    /// Returns the bytes of the curve's file.
    fn curve(&self, tally: &Tally) -> Result<Vec<u8>> {
        let Self { open, column, index, measurable, asked, .. } = self;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let default = Measured { nprobes: NPROBES as usize, refine_factor: REFINE_FACTOR };
        let curve = Curve {
            table: hash_of(&open.table),
            column: column.clone(),
            index: build_of(index, Some(measurable)),
            version: open.version(),
            rows: open.table.row_count().saturating_sub(index.rows_uncovered),
            measured_at: now.map_or(0, |now| now.as_secs()),
            questions: match asked {
                Asked::Given(_) => Questions::Given,
                Asked::Rows { .. } => Questions::Rows,
            },
            question_count: tally.questions(),
            of_k: tally.finish(default),
        };
        encode(&curve).map_err(|error| QueryError::Server(error.to_string()))
    }
}

/// Reports the progress of a step. A slow caller gets fewer reports, and delays nothing. The caller may be gone; the
/// Tune is then dropped soon.
fn report(progress: &Progress, step: &str, done: u64, total: u64) {
    let step = TuneProgress { step: step.into(), done, total, curve: Default::default() };
    let _ = progress.try_send(Ok(step));
}
