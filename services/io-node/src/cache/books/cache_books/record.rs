//! Recording placed extents in the drives' journals.

use address::DriveNo;

use super::CacheBooks;
use crate::cache::books::events::{Action, BlockOf};
use crate::cache::books::segments::BlockRoom;
use crate::cache::books::unrecorded::record_sectors;
use crate::drive::JournalError;
use crate::drive::journal::{BlockId, Record, block_sectors, record_bytes, sum_of, to_block};
use crate::extent::{SegmentNo, segment_start};

impl CacheBooks {
    /// Starts a journal write on each drive that has unrecorded extents, one block per drive at a time.
    pub(super) fn record(&mut self) {
        for drive in 0..self.unrecorded.len() {
            let (waiting, busy) = &mut self.unrecorded[drive];
            let Some((segment, extents)) = (!*busy).then(|| waiting.take()).flatten() else {
                continue;
            };
            *busy = true;
            let start = segment_start(segment.index, self.segment_sectors);
            let records: Vec<_> = extents
                .iter()
                .map(|extent| {
                    let first = (extent.first.0 - start.0) as u32;
                    Record { key: extent.key, first, index: &extent.index }
                })
                .collect();
            let reserved_sectors = extents.iter().map(|extent| record_sectors(&extent.index)).sum();
            let bytes = extents.iter().map(|extent| record_bytes(&extent.index)).sum();
            let room = self.segments.next_block(segment, block_sectors(bytes));
            let block = to_block(&self.block_id(segment, &room), &records);
            self.segments.chain(segment, sum_of(&block));
            let of = BlockOf { segment, extents: extents.len() as u32, reserved_sectors };
            self.actions.push(Action::Record { of, first: room.first, block });
        }
    }

    /// Handles the outcome of a journal write.
    pub(super) fn recorded(&mut self, block: BlockOf, outcome: Result<(), JournalError>) {
        let BlockOf { segment, extents, reserved_sectors } = block;
        self.unrecorded[usize::from(segment.drive.0)].1 = false;
        self.segments.settle(segment, extents, reserved_sectors);
        self.journal_written(segment.drive, outcome);
    }

    pub(super) fn block_id(&self, segment: SegmentNo, room: &BlockRoom) -> BlockId {
        let uuid = self.slabs[usize::from(segment.drive.0)].uuid;
        let (epoch, number, log) = (room.epoch, room.number, room.log as u32);
        let previous = room.previous;
        BlockId { uuid, segment: segment.index, epoch, number, log, previous }
    }

    /// Handles the outcome of a journal write, and returns whether it succeeded. After a failure that is the drive's
    /// fault, or a panic, the drive takes no more writes.
    pub(super) fn journal_written(
        &mut self,
        drive: DriveNo,
        outcome: Result<(), JournalError>,
    ) -> bool {
        if let Err(error) = &outcome
            && self.health[usize::from(drive.0)].journal_failed(error)
        {
            self.degrade(drive, error);
        }
        outcome.is_ok()
    }
}
