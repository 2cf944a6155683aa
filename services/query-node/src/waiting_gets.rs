//! The Gets that wait on one core, and their division into groups. Does no I/O.

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

/// The Gets that wait on a core. All of them are on its thread, so the lock is never contended.
#[derive(Default)]
pub struct WaitingGets(Mutex<Vec<WaitingGet>>);

/// A Get that waits.
pub struct WaitingGet {
    pub table: Arc<OpenTable>,
    pub column: String,
    pub wanted: Arc<Projection>,
    pub keys: ArrayRef,
    pub context: RequestContext,
    /// Receives the rows; `None` if the Get has to be done alone.
    pub answer: oneshot::Sender<Option<GroupPart>>,
}

/// One Get's part of the rows that were found for a group, and the memory that all rows of the group hold.
pub struct GroupPart(pub FoundRows, pub Arc<HeldRows>);

impl WaitingGets {
    /// Adds a Get. Returns whether it is the first one that waits.
    pub fn join(&self, get: WaitingGet) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(get);
        waiting.len() == 1
    }

    /// Takes all Gets that wait.
    pub fn take(&self) -> Vec<WaitingGet> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Divides Gets into groups that can share work. Leaves out Gets whose callers have gone away.
pub fn groups(waiting: Vec<WaitingGet>) -> Vec<Vec<WaitingGet>> {
    let mut groups: Vec<(usize, Vec<WaitingGet>)> = Vec::new();
    for get in waiting.into_iter().filter(|get| !get.answer.is_closed()) {
        let keys = get.keys.len();
        let fits = |(held, group): &(usize, Vec<WaitingGet>)| {
            *held + keys <= GROUP_KEYS_MAX && group[0].shares_with(&get)
        };
        match groups.iter_mut().find(|group| fits(group)) {
            Some((held, group)) => {
                *held += keys;
                group.push(get);
            }
            None => groups.push((keys, vec![get])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

impl WaitingGet {
    fn shares_with(&self, other: &Self) -> bool {
        let of = |get: &Self| -> (Flow, Priority) { (get.context.flow(), get.context.priority()) };
        Arc::ptr_eq(&self.table, &other.table)
            && Arc::ptr_eq(&self.wanted, &other.wanted)
            && self.column == other.column
            && of(self) == of(other)
    }
}
