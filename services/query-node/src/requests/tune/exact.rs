//! Exact answers: the I/O nodes compare each row that the index covers with all questions.
//!
//! The rows are taken in chunks, and each chunk is compared with all questions before the next one: it is read from the
//! drives once, if the RAM tier holds it.

use address::RowAddr;
use futures::{FutureExt, StreamExt, stream};
use recall::K_MAX;

use super::questions::TuneQuestion;
use super::{PART_TIMEOUT, Progress, Tune, report};
use crate::error::Result;
use crate::fetch::{Scoring, score_rows};
use crate::request_context::RequestContext;
use crate::stages::rank;
use crate::state::ShardState;

/// The number of rows of a chunk: 12 MB of vectors of 768 dimensions.
const CHUNK_ROWS: usize = 4096;

/// The number of questions that are compared with a chunk concurrently, so that the I/O nodes always have work. With a
/// chunk each, they take half of the rows that a stream to an I/O node may have outstanding by default.
const QUESTIONS_CONCURRENT: usize = 8;

/// The number of nearest rows that are kept for each question: as many as the largest measured k, the question's own
/// row, and some more that may be as near as the last one.
pub const KEPT: usize = K_MAX as usize + 24;

/// Returns the nearest rows of each question without the question's own row, nearest first.
pub async fn exact_answers(
    state: &ShardState,
    tune: &Tune,
    questions: &[TuneQuestion],
    progress: &Progress,
    context: RequestContext,
) -> Result<Vec<Vec<(u64, f32)>>> {
    let mut nearest: Vec<Vec<(RowAddr, f32)>> = vec![Vec::new(); questions.len()];
    let fragments = tune.covered_fragments();
    let total = tune.open.table.live_rows_of(fragments.iter().map(|(id, _)| *id));
    let (mut chunk, mut done) = (Vec::with_capacity(CHUNK_ROWS), 0);
    for (at, (id, rows)) in fragments.iter().enumerate() {
        let deleted = tune.open.table.deleted(*id).await?;
        let mut live = (0..*rows).filter(|offset| !deleted.contains(*offset)).peekable();
        while live.peek().is_some() {
            let room = CHUNK_ROWS - chunk.len();
            chunk.extend(live.by_ref().take(room).map(|offset| RowAddr::new(*id, offset)));
            let is_last = at + 1 == fragments.len() && live.peek().is_none();
            if chunk.len() == CHUNK_ROWS || is_last {
                compare(state, tune, questions, &chunk, &mut nearest, context).await?;
                done += chunk.len() as u64;
                report(progress, "exact", done, total);
                chunk.clear();
            }
        }
    }
    if !chunk.is_empty() {
        // If the last fragments have no live rows, the loop does not see which chunk is the last.
        compare(state, tune, questions, &chunk, &mut nearest, context).await?;
    }
    let answer = |(question, rows): (&TuneQuestion, Vec<(RowAddr, f32)>)| {
        let others = rows.into_iter().filter(|(row, _)| Some(*row) != question.row);
        others.map(|(row, distance)| (row.to_u64(), distance)).collect()
    };
    Ok(questions.iter().zip(nearest).map(answer).collect())
}

/// Compares the rows of `chunk` with all questions, and adds them to the nearest of each.
async fn compare(
    state: &ShardState,
    tune: &Tune,
    questions: &[TuneQuestion],
    chunk: &[RowAddr],
    nearest: &mut [Vec<(RowAddr, f32)>],
    context: RequestContext,
) -> Result<()> {
    let scored = questions.iter().enumerate().map(|(at, question)| {
        let (column, metric) = (tune.column.as_str(), tune.metric);
        let scoring = Scoring { column, query: &question.vector, metric, k: KEPT };
        let context = context.with_timeout(PART_TIMEOUT);
        let scored = score_rows(state, &tune.open, chunk.iter().copied(), scoring, context).boxed();
        async move { Ok::<_, crate::error::QueryError>((at, scored.await?.0)) }.boxed()
    });
    let scored: Vec<_> = scored.collect();
    let mut scored = stream::iter(scored).buffer_unordered(QUESTIONS_CONCURRENT);
    while let Some(scored) = scored.next().await {
        let (at, rows) = scored?;
        let known = std::mem::take(&mut nearest[at]);
        let farthest = known.get(KEPT - 1).map_or(f32::INFINITY, |(_, distance)| *distance);
        let near = rows.into_iter().filter(|(_, distance)| *distance <= farthest);
        nearest[at] = rank(known.into_iter().chain(near).collect(), KEPT);
    }
    Ok(())
}
