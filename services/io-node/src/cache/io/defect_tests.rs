//! Tests what continues and what is reported when fills can't succeed: steps panic, chunks are too long, or drives have
//! no space.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use address::{DriveNo, SECTOR_BYTES};
use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::{DataType, Field};
use futures::FutureExt;
use futures::future::BoxFuture;
use pack::PackLayout;
use ring::sim::{SimConfig, SimDisk, SimFaults};

use super::chunk::Chunk;
use super::crash_tests::{LIMITS, Life, SEGMENT_SECTORS, disk, live, name};
use super::steps::defect;
use crate::cache::books::{FillLimits, FillOutcome};
use crate::drive::DriveState;
use crate::error::NodeError;
use crate::extent::HEAD_SECTORS;

/// Longer than a fill takes on any machine, so that a fill that hangs fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

async fn fill(life: &Life, chunk: u32) -> FillOutcome {
    let filled = tokio::time::timeout(PATIENCE, life.fill(name(chunk))).await;
    filled.unwrap_or_else(|_| panic!("chunk {chunk} neither succeeds nor fails"))
}

fn why(outcome: FillOutcome) -> String {
    let FillOutcome::Failed(why) = outcome else { panic!("{outcome:?}") };
    why.to_string()
}

#[test]
fn a_step_that_panics_fails_and_fills_and_reclaims_continue() {
    for step in ["scan", "write", "publish", "record", "heat", "reread", "empty"] {
        let disk = disk(11);
        live(async || {
            let life = Life::begin(&disk).await;
            for chunk in 0..150 {
                // Makes the next step of this name panic, and another one when the drives are full.
                if chunk == 0 || chunk == 100 {
                    defect::plan(step, 1);
                }
                fill(&life, chunk).await;
                life.found(&disk);
            }
            assert_eq!(defect::left(), 0, "no step {step} panicked");
            // A panic while a journal is written closes its drive, because the journal's end is unknown. Two panics can
            // close both drives.
            let is_closed = matches!(step, "record" | "empty");
            for chunk in 150..250 {
                let outcome = fill(&life, chunk).await;
                let goes_on = matches!(outcome, FillOutcome::Filled(_));
                assert!(goes_on || is_closed && why(outcome) == "no drive takes writes", "{step}");
            }
            life.stop().await;
        });
        // Extents found afterwards are intact.
        live(async || {
            let life = Life::begin(&disk).await;
            life.found(&disk);
            life.stop().await;
        });
    }
}

/// Runs `test` on a node with two drives, under a paused clock that advances while tasks wait for the drives.
fn timed(test: impl AsyncFnOnce(&SimDisk, &Life)) {
    let bytes = (HEAD_SECTORS + 12 * SEGMENT_SECTORS) * SECTOR_BYTES as u64;
    let (drives, tick) = (vec![bytes; 2], Duration::from_micros(100));
    let disk = SimDisk::new(SimConfig { seed: 1, drives, tick, ..SimConfig::default() });
    live(async || {
        tokio::time::pause();
        let life = Life::begin(&disk).await;
        test(&disk, &life).await;
        life.stop().await;
    });
}

#[test]
fn a_drive_that_finishes_no_write_is_retired_and_its_fills_fail() {
    timed(async |disk, life| {
        disk.hold(true);
        // No write ends, so each fill can only end when its drive is retired.
        let (first, second) = tokio::join!(fill(life, 1), fill(life, 2));
        assert_eq!([why(first), why(second)], ["its drive is retired"; 2]);
        let states = [0, 1].map(|drive| life.state(drive));
        assert!(states.contains(&DriveState::Retired), "{states:?}");
        disk.hold(false);
        if states.contains(&DriveState::Serving) {
            assert!(matches!(fill(life, 3).await, FillOutcome::Filled(_)));
        }
    });
}

#[test]
fn a_slow_drive_is_retired_while_another_one_serves() {
    timed(async |disk, life| {
        for chunk in 0..20 {
            fill(life, chunk).await;
        }
        let on = |drive| life.found(disk).values().filter(|(on, _)| *on == drive).count();
        assert!(on(0) > 0 && on(1) > 0);
        for drive in [0, 1] {
            for second in 0..31 {
                let state = life.state(drive);
                assert!(state == DriveState::Serving || second == 30, "{second}");
                life.fills.slow(DriveNo(drive));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        let states = [0, 1].map(|drive| life.state(drive));
        assert_eq!(states, [DriveState::Retired, DriveState::Serving]);
        assert!(on(0) == 0 && on(1) > 0);
    });
}

/// A chunk longer than a segment, which counts how often it is read.
struct Long(Arc<AtomicUsize>);

impl Chunk for Long {
    fn encoded(self: Box<Self>, _: u64) -> BoxFuture<'static, Result<pack::Extent, NodeError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let numbers = (SEGMENT_SECTORS as usize + 1) * SECTOR_BYTES / size_of::<i64>();
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..numbers as i64));
        let field = Arc::new(Field::new("a", DataType::Int64, false));
        let extent = PackLayout::new(&[field]).unwrap().encode(&[column]).unwrap();
        async move { Ok(extent) }.boxed()
    }
}

#[test]
fn a_chunk_longer_than_a_segment_is_read_once_and_the_error_says_what_to_do() {
    live(async || {
        let life = Life::begin(&disk(1)).await;
        let reads = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let chunk = Box::new(Long(Arc::clone(&reads)));
            assert_eq!(
                why(life.fills.fill_with(name(1), chunk).await),
                "a chunk of at least 135168 bytes doesn't fit a segment of 131072: its rows come from the table; raise \
                 `segment`, which empties the drives"
            );
        }
        assert_eq!(reads.load(Ordering::SeqCst), 1);
        assert!(matches!(fill(&life, 2).await, FillOutcome::Filled(_)));
        life.stop().await;
    });
}

#[test]
fn the_error_names_what_has_no_space() {
    live(async || {
        let limits = FillLimits { directory_bytes_max: 0, ..LIMITS };
        let life = Life::begin_with(&disk(1), limits).await;
        let reason = why(fill(&life, 1).await);
        assert!(reason.starts_with("the directory has all the memory"), "{reason}");
        life.stop().await;
    });
    live(async || {
        // The second drive is shorter than a segment.
        let sectors = [HEAD_SECTORS + 4 * SEGMENT_SECTORS, HEAD_SECTORS + 8];
        let drives = sectors.map(|sectors| sectors * SECTOR_BYTES as u64).into();
        let disk = SimDisk::new(SimConfig { seed: 1, drives, ..SimConfig::default() });
        let life = Life::begin(&disk).await;
        disk.set_faults(SimFaults { failed_writes_per_mille: 1000, ..SimFaults::default() });
        let mut reason = String::new();
        for chunk in 0..8 {
            reason = why(fill(&life, chunk).await);
        }
        assert!(reason.starts_with("the drives that take writes are full"), "{reason}");
        life.stop().await;
    });
}
