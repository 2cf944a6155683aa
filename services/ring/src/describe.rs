//! What a ring turned out to be, for the log and the status page: nothing falls back in silence.

use std::fmt;

use crate::{TaskRun, WhyNot};

/// How a ring works.
#[derive(Clone, Debug)]
pub struct RingDescription {
    /// What carries the operations out.
    pub engine: EngineInUse,
    /// Drives.
    pub drives: usize,
    /// Drives whose filesystem lacks O_DIRECT: their reads go through the page cache.
    pub buffered_drives: usize,
    /// Reads in flight at most.
    pub slots: u32,
    /// Bytes of a slot's buffer.
    pub slot_bytes: usize,
    /// Transfers (writes, syncs, owned reads) in flight at most, of each drive; drives of one device, or of
    /// memory, share them.
    pub transfers_in_flight_max: Vec<u32>,
}

/// What carries the operations out.
#[derive(Clone, Debug)]
pub enum EngineInUse {
    /// io_uring.
    IoUring {
        /// Where the kernel finishes completions.
        task_run: TaskRun,
        /// Why buffers aren't registered, if they aren't: each read then costs the pinning of its
        /// pages.
        buffers_unregistered: Option<String>,
        /// Why files aren't registered, if they aren't.
        files_unregistered: Option<String>,
    },
    /// The pread pool.
    Pread {
        /// Its threads, those of transfers included.
        threads: u32,
        /// Why it isn't io_uring, if io_uring would have been preferred.
        instead_of_io_uring: Option<WhyNot>,
    },
    /// System calls on the ring's own thread.
    InPlace,
    /// Drives of a simulation.
    Simulated {
        /// The seed everything follows from.
        seed: u64,
    },
}

impl EngineInUse {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::IoUring { .. } => "io_uring",
            Self::Pread { .. } => "pread",
            Self::InPlace => "in place",
            Self::Simulated { .. } => "simulated",
        }
    }
}

impl fmt::Display for RingDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.engine {
            EngineInUse::IoUring { task_run, buffers_unregistered, files_unregistered } => {
                write!(f, "io_uring ({task_run}")?;
                for (what, why) in
                    [("buffers", buffers_unregistered), ("files", files_unregistered)]
                {
                    match why {
                        None => write!(f, ", registered {what}")?,
                        Some(why) => write!(f, ", {what} not registered: {why}")?,
                    }
                }
                f.write_str(")")?;
            }
            EngineInUse::Pread { threads, instead_of_io_uring } => {
                write!(f, "{threads} pread threads")?;
                if let Some(why) = instead_of_io_uring {
                    write!(f, " instead of io_uring: {why}")?;
                }
            }
            EngineInUse::InPlace => f.write_str("reads in place, the drives are memory")?,
            EngineInUse::Simulated { seed } => write!(f, "simulated disk, seed {seed}")?,
        }
        let transfers = &self.transfers_in_flight_max;
        let drives = if self.drives == 1 { "drive" } else { "drives" };
        write!(f, "; {} slots of {} bytes, {} {drives}", self.slots, self.slot_bytes, self.drives)?;
        if self.buffered_drives > 0 {
            write!(f, ", {} of them without O_DIRECT", self.buffered_drives)?;
        }
        let (least, most) = (transfers.iter().min(), transfers.iter().max());
        match (least, most) {
            (Some(least), Some(most)) if least < most => write!(f, ", {least} to {most}")?,
            (Some(same), _) => write!(f, ", {same}")?,
            (None, _) => return Ok(()),
        }
        f.write_str(" transfers each")
    }
}
