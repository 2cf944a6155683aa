//! Runs the filler over simulated drives that crash, from one seed: extents found after the crash must be intact.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use address::{DriveNo, ExtentKey, PackKey, SECTOR_BYTES, TableTag};
use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::{DataType, Field};
use futures::FutureExt;
use futures::future::BoxFuture;
use pack::PackLayout;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ring::sim::{SimConfig, SimDisk, SimFaults};
use ring::{AlignedBuf, Engine, Ring, RingConfig, SlabFile};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, LocalSet};

use super::chunk::Chunk;
use super::{FillHandle, FillThreads, Filler};
use crate::cache::books::{FillLimits, FillOutcome, Shares};
use crate::config::Share;
use crate::drive::{Claim, DriveState, Superblock, claim_and_recover};
use crate::error::NodeError;
use crate::extent::{Directory, Extent, HEAD_SECTORS};
use crate::shard::mailbox::{Mailbox, Message};

pub(super) const SEGMENT_SECTORS: u64 = 32;
const SEGMENTS: u64 = 6;
pub(super) const DRIVES: usize = 2;
const CORES: usize = 2;
/// The number of different extents. They are more than fit on the drives.
pub(super) const NAMES: u32 = 60;

pub(super) const LIMITS: FillLimits = FillLimits {
    fills_max: 3,
    queue_max: 16,
    fill_rate: 0,
    // The scrubber follows the clock, but a run must be repeatable from its seed.
    scrub_rate: 0,
    directory_bytes_max: u64::MAX,
};

/// Returns the content of an extent, which has 1 to 9 sectors and depends only on the extent's name.
fn encoded(name: ExtentKey) -> pack::Extent {
    let rows = 300 + i64::from(name.chunk % 9) * 512;
    let first = i64::from(name.chunk) << 32;
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + rows));
    let field = Arc::new(Field::new("a", DataType::Int64, false));
    PackLayout::new(&[field]).unwrap().encode(&[column]).unwrap()
}

pub(super) struct Made(ExtentKey);

impl Chunk for Made {
    fn encoded(self: Box<Self>, _: u64) -> BoxFuture<'static, Result<pack::Extent, NodeError>> {
        async move {
            tokio::task::yield_now().await;
            Ok(encoded(self.0))
        }
        .boxed()
    }
}

pub(super) fn name(chunk: u32) -> ExtentKey {
    ExtentKey { pack: PackKey(77), chunk }
}

/// The name of an extent of `table`.
pub(super) fn name_of(table: u32, chunk: u32) -> ExtentKey {
    ExtentKey { pack: PackKey::new(TableTag(table), 77), chunk }
}

/// Handles the filler's messages as a core does, with a ring and a replica of the directory.
async fn core(
    ring: Ring,
    directory: Rc<RefCell<Directory>>,
    mut mail: mpsc::UnboundedReceiver<Message>,
) {
    while let Some(message) = mail.recv().await {
        match message {
            Message::Write { drive, offset, buf, done } => {
                let write = ring.write(drive, offset, buf);
                tokio::task::spawn_local(async move {
                    drop(done.send(write.await));
                });
            }
            Message::Fsync { drive, done } => {
                let sync = ring.fsync(drive);
                tokio::task::spawn_local(async move { done.send(sync.await).unwrap_or_default() });
            }
            Message::Publish { extent, .. } => drop(directory.borrow_mut().insert(extent)),
            Message::Restored { extents, done } => {
                let mut directory = directory.borrow_mut();
                directory.restore(&extents);
                done.send(directory.len()).unwrap();
            }
            Message::Read { drive, offset, buf, done } => {
                let read = ring.read_owned(drive, offset, buf);
                tokio::task::spawn_local(async move {
                    drop(done.send(read.await));
                });
            }
            // Every third extent was read.
            Message::Heat { keys, heats } => {
                let heat = |key: &ExtentKey| u8::from(key.chunk.is_multiple_of(3));
                heats.send(keys.iter().map(heat).collect()).unwrap_or_default();
            }
            Message::Forget { keys, .. } => {
                for &key in keys.iter() {
                    directory.borrow_mut().forget(key);
                }
            }
            _ => unreachable!("the filler sends nothing else"),
        }
    }
}

