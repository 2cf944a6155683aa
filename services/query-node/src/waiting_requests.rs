//! The requests for rows by key that wait on one core, and their division into groups. Does no I/O.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array, ArrayRef};
use key_proof::FoundRows;
use scheduler::{Flow, Priority};
use tokio::sync::oneshot;

use crate::held_rows::HeldRows;
use crate::request_context::RequestContext;
use crate::tables::{OpenTable, Projection};

/// Maximum number of keys that are looked up together. Looking them up takes some 50 µs if the key index is in memory
/// (`docs/decisions/key-index.md`).
const GROUP_KEYS_MAX: usize = 1024;

/// The requests that wait on a core. All of them are on its thread, so the lock is never contended.
#[derive(Default)]
pub struct WaitingRequests(Mutex<Vec<WaitingRequest>>);

/// A request that waits: a Get, or a group of batches of one Lookup stream.
pub struct WaitingRequest {
    pub table: Arc<OpenTable>,
    pub column: String,
    pub wanted: Arc<Projection>,
    pub keys: ArrayRef,
    pub context: RequestContext,
    /// Receives the rows; `None` if the request has to be done alone.
    pub answer: oneshot::Sender<Option<GroupPart>>,
}

/// One request's part of the rows that were found for a group, and the memory that all rows of the group hold.
pub struct GroupPart(pub FoundRows, pub Arc<HeldRows>);

impl WaitingRequests {
    /// Adds a request. Returns whether it is the first one that waits.
    pub fn join(&self, request: WaitingRequest) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(request);
        waiting.len() == 1
    }

    /// Takes all requests that wait.
    pub fn take(&self) -> Vec<WaitingRequest> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Divides requests into groups that can share work. Leaves out requests whose callers have gone away.
pub fn groups(waiting: Vec<WaitingRequest>) -> Vec<Vec<WaitingRequest>> {
    let mut groups: Vec<(usize, Vec<WaitingRequest>)> = Vec::new();
    for request in waiting.into_iter().filter(|request| !request.answer.is_closed()) {
        let keys = request.keys.len();
        let fits = |(held, group): &(usize, Vec<WaitingRequest>)| {
            *held + keys <= GROUP_KEYS_MAX && group[0].shares_with(&request)
        };
        match groups.iter_mut().find(|group| fits(group)) {
            Some((held, group)) => {
                *held += keys;
                group.push(request);
            }
            None => groups.push((keys, vec![request])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

impl WaitingRequest {
    fn shares_with(&self, other: &Self) -> bool {
        let of = |it: &Self| -> (Flow, Priority) { (it.context.flow(), it.context.priority()) };
        Arc::ptr_eq(&self.table, &other.table)
            && Arc::ptr_eq(&self.wanted, &other.wanted)
            && self.column == other.column
            && self.keys.data_type() == other.keys.data_type()
            && of(self) == of(other)
    }
}
