//! Hands the bytes of a read to the requests that wait for them.

use std::sync::Arc;

use address::{SECTOR_BYTES, SectorNo};
use pack::PackError;

use super::checks::Checks;
use super::{Piece, ReadContext};
use crate::drive::ExtentError;
use crate::extent::Extent;
use crate::fetch::coalesce::Want;
use crate::fetch::ram_tier::SectorName;
use crate::fetch::requests::Request;
use crate::shard::RequestNo;

/// Checks the sectors of a read, and puts its pieces into the replies of their requests. Adds requests that have no
/// pieces left to `ended`.
pub(super) fn deliver(
    core: &ReadContext<'_>,
    first: SectorNo,
    bytes: &[u8],
    wants: &[Want<Piece>],
    ended: &mut Vec<RequestNo>,
) {
    let mut requests = core.requests.borrow_mut();
    let directory = core.directory.borrow();
    let mut checks = Checks::default();
    for want in wants {
        let piece = &want.piece;
        let Some(request) = requests.get_mut(piece.request) else { continue };
        let Some(extent) = directory.extent(piece.extent) else { continue };
        let skipped = (want.first.0 - first.0) as usize;
        if !checks.verify(core, extent, piece, skipped, bytes) {
            request.undelivered[usize::from(piece.part)].insert(piece.position);
        } else if let Some(gather) = &mut request.gather {
            let start = skipped * SECTOR_BYTES + piece.offset as usize % SECTOR_BYTES;
            let row = &bytes[start..start + piece.len as usize];
            let (part, position) = (piece.part.into(), piece.position as usize);
            match gather.put(part, position, piece.row_offset as usize, row) {
                Ok(()) => checks.offer(core, extent, piece, skipped, bytes),
                Err(error) => mark_undecodable(core, extent, piece, request, &error),
            }
        }
        request.pieces_left -= 1;
        if request.pieces_left == 0 {
            ended.push(piece.request);
        }
    }
}

/// Marks a piece as undelivered because its row can't be decoded. Its checksum is right, so the bytes were wrong when they
/// were written: the extent is reported, and the RAM tier forgets the sectors, because the extent that replaces this one
/// has the same key.
#[cold]
pub(super) fn mark_undecodable(
    core: &ReadContext<'_>,
    extent: &Arc<Extent>,
    piece: &Piece,
    request: &mut Request,
    error: &PackError,
) {
    let trace = request.span.map(|span| span.trace_id());
    tracing::error!(trace_id = trace, %error, extent = ?extent.key, "a row can't be decoded");
    core.fills.bad_extent(extent, ExtentError::Undecodable);
    let first = SectorName::new(extent.key, piece.first_sector());
    (0..piece.sectors()).for_each(|sector| core.ram.remove(first.plus(sector)));
    request.undelivered[usize::from(piece.part)].insert(piece.position);
}

/// Marks pieces as undelivered because their read failed or hangs. Their rows are read from the table instead. Adds
/// requests that have no pieces left to `ended`.
///
/// A failed read does not say which of its sectors is bad. So if the failure means bad data, the extent of each piece
/// is reported, even if only one of them has a bad sector: each is dropped, and counts against the drive's health.
pub(super) fn mark_undelivered(
    core: &ReadContext<'_>,
    wants: &[Want<Piece>],
    trouble: Option<ExtentError>,
    ended: &mut Vec<RequestNo>,
) {
    for want in wants {
        mark_piece_undelivered(core, want.piece, trouble, ended);
    }
}

pub(super) fn mark_piece_undelivered(
    core: &ReadContext<'_>,
    piece: Piece,
    trouble: Option<ExtentError>,
    ended: &mut Vec<RequestNo>,
) {
    let mut requests = core.requests.borrow_mut();
    // Once the request has ended, another extent may have the number of the piece's.
    let Some(request) = requests.get_mut(piece.request) else { return };
    if let Some(trouble) = trouble.filter(ExtentError::means_bad_data)
        && let Some(extent) = core.directory.borrow().extent(piece.extent)
    {
        core.fills.bad_extent(extent, trouble);
    }
    request.undelivered[usize::from(piece.part)].insert(piece.position);
    request.pieces_left -= 1;
    if request.pieces_left == 0 {
        ended.push(piece.request);
    }
}
