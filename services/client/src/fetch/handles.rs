//! The projections that a stream has open. Their number is bounded: at the maximum, the least recently used one that no
//! batch uses is closed before another is opened.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use tokio::sync::oneshot;
use wire::Fault;

use super::job::Job;
use super::projection::ProjectionKey;

/// The requests that wait for a projection to be opened.
#[derive(Default)]
pub(super) struct Waiters {
    pub jobs: Vec<Job>,
    pub opens: Vec<oneshot::Sender<Result<SchemaRef, Fault>>>,
}

/// The state of a projection on a stream.
pub(super) enum HandleState {
    Opening(Waiters),
    Open(SchemaRef),
}

/// One projection on one stream.
pub(super) struct Entry {
    pub projection: Arc<ProjectionKey>,
    pub state: HandleState,
    /// Number of waiting or outstanding batches that use the projection. The projection is not closed before these
    /// batches are answered.
    pub users: usize,
    /// Whether the projection is closed as soon as no batch uses it, because later requests must open it anew.
    is_outdated: bool,
    used_at: u64,
}

/// All projections of a stream.
pub(super) struct Handles {
    projections_max: usize,
    /// The handles of all projections that are not outdated.
    by_key: HashMap<Arc<ProjectionKey>, u32>,
    /// Sorted by handle, so that iteration is deterministic.
    entries: BTreeMap<u32, Entry>,
    next: u32,
    uses: u64,
}

/// The result of looking a projection up.
pub(super) enum Lookup {
    /// The projection is open or being opened, with this handle.
    Known(u32),
    /// The projection must be opened with this handle, after `evicted` (if any) has been closed.
    New { handle: u32, evicted: Option<u32> },
    /// The maximum number of projections is open or being opened, and none of them can be closed.
    Full,
}

impl Handles {
    pub fn new(projections_max: usize) -> Self {
        let (by_key, entries) = Default::default();
        Self { projections_max, by_key, entries, next: 1, uses: 0 }
    }

    /// Finds `projection`, or adds an entry in the state `Opening`.
    pub fn look_up(&mut self, projection: &Arc<ProjectionKey>) -> Lookup {
        self.uses += 1;
        if let Some(&handle) = self.by_key.get(projection) {
            if let Some(entry) = self.entries.get_mut(&handle) {
                entry.used_at = self.uses;
            }
            return Lookup::Known(handle);
        }
        let mut evicted = None;
        if self.entries.len() >= self.projections_max {
            match self.least_recently_used() {
                Some(handle) => evicted = Some(handle),
                None => return Lookup::Full,
            }
        }
        if let Some(handle) = evicted {
            self.remove(handle);
        }
        let handle = self.next;
        self.next += 1;
        let state = HandleState::Opening(Waiters::default());
        let projection = Arc::clone(projection);
        self.by_key.insert(Arc::clone(&projection), handle);
        let (users, is_outdated, used_at) = (0, false, self.uses);
        self.entries.insert(handle, Entry { projection, state, users, is_outdated, used_at });
        Lookup::New { handle, evicted }
    }

    pub fn get_mut(&mut self, handle: u32) -> Option<&mut Entry> {
        self.entries.get_mut(&handle)
    }

    pub fn remove(&mut self, handle: u32) -> Option<Entry> {
        let entry = self.entries.remove(&handle)?;
        if !entry.is_outdated {
            self.by_key.remove(&entry.projection);
        }
        Some(entry)
    }

    /// Has later requests for `projection` open it anew. One that is being opened is left as it is. Returns the handle
    /// if it must be closed now.
    pub fn forget(&mut self, projection: &ProjectionKey) -> Option<u32> {
        let &handle = self.by_key.get(projection)?;
        let entry = self.entries.get_mut(&handle)?;
        if matches!(entry.state, HandleState::Opening(_)) {
            return None;
        }
        entry.is_outdated = true;
        self.by_key.remove(projection);
        self.remove_if_over(handle)
    }

    /// Records that a batch no longer uses `handle`. Returns the handle if it must be closed now.
    pub fn release(&mut self, handle: u32) -> Option<u32> {
        self.entries.get_mut(&handle)?.users -= 1;
        self.remove_if_over(handle)
    }

    fn remove_if_over(&mut self, handle: u32) -> Option<u32> {
        let is_over = |entry: &Entry| entry.is_outdated && entry.users == 0;
        let is_over = self.entries.get(&handle).is_some_and(is_over);
        is_over.then(|| self.remove(handle)).flatten().map(|_| handle)
    }

    pub fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.values_mut()
    }

    fn least_recently_used(&self) -> Option<u32> {
        let idle = |entry: &Entry| entry.users == 0 && matches!(entry.state, HandleState::Open(_));
        let idle = self.entries.iter().filter(|(_, entry)| idle(entry));
        idle.min_by_key(|(_, entry)| entry.used_at).map(|(&handle, _)| handle)
    }
}
