//! The disk itself: drives, what is in flight on them, and what is to go wrong.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use address::{ByteOffset, DriveNo, SECTOR_BYTES, SectorNo};

use super::drive::SimDrive;
use super::random::SimRandom;
use crate::SlabFile;
use crate::backend::{Completion, Request};
use crate::device::QUEUE_DEPTH_DEFAULT;
use crate::progress::Kind;

/// What a simulated disk is.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Everything random follows from it.
    pub seed: u64,
    /// Bytes of each drive, multiples of 4,096.
    pub drives: Vec<u64>,
    /// Ticks that an operation takes; completions overtake each other within this range.
    pub latency_ticks: RangeInclusive<u64>,
    /// How long a tick takes by the runtime's clock; zero for a turn of the runtime, during which a paused clock
    /// stands still.
    pub tick: Duration,
    /// Operations that each drive is said to take at a time: rings go by it, the drives take any number.
    pub queue_depth: u32,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            drives: vec![1 << 20],
            latency_ticks: 1..=8,
            tick: Duration::ZERO,
            queue_depth: QUEUE_DEPTH_DEFAULT,
        }
    }
}

/// What goes wrong, how often. Off by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimFaults {
    /// Of 1,000 reads, how many end short, anywhere.
    pub short_reads_per_mille: u32,
    /// Of 1,000 writes, how many end short, anywhere.
    pub short_writes_per_mille: u32,
    /// Of 1,000 operations, how many end in EINTR or EAGAIN.
    pub interrupts_per_mille: u32,
    /// Of 1,000 reads, how many end in EIO.
    pub failed_reads_per_mille: u32,
    /// Of 1,000 writes and syncs, how many end in EIO, with nothing written.
    pub failed_writes_per_mille: u32,
    /// Of 1,000 reads, how many bring a bit that is not what the drive holds.
    pub flipped_reads_per_mille: u32,
    /// Of 1,000 writes, how many are said to be done and are not.
    pub lost_writes_per_mille: u32,
    /// Whether writes find no room (ENOSPC).
    pub is_full: bool,
}

/// A read as the drive saw it: one for each attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PhysicalRead {
    /// The drive.
    pub drive: DriveNo,
    /// Where it began.
    pub offset: ByteOffset,
    /// In bytes.
    pub len: usize,
}

/// A simulated disk; clones are the same disk. See the [module](crate::sim).
#[derive(Clone)]
pub struct SimDisk {
    seed: u64,
    tick: Duration,
    queue_depth: u32,
    state: Arc<Mutex<State>>,
}

/// One of the rings on the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingNo(u64);

struct State {
    latency_ticks: RangeInclusive<u64>,
    drives: Vec<SimDrive>,
    faults: SimFaults,
    bad_sectors: BTreeSet<(DriveNo, SectorNo)>,
    gone: BTreeSet<DriveNo>,
    held: bool,
    hung: BTreeSet<DriveNo>,
    reads: Vec<PhysicalRead>,
    flights: Vec<Flight>,
    /// Of each ring, and for crashes.
    randoms: Vec<SimRandom>,
    crash_random: SimRandom,
    /// Counts pushes and completions, to tell what a sync covers.
    moment: u64,
}

struct Flight {
    ring: RingNo,
    request: Request,
    pushed: u64,
    due: u64,
    order: u64,
    crashed: bool,
}

impl SimDisk {
    /// A disk of zeros.
    ///
    /// # Panics
    ///
    /// If a drive's length isn't a positive multiple of 4,096.
    pub fn new(config: SimConfig) -> Self {
        let whole = |len: &u64| *len > 0 && len.is_multiple_of(SECTOR_BYTES as u64);
        assert!(config.drives.iter().all(whole), "drives of whole sectors: {:?}", config.drives);
        Self {
            seed: config.seed,
            tick: config.tick,
            queue_depth: config.queue_depth,
            state: Arc::new(Mutex::new(State {
                latency_ticks: config.latency_ticks,
                drives: config.drives.iter().map(|&len| SimDrive::new(len)).collect(),
                faults: SimFaults::default(),
                bad_sectors: BTreeSet::new(),
                gone: BTreeSet::new(),
                held: false,
                hung: BTreeSet::new(),
                reads: Vec::new(),
                flights: Vec::new(),
                randoms: Vec::new(),
                crash_random: SimRandom::new(!config.seed),
                moment: 0,
            })),
        }
    }

