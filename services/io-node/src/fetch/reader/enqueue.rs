//! Divides the rows of a request into pieces, and queues those that are not in the RAM tier.

use address::SECTOR_BYTES;
use pack::{PackError, RowSpan};
use tokio::time::Instant;
use wire::Fault;

use super::deliver::mark_undecodable;
use super::queue::Queue;
use super::{Piece, ReadContext, Reader};
use crate::error::{NodeError, fault_of};
use crate::fetch::ram_tier::{Lookup, SectorName};
use crate::fetch::requests::{Gather, Request, RowSource};
use crate::shard::RequestNo;

/// The number of pieces by which the prefetch of bytes in the RAM tier is ahead of their use. Scoring a piece takes a
/// tenth of the time that memory takes to answer.
const RAM_AHEAD: usize = 8;

impl Reader {
    /// Queues the pieces of a request. Pieces that are in the RAM tier are put into the reply immediately instead.
    ///
    /// # Errors
    /// A row of an image cannot be decoded.
    pub fn enqueue(&self, core: &ReadContext<'_>, no: RequestNo) -> Result<(), Fault> {
        let mut requests = core.requests.borrow_mut();
        let Some(request) = requests.get_mut(no) else { return Ok(()) };
        let Some(mut gather) = request.gather.take() else { return Ok(()) };
        let wanted = self.enqueue_parts(core, no, request, &mut gather);
        request.gather = Some(gather);
        let now = Instant::now();
        request.times.located = Some(now);
        if request.pieces_left > 0 {
            self.depth.borrow_mut().queued(request.flow, now);
        }
        wanted.map_err(|error| fault_of(&NodeError::from(error)))
    }

    fn enqueue_parts(
        &self,
        core: &ReadContext<'_>,
        no: RequestNo,
        request: &mut Request,
        gather: &mut Gather,
    ) -> Result<(), PackError> {
        let mut pieces = self.pieces.borrow_mut();
        pieces.clear();
        let mut waiting = self.waiting.borrow_mut();
        let directory = core.directory.borrow();
        for (part, sources) in request.sources.iter().enumerate() {
            if let Some(image) = &request.images[part] {
                gather.put_image(part, image, sources)?;
            }
            // The place of the row after the last one, with the last one's span.
            let mut next: Option<(RowSource, RowSpan)> = None;
            for (position, source) in sources.iter().enumerate() {
                let RowSource::Extent(extent_no, row) = *source else { continue };
                let Some(extent) = directory.extent_counting_reader(extent_no, no.serial) else {
                    continue;
                };
                if extent.index.is_null(row) {
                    continue;
                }
                let span = match next {
                    Some((next, last)) if next == *source => extent.index.span_after(last, row),
                    _ => extent.index.span(row),
                };
                let Some(span) = span else { continue };
                next = Some((RowSource::Extent(extent_no, row + 1), span));
                let mut from = 0;
                while from < span.len {
                    let offset = span.offset + from;
                    let len = (span.len - from).min(self.piece_len_max(offset));
                    let piece = Piece {
                        request: no,
                        extent: extent_no,
                        part: part as u16,
                        position: position as u32,
                        row_offset: from,
                        offset,
                        len,
                    };
                    from += len;
                    if !core.ram.is_on() {
                        request.pieces_left += 1;
                        waiting.push(piece, request.flow, request.priority);
                        continue;
                    }
                    let name = SectorName::new(extent.key, piece.first_sector());
                    // Neighbouring rows share sectors.
                    if pieces.last().is_none_or(|(_, last)| *last != name) {
                        core.ram.prefetch_entry(name);
                    }
                    pieces.push((piece, name));
                }
            }
        }
        put_from_ram(core, &pieces, &mut waiting, request, gather);
        if !waiting.is_empty() {
            self.wake();
        }
        Ok(())
    }

    /// Returns the maximum number of bytes that one read can return from `offset` of an extent.
    fn piece_len_max(&self, offset: u32) -> u32 {
        self.sectors_max * SECTOR_BYTES as u32 - offset % SECTOR_BYTES as u32
    }
}

/// Puts the pieces that are in the RAM tier into the reply, and queues the others.
fn put_from_ram(
    core: &ReadContext<'_>,
    pieces: &[(Piece, SectorName)],
    waiting: &mut Queue<Piece>,
    request: &mut Request,
    gather: &mut Gather,
) {
    let Some(mut ram) = core.ram.lookup() else { return };
    let mut undecodable = Vec::new();
    for (at, (piece, name)) in pieces.iter().enumerate() {
        let ahead = at + RAM_AHEAD;
        // The CPU itself prefetches further bytes of a sector that is being read.
        if let Some((later, name)) = pieces.get(ahead)
            && pieces[ahead - 1].1 != *name
        {
            core.ram.prefetch_bytes(*name, later.in_first_sector());
        }
        match put_piece(core, &mut ram, *name, piece, gather) {
            Ok(true) => request.times.ram_hits += piece.sectors(),
            Ok(false) => {
                request.pieces_left += 1;
                waiting.push(*piece, request.flow, request.priority);
            }
            Err(error) => undecodable.push((piece, error)),
        }
    }
    drop(ram);
    let directory = core.directory.borrow();
    for (piece, error) in undecodable {
        if let Some(extent) = directory.extent(piece.extent) {
            mark_undecodable(core, extent, piece, request, &error);
        }
    }
}

/// Puts a piece into the reply if all of its sectors, beginning with `first`, are in RAM. Returns whether they are.
fn put_piece(
    core: &ReadContext<'_>,
    ram: &mut Lookup<'_>,
    first: SectorName,
    piece: &Piece,
    gather: &mut Gather,
) -> Result<bool, PackError> {
    let mut put = |bytes: &[u8]| {
        let (part, position) = (piece.part.into(), piece.position as usize);
        gather.put(part, position, piece.row_offset as usize, bytes)
    };
    let sectors = piece.sectors();
    let start = piece.offset as usize % SECTOR_BYTES;
    let row = start..start + piece.len as usize;
    if sectors == 1 {
        let Some(sector) = ram.sector(first) else {
            core.stats.ram_misses.add(1);
            return Ok(false);
        };
        core.stats.ram_hits.add(1);
        return put(&sector[row]).map(|()| true);
    }
    // If `gather` scores rows, it needs a whole vector in one call, so the bytes of the sectors are joined first.
    let mut joined = Vec::with_capacity(sectors as usize * SECTOR_BYTES);
    for sector in 0..sectors {
        let Some(bytes) = ram.sector(first.plus(sector)) else {
            core.stats.ram_misses.add(u64::from(sectors));
            return Ok(false);
        };
        joined.extend_from_slice(bytes);
    }
    core.stats.ram_hits.add(u64::from(sectors));
    put(&joined[row]).map(|()| true)
}