/// A node's life, from its start to a stop or a crash.
pub(super) struct Life {
    pub(super) fills: FillHandle,
    filler: Option<JoinHandle<()>>,
    cores: Arc<[Mailbox]>,
    directories: Vec<Rc<RefCell<Directory>>>,
    restored: usize,
}

impl Life {
    /// Starts a node on the disk's drives, with [`LIMITS`]. Call it within a `LocalSet`.
    pub(super) async fn begin(disk: &SimDisk) -> Self {
        Self::begin_with(disk, LIMITS).await
    }

    pub(super) async fn begin_with(disk: &SimDisk, limits: FillLimits) -> Self {
        Self::begin_sharing(disk, limits, Shares::default()).await
    }

    async fn begin_sharing(disk: &SimDisk, limits: FillLimits, shares: Shares) -> Self {
        let slabs = disk.slabs();
        let claim = |slab| Claim::new(slab, Superblock::read_from(slab), SEGMENT_SECTORS);
        let claims: Vec<_> = slabs.iter().map(claim).collect();
        let superblocks = claims.iter().map(|claim| claim.superblock).collect();
        let config = RingConfig {
            slots: 4,
            engine: Engine::Simulated(disk.clone()),
            ..RingConfig::default()
        };
        let (mut cores, mut directories) = (Vec::new(), Vec::new());
        for _ in 0..CORES {
            let (to, mail) = mpsc::unbounded_channel();
            let directory = Rc::<RefCell<Directory>>::default();
            let ring = Ring::start(&config, &slabs).unwrap();
            tokio::task::spawn_local(core(ring, Rc::clone(&directory), mail));
            cores.push(to);
            directories.push(directory);
        }
        let cores: Arc<[Mailbox]> = cores.into();
        let found = claim_and_recover(&slabs, &claims).unwrap();
        let threads = FillThreads::shared(Handle::current());
        let (mut filler, fills) =
            Filler::new(Arc::clone(&cores), superblocks, limits, shares, threads, epoch_min());
        let restored = filler.restore(found).await;
        let filler = Some(tokio::task::spawn_local(filler.run()));
        Self { fills, filler, cores, directories, restored }
    }

    pub(super) async fn fill(&self, name: ExtentKey) -> FillOutcome {
        self.fills.fill_with(name, Box::new(Made(name))).await
    }

    pub(super) fn state(&self, drive: u16) -> DriveState {
        self.fills.drive_state(DriveNo(drive))
    }

    /// Returns whether every core finds the extent. Checks the extent's bytes.
    fn finds(&self, disk: &SimDisk, name: ExtentKey) -> bool {
        self.directories.iter().all(|directory| {
            let directory = directory.borrow();
            let extent = directory.find(name).and_then(|no| directory.extent(no).cloned());
            extent.is_some_and(|extent| {
                assert_whole(&disk.slabs(), &extent);
                true
            })
        })
    }

    async fn sectors_of(&self, table: u32) -> u64 {
        let tables = self.fills.tables().await.unwrap();
        let holding = tables.iter().find(|(tag, _)| *tag == TableTag(table));
        holding.map_or(0, |(_, holding)| holding.sectors)
    }

    /// Returns the drive and first sector of each extent that the cores find, by chunk. Checks their bytes.
    pub(super) fn found(&self, disk: &SimDisk) -> BTreeMap<u32, (u16, u64)> {
        let slabs = disk.slabs();
        let mut replicas = self.directories.iter().map(|directory| {
            let directory = directory.borrow();
            let find = |chunk| {
                let extent = Arc::clone(directory.extent(directory.find(name(chunk))?)?);
                assert_whole(&slabs, &extent);
                Some((chunk, (extent.drive.0, extent.first.0)))
            };
            (0..NAMES).filter_map(find).collect::<BTreeMap<_, _>>()
        });
        let first = replicas.next().unwrap();
        assert!(replicas.all(|other| other == first));
        first
    }

    pub(super) async fn stop(mut self) {
        let _ = self.fills.stop().await;
        assert!(self.cores.iter().all(|core| !core.is_closed()));
        self.filler.take().unwrap().await.unwrap();
    }
}

