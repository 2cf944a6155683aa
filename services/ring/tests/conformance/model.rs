//! Checks random interleavings of a ring's reads, writes, submissions and drains, with read sinks and writes dropped in
//! between, against a simple model.
//!
//! Each write gives its sectors a higher version number. A read may return any version between the last one that was
//! known to be complete when the read was requested, and the last one that was begun when the read's result arrived. It
//! must not return an older or newer version, or bytes of another sector. While one drive hangs, transfers of the other
//! drive must go on.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use address::{ByteOffset, DriveNo};
use proptest::prelude::*;
use ring::sim::{SimConfig, SimDisk, SimFaults};
use ring::{AlignedBuf, Engine, ReadError, ReadSink, Ring, RingConfig, Write};

use tokio::time::Instant;

use crate::bed::{TestEngine, at, run, small};

/// Sectors of each drive.
const SECTORS: usize = 32;
const DRIVES: usize = 2;
/// Sectors of both drives, numbered consecutively.
const ALL: usize = SECTORS * DRIVES;

#[derive(Clone, Debug)]
enum Act {
    Read { sector: usize, sectors: usize },
    DropSink,
    Write { sector: usize, sectors: usize },
    DropWrites,
    Submit,
    Yield(u8),
    Hang { drive: usize },
    Drain,
}

fn act() -> impl Strategy<Value = Act> {
    let place = || (0..ALL, 1..=4usize);
    prop_oneof![
        12 => place().prop_map(|(sector, sectors)| Act::Read { sector, sectors }),
        6 => place().prop_map(|(sector, sectors)| Act::Write { sector, sectors }),
        1 => Just(Act::DropSink),
        1 => Just(Act::DropWrites),
        2 => Just(Act::Submit),
        4 => (1..12u8).prop_map(Act::Yield),
        1 => (0..DRIVES).prop_map(|drive| Act::Hang { drive }),
        1 => Just(Act::Drain),
    ]
}

/// The last version of each sector that is known to be complete, and the last one begun.
struct Model {
    complete: [Cell<u32>; ALL],
    begun: [Cell<u32>; ALL],
    /// Sectors of writes that may be in flight. They are not written again meanwhile, as the order of the two
    /// writes would be undefined.
    locked: [Cell<bool>; ALL],
    wrong: RefCell<Vec<String>>,
}

impl Model {
    fn new() -> Self {
        Self {
            complete: std::array::from_fn(|_| Cell::default()),
            begun: std::array::from_fn(|_| Cell::default()),
            locked: std::array::from_fn(|_| Cell::default()),
            wrong: RefCell::default(),
        }
    }

    fn check(&self, sector: usize, at_least: u32, bytes: &[u8]) {
        for word in bytes.chunks_exact(8) {
            let place = u32::from_le_bytes(word[..4].try_into().unwrap());
            let version = u32::from_le_bytes(word[4..].try_into().unwrap());
            let range = at_least..=self.begun[sector].get();
            if place as usize != sector || !range.contains(&version) {
                let wrong = format!("sector {sector}: found {place}@{version}, not {range:?}");
                self.wrong.borrow_mut().push(wrong);
                return;
            }
        }
    }
}

fn image(sector: usize, version: u32) -> Vec<u8> {
    let word = u64::from(version) << 32 | sector as u64;
    word.to_le_bytes().repeat(512)
}

/// Returns the drive that holds a sector, and the sector's offset.
fn place(sector: usize) -> (DriveNo, ByteOffset) {
    (DriveNo((sector / SECTORS) as u16), at((sector % SECTORS) as u64))
}

struct Checker {
    model: Rc<Model>,
    /// For each tag: the read's first sector, and for each of its sectors the version that was known to be complete
    /// when the read was requested.
    requested: RefCell<HashMap<u64, (usize, Vec<u32>)>>,
}

impl ReadSink for Checker {
    fn read_done(&self, tag: u64, outcome: Result<&[u8], ReadError>, _: Instant) {
        let (first, least) =
            self.requested.borrow_mut().remove(&tag).expect("each read is reported once");
        let bytes = outcome.expect("no permanent faults are injected");
        assert_eq!(bytes.len(), least.len() * 4096);
        for (number, (sector, at_least)) in bytes.chunks(4096).zip(least).enumerate() {
            self.model.check(first + number, at_least, sector);
        }
    }
}

struct Player {
    ring: Ring,
    disk: SimDisk,
    model: Rc<Model>,
    sink: Rc<Checker>,
    writes: Vec<(usize, usize, Write)>,
    next_tag: u64,
}

impl Player {
    fn renew_sink(&mut self) {
        let requested = RefCell::default();
        self.sink = Rc::new(Checker { model: Rc::clone(&self.model), requested });
    }

    fn read(&mut self, sector: usize, sectors: usize) {
        let tag = self.next_tag;
        self.next_tag += 1;
        let sink: Rc<dyn ReadSink> = Rc::clone(&self.sink) as _;
        let least = (sector..sector + sectors).map(|s| self.model.complete[s].get()).collect();
        let (drive, offset) = place(sector);
        match self.ring.read(&sink, drive, offset, sectors * 4096, tag) {
            Ok(()) => drop(self.sink.requested.borrow_mut().insert(tag, (sector, least))),
            Err(error) => assert_eq!(error, ReadError::Full { queue_max: 24 }),
        }
    }