    /// Its seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Its drives, to be given to [`Ring::start`](crate::Ring::start).
    pub fn slabs(&self) -> Vec<SlabFile> {
        let lens: Vec<_> = self.lock().drives.iter().map(|d| d.bytes.len() as u64).collect();
        let depth = self.queue_depth;
        let slab = |(number, len)| SlabFile::simulated(self, DriveNo(number as u16), len, depth);
        lens.into_iter().enumerate().map(slab).collect()
    }

    /// From now on these go wrong.
    pub fn set_faults(&self, faults: SimFaults) {
        self.lock().faults = faults;
    }

    /// From now on operations take so long.
    pub fn set_latency(&self, ticks: RangeInclusive<u64>) {
        self.lock().latency_ticks = ticks;
    }

    /// Reads of the sector end in EIO, until [`SimDisk::mend_sector`] or a write of it.
    pub fn break_sector(&self, drive: DriveNo, sector: SectorNo) {
        self.lock().bad_sectors.insert((drive, sector));
    }

    /// Reads of the sector work again.
    pub fn mend_sector(&self, drive: DriveNo, sector: SectorNo) {
        self.lock().bad_sectors.remove(&(drive, sector));
    }

    /// Everything that is asked of the drive ends in ENODEV, until it is back.
    pub fn unplug(&self, drive: DriveNo, is_gone: bool) {
        let mut state = self.lock();
        match is_gone {
            true => state.gone.insert(drive),
            false => state.gone.remove(&drive),
        };
    }

    /// Turns one bit (0 to 7) of the stored byte.
    pub fn flip_bit(&self, drive: DriveNo, at: ByteOffset, bit: u8) {
        self.lock().drive(drive).bytes[at.0 as usize] ^= 1 << bit;
    }

    /// While held, nothing completes (but a ring that is dropped doesn't wait for it).
    pub fn hold(&self, held: bool) {
        self.lock().held = held;
    }

    /// While a drive hangs, nothing that is asked of it completes (but a ring that is dropped doesn't wait for it).
    pub fn hang(&self, drive: DriveNo, is_hung: bool) {
        let mut state = self.lock();
        match is_hung {
            true => state.hung.insert(drive),
            false => state.hung.remove(&drive),
        };
    }

    /// Stops the machine: writes in flight are torn, what completed unsynced may be lost, and every
    /// operation in flight ends in EIO. The rings may then be dropped and new ones started.
    pub fn crash(&self) {
        self.lock().crash();
    }

    /// What a drive holds, completed writes included.
    pub fn contents(&self, drive: DriveNo) -> Vec<u8> {
        self.lock().drive(drive).bytes.clone()
    }

    /// Puts bytes there, durably, past all rings.
    pub fn put(&self, drive: DriveNo, at: ByteOffset, data: &[u8]) {
        let at = at.0 as usize;
        self.lock().drive(drive).bytes[at..at + data.len()].copy_from_slice(data);
    }

