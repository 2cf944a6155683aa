//! Finds the chunks of a warm, which is a Warm call or an entry of `warm_at_start`, and fills them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use address::ChunkId;
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use placement::ChunkRun;
use tables::{FragmentRows, RANGES_MAX, rows_of};
use tokio::time::Instant;
use wire::fetch::{ChunkRange, RowRange, WarmProgress};
use wire::{Fault, Reason};

use super::books::FillOutcome;
use super::books::Pace;
use super::io::{FillHandle, FillKey};
use crate::error::fault_of;
use crate::table::{OpenFragment, OpenTable, Projection};

/// The maximum number of a warm's fills that wait or run, for each fill that the node may run at the same time. It is
/// high enough that neighbouring chunks wait together, and so are scanned together. Eight chunks of 4 MiB are as much
/// as one scan may read with the default segments (`SCAN_PART`).
const REQUESTS_PER_SLOT: usize = 8;

/// The same limit for a warm with a limited rate. It is lower, because a fill counts towards the rate only when it
/// ends: fills that are requested before the first one ends are not delayed.
const REQUESTS_PER_SLOT_LIMITED: usize = 2;

/// The number of neighbouring chunks of a pack that are requested before the same chunks of the next pack. With more,
/// one scan could read more chunks. With fewer, all packs of a chunk would be filled sooner.
const NEIGHBOURS: u32 = 4;

/// The chunks that a warm selects.
pub enum ChunkSelection {
    /// All chunks of the version.
    All,
    /// The chunks in these ranges.
    Chunks(Vec<ChunkRange>),
    /// The chunks that hold rows at these positions.
    Rows(Vec<RowRange>),
}

/// The chunks and packs of a table that a warm fills. The chunks are stored as runs, so that consecutive chunks take no
/// more memory than one.
pub struct WarmPlan {
    table: Arc<OpenTable>,
    packs: Vec<usize>,
    runs: Vec<ChunkRun>,
}

impl WarmPlan {
    /// Finds the packs that hold `columns` (all packs if `columns` is empty), and the selected chunks.
    ///
    /// # Errors
    /// The version lacks a column, chunk or row; a column occurs twice; there are too many ranges of rows; the store
    /// fails.
    pub async fn new(
        table: Arc<OpenTable>,
        columns: &[String],
        which: ChunkSelection,
    ) -> Result<Self, Fault> {
        let packs: Vec<usize> = match columns {
            [] => (0..table.packs().len()).collect(),
            columns => {
                let projection = Projection::new(Arc::clone(&table), columns);
                let projection = projection.map_err(|error| fault_of(&error))?;
                projection.parts.iter().map(|part| part.pack).collect()
            }
        };
        let runs = match which {
            ChunkSelection::All => table.fragments().iter().map(all_of).collect(),
            ChunkSelection::Chunks(ranges) => {
                ranges.iter().map(|range| run_of(&table, range)).collect::<Result<_, _>>()?
            }
            ChunkSelection::Rows(ranges) => runs_holding(&table, &ranges).await?,
        };
        Ok(Self { table, packs, runs: ChunkRun::merged(runs) })
    }

    /// Keeps only the chunks for which `is_wanted` returns true.
    pub fn only(mut self, is_wanted: impl Fn(ChunkId) -> bool) -> Self {
        let runs = std::mem::take(&mut self.runs);
        let one = |id: ChunkId| ChunkRun { fragment: id.fragment, chunks: id.index..id.index + 1 };
        for id in runs.into_iter().flat_map(ChunkRun::ids).filter(|&id| is_wanted(id)) {
            match self.runs.last_mut() {
                Some(run) if run.fragment == id.fragment && run.chunks.end == id.index => {
                    run.chunks.end += 1;
                }
                _ => self.runs.push(one(id)),
            }
        }
        self
    }

    /// The number of extents to fill.
    pub fn extents(&self) -> u64 {
        let chunks = self.runs.iter().map(|run| run.chunks.len() as u64);
        chunks.sum::<u64>() * self.packs.len() as u64
    }