    fn write(&mut self, sector: usize, sectors: usize) {
        let range = sector..sector + sectors;
        if range.clone().any(|sector| self.model.locked[sector].get()) {
            return;
        }
        let mut buf = AlignedBuf::for_sectors(sectors);
        for (sector, bytes) in range.zip(buf.chunks_mut(4096)) {
            let version = self.model.begun[sector].get() + 1;
            self.model.begun[sector].set(version);
            self.model.locked[sector].set(true);
            bytes.copy_from_slice(&image(sector, version));
        }
        let (drive, offset) = place(sector);
        self.writes.push((sector, sectors, self.ring.write(drive, offset, buf)));
    }

    /// Records the writes that have ended.
    fn poll_writes(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let model = Rc::clone(&self.model);
        self.writes.retain_mut(|(sector, sectors, write)| {
            let Poll::Ready(outcome) = pin!(write).poll(&mut cx) else { return true };
            outcome.expect("no permanent faults are injected");
            for sector in *sector..*sector + *sectors {
                model.complete[sector].set(model.begun[sector].get());
                model.locked[sector].set(false);
            }
            false
        });
    }

    async fn drain(&mut self) {
        self.ring.drain().await;
        self.poll_writes();
        assert!(self.writes.is_empty() && self.sink.requested.borrow().is_empty());
        self.model.locked.iter().for_each(|locked| locked.set(false));
    }

    /// Hangs the drive until all writes of the other drive have ended.
    async fn hang(&mut self, drive: usize) {
        self.disk.hang(DriveNo(drive as u16), true);
        let mut yields = 0;
        while self.writes.iter().any(|(sector, ..)| sector / SECTORS != drive) {
            yields += 1;
            assert!(yields < 100_000, "drive {drive} blocks the writes of the other drive");
            tokio::task::yield_now().await;
            self.poll_writes();
        }
        self.disk.hang(DriveNo(drive as u16), false);
    }

    async fn play(&mut self, act: Act) {
        // Cut the range at the end of its drive.
        let within = |sector: usize, sectors: usize| sectors.min(SECTORS - sector % SECTORS);
        match act {
            Act::Read { sector, sectors } => self.read(sector, within(sector, sectors)),
            Act::Write { sector, sectors } => self.write(sector, within(sector, sectors)),
            Act::Hang { drive } => self.hang(drive).await,
            Act::DropSink => self.renew_sink(),
            Act::DropWrites => self.writes.clear(),
            Act::Submit => self.ring.submit(),
            Act::Yield(yields) => {
                for _ in 0..yields {
                    tokio::task::yield_now().await;
                }
            }
            Act::Drain => self.drain().await,
        }
        self.poll_writes();
    }
}

fn play(seed: u64, acts: Vec<Act>) {
    println!("seed {seed}");
    let drives = vec![(SECTORS * 4096) as u64; DRIVES];
    let disk =
        SimDisk::new(SimConfig { seed, drives, latency_ticks: 1..=12, ..Default::default() });
    for sector in 0..ALL {
        let (drive, offset) = place(sector);
        disk.put(drive, offset, &image(sector, 0));
    }
    disk.set_faults(SimFaults {
        short_reads_per_mille: 100,
        short_writes_per_mille: 100,
        interrupts_per_mille: 100,
        is_full: false,
        ..SimFaults::default()
    });
    let engine = Engine::Simulated(disk.clone());
    let config =
        RingConfig { slots: 6, queue_max: 24, transfers_in_flight_max: 3, engine, ..small() };
    run(TestEngine::Simulated, small(), async |_| {
        let model = Rc::new(Model::new());
        let requested = RefCell::default();
        let mut player = Player {
            ring: Ring::start(&config, &disk.slabs()).unwrap(),
            disk: disk.clone(),
            sink: Rc::new(Checker { model: Rc::clone(&model), requested }),
            model: Rc::clone(&model),
            writes: Vec::new(),
            next_tag: 0,
        };
        for act in acts {
            player.play(act).await;
        }
        player.drain().await;
        let contents = [0, 1].map(|drive| disk.contents(DriveNo(drive))).concat();
        for (sector, bytes) in contents.chunks(4096).enumerate() {
            model.check(sector, model.complete[sector].get(), bytes);
        }
        assert_eq!(*model.wrong.borrow(), Vec::<String>::new());
        let stats = player.ring.stats();
        assert_eq!((stats.in_flight, stats.sink_panics), (0, 0));
        assert_eq!(
            stats.reads_queued,
            stats.reads_discarded + stats.reads_completed + stats.reads_orphaned
        );
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]
    #[test]
    fn any_interleaving_agrees_with_the_model(
        seed in any::<u64>(),
        acts in prop::collection::vec(act(), 1..200),
    ) {
        play(seed, acts);
    }
}
