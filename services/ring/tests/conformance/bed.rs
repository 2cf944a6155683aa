//! A ring over a drive with known contents, and a sink that keeps what it receives.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use address::{ByteOffset, DriveNo, SECTOR_BYTES};
use ring::sim::{SimConfig, SimDisk};
use ring::{
    AlignedBuf, Direct, Engine, OpenOptions, ReadError, ReadSink, Ring, RingConfig, SlabFile,
};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::time::Instant;

pub const D0: DriveNo = DriveNo(0);
pub const SECTORS: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestEngine {
    Uring,
    Pread,
    InPlace,
    Simulated,
}

/// Generates, for each async function, a test on each engine.
macro_rules! on_each_engine {
    ($($name:ident with $config:expr;)*) => {$(
        mod $name {
            use super::*;
            use crate::bed::{TestEngine, run};
            #[test]
            fn uring() {
                run(TestEngine::Uring, $config, super::$name);
            }
            #[test]
            fn pread() {
                run(TestEngine::Pread, $config, super::$name);
            }
            #[test]
            fn in_place() {
                run(TestEngine::InPlace, $config, super::$name);
            }
            #[test]
            fn simulated() {
                run(TestEngine::Simulated, $config, super::$name);
            }
        }
    )*};
}
pub(crate) use on_each_engine;

pub fn small() -> RingConfig {
    RingConfig { slots: 16, slot_bytes: 16384, pread_threads: 4, ..RingConfig::default() }
}

pub struct TestBed {
    pub ring: Ring,
    pub files: Vec<SlabFile>,
    pub config: RingConfig,
    pub folder: Option<TempDir>,
}

/// Runs a test on a runtime that is configured like a core's.
pub fn run(on: TestEngine, config: RingConfig, test: impl AsyncFnOnce(TestBed)) {
    if on == TestEngine::Uring
        && let Err(why) = ring::probe()
    {
        eprintln!("skipped: no io_uring here: {why}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(ring::submit_all)
        .build()
        .unwrap();
    runtime.block_on(async {
        let hung = tokio::time::sleep(std::time::Duration::from_secs(60));
        tokio::select! {
            () = async { test(TestBed::new(on, config)).await } => {}
            () = hung => panic!("hung"),
        }
    });
}

impl TestBed {
    fn new(on: TestEngine, mut config: RingConfig) -> Self {
        let (files, folder) = match on {
            TestEngine::Simulated => {
                let drives = vec![SECTORS * SECTOR_BYTES as u64];
                let disk = SimDisk::new(SimConfig { seed: 7, drives, ..Default::default() });
                disk.put(D0, ByteOffset(0), &contents());
                let files = disk.slabs();
                config.engine = Engine::Simulated(disk);
                (files, None)
            }
            TestEngine::Uring | TestEngine::Pread | TestEngine::InPlace => {
                let folder = tempfile::tempdir_in("/var/tmp").unwrap();
                let path = folder.path().join("slab");
                std::fs::write(&path, contents()).unwrap();
                let options = OpenOptions { direct: Direct::Prefer, ..Default::default() };
                config.engine = match on {
                    TestEngine::Uring => Engine::IoUring,
                    TestEngine::InPlace => Engine::InPlace,
                    _ => Engine::Pread,
                };
                (vec![SlabFile::open(path, options).unwrap()], Some(folder))
            }
        };
        let ring = Ring::start(&config, &files).unwrap();
        Self { ring, files, config, folder }
    }

    pub fn disk(&self) -> SimDisk {
        match &self.config.engine {
            Engine::Simulated(disk) => disk.clone(),
            _ => panic!("not simulated"),
        }
    }
}

/// Returns the contents of the drive, in which every 8 bytes contain their own index.
pub fn contents() -> Vec<u8> {
    let words = SECTORS * SECTOR_BYTES as u64 / 8;
    (0..words).flat_map(u64::to_le_bytes).collect()
}

pub fn expected(sector: u64, len: usize) -> Vec<u8> {
    let start = sector * SECTOR_BYTES as u64 / 8;
    (start..start + len as u64 / 8).flat_map(u64::to_le_bytes).collect()
}

pub fn at(sector: u64) -> ByteOffset {
    ByteOffset(sector * SECTOR_BYTES as u64)
}

pub fn filled(byte: u8, sectors: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::for_sectors(sectors);
    buf.fill(byte);
    buf
}

/// A sink that keeps every outcome by its tag.
#[derive(Default)]
pub struct Collector {
    pub got: RefCell<BTreeMap<u64, Result<Vec<u8>, ReadError>>>,
    count: Cell<usize>,
    arrived: Notify,
}

impl ReadSink for Collector {
    fn read_done(&self, tag: u64, outcome: Result<&[u8], ReadError>, _: Instant) {
        self.count.set(self.count.get() + 1);
        let before = self.got.borrow_mut().insert(tag, outcome.map(<[u8]>::to_vec));
        if before.is_some() {
            self.count.set(usize::MAX / 2);
        }
        self.arrived.notify_one();
    }
}

impl Collector {
    pub fn new() -> (Rc<Self>, Rc<dyn ReadSink>) {
        let collector = Rc::new(Self::default());
        let sink: Rc<dyn ReadSink> = Rc::clone(&collector) as _;
        (collector, sink)
    }

    /// Waits for exactly `count` outcomes, and checks that the bytes are those of the sector that the tag
    /// names.
    pub async fn sectors(&self, count: usize) {
        self.outcomes(count).await;
        for (sector, outcome) in &*self.got.borrow() {
            let bytes = outcome.as_ref().unwrap();
            assert_eq!(*bytes, expected(*sector, bytes.len()), "sector {sector}");
        }
    }

    pub async fn outcomes(&self, count: usize) {
        while self.count.get() < count {
            self.arrived.notified().await;
        }
        assert_eq!(self.count.get(), count, "each read is reported once");
    }
}
