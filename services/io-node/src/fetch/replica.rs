//! Keeps the core's replica of the directory current. The entry of a forgotten or replaced extent is vacated once no
//! request can hold it (`shard/grace.rs`).

use std::sync::Arc;

use address::ExtentKey;
use tokio::sync::mpsc;

use super::Core;
use crate::extent::{Extent, ExtentNo};

/// Adds an extent that was written to a drive.
pub fn add(core: &Core, extent: Arc<Extent>) {
    let replaced = core.directory.borrow_mut().insert(extent);
    hold_entries(core, replaced.into_iter().collect(), None);
}

/// Forgets extents. `done` is dropped once all requests that began earlier have ended, so that none holds any of them.
pub fn forget(core: &Core, keys: &[ExtentKey], done: mpsc::Sender<()>) {
    let mut directory = core.directory.borrow_mut();
    let entries = keys.iter().filter_map(|&key| directory.forget(key)).collect();
    drop(directory);
    hold_entries(core, entries, Some(done));
}

/// Adds the extents found on the drives at the start. Returns the number of extents in the directory afterwards.
pub fn restore(core: &Core, extents: &[Arc<Extent>]) -> usize {
    let mut directory = core.directory.borrow_mut();
    directory.restore(extents);
    directory.len()
}

/// Returns how many batches have read each of these extents, up to `HEAT_MAX`.
pub fn heats(core: &Core, keys: &[ExtentKey]) -> Vec<u8> {
    let directory = core.directory.borrow();
    keys.iter().map(|&key| directory.heat(key)).collect()
}

/// Vacates the entries `entries` once no request can hold them, which is at once if no request is under way.
fn hold_entries(core: &Core, entries: Vec<ExtentNo>, done: Option<mpsc::Sender<()>>) {
    let requests = core.requests.borrow();
    let mut grace = core.grace.borrow_mut();
    grace.hold(requests.next_serial(), entries, done);
    let over = grace.over(requests.oldest());
    core.directory.borrow_mut().vacate(&over);
}

/// Vacates entries that only ended requests could have held.
pub(super) fn end_graces(core: &Core) {
    let mut grace = core.grace.borrow_mut();
    if !grace.is_empty() {
        let entries = grace.over(core.requests.borrow().oldest());
        core.directory.borrow_mut().vacate(&entries);
    }
}
