//! Tests which actions each event returns, exactly. Each action is written as one line.

use std::sync::Arc;
use std::time::Duration;

use address::{ByteOffset, DriveNo, ExtentKey, PackKey};
use ring::{DriveFault, ReadError, WriteError};
use tokio::time::Instant;
use uuid::Uuid;

use super::cache_books::{CacheBooks, FillLimits};
use super::events::{Action, EXTENT_BYTES_END, Event, FillOutcome, RequestOutcome, ScanError};
use super::shares::Shares;
use crate::config::Share;
use crate::drive::{DriveState, ExtentError, Superblock, trial_extent};
use crate::extent::{Extent, HEAD_SECTORS};

const SEGMENT_SECTORS: u64 = 16;

/// Books of drives with five segments each, and the time of the next event.
struct Cache {
    books: CacheBooks,
    now: Instant,
}

fn key(chunk: u32) -> ExtentKey {
    ExtentKey { pack: PackKey(1), chunk }
}

const LIMITS: FillLimits = FillLimits {
    fills_max: 2,
    queue_max: 8,
    fill_rate: 0,
    scrub_rate: 0,
    directory_bytes_max: u64::MAX,
};

const S: Duration = Duration::from_secs(1);

fn cache(drives: usize) -> Cache {
    cache_with(drives, LIMITS)
}

fn cache_with(drives: usize, limits: FillLimits) -> Cache {
    cache_of(drives, limits, Shares::default())
}

fn cache_of(drives: usize, limits: FillLimits, shares: Shares) -> Cache {
    let sectors = HEAD_SECTORS + 5 * SEGMENT_SECTORS;
    let slab = Superblock { uuid: Uuid::nil(), segment_sectors: SEGMENT_SECTORS, sectors };
    let now = Instant::now();
    let books = CacheBooks::new(1, vec![slab; drives], limits, shares, 1, now);
    Cache { books, now }
}

/// An action in one line.
fn line(action: &Action) -> String {
    match action {
        Action::Scan(keys) => {
            format!("scan {:?}", keys.iter().map(|key| key.chunk).collect::<Vec<_>>())
        }
        Action::Write { extent, .. } => {
            let Extent { key, drive, first, .. } = &**extent;
            format!("write {} at {}:{}", key.chunk, drive.0, first.0 - HEAD_SECTORS)
        }
        Action::Publish { extent, .. } => format!("publish {}", extent.key.chunk),
        Action::Record { of, first, .. } => {
            let at = first.0 - HEAD_SECTORS;
            format!("record {} of {}:{} at {at}", of.extents, of.segment.drive.0, of.segment.index)
        }
        Action::AskHeat { segment, extents } => {
            format!("ask for the heat of {} of {}", extents.len(), segment.index)
        }
        Action::Reread(extent) => format!("reread {}", extent.key.chunk),
        Action::Empty { segment, forgotten, .. } => {
            format!("empty {} of {}", segment.index, forgotten.len())
        }
        Action::Scrub(extent) => format!("scrub {}", extent.key.chunk),
        Action::Forget(keys) => {
            format!("forget {:?}", keys.iter().map(|key| key.chunk).collect::<Vec<_>>())
        }
        Action::End(key, FillOutcome::Filled(bytes)) => format!("end {}: {bytes}", key.chunk),
        Action::End(key, FillOutcome::Found) => format!("end {}: found", key.chunk),
        Action::End(key, FillOutcome::Failed(why)) => format!("end {}: {why}", key.chunk),
    }
}

fn lines(actions: &[Action]) -> Vec<String> {
    actions.iter().map(line).collect()
}

/// Returns the event in which an action ends if it succeeds. The heat of every extent is 0.
fn success(action: Action) -> Option<Event> {
    let extent = || trial_extent(3).unwrap();
    Some(match action {
        Action::Scan(keys) => {
            let extents = keys.into_iter().map(|key| (key, Ok(extent()))).collect();
            Event::Scanned { extents, left: Vec::new() }
        }
        Action::Write { extent, purpose, .. } => {
            Event::Written { extent, purpose, outcome: Ok(()) }
        }
        Action::Publish { extent, purpose } => Event::Published { extent, purpose },
        Action::Record { of, .. } => Event::Recorded { of, outcome: Ok(()) },
        Action::AskHeat { segment, extents } => {
            let heats = extents.into_iter().map(|extent| (extent, 0)).collect();
            Event::Heated { segment, heats }
        }
        Action::Empty { segment, .. } => Event::Emptied { segment, outcome: Ok(()) },
        Action::Reread(_) | Action::Scrub(_) => panic!("nothing is hot, and the scrubber is off"),
        Action::Forget(_) | Action::End(..) => return None,
    })
}

