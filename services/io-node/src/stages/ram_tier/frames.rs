//! Frames: the sectors' bytes, in huge pages that are taken as they are needed.

use std::ops::Range;

use address::SECTOR_BYTES;
use ring::AlignedBuf;

use super::{FrameNo, SectorName};

/// Frames that are made at a time: those of one huge page.
const FRAMES_A_BLOCK: usize = (2 << 20) / SECTOR_BYTES;

/// The frames, and what is in them.
pub struct Frames {
    room: usize,
    names: Vec<SectorName>,
    blocks: Vec<AlignedBuf>,
}

impl Frames {
    /// At most so many.
    pub fn new(room: usize) -> Self {
        Self { room, names: Vec::new(), blocks: Vec::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// One more; `None` if there are as many as may be. What it has is unknown until [`Frames::put`].
    pub fn add(&mut self) -> Option<FrameNo> {
        let number = self.names.len();
        if number == self.room {
            return None;
        }
        if number == self.blocks.len() * FRAMES_A_BLOCK {
            let frames = (self.room - number).min(FRAMES_A_BLOCK);
            self.blocks.extend(AlignedBuf::parts_of_huge_pages(1, frames * SECTOR_BYTES));
        }
        self.names.push(SectorName::NONE);
        Some(FrameNo(number as u32))
    }

    /// Puts a sector into a frame.
    pub fn put(&mut self, frame: FrameNo, name: SectorName, bytes: &[u8]) {
        self.names[frame.0 as usize] = name;
        self.blocks[block(frame)][span(frame)].copy_from_slice(bytes);
    }

    /// What a frame has.
    pub fn name(&self, frame: FrameNo) -> SectorName {
        self.names[frame.0 as usize]
    }

    /// Its bytes: a sector.
    pub fn bytes(&self, frame: FrameNo) -> &[u8] {
        &self.blocks[block(frame)][span(frame)]
    }

    /// Has the CPU bring near its name, and some of its bytes.
    pub fn near(&self, frame: FrameNo, bytes: Range<usize>) {
        process::prefetch(std::slice::from_ref(&self.names[frame.0 as usize]));
        process::prefetch(&self.bytes(frame)[bytes]);
    }
}

fn block(frame: FrameNo) -> usize {
    frame.0 as usize / FRAMES_A_BLOCK
}

fn span(frame: FrameNo) -> Range<usize> {
    let start = frame.0 as usize % FRAMES_A_BLOCK * SECTOR_BYTES;
    start..start + SECTOR_BYTES
}
