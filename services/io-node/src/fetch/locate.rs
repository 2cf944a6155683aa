//! Locate: finds where each row of a request is, in the core's replica of the directory.

use std::collections::BTreeSet;

use address::{ExtentKey, RowAddr};

use super::Core;
use super::requests::{Request, RowSource};
use crate::cache::FillKey;
use crate::extent::ExtentNo;
use crate::shard::HeldBytes;

/// Finds the source of every row. A row comes from the table in two cases: its chunk is on no drive, or a drive has
/// failed to deliver the row to this request ([`Request::undelivered`]). A fill is requested for each chunk that is on
/// no drive. The extent of an undelivered row may still be in the directory, and be intact; then no fill is requested.
///
/// If the request was located before, everything that it has gathered is dropped, and all of its rows are read again.
pub fn locate(core: &Core, request: &mut Request) {
    let directory = core.directory.borrow();
    let table = &request.projection.table;
    let mut unfilled: Vec<FillKey> = Vec::new();
    // The rows of a request that is located again, after a drive failed, have been counted already.
    let is_first = request.undelivered.iter().all(BTreeSet::is_empty);
    for (at, part) in request.projection.parts.iter().enumerate() {
        let mut from_table = 0;
        let mut sources = Vec::with_capacity(request.rows());
        // The extent of the row before: rows that follow each other mostly share theirs.
        let mut last: Option<(ExtentKey, Option<ExtentNo>)> = None;
        for position in 0..request.rows() {
            let addr = RowAddr::from_u64(request.addr(position));
            // `decode` has checked that the fragment exists.
            let Some(fragment) = table.fragment(addr.fragment()) else { continue };
            let key = fragment.extent_of(part.pack, addr);
            let found = match last {
                Some((last, found)) if last == key => found,
                _ => directory.find(key),
            };
            last = Some((key, found));
            let is_undelivered = request.undelivered[at].contains(&(position as u32));
            sources.push(match found {
                Some(no) if !is_undelivered => {
                    RowSource::Extent(no, fragment.chunk_rows.row_in_chunk(addr))
                }
                _ => {
                    let chunk = fragment.chunk_rows.chunk_of(addr);
                    let key = FillKey { pack: part.pack, chunk };
                    if found.is_none() && unfilled.last() != Some(&key) {
                        unfilled.push(key);
                    }
                    from_table += 1;
                    RowSource::Table(from_table - 1)
                }
            });
        }
        if is_first {
            core.stats.extent_hits.add(sources.len() as u64 - u64::from(from_table));
            core.stats.extent_misses.add(from_table.into());
        }
        request.sources[at] = sources;
        request.images[at] = None;
    }
    request.gather = None;
    request.images_held = HeldBytes::default();
    request.reply_held = None;
    drop(directory);
    unfilled.sort_unstable();
    unfilled.dedup();
    for key in unfilled {
        core.node.fills.request(table, key);
    }
}

/// Returns whether a drive failed to deliver a row that the request still expects from it.
pub fn has_undelivered(request: &Request) -> bool {
    request.undelivered.iter().zip(&request.sources).any(|(undelivered, sources)| {
        undelivered.iter().any(|&p| matches!(sources[p as usize], RowSource::Extent(..)))
    })
}