    /// The extents in the order in which they are filled: a few neighbours of one pack, then the same chunks of the
    /// next pack. So a warm that is cancelled leaves few chunks of which only some packs are filled.
    fn keys(&self) -> impl Iterator<Item = FillKey> {
        let windows = self.runs.iter().flat_map(|run| {
            let firsts = run.chunks.clone().step_by(NEIGHBOURS as usize);
            firsts.map(|first| {
                (run.fragment, first..run.chunks.end.min(first.saturating_add(NEIGHBOURS)))
            })
        });
        windows.flat_map(|(fragment, window)| {
            self.packs.iter().flat_map(move |&pack| {
                let key = move |index| FillKey { pack, chunk: ChunkId { fragment, index } };
                window.clone().map(key)
            })
        })
    }

    /// Fills all extents in order, as fast as `pace` allows. `slots` is the number of fills that the node runs at a
    /// time. `report` gets the progress after each extent, and returns whether to continue.
    pub async fn fill(
        &self,
        fills: &FillHandle,
        slots: usize,
        pace: Pace,
        mut report: impl FnMut(&WarmProgress) -> bool,
    ) -> WarmProgress {
        let mut now = WarmProgress { extents_total: self.extents(), ..Default::default() };
        let requests_per_slot =
            if pace.is_limited() { REQUESTS_PER_SLOT_LIMITED } else { REQUESTS_PER_SLOT };
        let pace = &Mutex::new(pace);
        let requests = stream::iter(self.keys()).then(|key| in_its_time(pace, key));
        let requests = requests.map(|key| fills.fill(&self.table, key).boxed());
        let mut outcomes = requests.buffer_unordered(slots * requests_per_slot).boxed();
        while let Some(outcome) = outcomes.next().await {
            match outcome {
                FillOutcome::Found => {
                    now.extents_done += 1;
                    now.extents_found += 1;
                }
                FillOutcome::Filled(bytes) => {
                    now.extents_done += 1;
                    now.bytes_written += bytes;
                    locked(pace).spend(bytes, Instant::now());
                }
                FillOutcome::Failed(why) => {
                    now.extents_failed += 1;
                    now.last_error = why.to_string();
                }
            }
            if !report(&now) {
                break;
            }
        }
        now
    }
}

fn all_of(fragment: &OpenFragment) -> ChunkRun {
    ChunkRun { fragment: fragment.id, chunks: 0..fragment.chunks() }
}

fn run_of(table: &OpenTable, range: &ChunkRange) -> Result<ChunkRun, Fault> {
    let known = table.fragment(range.fragment).map_or(0, |fragment| fragment.chunks());
    match range.first.checked_add(range.count).filter(|&end| end <= known) {
        Some(end) => Ok(ChunkRun { fragment: range.fragment, chunks: range.first..end }),
        None => {
            let what = format!(
                "chunks {} to {}, counted from 0, of fragment {}, which has {known}",
                range.first,
                (u64::from(range.first) + u64::from(range.count)).saturating_sub(1),
                range.fragment
            );
            Err(Fault::new(Reason::BadArgument, what))
        }
    }
}

async fn runs_holding(table: &OpenTable, ranges: &[RowRange]) -> Result<Vec<ChunkRun>, Fault> {
    if ranges.len() > RANGES_MAX {
        let what = format!("{} row ranges; give at most {RANGES_MAX}", ranges.len());
        return Err(Fault::new(Reason::BadArgument, what));
    }
    let rows = rows_of(table.table(), ranges).await?;
    let run = |rows: FragmentRows| {
        let chunk_rows = table.fragment(rows.fragment)?.chunk_rows;
        Some(ChunkRun::holding(rows.fragment, rows.offsets, chunk_rows))
    };
    Ok(rows.into_iter().filter_map(run).collect())
}

/// Returns the key once the pace allows the next fill.
async fn in_its_time(pace: &Mutex<Pace>, key: FillKey) -> FillKey {
    let wait = locked(pace).wait(Instant::now());
    if let Some(until) = wait {
        tokio::time::sleep_until(until).await;
    }
    key
}

/// Locks the pace. Only one task uses it, so this never waits.
fn locked(pace: &Mutex<Pace>) -> MutexGuard<'_, Pace> {
    pace.lock().unwrap_or_else(PoisonError::into_inner)
}
