//! The cost of fetching rows: what the I/O nodes and the table did for a stage of a request.

use std::sync::Arc;
use std::time::Duration;

use client::fetch::{StageTimes, add_counts};
use spelling::counted;

use super::plan::NodeSlice;
use crate::io_nodes::Routes;
use crate::state::ShardState;
use crate::trace::{NodeCall, StageWork, TableRead};

/// The cost of a stage in the I/O tier.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Number of I/O nodes that answered.
    pub nodes: usize,
    /// The sums of these nodes' counts. The fields with times stay 0.
    pub times: StageTimes,
    /// Number of rows that this query node read from the table.
    pub fallback_rows: usize,
    /// Number of rows that pass a filter, if one was evaluated.
    pub passed: Option<usize>,
    /// The slowest I/O node, and the times of its stages.
    pub slowest: Option<(Arc<str>, StageTimes)>,
    slowest_took: Duration,
    /// The calls and reads, for the request's trace. Empty if spans are not exported.
    pub work: StageWork,
}

impl Cost {
    /// Describes the cost for `explain`.
    pub fn detail(&self, rows: usize) -> String {
        let StageTimes { drive_reads, drive_bytes, ram_hits, table_rows, .. } = self.times;
        let mut detail = format!(
            "{} of {}, {}, {}, {} in RAM",
            counted(rows, "row"),
            counted(self.nodes, "I/O node"),
            counted(drive_reads, "drive read"),
            counted(drive_bytes, "byte"),
            counted(ram_hits, "sector"),
        );
        for (count, whose) in
            [(table_rows as usize, "the I/O nodes"), (self.fallback_rows, "this node")]
        {
            if count > 0 {
                detail += &format!(", {} from the table by {whose}", counted(count, "row"));
            }
        }
        match self.passed {
            Some(passed) => format!("{passed} pass; {detail}"),
            None => detail,
        }
    }

    /// Returns the number of rows that were read from the table, by I/O nodes or by this query node.
    pub fn table_rows(&self) -> usize {
        self.fallback_rows + self.times.table_rows as usize
    }

    /// Records for the trace that planning began at `began` and has ended now, and reserves room for the calls of
    /// `slices` slices.
    pub fn planned(&mut self, state: &ShardState, began: std::time::Instant, slices: usize) {
        if state.shared.tracer.is_on() {
            self.work.planned = Some((began, std::time::Instant::now()));
            self.work.calls.reserve_exact(slices);
        }
    }

    /// Adds the cost of one slice: an I/O node's times and counts, or rows from the table.
    pub fn account(&mut self, routes: &Routes, slice: &NodeSlice, source: SliceSource) {
        let node = source.node;
        self.add_work(source);
        match (slice.owner, node) {
            (Some(owner), Some((took, times))) => {
                self.add(&routes.nodes()[owner].address, took, &times);
            }
            _ => self.fallback_rows += slice.addrs.len(),
        }
    }

    /// Adds the calls and reads of a slice to the trace, also if its fetch failed.
    pub fn add_work(&mut self, source: SliceSource) {
        self.work.calls.extend(source.call);
        self.work.reads.extend(source.table);
    }

    fn add(&mut self, node: &Arc<str>, took: Duration, times: &StageTimes) {
        self.nodes += 1;
        add_counts(&mut self.times, times);
        if took >= self.slowest_took {
            self.slowest_took = took;
            self.slowest = Some((Arc::clone(node), *times));
        }
    }
}

/// The source of a slice's rows: an I/O node or the table.
#[derive(Default)]
pub struct SliceSource {
    /// The time that the I/O node took to answer, and the times of its stages; `None` if the table answered.
    pub node: Option<(Duration, StageTimes)>,
    /// The call to the I/O node, answered or failed, for the request's trace.
    pub call: Option<NodeCall>,
    /// The read of the table, for the request's trace.
    pub table: Option<TableRead>,
}
