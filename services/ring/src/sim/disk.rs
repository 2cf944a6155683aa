//! The simulated disk: its drives, the operations in flight, and the faults to inject.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use address::{ByteOffset, DriveNo, SECTOR_BYTES, SectorNo};

use super::drive::SimDrive;
use super::random::SimRandom;
use crate::backend::{Completion, Request};
use crate::device::QUEUE_DEPTH_DEFAULT;
use crate::progress::OpKind;

/// The configuration of a simulated disk.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The seed of all random choices.
    pub seed: u64,
    /// Size of each drive in bytes, a multiple of 4,096.
    pub drives: Vec<u64>,
    /// Number of ticks that an operation takes, chosen at random within this range. So operations can complete in a
    /// different order from that of their submission.
    pub latency_ticks: RangeInclusive<u64>,
    /// The number of operations that each drive carries out at the same time; 0 for no limit. Further operations wait
    /// in the drive, in the order of their submission. Each ring has its own channels on each drive.
    pub channels: usize,
    /// Duration of a tick on the runtime's clock. With zero, a tick takes one pass over the
    /// runtime's tasks, during which a paused clock does not advance.
    pub tick: Duration,
    /// The queue depth that each drive reports. Rings derive the limit of transfers in flight from it; it does
    /// not limit reads. The drives themselves accept any number of operations.
    pub queue_depth: u32,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            drives: vec![1 << 20],
            latency_ticks: 1..=8,
            channels: 0,
            tick: Duration::ZERO,
            queue_depth: QUEUE_DEPTH_DEFAULT,
        }
    }
}

/// The faults to inject, and how often. None by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimFaults {
    /// Reads, per 1,000, that end short at a random byte.
    pub short_reads_per_mille: u32,
    /// Writes, per 1,000, that end short at a random byte.
    pub short_writes_per_mille: u32,
    /// Operations, per 1,000, that fail with EINTR or EAGAIN.
    pub interrupts_per_mille: u32,
    /// Reads, per 1,000, that fail with EIO.
    pub failed_reads_per_mille: u32,
    /// Writes and fsyncs, per 1,000, that fail with EIO without writing anything.
    pub failed_writes_per_mille: u32,
    /// Reads, per 1,000, that return one flipped bit.
    pub flipped_reads_per_mille: u32,
    /// Writes, per 1,000, that are reported as successful but are not carried out.
    pub lost_writes_per_mille: u32,
    /// Whether writes fail with ENOSPC.
    pub is_full: bool,
}

/// A read as the drive received it. If a read is submitted several times, there is one `PhysicalRead` for each attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PhysicalRead {
    /// The drive.
    pub drive: DriveNo,
    /// The offset at which the read began.
    pub offset: ByteOffset,
    /// Length in bytes.
    pub len: usize,
}

/// A simulated disk. Clones are handles to the same disk. See the [module](crate::sim).
#[derive(Clone)]
pub struct SimDisk {
    seed: u64,
    tick: Duration,
    queue_depth: u32,
    state: Arc<Mutex<DiskState>>,
}

/// Identifies one of the rings that use the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingNo(u64);

struct DiskState {
    latency_ticks: RangeInclusive<u64>,
    /// The times at which the channels become free, by ring and drive.
    channels: HashMap<(u64, DriveNo), BinaryHeap<Reverse<u64>>>,
    channels_max: usize,
    drives: Vec<SimDrive>,
    faults: SimFaults,
    bad_sectors: BTreeSet<(DriveNo, SectorNo)>,
    unplugged: BTreeSet<DriveNo>,
    held: bool,
    hung: BTreeSet<DriveNo>,
    reads: Vec<PhysicalRead>,
    operations: Vec<Operation>,
    /// The random numbers of each ring.
    randoms: Vec<SimRandom>,
    /// The random numbers of crashes.
    crash_random: SimRandom,
    /// Counts pushes and completions, to determine which writes an fsync covers.
    moment: u64,
}

