//! Counts the events of runs: an event that never happens in the simulation is not tested.

use std::collections::BTreeMap;
use std::fmt;

use io_node::DriveState;

use crate::clients::Seen;
use crate::node::Node;

/// Counts of events, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Happened(BTreeMap<String, u64>);

/// Events that must happen at least once in a run of 200 seeds or more.
pub const MUST: [&str; 41] = [
    "Crash",
    "DriveErrors",
    "DriveFull",
    "DriveGone",
    "DriveLies",
    "DriveRot",
    "DriveSlow",
    "NetBreaks",
    "NetSlow",
    "Restart",
    "StoreErrors",
    "StoreLoss",
    "bad sectors",
    "batches dropped",
    "batches shed",
    "blocks released",
    "bytes kept",
    "drained",
    "drives read-only",
    "drives retired",
    "extents dropped",
    "extents scrubbed",
    "fills failed",
    "keys found",
    "keys that no row has",
    "late reads",
    "looks at a maximum that is near",
    "looks at a minimum that is there",
    "looks at a node that warms",
    "looks at what is pinned",
    "merges of key runs",
    "not drained in time",
    "reads of files after they were refused",
    "reads of files that are overwritten",
    "reads refused of files that were overwritten",
    "rows with another key",
    "sectors of files",
    "sectors read from the store after a Release",
    "shared pieces",
    "strangers' messages",
    "versions published",
];

impl Happened {
    /// Adds `more` to the count of an event.
    pub fn count(&mut self, what: &str, more: u64) {
        if more > 0 {
            *self.0.entry(what.to_owned()).or_default() += more;
        }
    }

    /// Returns the count of an event.
    pub fn count_of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// Adds the counters of a node at the end of its life.
    pub fn in_life_of(&mut self, node: &mut Node) {
        let Some(state) = node.up().map(|up| up.state()) else { return };
        for core in &state.cores {
            self.count("rows", core.rows);
            self.count("rows from tables", core.table_rows);
            self.count("sectors found in RAM", core.ram_hits);
            self.count("drive reads", core.ring.reads_completed);
            self.count("bad sectors", core.bad_sectors);
            self.count("late reads", core.late_reads);
            self.count("shared pieces", core.shared_pieces);
            self.count("batches dropped", core.dropped);
            self.count("batches shed", core.shed);
        }
        let drives = |of| state.drives.iter().filter(|&&drive| drive == of).count() as u64;
        self.count("drives read-only", drives(DriveState::ReadOnly));
        self.count("drives retired", drives(DriveState::Retired));
        self.count("fills done", state.fills_done);
        self.count("fills failed", state.fills_failed);
        self.count("bytes kept", state.bytes_kept);
        self.count("extents scrubbed", state.extents_scrubbed);
        self.count("extents dropped", state.extents_dropped);
    }

    /// Adds what clients have observed.
    pub fn seen_by_clients(&mut self, seen: &Seen) {
        for (reason, count) in seen.refusals.borrow().iter() {
            self.count(&format!("answer {reason}"), *count);
        }
        self.count("fetches dropped", seen.dropped.get());
        self.count("sectors of files", seen.sectors.get());
        self.count("reads of files that are overwritten", seen.overwritten.get());
        self.count("reads refused of files that were overwritten", seen.overwritten_refused.get());
        self.count("reads of files after they were refused", seen.overwritten_answered.get());
        self.count("blocks released", seen.released.get());
        self.count("sectors read from the store after a Release", seen.released_read.get());
        self.count("strangers' messages", seen.strange.get());
        self.count("keys found", seen.keys_found.get());
        self.count("keys that no row has", seen.keys_absent.get());
        self.count("rows with another key", seen.rows_with_another_key.get());
        self.count("merges of key runs", seen.run_merges.get());
        self.count("versions published", seen.versions_published.get());
        self.count("looks from outside", seen.looks.get());
        self.count("looks at a node that warms", seen.looks_before_ready.get());
        self.count("looks at a minimum that is there", seen.minima.get());
        self.count("looks at a maximum that is near", seen.maxima.get());
        self.count("looks at what is pinned", seen.pinned.get());
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| self.count(what, *count));
    }

    /// Returns those of the required events that did not happen.
    pub fn lacks(&self, must: &[&'static str]) -> Vec<&'static str> {
        must.iter().copied().filter(|&what| !self.0.contains_key(what)).collect()
    }
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, count)| writeln!(f, "{count:>12} {what}"))
    }
}