    /// Reads past all rings, as [`SlabFile::read_at`](crate::SlabFile::read_at) does.
    pub(crate) fn read_at(&self, drive: DriveNo, at: ByteOffset, buf: &mut [u8]) -> io::Result<()> {
        let mut state = self.lock();
        if state.gone.contains(&drive) {
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

    /// The reads since the last call, in the order of submission.
    pub fn take_reads(&self) -> Vec<PhysicalRead> {
        std::mem::take(&mut self.lock().reads)
    }

    /// Operations in flight, of all rings.
    pub fn in_flight(&self) -> usize {
        self.lock().flights.len()
    }

    pub(crate) fn tick(&self) -> Duration {
        self.tick
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    pub(crate) fn join(&self) -> RingNo {
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

    /// Moves out what is due by `now`, in the order of completion.
    pub(crate) fn complete(&self, ring: RingNo, now: u64, into: &mut Vec<Completion>) {
        let mut state = self.lock();
        if state.held {
            return;
        }
        let hung = std::mem::take(&mut state.hung);
        let is_due = |flight: &Flight| {
            flight.ring == ring && flight.due <= now && !hung.contains(&flight.request.drive)
        };
        state.complete(is_due, into);
        state.hung = hung;
    }

    /// Moves everything of the ring out, done, though it be held, or its drive hang.
    pub(crate) fn finish(&self, ring: RingNo, into: &mut Vec<Completion>) {
        self.lock().complete(|flight| flight.ring == ring, into);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn drive(&mut self, drive: DriveNo) -> &mut SimDrive {
        &mut self.drives[usize::from(drive.0)]
    }

    fn push(&mut self, ring: RingNo, now: u64, request: Request) {
        if request.kind == Kind::Read {
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
        let (pushed, due) = (self.moment, now.saturating_add(ticks));
        self.flights.push(Flight { ring, request, pushed, due, order, crashed: false });
    }

    fn complete(&mut self, is_due: impl Fn(&Flight) -> bool, into: &mut Vec<Completion>) {
        let mut due: Vec<_> = self.flights.extract_if(.., |flight| is_due(flight)).collect();
        due.sort_by_key(|flight| (flight.due, flight.order));
        into.extend(due.into_iter().map(|flight| self.carry_out(flight)));
    }

    fn carry_out(&mut self, flight: Flight) -> Completion {
        let Flight { ring, mut request, pushed, crashed, .. } = flight;
        let result = match crashed {
            true => Err(libc::EIO),
            false => self.try_to(ring, &mut request, pushed),
        };
        Completion { slot: request.slot, result, buf: request.buf }
    }

    fn try_to(&mut self, ring: RingNo, request: &mut Request, pushed: u64) -> Result<u32, i32> {
        if self.gone.contains(&request.drive) {
            return Err(libc::ENODEV);
        }
        let random = &mut self.randoms[ring.0 as usize];
        if random.per_mille(self.faults.interrupts_per_mille) {
            return Err([libc::EINTR, libc::EAGAIN][random.below(2) as usize]);
        }
        let short = match request.kind {
            Kind::Read => self.faults.short_reads_per_mille,
            Kind::Write => self.faults.short_writes_per_mille,
            Kind::Sync => 0,
        };
        let failed = match request.kind {
            Kind::Read => self.faults.failed_reads_per_mille,
            Kind::Write | Kind::Sync => self.faults.failed_writes_per_mille,
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
            Kind::Sync => drive.sync(pushed),
            Kind::Read => {
                if self.bad_sectors.range(sectors).next().is_some() {
                    return Err(libc::EIO);
                }
                request.buf[part].copy_from_slice(&drive.bytes[at..at + len]);
                if random.per_mille(self.faults.flipped_reads_per_mille) {
                    let place = request.start as usize + random.below(len as u64) as usize;
                    request.buf[place] ^= 1 << random.below(8);
                }
            }
            Kind::Write if self.faults.is_full => return Err(libc::ENOSPC),
            Kind::Write if random.per_mille(self.faults.lost_writes_per_mille) => {}
            Kind::Write => {
                drive.write(moment, at, &request.buf[part]);
                self.bad_sectors.retain(|place| !sectors.contains(place));
            }
        }
        Ok(len as u32)
    }

    fn crash(&mut self) {
        let Self { flights, drives, crash_random, .. } = self;
        for drive in drives.iter_mut() {
            drive.crash(crash_random);
        }
        for flight in flights.iter_mut().filter(|flight| !flight.crashed) {
            let request = &flight.request;
            if request.kind == Kind::Write {
                let part = request.start as usize..(request.start + request.len) as usize;
                let drive = &mut drives[usize::from(request.drive.0)];
                drive.tear(request.offset.0 as usize, &request.buf[part], crash_random);
            }
            flight.crashed = true;
        }
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk(seed {})", self.seed)
    }
}
