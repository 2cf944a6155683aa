//! How a ring is to be: typed, and checked before anything is started.

use address::SECTOR_BYTES;

use crate::SlabFile;
use crate::sim::SimDisk;

/// What carries the operations out.
#[derive(Clone, Debug, Default)]
pub enum Engine {
    /// In place if all drives are memory; io_uring if [`probe`](crate::probe) finds it usable; else the
    /// pread pool, the reason kept in [`Ring::describe`](crate::Ring::describe).
    #[default]
    Auto,
    /// io_uring, or an error at start.
    IoUring,
    /// A pool of threads that call pread and pwrite.
    Pread,
    /// Each operation as a system call on the ring's own thread: for drives that are memory (tmpfs),
    /// where nothing is gained by waiting elsewhere. On others each read holds up its core.
    InPlace,
    /// Drives in memory, deterministic, for tests.
    Simulated(SimDisk),
}

/// Bounds of one ring.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Reads in flight at most, over all drives; each slot owns a buffer.
    pub slots: u32,
    /// Bytes of a slot's buffer, and so the longest read: a multiple of 4,096.
    pub slot_bytes: usize,
    /// Reads that may wait for a slot.
    pub queue_max: usize,
    /// Transfers (writes, syncs, owned reads) in flight on each drive at most; drives of one device share
    /// them, and so do all drives that are memory. Less where all rings together would have more than a
    /// quarter of what the device takes at a time, at least one. On a drive that is read it's one, so that
    /// fills can't spoil its latency.
    pub transfers_in_flight_max: u32,
    /// Transfers that may wait for each drive, or for those that share a device.
    pub transfer_queue_max: usize,
    /// Rings on the same drives, this one included.
    pub rings: u32,
    /// Threads of the pread pool that reads have at least, if that's what is used; transfers in flight have
    /// one more each.
    pub pread_threads: u32,
    /// What carries the operations out.
    pub engine: Engine,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            slots: 512,
            slot_bytes: 32 << 10,
            queue_max: 64 << 10,
            transfers_in_flight_max: 4,
            transfer_queue_max: 256,
            rings: 1,
            pread_threads: 16,
            engine: Engine::Auto,
        }
    }
}

/// A bound that can't be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; it must be {rule}")]
pub struct ConfigError {
    /// The field of [`RingConfig`].
    pub field: &'static str,
    /// As configured.
    pub value: u64,
    /// What it must be.
    pub rule: &'static str,
}

/// Slots for drives that are memory: their sectors fit the first-level cache together.
const IN_PLACE_SLOTS: u32 = 8;

/// The longest transfer in bytes: below the 2,147,479,552 that Linux moves in one call.
pub(crate) const TRANSFER_BYTES_MAX: usize = 1 << 30;

impl RingConfig {
    /// The same with the engine that these drives are best read by, if that was left open, and with fewer
    /// slots where operations don't overlap: the fewer buffers, the more of them stay in the CPU's cache.
    pub(crate) fn for_drives(&self, files: &[SlabFile]) -> Self {
        let mut config = self.clone();
        if matches!(self.engine, Engine::Auto) && files.iter().all(SlabFile::is_memory) {
            config.engine = Engine::InPlace;
            config.slots = self.slots.min(IN_PLACE_SLOTS);
        }
        config
    }

    /// Whether the bounds are sane and agree with each other. [`Ring::start`](crate::Ring::start)
    /// asks too.
    ///
    /// # Errors
    ///
    /// The first field that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = |ok, field, value, rule| match ok {
            true => Ok(()),
            false => Err(ConfigError { field, value, rule }),
        };
        let slots = u64::from(self.slots);
        check((1..=8192).contains(&slots), "slots", slots, "1 to 8192")?;
        check(
            self.slot_bytes.is_multiple_of(SECTOR_BYTES)
                && (SECTOR_BYTES..=1 << 20).contains(&self.slot_bytes),
            "slot_bytes",
            self.slot_bytes as u64,
            "a multiple of 4096, at most 1 MiB",
        )?;
        check(
            self.queue_max as u64 >= slots,
            "queue_max",
            self.queue_max as u64,
            "at least as large as slots",
        )?;
        let transfers = u64::from(self.transfers_in_flight_max);
        check((1..=256).contains(&transfers), "transfers_in_flight_max", transfers, "1 to 256")?;
        check(
            self.transfer_queue_max >= 1,
            "transfer_queue_max",
            self.transfer_queue_max as u64,
            "at least 1",
        )?;
        check(self.rings >= 1, "rings", u64::from(self.rings), "at least 1")?;
        let threads = u64::from(self.pread_threads);
        check((1..=256).contains(&threads), "pread_threads", threads, "1 to 256")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_field() {
        assert_eq!(RingConfig::default().validate(), Ok(()));
        let field = |config: RingConfig| config.validate().unwrap_err().field;
        assert_eq!(field(RingConfig { slots: 0, ..Default::default() }), "slots");
        assert_eq!(field(RingConfig { slot_bytes: 5000, ..Default::default() }), "slot_bytes");
        assert_eq!(field(RingConfig { queue_max: 511, ..Default::default() }), "queue_max");
        assert_eq!(
            field(RingConfig { transfers_in_flight_max: 0, ..Default::default() }),
            "transfers_in_flight_max"
        );
        assert_eq!(field(RingConfig { rings: 0, ..Default::default() }), "rings");
    }
}
