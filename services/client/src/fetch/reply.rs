//! Replies to a fetch, and the decoding of a batch's reply.

use address::RowAddr;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use tokio::time::Instant;
use wire::fetch::StageTimes;
use wire::fetch::reply::Outcome as WireOutcome;
use wire::{Fault, Reason};

/// The undecoded reply to one batch. The caller decodes it, to keep that work off the stream's task.
pub(super) struct RawReply {
    pub reply: wire::fetch::Reply,
    pub schema: SchemaRef,
    pub timeline: TripTimeline,
}

/// The reply to a fetch.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The rows, the nearest of them, or which of them pass.
    pub outcome: Outcome,
    /// Positions, ascending, of addresses that have no row in the projection's version.
    pub missing: Vec<u32>,
    /// The trips of the fetch's batches.
    pub trips: Trips,
}

/// The trips of a fetch's batches, usually one.
#[derive(Clone, Debug, PartialEq)]
pub enum Trips {
    /// The fetch fitted into one batch.
    One(Trip),
    /// The fetch was split. The trips are in the order of their rows.
    Several(Vec<Trip>),
}

/// A batch's trip to the node and back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trip {
    /// The trip's timestamps.
    pub timeline: TripTimeline,
    /// The times of the node's stages.
    pub times: StageTimes,
}

impl Trips {
    /// Returns all trips.
    pub fn as_slice(&self) -> &[Trip] {
        match self {
            Self::One(trip) => std::slice::from_ref(trip),
            Self::Several(trips) => trips,
        }
    }
}

/// The timestamps of a batch's trip to the node and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TripTimeline {
    /// When the batch was handed to its stream.
    pub asked: Instant,
    /// The start and end of a lack of credit for this batch or one before it. The end is no later than `sent`.
    pub without_credit: Option<(Instant, Instant)>,
    /// When the batch was put into a message.
    pub sent: Instant,
    /// When the reply to the batch had arrived.
    pub answered: Instant,
}

/// The result of a fetch: the rows, the nearest of them, or which of them pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Without a rerank: the rows that were found, in the order of the requested addresses.
    Rows(RecordBatch),
    /// With a rerank: the nearest rows and their exact distances, nearest first, ties by address.
    Neighbors(Vec<(RowAddr, f32)>),
    /// With a predicate: the positions of the rows that pass, ascending.
    Passing(Vec<u32>),
}

impl Reply {
    /// Returns the times of the node's stages. For several batches, which ran concurrently, these are the longest times
    /// and the sums of the counts.
    pub fn times(&self) -> StageTimes {
        let all = self.trips.as_slice().iter().map(|trip| trip.times);
        all.reduce(|all, one| merge_times(all, &one)).unwrap_or_default()
    }

    /// Returns the rows of a fetch without a rerank.
    pub fn into_rows(self) -> Result<RecordBatch, Fault> {
        match self.outcome {
            Outcome::Rows(rows) => Ok(rows),
            _ => Err(damaged("it holds no rows where rows were wanted")),
        }
    }

    /// Returns the neighbours of a fetch with a rerank.
    pub fn into_neighbors(self) -> Result<Vec<(RowAddr, f32)>, Fault> {
        match self.outcome {
            Outcome::Neighbors(neighbors) => Ok(neighbors),
            _ => Err(damaged("it holds no neighbours where neighbours were wanted")),
        }
    }

    /// Decodes the reply to a batch of `rows` addresses.
    pub(super) fn decode(raw: RawReply, rows: usize) -> Result<Self, Fault> {
        let RawReply { reply, schema, timeline } = raw;
        if reply.missing.iter().any(|&at| at as usize >= rows) {
            return Err(damaged("a missing row lies outside the batch"));
        }
        if !reply.missing.is_sorted_by(|a, b| a < b) {
            return Err(damaged("its missing rows are not in order"));
        }
        let outcome = match reply.outcome {
            Some(WireOutcome::Error(error)) => return Err(error.into()),
            Some(WireOutcome::Rows(batch)) => {
                let batch = batch.to_record_batch(&schema).map_err(|e| damaged(&e.to_string()))?;
                if batch.num_rows() + reply.missing.len() != rows {
                    return Err(damaged("it does not account for every row"));
                }
                Outcome::Rows(batch)
            }
            Some(WireOutcome::Neighbors(near)) => {
                if near.row_addrs.len() != near.distances.len() {
                    return Err(damaged("its numbers of distances and addresses differ"));
                }
                let addrs = near.row_addrs.into_iter().map(RowAddr::from_u64);
                Outcome::Neighbors(addrs.zip(near.distances).collect())
            }
            Some(WireOutcome::Passing(passing)) => {
                if passing.rows.last().is_some_and(|&at| at as usize >= rows) {
                    return Err(damaged("a passing row lies outside the batch"));
                }
                if !passing.rows.is_sorted_by(|a, b| a < b) {
                    return Err(damaged("its passing rows are not in order"));
                }
                Outcome::Passing(passing.rows)
            }
            None => return Err(damaged("it is empty")),
        };
        let times = reply.times.unwrap_or_default();
        let trips = Trips::One(Trip { timeline, times });
        Ok(Self { outcome, missing: reply.missing, trips })
    }
}

fn merge_times(mut all: StageTimes, one: &StageTimes) -> StageTimes {
    all.locate_us = all.locate_us.max(one.locate_us);
    all.read_us = all.read_us.max(one.read_us);
    all.assemble_us = all.assemble_us.max(one.assemble_us);
    all.queue_us = all.queue_us.max(one.queue_us);
    all.exported &= one.exported;
    add_counts(&mut all, one);
    all
}

/// Adds a batch's counts, but not its times. Saturates, because a node may report any numbers.
pub fn add_counts(total: &mut StageTimes, part: &StageTimes) {
    total.drive_reads = total.drive_reads.saturating_add(part.drive_reads);
    total.drive_bytes = total.drive_bytes.saturating_add(part.drive_bytes);
    total.ram_hits = total.ram_hits.saturating_add(part.ram_hits);
    total.table_rows = total.table_rows.saturating_add(part.table_rows);
}

pub(super) fn damaged(why: &str) -> Fault {
    Fault::new(Reason::Internal, format!("an I/O node's reply is damaged: {why}"))
}