impl Cache {
    fn apply(&mut self, event: Event) -> Vec<Action> {
        self.books.apply(event, self.now)
    }

    fn request(&mut self, chunk: u32, is_awaited: bool) -> RequestOutcome {
        self.books.request(key(chunk), None, is_awaited, self.now)
    }

    /// Lets actions succeed, and all actions that follow from them. Returns their lines.
    fn succeed(&mut self, actions: Vec<Action>) -> Vec<String> {
        let mut done = lines(&actions);
        for event in actions.into_iter().filter_map(success) {
            let next = self.apply(event);
            done.extend(self.succeed(next));
        }
        done
    }

    fn fill(&mut self, chunk: u32) -> Vec<String> {
        assert!(matches!(self.request(chunk, false), RequestOutcome::Queued));
        let actions = self.apply(Event::Woken);
        self.succeed(actions)
    }

    /// Requests a fill. Returns its extent, which is ready to be written, and the event of a successful write.
    fn scanned(&mut self, chunk: u32) -> (Arc<Extent>, Event) {
        assert!(matches!(self.request(chunk, true), RequestOutcome::Queued));
        let scan = self.apply(Event::Woken).remove(0);
        let write = self.apply(success(scan).unwrap()).remove(0);
        let Action::Write { extent, .. } = &write else { panic!("{}", line(&write)) };
        (Arc::clone(extent), success(write).unwrap())
    }
}

/// Returns the event of a scan that read all its chunks.
fn read(extents: Vec<(ExtentKey, Result<pack::Extent, ScanError>)>) -> Event {
    Event::Scanned { extents, left: Vec::new() }
}

fn failed(event: Event, error: WriteError) -> Event {
    let Event::Written { extent, purpose, .. } = event else { panic!("it is no write") };
    Event::Written { extent, purpose, outcome: Err(error) }
}

#[test]
fn a_fill_is_scanned_written_published_and_recorded() {
    let mut cache = cache(1);
    assert!(matches!(cache.request(7, false), RequestOutcome::Queued));
    assert!(matches!(cache.request(7, true), RequestOutcome::Joined));
    let scan = cache.apply(Event::Woken);
    assert_eq!(lines(&scan), ["scan [7]"]);
    let write = scan.into_iter().filter_map(success).flat_map(|event| cache.apply(event));
    let write: Vec<_> = write.collect();
    assert_eq!(lines(&write), ["write 7 at 0:0"]);
    assert!(cache.books.is_busy() && !cache.books.contains(key(7)));
    let placed = write.into_iter().filter_map(success).flat_map(|event| cache.apply(event));
    let placed: Vec<_> = placed.collect();
    // The journal begins at the segment's end.
    assert_eq!(lines(&placed), ["publish 7", "record 1 of 0:0 at 15"]);
    assert!(cache.books.contains(key(7)));
    assert!(matches!(cache.request(7, false), RequestOutcome::Ended(FillOutcome::Found)));
    assert_eq!(cache.succeed(placed)[2..], ["end 7: 12288"]);
    assert!(!cache.books.is_busy());
    assert_eq!(cache.books.running(), 0);
}

#[test]
fn fills_beyond_the_maximum_wait_for_a_write_to_end() {
    let mut cache = cache(1);
    for chunk in [1, 5, 9] {
        assert!(matches!(cache.request(chunk, false), RequestOutcome::Queued));
    }
    let scans = cache.apply(Event::Woken);
    assert_eq!(lines(&scans), ["scan [1]", "scan [5]"]);
    let mut scans = scans.into_iter().filter_map(success);
    let mut write = cache.apply(scans.next().unwrap());
    assert_eq!(lines(&write), ["write 1 at 0:0"]);
    let written = cache.apply(success(write.remove(0)).unwrap());
    assert_eq!(lines(&written), ["publish 1", "scan [9]", "record 1 of 0:0 at 15"]);
}

