//! Memory for projections: those that are open, those that could not be opened, and those being opened.

use std::sync::Arc;

use traffic::{HeldBytes, TrafficMemory};
use wire::fetch::Open;

/// The part of a core's traffic memory that projections may take. Streams keep them for as long as they like, so they
/// must leave most of it to batches: 32 MiB, the least by default, have room for some 2,000 of ten columns.
const PART: u64 = 8;

/// What a projection takes without its columns: its place in the stream's table, its parts, or the reason why it could
/// not be opened.
const PROJECTION_BYTES: u64 = 1 << 10;

/// What a column takes beside its name, as the client sent it and in the projection: its places, and its Arrow field.
const COLUMN_BYTES: u64 = 128;

/// What opening a projection takes beside the projection: a task that may wait for an object store.
const OPENING_BYTES: u64 = 8 << 10;

/// A core's memory for projections, which is a part of its traffic memory.
pub struct ProjectionMemory {
    /// Twice the part: what stands in it is at most half of it.
    part: Arc<TrafficMemory>,
    all: Arc<TrafficMemory>,
}

/// What a projection holds, of its part and of all. Given back when dropped.
#[derive(Debug, Default)]
pub struct HeldProjection {
    _part: HeldBytes,
    _all: HeldBytes,
}

impl ProjectionMemory {
    /// A part of `all`.
    pub fn of(all: &Arc<TrafficMemory>) -> Self {
        Self { part: TrafficMemory::new(all.max() / PART * 2), all: Arc::clone(all) }
    }

    /// Room for the projection that `open` asks for; `None` if others hold too much.
    pub fn hold(&self, open: &Open) -> Option<HeldProjection> {
        self.hold_bytes(projection_bytes(open))
    }

    /// Room for opening one more.
    pub fn hold_opening(&self) -> Option<HeldProjection> {
        self.hold_bytes(OPENING_BYTES)
    }

    fn hold_bytes(&self, bytes: u64) -> Option<HeldProjection> {
        let part = self.part.hold_overhead(bytes)?;
        // It stands, so that a batch which finds nothing but projections is alone. The part bounds it.
        Some(HeldProjection { _part: part, _all: self.all.charge(bytes) })
    }
}

/// What the projection takes that `open` asks for, with `open` itself.
fn projection_bytes(open: &Open) -> u64 {
    let columns = open.columns.iter().map(|column| COLUMN_BYTES + 2 * column.len() as u64);
    let names = (open.table_uri.len() + open.identity.len()) as u64;
    PROJECTION_BYTES + names + columns.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projections_hold_a_part_of_the_memory_until_they_are_dropped() {
        let all = TrafficMemory::new(32 << 20);
        let memory = ProjectionMemory::of(&all);
        let open = Open {
            table_uri: "s3://bucket/words".into(),
            identity: "abc".into(),
            columns: vec!["id".into(), "vector".into()],
            ..Open::default()
        };
        let bytes = 1024 + 17 + 3 + 2 * 128 + 2 * 8;
        assert_eq!(projection_bytes(&open), bytes);
        let mut held = Vec::new();
        held.extend(std::iter::from_fn(|| memory.hold(&open)));
        assert_eq!(held.len() as u64, (4 << 20) / bytes);
        assert_eq!(all.used(), held.len() as u64 * bytes);
        assert!(memory.hold_opening().is_none());
        assert!(all.hold(64 << 20, 0).is_some(), "a batch alone beside projections");
        drop(held);
        assert_eq!(all.used(), 0);
        let openings: Vec<_> = std::iter::from_fn(|| memory.hold_opening()).collect();
        assert_eq!(openings.len() as u64, (4 << 20) / OPENING_BYTES);
    }

    #[test]
    fn an_open_that_is_too_large_is_refused_though_nobody_else_is_there() {
        let memory = ProjectionMemory::of(&TrafficMemory::new(32 << 20));
        let columns = vec![String::new(); (4 << 20) / COLUMN_BYTES as usize];
        assert!(memory.hold(&Open { columns, ..Open::default() }).is_none());
    }
}
