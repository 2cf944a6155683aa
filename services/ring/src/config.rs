//! A ring's configuration. It is validated before anything is started.

use address::SECTOR_BYTES;

use crate::SlabFile;
use crate::sim::SimDisk;

/// The mechanism that carries out a ring's operations.
#[derive(Clone, Debug, Default)]
pub enum Engine {
    /// Uses `InPlace` if all drives are in memory, else `IoUring` if [`probe`](crate::probe) finds io_uring usable and
    /// a ring of the configured size can be set up, else `Pread`. In the last case
    /// [`Ring::describe`](crate::Ring::describe) says why io_uring is not used.
    #[default]
    Auto,
    /// io_uring. Starting the ring fails if it is not usable.
    IoUring,
    /// A pool of threads that call pread and pwrite.
    Pread,
    /// Each operation is a system call on the ring's own thread. Meant for drives in memory (tmpfs), where
    /// waiting on another thread gains nothing. On any other drive each read would block its core.
    InPlace,
    /// Deterministic simulated drives, for tests.
    Simulated(SimDisk),
}

/// The limits of one ring.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Maximum number of reads in flight, over all drives. Each read slot owns a buffer.
    pub slots: u32,
    /// Size of a read slot's buffer, and therefore the maximum length of a read. A multiple of 4,096 bytes.
    pub slot_bytes: usize,
    /// Maximum number of reads that wait for a slot.
    pub queue_max: usize,
    /// Maximum number of transfers (writes, fsyncs, owned reads) in flight on each drive. Drives on the same device
    /// share this limit; with `Engine::InPlace`, all drives share it. With any other engine, the limit is lowered, but
    /// not below 1, if all rings together would exceed a quarter of the device's queue depth, or if the limits of all
    /// drives would add up to more than 4,096 or, in a pread pool, to more than `pread_threads`. After each read by
    /// [`Ring::read`](crate::Ring::read), the limit is 1 until 256 transfers have been submitted, so that writes do not
    /// increase the latency of reads.
    pub transfers_in_flight_max: u32,
    /// Maximum number of transfers that wait in each queue. Drives on the same device share a queue; with
    /// [`Engine::InPlace`], all drives share one.
    pub transfer_queue_max: usize,
    /// The number of rings on the same drives, including this one.
    pub rings: u32,
    /// Threads for reads in the pread pool, if it is used. The pool has one more thread for each transfer that
    /// may be in flight.
    pub pread_threads: u32,
    /// The mechanism that carries out the operations.
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

/// A field whose value is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; it must be {rule}")]
pub struct ConfigError {
    /// The name of the field of [`RingConfig`].
    pub field: &'static str,
    /// The configured value.
    pub value: u64,
    /// The values that are allowed.
    pub rule: &'static str,
}

/// Maximum number of read slots if [`Engine::Auto`] chooses [`Engine::InPlace`]. One sector for each slot, 32 KiB in
/// all, fits in the CPU's first-level cache.
const IN_PLACE_SLOTS: u32 = 8;

/// Maximum length of a transfer in bytes: below 2,147,479,552, the most that Linux moves in one call.
pub(crate) const TRANSFER_BYTES_MAX: usize = 1 << 30;

impl RingConfig {
    /// Returns the configuration with `Engine::Auto` resolved to `InPlace` if all drives are in memory.
    /// Operations then do not overlap, so the number of slots is lowered too: fewer buffers are more likely
    /// to stay in the CPU's cache.
    pub(crate) fn for_drives(&self, files: &[SlabFile]) -> Self {
        let mut config = self.clone();
        if matches!(self.engine, Engine::Auto) && files.iter().all(SlabFile::is_memory) {
            config.engine = Engine::InPlace;
            config.slots = self.slots.min(IN_PLACE_SLOTS);
        }
        config
    }

    /// Checks that each limit is in range and that the limits agree with each other.
    /// [`Ring::start`](crate::Ring::start) calls this too.
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
    fn an_error_names_the_field() {
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
