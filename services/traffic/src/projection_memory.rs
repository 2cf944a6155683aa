//! Memory for the projections of streams: open ones, ones that failed to open, and ones being opened.

use std::sync::Arc;

use crate::memory::{HeldBytes, TrafficMemory};

/// Projections may use one part in this many of a core's traffic memory. Streams keep projections as long as they like,
/// so most of the memory must be left to batches. An eighth of 32 MiB, the least that a core has by default, holds some
/// 1,600 projections of ten columns.
const PART: u64 = 8;

/// Bytes of a projection without its columns: its entry in the stream's map of handles, and its parts or the reason why
/// it failed to open.
const PROJECTION_BYTES: u64 = 1 << 10;

/// Bytes of a column without its name, in the request and in the projection: its indexes and its Arrow field.
const COLUMN_BYTES: u64 = 128;

/// Bytes needed to open a projection, in addition to the projection: a task that may wait for an object store.
const OPENING_BYTES: u64 = 8 << 10;

/// A core's memory for projections, a part of its traffic memory.
pub struct ProjectionMemory {
    /// Counts the projections' part. Its maximum is twice that part, because [`TrafficMemory::hold_overhead`] grants at
    /// most half of the maximum.
    part: Arc<TrafficMemory>,
    /// The core's traffic memory.
    all: Arc<TrafficMemory>,
}

/// Memory that a projection holds, counted in both the part and the whole. Released when dropped.
#[derive(Debug, Default)]
pub struct HeldProjection {
    _part: HeldBytes,
    _all: HeldBytes,
}

impl ProjectionMemory {
    /// Creates the memory as a part of `all`.
    pub fn of(all: &Arc<TrafficMemory>) -> Self {
        Self { part: TrafficMemory::new(all.max() / PART * 2), all: Arc::clone(all) }
    }

    /// Reserves memory for a projection of `columns`, and of `names`, the other texts of the request that opens it.
    /// Returns `None` if all projections together would hold too much.
    pub fn hold(&self, columns: &[String], names: &[&str]) -> Option<HeldProjection> {
        self.hold_bytes(projection_bytes(columns, names))
    }

    /// Reserves memory for the work of opening one projection.
    pub fn hold_opening(&self) -> Option<HeldProjection> {
        self.hold_bytes(OPENING_BYTES)
    }

    fn hold_bytes(&self, bytes: u64) -> Option<HeldProjection> {
        let part = self.part.hold_overhead(bytes)?;
        // `part` is the bound, so `all` is charged without a check. `all` counts the bytes as overhead: a batch is
        // granted memory whatever its size if no other message holds any (`TrafficMemory::hold`), and projections must
        // not prevent that.
        Some(HeldProjection { _part: part, _all: self.all.charge(bytes) })
    }
}

/// Returns the bytes of a projection, including the request that opens it.
fn projection_bytes(columns: &[String], names: &[&str]) -> u64 {
    let columns = columns.iter().map(|column| COLUMN_BYTES + 2 * column.len() as u64);
    let names = names.iter().map(|name| name.len() as u64).sum::<u64>();
    PROJECTION_BYTES + names + columns.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projections_hold_a_part_of_the_memory_until_they_are_dropped() {
        let all = TrafficMemory::new(32 << 20);
        let memory = ProjectionMemory::of(&all);
        let columns = ["id".to_owned(), "vector".to_owned()];
        let names = ["s3://bucket/words", "abc"];
        let bytes = 1024 + 17 + 3 + 2 * 128 + 2 * 8;
        assert_eq!(projection_bytes(&columns, &names), bytes);
        let mut held = Vec::new();
        held.extend(std::iter::from_fn(|| memory.hold(&columns, &names)));
        assert_eq!(held.len() as u64, (4 << 20) / bytes);
        assert_eq!(all.used(), held.len() as u64 * bytes);
        assert!(memory.hold_opening().is_none());
        assert!(
            all.hold(64 << 20, 0).is_some(),
            "a batch may hold more if only projections hold memory"
        );
        drop(held);
        assert_eq!(all.used(), 0);
        let openings: Vec<_> = std::iter::from_fn(|| memory.hold_opening()).collect();
        assert_eq!(openings.len() as u64, (4 << 20) / OPENING_BYTES);
    }

    #[test]
    fn a_projection_that_is_too_large_is_refused_even_alone() {
        let memory = ProjectionMemory::of(&TrafficMemory::new(32 << 20));
        let columns = vec![String::new(); (4 << 20) / COLUMN_BYTES as usize];
        assert!(memory.hold(&columns, &[]).is_none());
    }
}