impl Drop for Life {
    /// Fails the test if the filler panicked, because a node would then have ended its process.
    fn drop(&mut self) {
        let ended = self.filler.take().and_then(FutureExt::now_or_never);
        if let Some(Err(error)) = ended
            && error.is_panic()
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

fn assert_whole(slabs: &[SlabFile], extent: &Extent) {
    let truth = encoded(extent.key);
    assert_eq!(extent.index, truth.index);
    let mut bytes = AlignedBuf::for_sectors(extent.index.sectors() as usize);
    slabs[usize::from(extent.drive.0)].read_at(extent.first.byte_offset(), &mut bytes).unwrap();
    assert!(bytes.as_slice() == truth.bytes, "{:?} is damaged", extent.key);
}

/// Returns a number that no epoch has reached yet. It follows the clock, as in a node.
fn epoch_min() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as u64
}

pub(super) fn disk(seed: u64) -> SimDisk {
    let bytes = (HEAD_SECTORS + SEGMENTS * SEGMENT_SECTORS) * SECTOR_BYTES as u64;
    SimDisk::new(SimConfig { seed, drives: vec![bytes; DRIVES], ..SimConfig::default() })
}

/// Runs one life in a runtime of its own, so that none of its tasks remain afterwards.
pub(super) fn live<T>(life: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, life())
}

/// The seeds that BIREME_SEEDS gives, as a count or as a range (`17..18`); 150 by default.
fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("BIREME_SEEDS").unwrap_or_else(|_| "150".into());
    match given.split_once("..") {
        Some((from, to)) => from.parse().unwrap()..to.parse().unwrap(),
        None => 0..given.parse().unwrap(),
    }
}

/// Prints the seed if the test fails, so that it can be run again.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it fails with BIREME_SEEDS={}..{}", self.0, self.0 + 1);
        }
    }
}

/// Lets the runtime poll its tasks a number of times.
async fn turns(count: u32) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

#[test]
fn after_a_clean_stop_all_extents_are_found_and_filling_continues() {
    for seed in 0..20 {
        let disk = disk(seed);
        let mut before = BTreeMap::new();
        for round in 0..4 {
            before = live(async || {
                let life = Life::begin(&disk).await;
                assert_eq!(life.found(&disk), before, "seed {seed}");
                assert_eq!(life.restored, before.len());
                for chunk in round * 7..round * 7 + 20 {
                    let outcome =
                        life.fills.fill_with(name(chunk), Box::new(Made(name(chunk)))).await;
                    let is_new = !before.contains_key(&chunk);
                    assert!(matches!(outcome, FillOutcome::Filled(_)) == is_new, "{outcome:?}");
                }
                let filled = life.found(&disk);
                life.stop().await;
                filled
            });
            assert!(!before.is_empty());
        }
    }
}

#[test]
fn after_a_crash_at_any_instant_extents_found_are_intact_and_were_requested() {
    for seed in seeds() {
        let _seed = Seed(seed);
        let disk = disk(seed);
        let mut random = StdRng::seed_from_u64(seed);
        let (mut most, mut ever_asked) = (0, BTreeSet::new());
        for round in 0..8 {
            let loses_power = random.random_bool(0.7);
            let turns_until_crash = random.random_range(1..1500);
            disk.set_faults(SimFaults {
                short_writes_per_mille: random.random_range(0..200),
                interrupts_per_mille: random.random_range(0..100),
                ..SimFaults::default()
            });
            let asked: Vec<u32> = (0..80).map(|_| random.random_range(0..NAMES)).collect();
            let now_asked = asked.clone();
            let found = live(async || {
                let life = Life::begin(&disk).await;
                let found = life.found(&disk);
                assert_eq!(life.restored, found.len());
                let fills = life.fills.clone();
                tokio::task::spawn_local(async move {
                    for chunk in asked {
                        let _ = fills.fill_with(name(chunk), Box::new(Made(name(chunk)))).await;
                    }
                });
                turns(turns_until_crash).await;
                life.found(&disk);
                if loses_power {
                    disk.crash();
                }
                found
            });
            most = most.max(found.len());
            assert!(found.keys().all(|name| ever_asked.contains(name)), "round {round}");
            ever_asked.extend(now_asked);
            // No two extents have the same place.
            let places: HashMap<_, _> = found.iter().map(|(name, place)| (place, name)).collect();
            assert_eq!(places.len(), found.len(), "round {round}");
        }
        assert!(most > 0, "nothing was ever found again");
    }
}