#[test]
fn a_fill_beyond_the_rate_is_due_at_a_time_even_when_that_has_passed() {
    // One extent a second.
    let mut cache = cache_with(1, FillLimits { fill_rate: 12288, ..LIMITS });
    assert!(cache.fill(0).ends_with(&["end 0: 12288".to_owned()]), "the first is not delayed");
    assert_eq!((cache.fill(5), cache.books.wake()), (vec!["scan [5]".into()], Some(cache.now + S)));
    cache.now += 2 * S;
    assert_eq!(cache.books.wake(), Some(cache.now - S));
    let write = cache.apply(Event::Woken);
    assert_eq!(lines(&write), ["write 5 at 0:3"]);
    assert_eq!(cache.books.wake(), None);
}

#[test]
fn a_full_drive_reclaims_its_oldest_segment_for_the_next_fill() {
    let mut cache = cache(1);
    // A segment has room for four extents of three sectors and their records, and one segment is left free.
    for chunk in 0..16 {
        assert!(cache.fill(chunk).ends_with(&[format!("end {chunk}: 12288")]), "{chunk}");
    }
    let expected = [
        "scan [16]",
        "ask for the heat of 4 of 0",
        "empty 0 of 4",
        "write 16 at 0:64",
        "publish 16",
        "record 1 of 0:4 at 79",
        "end 16: 12288",
    ];
    assert_eq!(cache.fill(16), expected);
    assert_eq!((cache.books.extents(), cache.books.counts().evicted), (13, 4));
}

#[test]
fn a_chunk_that_failed_is_not_tried_for_a_miss_until_its_delay_is_over() {
    let mut cache = cache(1);
    for delay in [1, 2, 4] {
        assert!(matches!(cache.request(3, false), RequestOutcome::Queued));
        cache.apply(Event::Woken);
        let extents = vec![(key(3), Err(ScanError::Failed("no such file".to_owned())))];
        assert_eq!(lines(&cache.apply(read(extents))), ["end 3: no such file"]);
        assert!(matches!(cache.request(3, false), RequestOutcome::Ignored));
        cache.now += Duration::from_secs(delay) - Duration::from_millis(1);
        assert!(matches!(cache.request(3, false), RequestOutcome::Ignored));
        cache.now += Duration::from_millis(1);
    }
    // A fill for which a caller waits is tried at once. Its success ends the delay.
    assert!(matches!(cache.request(3, true), RequestOutcome::Queued));
    let actions = cache.apply(Event::Woken);
    assert!(cache.succeed(actions).ends_with(&["end 3: 12288".to_owned()]));
    assert_eq!(cache.books.counts().failed, 3);
}

#[test]
fn a_chunk_longer_than_its_tables_maximum_fails_and_others_of_the_table_are_filled() {
    let share = Share { guarantee: 0, quota: 4, is_pinned: false };
    let mut cache = cache_of(1, LIMITS, Shares::new([(key(0).pack.table(), share)]));
    assert!(matches!(cache.request(0, true), RequestOutcome::Queued));
    cache.apply(Event::Woken);
    let extents = vec![(key(0), Ok(trial_extent(5).unwrap()))];
    let why = "a chunk of at least 20480 bytes is longer than its table's `maximum` of 16384 bytes: its rows come from the \
               table; raise `maximum` in `shares`";
    assert_eq!(lines(&cache.apply(read(extents))), [format!("end 0: {why}")]);
    let RequestOutcome::Ended(FillOutcome::Failed(said)) = cache.request(0, true) else {
        panic!("it is scanned again");
    };
    assert_eq!(&*said, why);
    assert!(cache.fill(1).ends_with(&["end 1: 12288".to_owned()]));
}