struct Operation {
    ring: RingNo,
    request: Request,
    pushed: u64,
    due: u64,
    order: u64,
    crashed: bool,
}

impl SimDisk {
    /// Makes a disk whose drives are all zeros.
    ///
    /// # Panics
    ///
    /// If a drive's size is not a positive multiple of 4,096.
    pub fn new(config: SimConfig) -> Self {
        let whole = |len: &u64| *len > 0 && len.is_multiple_of(SECTOR_BYTES as u64);
        assert!(
            config.drives.iter().all(whole),
            "drive sizes must be positive multiples of 4096: {:?}",
            config.drives
        );
        Self {
            seed: config.seed,
            tick: config.tick,
            queue_depth: config.queue_depth,
            state: Arc::new(Mutex::new(DiskState {
                latency_ticks: config.latency_ticks,
                channels: HashMap::new(),
                channels_max: config.channels,
                drives: config.drives.iter().map(|&len| SimDrive::new(len)).collect(),
                faults: SimFaults::default(),
                bad_sectors: BTreeSet::new(),
                unplugged: BTreeSet::new(),
                held: false,
                hung: BTreeSet::new(),
                reads: Vec::new(),
                operations: Vec::new(),
                randoms: Vec::new(),
                crash_random: SimRandom::new(!config.seed),
                moment: 0,
            })),
        }
    }

    /// Returns the disk's seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the length of each drive in bytes.
    pub(crate) fn drive_lens(&self) -> Vec<u64> {
        self.lock().drives.iter().map(|drive| drive.bytes.len() as u64).collect()
    }

    /// Returns the queue depth that each drive reports.
    pub(crate) fn queue_depth(&self) -> u32 {
        self.queue_depth
    }

    /// Sets the faults to inject from now on.
    pub fn set_faults(&self, faults: SimFaults) {
        self.lock().faults = faults;
    }

    /// Sets the latency of the operations that are submitted from now on.
    pub fn set_latency(&self, ticks: RangeInclusive<u64>) {
        self.lock().latency_ticks = ticks;
    }

    /// Makes reads of the sector fail with EIO, until it is written.
    pub fn break_sector(&self, drive: DriveNo, sector: SectorNo) {
        self.lock().bad_sectors.insert((drive, sector));
    }

    /// Unplugs the drive or plugs it in again. While it is unplugged, all its operations fail with ENODEV.
    pub fn unplug(&self, drive: DriveNo, is_unplugged: bool) {
        let mut state = self.lock();
        match is_unplugged {
            true => state.unplugged.insert(drive),
            false => state.unplugged.remove(&drive),
        };
    }

    /// Flips one bit (0 to 7) of a stored byte.
    pub fn flip_bit(&self, drive: DriveNo, at: ByteOffset, bit: u8) {
        self.lock().drive(drive).bytes[at.0 as usize] ^= 1 << bit;
    }

    /// Holds or releases the disk. While it is held, nothing completes, except the operations of a ring that is
    /// dropped.
    pub fn hold(&self, held: bool) {
        self.lock().held = held;
    }

    /// Makes the drive hang or work again. While it hangs, no operation on it completes, except those of a ring that is
    /// dropped.
    pub fn hang(&self, drive: DriveNo, is_hung: bool) {
        let mut state = self.lock();
        match is_hung {
            true => state.hung.insert(drive),
            false => state.hung.remove(&drive),
        };
    }

    /// Simulates a crash of the machine: writes in flight are torn, completed writes that no fsync covers may be lost,
    /// and every operation in flight fails with EIO. Afterwards, the rings can be dropped and new ones started.
    pub fn crash(&self) {
        self.lock().crash();
    }

    /// Returns a drive's contents, including completed writes that no fsync covers.
    pub fn contents(&self, drive: DriveNo) -> Vec<u8> {
        self.lock().drive(drive).bytes.clone()
    }

