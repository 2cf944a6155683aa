//! A description of a running ring, for the log and the status page. It includes the reasons why io_uring, registered
//! buffers or registered files are not used, and the number of drives that are read without O_DIRECT.

use std::fmt;

use crate::{IoUringUnavailable, TaskRun};

/// Describes how a ring was set up.
#[derive(Clone, Debug)]
pub struct RingDescription {
    /// The mechanism that carries out the operations.
    pub engine: EngineInUse,
    /// Number of drives.
    pub drives: usize,
    /// Number of drives whose filesystem lacks O_DIRECT, so that their reads go through the page cache.
    pub buffered_drives: usize,
    /// Maximum number of reads in flight.
    pub slots: u32,
    /// Size of a read slot's buffer in bytes.
    pub slot_bytes: usize,
    /// For each drive, the maximum number of transfers (writes, fsyncs, owned reads) in flight. Drives on the same
    /// device share their limit; with [`EngineInUse::InPlace`], all drives share it.
    pub transfers_in_flight_max: Vec<u32>,
}

/// The mechanism that carries out a ring's operations, with details.
#[derive(Clone, Debug)]
pub enum EngineInUse {
    /// io_uring.
    IoUring {
        /// The mode in which the kernel processes completions.
        task_run: TaskRun,
        /// The reason why buffers are not registered, or `None` if they are. Without registration, each read has to pin
        /// its pages.
        buffers_unregistered: Option<String>,
        /// The reason why files are not registered, or `None` if they are.
        files_unregistered: Option<String>,
    },
    /// The pread pool.
    Pread {
        /// Number of threads, including those for transfers.
        threads: u32,
        /// The reason why io_uring is not used, or `None` if the pool was configured.
        instead_of_io_uring: Option<IoUringUnavailable>,
    },
    /// System calls on the ring's own thread.
    InPlace,
    /// Simulated drives.
    Simulated {
        /// The seed of all random choices.
        seed: u64,
    },
}

impl EngineInUse {
    /// Returns the engine's name.
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
