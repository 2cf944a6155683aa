//! What a fetch is answered, decoded.

use address::RowAddr;
use arrow_array::RecordBatch;
use tokio::time::Instant;
use wire::fetch::StageTimes;
use wire::fetch::reply::Outcome as WireOutcome;
use wire::{Fault, Reason};

use super::job::RawReply;

/// What came of a fetch.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The rows, or the nearest of them.
    pub outcome: Outcome,
    /// Positions, ascending, of addresses that name no row of this version.
    pub missing: Vec<u32>,
    /// Where the node spent its time. Of several batches: the longest times, the sums of counts.
    pub times: StageTimes,
    /// When it was on its way. Of several batches: that of the last one to be answered.
    pub way: Way,
}

/// The moments of a batch's way to the node and back, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// It was handed to its stream.
    pub asked: Instant,
    /// The stream had no credit left for it, or for one before it.
    pub without_credit: Option<Instant>,
    /// It was put into a message, with those that waited for the same.
    pub sent: Instant,
    /// Its reply had come.
    pub answered: Instant,
}

/// Rows, or the nearest of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Without a rerank: the rows that there are, in the order of their addresses.
    Rows(RecordBatch),
    /// With a rerank: the nearest rows and their exact distances, nearest first, ties by address.
    Neighbors(Vec<(RowAddr, f32)>),
}

impl Reply {
    /// The rows of a fetch without a rerank.
    pub fn into_rows(self) -> Result<RecordBatch, Fault> {
        match self.outcome {
            Outcome::Rows(rows) => Ok(rows),
            Outcome::Neighbors(_) => Err(damaged("it holds neighbours where rows were wanted")),
        }
    }

    /// The neighbours of a fetch with a rerank.
    pub fn into_neighbors(self) -> Result<Vec<(RowAddr, f32)>, Fault> {
        match self.outcome {
            Outcome::Neighbors(neighbors) => Ok(neighbors),
            Outcome::Rows(_) => Err(damaged("it holds rows where neighbours were wanted")),
        }
    }

    /// Decodes the answer to a batch of `rows` addresses.
    pub(super) fn decode(raw: RawReply, rows: usize) -> Result<Self, Fault> {
        let RawReply { reply, schema, way } = raw;
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
                    return Err(damaged("it has not as many distances as addresses"));
                }
                let addrs = near.row_addrs.into_iter().map(RowAddr::from_u64);
                Outcome::Neighbors(addrs.zip(near.distances).collect())
            }
            None => return Err(damaged("it is empty")),
        };
        let times = reply.times.unwrap_or_default();
        Ok(Self { outcome, missing: reply.missing, times, way })
    }
}

pub(super) fn damaged(why: &str) -> Fault {
    Fault::new(Reason::Internal, format!("an I/O node's reply is damaged: {why}"))
}