#[test]
fn chunks_that_a_scan_leaves_are_scanned_with_fewer_and_alone_if_it_read_none() {
    let mut cache = cache_with(1, FillLimits { fills_max: 4, ..LIMITS });
    for chunk in 0..6 {
        let outcome = cache.books.request(key(chunk), Some(10), true, cache.now);
        assert!(matches!(outcome, RequestOutcome::Queued));
    }
    assert_eq!(lines(&cache.apply(Event::Woken)), ["scan [0, 1, 2, 3, 4, 5]"]);
    let extents = [0, 1].map(|chunk| (key(chunk), Ok(trial_extent(3).unwrap()))).into();
    let left = (2..6).map(|chunk| (key(chunk), Some(10))).collect();
    let actions = lines(&cache.apply(Event::Scanned { extents, left }));
    assert_eq!(actions, ["write 0 at 0:0", "write 1 at 0:3", "scan [2, 3]", "scan [4, 5]"]);
    let left = vec![(key(2), Some(10)), (key(3), Some(10))];
    let alone = cache.apply(Event::Scanned { extents: Vec::new(), left });
    assert_eq!(lines(&alone), ["scan [2]"], "four fills at once: two chunks are being written");
    assert!(cache.succeed(alone).contains(&"end 3: 12288".to_owned()));
    assert_eq!((cache.books.waiting(), cache.books.counts().failed), (0, 0));
}

#[test]
fn a_chunk_whose_scan_stops_at_the_length_of_a_segment_is_not_scanned_again() {
    let mut cache = cache(1);
    assert!(matches!(cache.request(3, false), RequestOutcome::Queued));
    cache.apply(Event::Woken);
    let extents = vec![(key(3), Err(ScanError::TooLong(9_999_999)))];
    let said = lines(&cache.apply(read(extents)));
    assert!(
        said[0].starts_with("end 3: a chunk of at least 9999999 bytes doesn't fit"),
        "{said:?}"
    );
    let none = vec![(key(4), Err(ScanError::TooLong(EXTENT_BYTES_END)))];
    assert!(matches!(cache.request(4, false), RequestOutcome::Queued));
    cache.apply(Event::Woken);
    let said = lines(&cache.apply(read(none)));
    assert!(said[0].starts_with("end 4: a chunk doesn't fit an extent of 4 GiB"), "{said:?}");
    // Not even after the longest delay of a failed fill.
    cache.now += Duration::from_secs(301);
    for is_awaited in [false, true] {
        assert!(matches!(cache.request(3, is_awaited), RequestOutcome::Ended(_)));
    }
    assert!(lines(&cache.apply(Event::Woken)).is_empty());
}

#[test]
fn a_bad_extent_is_forgotten_and_a_late_report_changes_nothing() {
    let mut cache = cache(1);
    let (old, written) = cache.scanned(4);
    let placed = cache.apply(written);
    cache.succeed(placed);
    let report = || Event::BadExtent(Arc::clone(&old), ExtentError::Checksum);
    assert_eq!(lines(&cache.apply(report())), ["forget [4]"]);
    assert!(!cache.books.contains(key(4)));
    assert!(cache.fill(4).contains(&"write 4 at 0:3".to_owned()));
    assert!(lines(&cache.apply(report())).is_empty());
    assert!(cache.books.contains(key(4)));
    assert_eq!(cache.books.counts().dropped, 1);
}

#[test]
fn a_drive_that_is_gone_loses_its_extents_and_nothing_waits_for_its_writes() {
    let mut cache = cache(2);
    let (first, written) = cache.scanned(0);
    let placed = cache.apply(written);
    cache.succeed(placed);
    assert_eq!(cache.fill(1)[1], "write 1 at 1:0");
    assert_eq!(cache.fill(2)[1], "write 2 at 0:3");
    assert_eq!(cache.fill(3)[1], "write 3 at 1:3");
    let (hanging, its_end) = cache.scanned(4);
    assert_eq!((first.drive, hanging.drive), (DriveNo(0), DriveNo(0)));
    let (drive, offset, errno) = (DriveNo(0), ByteOffset(0), 5);
    let gone = ReadError::Io { drive, offset, errno, fault: DriveFault::Gone };
    let actions = cache.apply(Event::BadExtent(first, gone.into()));
    assert_eq!(lines(&actions), ["forget [0]", "forget [2]"]);
    assert_eq!(cache.books.extents(), 2);
    assert_eq!(cache.books.drive_state(DriveNo(0)), DriveState::Retired);
    assert!(!cache.books.is_busy(), "a drive that hangs may never finish its writes");
    // The write ends after all.
    assert_eq!(lines(&cache.apply(its_end)), ["end 4: its drive is retired"]);
    assert_eq!(cache.fill(5)[1], "write 5 at 1:6");
}