#[test]
fn a_full_directory_makes_room_like_a_full_drive() {
    live(async || {
        let disk = disk(5);
        let limits = FillLimits { directory_bytes_max: 8 << 10, ..LIMITS };
        let life = Life::begin_with(&disk, limits).await;
        let mut most = 0;
        for chunk in 0..NAMES {
            let outcome = life.fills.fill_with(name(chunk), Box::new(Made(name(chunk)))).await;
            assert!(matches!(outcome, FillOutcome::Filled(_)), "{outcome:?}");
            let found = life.found(&disk);
            assert!(found.contains_key(&chunk));
            most = most.max(found.len());
        }
        // Each extent takes at least 200 bytes, so at most 40 fit in the directory; the drives have space for more.
        assert!((2..=40).contains(&most), "{most}");
        life.stop().await;
    });
}

#[test]
fn fills_that_wait_end_when_the_last_drive_takes_no_more() {
    live(async || {
        let disk = disk(9);
        let limits = FillLimits { fills_max: 1, queue_max: NAMES as usize, ..LIMITS };
        let life = Life::begin_with(&disk, limits).await;
        disk.set_faults(SimFaults { failed_writes_per_mille: 1000, ..SimFaults::default() });
        let fill = |chunk| life.fills.fill_with(name(chunk), Box::new(Made(name(chunk))));
        let fills = futures::future::join_all((0..NAMES).map(fill));
        let fills = tokio::time::timeout(std::time::Duration::from_secs(10), fills).await;
        let failed = |outcome: &FillOutcome| matches!(outcome, FillOutcome::Failed(_));
        assert!(fills.expect("each fill ends").iter().all(failed));
    });
}

#[test]
fn a_damaged_journal_loses_only_its_own_extents() {
    let disk = disk(3);
    let first = live(async || {
        let life = Life::begin(&disk).await;
        for chunk in 0..20 {
            life.fills.fill_with(name(chunk), Box::new(Made(name(chunk)))).await;
        }
        let filled = life.found(&disk);
        life.stop().await;
        filled
    });
    // The end of drive 0's first segment, where its journal begins, is damaged; that of drive 1 is unreadable.
    let end = (HEAD_SECTORS + SEGMENT_SECTORS) * SECTOR_BYTES as u64;
    disk.flip_bit(DriveNo(0), address::ByteOffset(end - 100), 3);
    disk.break_sector(DriveNo(1), address::SectorNo(end / SECTOR_BYTES as u64 - 1));
    let lost = |&place: &(u16, u64)| place.1 < HEAD_SECTORS + SEGMENT_SECTORS;
    let kept: BTreeMap<_, _> =
        first.clone().into_iter().filter(|(_, place)| !lost(place)).collect();
    assert!(kept.len() < first.len() && !kept.is_empty());
    live(async || {
        let life = Life::begin(&disk).await;
        assert_eq!(life.found(&disk), kept);
        // Lost chunks are filled again, eventually even in the segment whose journal couldn't be read.
        for chunk in (0..NAMES).chain(0..20) {
            let outcome = life.fills.fill_with(name(chunk), Box::new(Made(name(chunk)))).await;
            assert!(!matches!(outcome, FillOutcome::Failed(_)), "{outcome:?}");
        }
        life.found(&disk);
        life.stop().await;
    });
}

/// Returns a disk whose drives have twelve segments each. The held log may have eight segments of each drive, and the
/// guarantees may sum to two thirds of these.
fn larger_disk(seed: u64) -> SimDisk {
    let bytes = (HEAD_SECTORS + 12 * SEGMENT_SECTORS) * SECTOR_BYTES as u64;
    SimDisk::new(SimConfig { seed, drives: vec![bytes; DRIVES], ..SimConfig::default() })
}

fn shares(guarantee: u64, pinned: u64, quota: u64) -> Shares {
    let share = |guarantee, quota, is_pinned| Share { guarantee, quota, is_pinned };
    Shares::new([
        (TableTag(1), share(guarantee, u64::MAX, false)),
        (TableTag(2), share(pinned, pinned, true)),
        (TableTag(3), share(0, quota, false)),
    ])
}

