//! Random interleavings of everything a ring can do, against a plain model.
//!
//! Every write gives its sectors a version; versions of a sector grow. A read may see any version
//! between the last one known to be complete when it was asked for, and the last one begun when it
//! was told: no older, no newer, and nothing from elsewhere.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use ring::sim::{SimConfig, SimDisk, SimFaults};
use ring::{AlignedBuf, Engine, ReadError, ReadSink, Ring, RingConfig, Write};

use crate::bed::{D0, On, at, run, small};

const SECTORS: usize = 32;

#[derive(Clone, Debug)]
enum Act {
    Read { sector: usize, sectors: usize },
    DropSink,
    Write { sector: usize, sectors: usize },
    DropWrites,
    Submit,
    Turns(u8),
    Drain,
}

fn act() -> impl Strategy<Value = Act> {
    let place = || (0..SECTORS, 1..=4usize);
    prop_oneof![
        12 => place().prop_map(|(sector, sectors)| Act::Read { sector, sectors }),
        6 => place().prop_map(|(sector, sectors)| Act::Write { sector, sectors }),
        1 => Just(Act::DropSink),
        1 => Just(Act::DropWrites),
        2 => Just(Act::Submit),
        4 => (1..12u8).prop_map(Act::Turns),
        1 => Just(Act::Drain),
    ]
}

/// For each sector the last version known to be complete, and the last one begun.
#[derive(Default)]
struct Model {
    complete: [Cell<u32>; SECTORS],
    begun: [Cell<u32>; SECTORS],
    /// Sectors of writes that may be in flight: a second write waits, as their order is open.
    locked: [Cell<bool>; SECTORS],
    wrong: RefCell<Vec<String>>,
}

impl Model {
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

struct Checker {
    model: Rc<Model>,
    /// By tag: first sector, and the version known complete of each when asked for.
    asked: RefCell<HashMap<u64, (usize, Vec<u32>)>>,
}

impl ReadSink for Checker {
    fn read_done(&self, tag: u64, outcome: Result<&[u8], ReadError>) {
        let (first, least) = self.asked.borrow_mut().remove(&tag).expect("told of once");
        let bytes = outcome.expect("no lasting faults");
        assert_eq!(bytes.len(), least.len() * 4096);
        for (number, (sector, at_least)) in bytes.chunks(4096).zip(least).enumerate() {
            self.model.check(first + number, at_least, sector);
        }
    }
}

struct Player {
    ring: Ring,
    model: Rc<Model>,
    sink: Rc<Checker>,
    writes: Vec<(usize, usize, Write)>,
    next_tag: u64,
}

impl Player {
    fn renew_sink(&mut self) {
        let asked = RefCell::default();
        self.sink = Rc::new(Checker { model: Rc::clone(&self.model), asked });
    }

    fn read(&mut self, sector: usize, sectors: usize) {
        let tag = self.next_tag;
        self.next_tag += 1;
        let sink: Rc<dyn ReadSink> = Rc::clone(&self.sink) as _;
        let least = (sector..sector + sectors).map(|s| self.model.complete[s].get()).collect();
        match self.ring.read(&sink, D0, at(sector as u64), sectors * 4096, tag) {
            Ok(()) => drop(self.sink.asked.borrow_mut().insert(tag, (sector, least))),
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
        self.writes.push((sector, sectors, self.ring.write(D0, at(sector as u64), buf)));
    }

    /// Takes note of the writes that have ended.
    fn look(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let model = Rc::clone(&self.model);
        self.writes.retain_mut(|(sector, sectors, write)| {
            let Poll::Ready(outcome) = pin!(write).poll(&mut cx) else { return true };
            outcome.expect("no lasting faults");
            for sector in *sector..*sector + *sectors {
                model.complete[sector].set(model.begun[sector].get());
                model.locked[sector].set(false);
            }
            false
        });
    }

    async fn drain(&mut self) {
        self.ring.drain().await;
        self.look();
        assert!(self.writes.is_empty() && self.sink.asked.borrow().is_empty());
        self.model.locked.iter().for_each(|locked| locked.set(false));
    }

    async fn play(&mut self, act: Act) {
        match act {
            Act::Read { sector, sectors } => self.read(sector, sectors.min(SECTORS - sector)),
            Act::Write { sector, sectors } => self.write(sector, sectors.min(SECTORS - sector)),
            Act::DropSink => self.renew_sink(),
            Act::DropWrites => self.writes.clear(),
            Act::Submit => self.ring.submit(),
            Act::Turns(turns) => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
            }
            Act::Drain => self.drain().await,
        }
        self.look();
    }
}

fn play(seed: u64, acts: Vec<Act>) {
    println!("seed {seed}");
    let drives = vec![(SECTORS * 4096) as u64];
    let disk =
        SimDisk::new(SimConfig { seed, drives, latency_ticks: 1..=12, ..Default::default() });
    let start: Vec<u8> = (0..SECTORS).flat_map(|sector| image(sector, 0)).collect();
    disk.put(D0, at(0), &start);
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
    run(On::Simulated, small(), async |_| {
        let model = Rc::new(Model::default());
        let asked = RefCell::default();
        let mut player = Player {
            ring: Ring::start(&config, &disk.slabs()).unwrap(),
            sink: Rc::new(Checker { model: Rc::clone(&model), asked }),
            model: Rc::clone(&model),
            writes: Vec::new(),
            next_tag: 0,
        };
        for act in acts {
            player.play(act).await;
        }
        player.drain().await;
        for (sector, bytes) in disk.contents(D0).chunks(4096).enumerate() {
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