    /// Stores bytes durably, bypassing all rings.
    pub fn put(&self, drive: DriveNo, at: ByteOffset, data: &[u8]) {
        let at = at.0 as usize;
        self.lock().drive(drive).bytes[at..at + data.len()].copy_from_slice(data);
    }

    /// Reads without a ring, as [`SlabFile::read_at`](crate::SlabFile::read_at) does.
    pub(crate) fn read_at(&self, drive: DriveNo, at: ByteOffset, buf: &mut [u8]) -> io::Result<()> {
        let mut state = self.lock();
        if state.unplugged.contains(&drive) {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let first = SectorNo(at.0 / SECTOR_BYTES as u64);
        let past = first.plus(address::sectors_for(buf.len() as u64));
        if state.bad_sectors.range((drive, first)..(drive, past)).next().is_some() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let held = state.drive(drive).bytes.get(at.0 as usize..).and_then(|it| it.get(..buf.len()));
        buf.copy_from_slice(held.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    /// Returns the reads since the last call, in the order of submission.
    pub fn take_reads(&self) -> Vec<PhysicalRead> {
        std::mem::take(&mut self.lock().reads)
    }

    /// Returns the number of operations in flight, of all rings.
    pub fn in_flight(&self) -> usize {
        self.lock().operations.len()
    }

    pub(crate) fn tick(&self) -> Duration {
        self.tick
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    pub(crate) fn add_ring(&self) -> RingNo {
        let mut state = self.lock();
        let number = state.randoms.len() as u64;
        let mut seeds = SimRandom::new(self.seed);
        let seed = (0..=number).fold(0, |_, _| seeds.next());
        state.randoms.push(SimRandom::new(seed));
        RingNo(number)
    }

    pub(crate) fn push(&self, ring: RingNo, now: u64, request: Request) {
        self.lock().push(ring, now, request);
    }

    /// Removes and completes the ring's operations that are due by `now`, in the order of completion. Leaves out the
    /// operations on drives that hang, or all operations while the disk is held.
    pub(crate) fn complete(&self, ring: RingNo, now: u64, into: &mut Vec<Completion>) {
        let mut state = self.lock();
        if state.held {
            return;
        }
        let hung = std::mem::take(&mut state.hung);
        let is_due = |operation: &Operation| {
            operation.ring == ring
                && operation.due <= now
                && !hung.contains(&operation.request.drive)
        };
        state.complete(is_due, into);
        state.hung = hung;
    }

    /// Removes and completes all operations of the ring, even if the disk is held or a drive hangs.
    pub(crate) fn finish(&self, ring: RingNo, into: &mut Vec<Completion>) {
        self.lock().complete(|operation| operation.ring == ring, into);
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskState {
    fn drive(&mut self, drive: DriveNo) -> &mut SimDrive {
        &mut self.drives[usize::from(drive.0)]
    }

    fn push(&mut self, ring: RingNo, now: u64, request: Request) {
        if request.kind == OpKind::Read {
            self.reads.push(PhysicalRead {
                drive: request.drive,
                offset: request.offset,
                len: request.len as usize,
            });
        }
        let random = &mut self.randoms[ring.0 as usize];
        let (least, most) = (*self.latency_ticks.start(), *self.latency_ticks.end());
        let ticks = least + random.below((most.saturating_sub(least)).saturating_add(1).max(1));
        let order = random.next();
        self.moment += 1;
        let begins = self.free_channel(ring, now, ticks, request.drive);
        let (pushed, due) = (self.moment, begins.saturating_add(ticks));
        self.operations.push(Operation { ring, request, pushed, due, order, crashed: false });
    }

    /// Occupies the drive's channel that becomes free first, for `ticks` ticks. Returns the time at which the operation
    /// begins.
    fn free_channel(&mut self, ring: RingNo, now: u64, ticks: u64, drive: DriveNo) -> u64 {
        if self.channels_max == 0 {
            return now;
        }
        let channels = self.channels.entry((ring.0, drive)).or_default();
        let begins = match channels.len() < self.channels_max {
            true => now,
            false => channels.pop().map_or(now, |Reverse(free)| free.max(now)),
        };
        channels.push(Reverse(begins.saturating_add(ticks)));
        begins
    }

    fn complete(&mut self, is_due: impl Fn(&Operation) -> bool, into: &mut Vec<Completion>) {
        let mut due: Vec<_> =
            self.operations.extract_if(.., |operation| is_due(operation)).collect();
        due.sort_by_key(|operation| (operation.due, operation.order));
        into.extend(due.into_iter().map(|operation| self.complete_one(operation)));
    }

    fn complete_one(&mut self, operation: Operation) -> Completion {
        let Operation { ring, mut request, pushed, crashed, .. } = operation;
        let result = match crashed {
            true => Err(libc::EIO),
            false => self.execute(ring, &mut request, pushed),
        };
        Completion { slot: request.slot, result, buf: request.buf }
    }

    fn execute(&mut self, ring: RingNo, request: &mut Request, pushed: u64) -> Result<u32, i32> {
        if self.unplugged.contains(&request.drive) {
            return Err(libc::ENODEV);
        }
        let random = &mut self.randoms[ring.0 as usize];
        if random.per_mille(self.faults.interrupts_per_mille) {
            return Err([libc::EINTR, libc::EAGAIN][random.below(2) as usize]);
        }
        let short = match request.kind {
            OpKind::Read => self.faults.short_reads_per_mille,
            OpKind::Write => self.faults.short_writes_per_mille,
            OpKind::Fsync => 0,
        };
        let failed = match request.kind {
            OpKind::Read => self.faults.failed_reads_per_mille,
            OpKind::Write | OpKind::Fsync => self.faults.failed_writes_per_mille,
        };
        if random.per_mille(failed) {
            return Err(libc::EIO);
        }
        let len = match random.per_mille(short) {
            true => 1 + random.below(u64::from(request.len)) as usize,
            false => request.len as usize,
        };
        self.moment += 1;
        let moment = self.moment;
        let drive = &mut self.drives[usize::from(request.drive.0)];
        let at = request.offset.0 as usize;
        let part = request.start as usize..request.start as usize + len;
        let first = SectorNo(request.offset.0 / SECTOR_BYTES as u64);
        let sectors =
            (request.drive, first)..(request.drive, first.plus(address::sectors_for(len as u64)));
        match request.kind {
            OpKind::Fsync => drive.fsync(pushed),
            OpKind::Read => {
                if self.bad_sectors.range(sectors).next().is_some() {
                    return Err(libc::EIO);
                }
                request.buf[part].copy_from_slice(&drive.bytes[at..at + len]);
                if random.per_mille(self.faults.flipped_reads_per_mille) {
                    let place = request.start as usize + random.below(len as u64) as usize;
                    request.buf[place] ^= 1 << random.below(8);
                }
            }
            OpKind::Write if self.faults.is_full => return Err(libc::ENOSPC),
            OpKind::Write if random.per_mille(self.faults.lost_writes_per_mille) => {}
            OpKind::Write => {
                drive.write(moment, at, &request.buf[part]);
                self.bad_sectors.retain(|place| !sectors.contains(place));
            }
        }
        Ok(len as u32)
    }

    fn crash(&mut self) {
        let Self { operations, drives, crash_random, .. } = self;
        for drive in drives.iter_mut() {
            drive.crash(crash_random);
        }
        for operation in operations.iter_mut().filter(|operation| !operation.crashed) {
            let request = &operation.request;
            if request.kind == OpKind::Write {
                let part = request.start as usize..(request.start + request.len) as usize;
                let drive = &mut drives[usize::from(request.drive.0)];
                drive.tear(request.offset.0 as usize, &request.buf[part], crash_random);
            }
            operation.crashed = true;
        }
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk(seed {})", self.seed)
    }
}
