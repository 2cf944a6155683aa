//! Frames hold the sectors' bytes, in huge pages that the kernel allocates when they are first used.

use std::io;
use std::ops::Range;

use address::SECTOR_BYTES;
use ring::AlignedBuf;

use super::{FrameNo, SectorName};

/// All frames, and the names of the sectors in them.
pub struct Frames {
    names: Vec<SectorName>,
    bytes: AlignedBuf,
}

impl Frames {
    /// Reserves address space for `room` frames.
    ///
    /// # Errors
    /// The error of the system if it cannot reserve the address space.
    pub fn new(room: usize) -> io::Result<Self> {
        let bytes = AlignedBuf::reserved(room * SECTOR_BYTES)?;
        Ok(Self { names: Vec::with_capacity(room), bytes })
    }

    /// Returns the number of frames in use.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Adds a frame. Returns `None` if all are in use. The frame's content is undefined until [`Frames::put`].
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

    /// Returns the name of a frame's sector.
    pub fn name(&self, frame: FrameNo) -> SectorName {
        self.names[frame.0 as usize]
    }

    /// Returns the bytes of a frame's sector.
    pub fn bytes(&self, frame: FrameNo) -> &[u8] {
        &self.bytes[span(frame)]
    }

    /// Prefetches the name and some bytes of a frame's sector.
    pub fn prefetch(&self, frame: FrameNo, bytes: Range<usize>) {
        process::prefetch(std::slice::from_ref(&self.names[frame.0 as usize]));
        process::prefetch(&self.bytes(frame)[bytes]);
    }
}

fn span(frame: FrameNo) -> Range<usize> {
    let start = frame.0 as usize * SECTOR_BYTES;
    start..start + SECTOR_BYTES
}