#[test]
fn a_failed_write_ends_its_fill_and_gives_the_space_up() {
    let mut cache = cache(1);
    let (_, written) = cache.scanned(0);
    let error = WriteError::Closed;
    let why = error.to_string();
    assert_eq!(lines(&cache.apply(failed(written, error))), [format!("end 0: {why}")]);
    assert!(!cache.books.is_busy() && !cache.books.contains(key(0)));
    assert_eq!(cache.books.drive_state(DriveNo(0)), DriveState::Serving);
    // The failed write's segment can be reclaimed, because nothing in it is under way any more. Three other extents and
    // their records fit into it.
    for chunk in 1..16 {
        cache.fill(chunk);
    }
    assert_eq!(cache.fill(16)[1..3], ["ask for the heat of 3 of 0", "empty 0 of 3"]);
}

/// Fills the drive, and requests the fill that reclaims a segment. Returns the event with the heat of that segment's
/// extents: the first was read once, the others were not.
fn reclaims(cache: &mut Cache) -> Event {
    for chunk in 0..16 {
        cache.fill(chunk);
    }
    assert!(matches!(cache.request(16, false), RequestOutcome::Queued));
    let scan = cache.apply(Event::Woken).remove(0);
    let ask = cache.apply(success(scan).unwrap()).remove(0);
    let Action::AskHeat { segment, extents } = ask else { panic!("{}", line(&ask)) };
    let heats = (0..).zip(extents).map(|(at, extent)| (extent, u32::from(at == 0))).collect();
    Event::Heated { segment, heats }
}

#[test]
fn an_extent_that_was_read_again_is_moved_to_the_main_log() {
    let mut cache = cache(1);
    let heated = reclaims(&mut cache);
    let reread = cache.apply(heated).remove(0);
    assert_eq!(line(&reread), "reread 0");
    let Action::Reread(extent) = reread else { unreachable!() };
    let copy = Ok(trial_extent(3).unwrap());
    // The copy takes the segment that is left free for kept extents.
    let write = cache.apply(Event::Reread { extent, copy });
    assert_eq!(lines(&write), ["write 0 at 0:64"]);
    let expected = [
        "write 0 at 0:64",
        "publish 0",
        "record 1 of 0:4 at 79",
        "empty 0 of 3",
        // Segment 0 is the one that is left free now, so the fill needs another one.
        "ask for the heat of 4 of 1",
        "empty 1 of 4",
        "write 16 at 0:0",
        "publish 16",
        "end 16: 12288",
        "record 1 of 0:0 at 14",
    ];
    assert_eq!(cache.succeed(write), expected);
    assert!(cache.books.contains(key(0)) && !cache.books.contains(key(1)));
    assert_eq!(cache.books.counts().bytes_kept, 12288);
}

#[test]
fn a_copy_does_not_replace_an_extent_that_was_dropped_and_filled_anew() {
    let mut cache = cache(1);
    let heated = reclaims(&mut cache);
    let Action::Reread(extent) = cache.apply(heated).remove(0) else { panic!("it is hot") };
    let old = Arc::clone(&extent);
    let copy = Ok(trial_extent(3).unwrap());
    let write = cache.apply(Event::Reread { extent, copy }).remove(0);
    assert_eq!(line(&write), "write 0 at 0:64");
    let drop = Event::BadExtent(old, ExtentError::Undecodable);
    assert_eq!(lines(&cache.apply(drop)), ["forget [0]"]);
    let moved = cache.apply(success(write).unwrap());
    assert_eq!(lines(&moved), ["empty 0 of 3"]);
    assert!(!cache.books.contains(key(0)));
}

#[test]
fn books_that_are_stopped_record_and_start_nothing() {
    let mut cache = cache(1);
    let (_, written) = cache.scanned(0);
    assert!(matches!(cache.request(1, false), RequestOutcome::Queued));
    assert!(cache.apply(Event::Stopped).is_empty());
    let actions = cache.apply(written);
    assert_eq!(lines(&actions), ["publish 0", "record 1 of 0:0 at 15"]);
    cache.succeed(actions);
    assert!(!cache.books.is_busy() && cache.books.wake().is_none());
}

