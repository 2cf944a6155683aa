//! Frames: the sectors' bytes, in huge pages that are taken from the machine as they are needed.

use std::io;
use std::ops::Range;

use address::SECTOR_BYTES;
use ring::AlignedBuf;

use super::{FrameNo, SectorName};

/// The frames, and what is in them.
pub struct Frames {
    names: Vec<SectorName>,
    bytes: AlignedBuf,
}

impl Frames {
    /// At most so many.
    ///
    /// # Errors
    /// What the system says when it has no room for their addresses.
    pub fn new(room: usize) -> io::Result<Self> {
        let bytes = AlignedBuf::reserved(room * SECTOR_BYTES)?;
        Ok(Self { names: Vec::with_capacity(room), bytes })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// One more; `None` if there are as many as may be. What it has is unknown until [`Frames::put`].
    pub fn add(&mut self) -> Option<FrameNo> {
        let number = self.names.len();
        if number * SECTOR_BYTES == self.bytes.len() {
            return None;
        }
        self.names.push(SectorName::NONE);
        Some(FrameNo(number as u32))
    }

    /// Puts a sector into a frame.
    pub fn put(&mut self, frame: FrameNo, name: SectorName, bytes: &[u8]) {
        self.names[frame.0 as usize] = name;
        self.bytes[span(frame)].copy_from_slice(bytes);
    }

    /// What a frame has.
    pub fn name(&self, frame: FrameNo) -> SectorName {
        self.names[frame.0 as usize]
    }

    /// Its bytes: a sector.
    pub fn bytes(&self, frame: FrameNo) -> &[u8] {
        &self.bytes[span(frame)]
    }

    /// Has the CPU bring near its name, and some of its bytes.
    pub fn prefetch(&self, frame: FrameNo, bytes: Range<usize>) {
        process::prefetch(std::slice::from_ref(&self.names[frame.0 as usize]));
        process::prefetch(&self.bytes(frame)[bytes]);
    }
}

fn span(frame: FrameNo) -> Range<usize> {
    let start = frame.0 as usize * SECTOR_BYTES;
    start..start + SECTOR_BYTES
}