#[test]
fn shares_hold_through_scans_restarts_and_changes_of_the_shares() {
    const GUARANTEE: u64 = 100;
    const PINNED: u64 = 120;
    const QUOTA: u64 = 64;
    for seed in 0..8 {
        let disk = larger_disk(seed);
        let mut random = StdRng::seed_from_u64(seed);
        // Without shares at first, so that these extents are not in the held log.
        live(async || {
            let life = Life::begin(&disk).await;
            for chunk in 0..30 {
                life.fill(name_of(1, chunk)).await;
            }
            life.stop().await;
        });
        let mut pinned = BTreeSet::new();
        let mut least = 0;
        for round in 0..4 {
            live(async || {
                let shares = shares(GUARANTEE, PINNED, QUOTA);
                let life = Life::begin_sharing(&disk, LIMITS, shares).await;
                assert!(pinned.iter().all(|&name| life.finds(&disk, name)), "seed {seed}");
                let mut held = life.sectors_of(1).await;
                assert!(held >= least, "{held} of {least} after a restart, seed {seed}");
                for at in 0..400u32 {
                    let table = [0, 0, 0, 1, 2, 3][random.random_range(0..6)];
                    // Table 0 is scanned: its chunks are all new.
                    let chunk = match table {
                        0 => 1000 * (round + 1) + at,
                        _ => random.random_range(0..60),
                    };
                    let name = name_of(table, chunk);
                    let outcome = life.fill(name).await;
                    let has_failed = matches!(outcome, FillOutcome::Failed(_));
                    assert!(!has_failed || table == 2, "{outcome:?} seed {seed}");
                    let now = life.sectors_of(1).await;
                    assert!(now >= held.min(GUARANTEE), "{held} became {now}, seed {seed}");
                    held = now;
                    assert!(
                        life.sectors_of(2).await <= PINNED && life.sectors_of(3).await <= QUOTA
                    );
                    if table == 2 && !has_failed {
                        pinned.insert(name);
                    }
                }
                assert!(pinned.iter().all(|&name| life.finds(&disk, name)), "seed {seed}");
                least = held.min(GUARANTEE);
                life.stop().await;
            });
        }
        assert!(pinned.len() > 15, "{pinned:?}");
        // With a lower quota, extents above it are evicted.
        live(async || {
            let life = Life::begin_sharing(&disk, LIMITS, shares(GUARANTEE, PINNED, 20)).await;
            assert!(life.sectors_of(3).await <= 20);
            life.stop().await;
        });
        // Without shares, only reads decide what is kept.
        live(async || {
            let life = Life::begin(&disk).await;
            for chunk in 0..300 {
                let outcome = life.fill(name_of(0, 9000 + chunk)).await;
                assert!(matches!(outcome, FillOutcome::Filled(_)), "{outcome:?}");
            }
            assert!(pinned.iter().any(|&name| !life.finds(&disk, name)));
            life.stop().await;
        });
    }
}

#[test]
fn guaranteed_extents_survive_failed_writes_while_they_are_moved() {
    for seed in 0..100 {
        let disk = larger_disk(seed);
        // Without shares at first, so that these extents share segments with others, and must be moved out.
        live(async || {
            let life = Life::begin(&disk).await;
            for chunk in 0..60 {
                life.fill(name_of(if chunk % 6 == 0 { 2 } else { 0 }, chunk)).await;
            }
            life.stop().await;
        });
        live(async || {
            let life = Life::begin_sharing(&disk, LIMITS, shares(0, 120, 64)).await;
            let pinned = (0..60).step_by(6).map(|chunk| name_of(2, chunk));
            let pinned: Vec<_> = pinned.filter(|&name| life.finds(&disk, name)).collect();
            assert!(!pinned.is_empty());
            disk.set_faults(SimFaults { failed_writes_per_mille: 10, ..Default::default() });
            for at in 0..200 {
                life.fill(name_of(0, 1000 + at)).await;
                // With one drive fewer, there may be less space than is guaranteed.
                if (0..DRIVES as u16).any(|it| life.state(it) != DriveState::Serving) {
                    break;
                }
                let lost = pinned.iter().find(|&&name| !life.finds(&disk, name));
                assert_eq!(lost, None, "seed {seed}, after {at} fills");
            }
            life.stop().await;
        });
    }
}