/// Returns which of the first six chunks a node with memory for only `extents_max` extents has after a restart.
fn kept_by_a_restart(extents_max: u64, shares: fn() -> Shares) -> [bool; 6] {
    let mut cache = cache_of(1, LIMITS, shares());
    (0..6).for_each(|chunk| drop(cache.fill(chunk)));
    assert!((0..6).all(|chunk| cache.books.contains(key(chunk))));
    let bytes_max = cache.books.directory_bytes() / 6 * extents_max;
    cache.books.set_directory_bytes_max(bytes_max);
    let now = cache.now;
    let mut restarted = Cache { books: cache.books.restarted(shares(), now), now };
    assert!(restarted.books.directory_bytes() <= bytes_max);
    let kept = [0, 1, 2, 3, 4, 5].map(|chunk| restarted.books.contains(key(chunk)));
    // Fills go on: the segments that lost their extents are reclaimed for them.
    if extents_max > 1 {
        assert!(restarted.fill(9).contains(&"end 9: 12288".to_owned()));
    }
    assert!(restarted.books.directory_bytes() <= bytes_max);
    kept
}

#[test]
fn a_restarted_node_keeps_the_newest_extents_that_its_directory_has_memory_for() {
    assert_eq!(kept_by_a_restart(6, Shares::default), [true; 6]);
    assert_eq!(kept_by_a_restart(2, Shares::default), [false, false, false, false, true, true]);
    // The first two extents are held for the table's guarantee.
    let shares = || {
        let share = Share { guarantee: 4, quota: u64::MAX, is_pinned: false };
        Shares::new([(key(0).pack.table(), share)])
    };
    assert_eq!(kept_by_a_restart(3, shares), [true, true, false, false, false, true]);
}

#[test]
#[should_panic(expected = "writes of a drive: 0 - 1 is below zero")]
fn a_write_that_ends_twice_is_a_defect() {
    let mut cache = cache(1);
    let (_, written) = cache.scanned(0);
    let Event::Written { extent, purpose, .. } = &written else { panic!("it is no write") };
    let again = Event::Written { extent: Arc::clone(extent), purpose: *purpose, outcome: Ok(()) };
    cache.apply(written);
    cache.apply(again);
}

#[test]
fn extents_of_a_pinned_table_stay_even_if_they_are_not_used_any_more() {
    for is_pinned in [true, false] {
        let share = Share { guarantee: 8, quota: 8, is_pinned };
        let mut cache = cache_of(1, LIMITS, Shares::new([(key(0).pack.table(), share)]));
        assert!(cache.fill(0).ends_with(&["end 0: 12288".to_owned()]));
        assert_eq!(cache.books.evict_unused(vec![key(0)]), u64::from(!is_pinned));
        assert_eq!(cache.books.contains(key(0)), is_pinned);
    }
}

#[test]
fn extents_that_are_not_used_any_more_are_evicted_and_can_be_filled_anew() {
    let mut cache = cache(1);
    (0..3).for_each(|chunk| drop(cache.fill(chunk)));
    let (_, written) = cache.scanned(3);
    // An extent that is being filled is not evicted, and neither is one that is not there.
    assert_eq!(cache.books.evict_unused([0, 2, 3, 9].map(key).into()), 2);
    assert_eq!(lines(&cache.apply(Event::Woken)), ["forget [0, 2]"]);
    assert_eq!(cache.books.evict_unused([0, 2].map(key).into()), 0);
    assert!(cache.apply(Event::Woken).is_empty());
    assert_eq!(cache.books.counts().evicted, 2);
    let actions = cache.apply(written);
    cache.succeed(actions);
    let placed = |cache: &Cache| [0, 1, 2, 3].map(|chunk| cache.books.contains(key(chunk)));
    assert_eq!(placed(&cache), [false, true, false, true]);
    cache.fill(0);
    assert_eq!(placed(&cache), [true, true, false, true]);
}

#[test]
fn the_books_keep_nothing_of_an_extent_that_was_evicted() {
    let mut cache = cache(1);
    cache.fill(0);
    let (extent, written) = cache.scanned(1);
    let kept = Arc::downgrade(&extent);
    drop(extent);
    let actions = cache.apply(written);
    cache.succeed(actions);
    assert!(kept.upgrade().is_some());
    cache.books.evict_unused(vec![key(1)]);
    assert!(kept.upgrade().is_none());
    // Its segment is reclaimed with the extents that are left in it.
    (2..17).for_each(|chunk| drop(cache.fill(chunk)));
    assert!(!cache.books.contains(key(0)) && cache.books.contains(key(16)));
}
