//! Tests exact places of extents on drives.

use address::{DriveNo, SectorNo};

use super::eviction::Log;
use super::segments::*;
use crate::extent::{HEAD_SECTORS, SegmentNo};

/// Returns the bookkeeping of slabs of the lengths `lens`, in sectors without the head.
fn segments(segment_sectors: u64, lens: &[u64]) -> Segments {
    let lens: Vec<_> = lens.iter().map(|len| HEAD_SECTORS + len).collect();
    Segments::new(segment_sectors, &lens, 1)
}

fn segment(drive: u16, index: u32) -> SegmentNo {
    SegmentNo { drive: DriveNo(drive), index }
}

fn room(drive: u16, index: u32, first: u64) -> Allocation {
    let first = SectorNo(HEAD_SECTORS + first);
    Allocation::Room(Room { segment: segment(drive, index), first })
}

#[test]
fn extents_fill_segments_front_to_back_and_drives_in_turn() {
    // The last 3 sectors of drive 1 are too few for a segment.
    let mut segments = segments(10, &[20, 13]);
    let given = [5, 5, 4, 4, 7].map(|sectors| segments.allocate(Log::Small, sectors, 1, Use::Fill));
    let last = Allocation::Busy;
    assert_eq!(given, [room(0, 0, 0), room(1, 0, 0), room(0, 1, 10), room(0, 1, 14), last]);
    assert_eq!(segments.used_sectors(DriveNo(0)), 13);
    assert_eq!(segments.allocate(Log::Small, 9, 1, Use::Fill), Allocation::TooLong);
}

#[test]
fn journals_grow_from_the_end_in_the_room_kept_for_them() {
    let mut segments = segments(10, &[10]);
    assert_eq!(segments.allocate(Log::Small, 3, 1, Use::Fill), room(0, 0, 0));
    assert_eq!(segments.allocate(Log::Small, 2, 2, Use::Fill), room(0, 0, 3));
    // 5 sectors of extents and 3 reserved ones leave space for a sector and its record only.
    assert_eq!(segments.allocate(Log::Small, 2, 1, Use::Fill), Allocation::Busy);
    let block = |epoch, number, first: u64| BlockRoom {
        epoch,
        log: Log::Small,
        number,
        previous: 0,
        first: SectorNo(HEAD_SECTORS + first),
    };
    // Both records go into one block, which takes fewer sectors than were reserved.
    assert_eq!(segments.next_block(segment(0, 0), 2), block(1, 0, 8));
    segments.settle(segment(0, 0), 2, 3);
    assert_eq!(segments.allocate(Log::Small, 2, 1, Use::Fill), room(0, 0, 5));
    assert_eq!(segments.next_block(segment(0, 0), 1), block(1, 1, 7));
    assert_eq!(segments.used_sectors(DriveNo(0)), 10);
}

#[test]
fn the_oldest_segment_with_nothing_under_way_is_reclaimed() {
    let mut segments = segments(10, &[20]);
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), room(0, 0, 0));
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), room(0, 1, 10));
    assert_eq!(segments.allocate(Log::Small, 1, 1, Use::Fill), Allocation::Busy);
    segments.next_block(segment(0, 1), 1);
    segments.settle(segment(0, 1), 1, 1);
    assert_eq!(segments.allocate(Log::Small, 1, 1, Use::Fill), Allocation::Reclaim(segment(0, 1)));
    // Segments 0 and 1 have the first two epochs, so this is the third one.
    let first = SectorNo(HEAD_SECTORS + 19);
    let block = BlockRoom { epoch: 3, log: Log::Small, number: 0, previous: 0, first };
    segments.seal(segment(0, 1));
    assert_eq!(segments.empty(segment(0, 1)), block);
    segments.release(segment(0, 1));
    assert_eq!(segments.allocate(Log::Small, 1, 1, Use::Fill), room(0, 1, 10));
    assert_eq!(segments.used_sectors(DriveNo(0)), 10);
}

#[test]
fn a_closed_drive_is_passed_over() {
    let mut segments = segments(10, &[10, 10]);
    segments.close(DriveNo(0));
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), room(1, 0, 0));
    segments.settle(segment(1, 0), 1, 0);
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), Allocation::Reclaim(segment(1, 0)));
    segments.close(DriveNo(1));
    assert_eq!(segments.allocate(Log::Small, 1, 1, Use::Fill), Allocation::NoDrive);
}

#[test]
fn each_log_has_its_own_segments_and_fills_leave_one_free_for_kept_extents() {
    let mut segments = segments(10, &[50]);
    let settle = |segments: &mut Segments, indexes: std::ops::Range<u32>| {
        indexes.for_each(|index| segments.settle(segment(0, index), 1, 1));
    };
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), room(0, 0, 0));
    assert_eq!(segments.allocate(Log::Main, 4, 1, Use::Kept), room(0, 1, 10));
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), room(0, 2, 20));
    assert_eq!(segments.allocate(Log::Main, 8, 1, Use::Kept), room(0, 3, 30));
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), Allocation::Busy);
    settle(&mut segments, 0..4);
    // The small log has its share, one sealed segment, so a segment of the small log is reclaimed.
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), Allocation::Reclaim(segment(0, 0)));
    assert_eq!(segments.log_of(segment(0, 0)), Log::Small);
    assert_eq!(segments.allocate(Log::Main, 8, 1, Use::Kept), room(0, 4, 40));
    segments.seal(segment(0, 0));
    segments.empty(segment(0, 0));
    segments.release(segment(0, 0));
    settle(&mut segments, 4..5);
    // The small log has no sealed segment now.
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), Allocation::Reclaim(segment(0, 1)));
    segments.seal(segment(0, 1));
    segments.empty(segment(0, 1));
    segments.release(segment(0, 1));
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), room(0, 0, 0));
}

#[test]
fn restored_segments_are_filled_further_and_reclaimed_by_age() {
    let mut segments = segments(10, &[50]);
    let restored = |index, epoch, used_sectors| RestoredSegment {
        segment: segment(0, index),
        epoch,
        log: Log::Small,
        used_sectors,
        journal_sectors: 1,
        blocks: 1,
        sum: 0,
    };
    // The third segment was emptied, and not used since.
    segments.restore(vec![restored(0, 7, 4), restored(1, 5, 8), restored(2, 8, 0)]);
    segments.distrust(segment(0, 3));
    assert_eq!(segments.allocate(Log::Small, 4, 1, Use::Fill), room(0, 0, 4));
    assert_eq!(segments.allocate(Log::Small, 7, 1, Use::Fill), room(0, 2, 20));
    assert_eq!(segments.next_block(segment(0, 2), 1).epoch, 8);
    assert_eq!(segments.allocate(Log::Small, 7, 1, Use::Fill), Allocation::Reclaim(segment(0, 3)));
    assert_eq!(segments.empty(segment(0, 3)).epoch, 9);
    segments.release(segment(0, 3));
    assert_eq!(segments.allocate(Log::Small, 7, 1, Use::Fill), room(0, 4, 40));
    assert_eq!(segments.allocate(Log::Small, 7, 1, Use::Fill), Allocation::Reclaim(segment(0, 1)));
}

#[test]
fn a_segment_of_the_held_log_is_not_given_to_it_again_nor_one_beyond_its_maximum() {
    let mut segments = segments(10, &[90]);
    for index in 0..4 {
        assert_eq!(
            segments.allocate(Log::Held, 8, 1, Use::Fill),
            room(0, index, 10 * u64::from(index))
        );
    }
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), room(0, 4, 40));
    // Between a half and three quarters of segment 1 are due. It is reclaimed from the held log; if it stayed in that
    // log, it would be chosen again and again.
    assert!(!segments.is_to_be_held(segment(0, 1), 7));
    assert!(segments.is_to_be_held(segment(0, 4), 6));
    assert!(!segments.is_to_be_held(segment(0, 4), 5));
    assert_eq!(segments.allocate(Log::Held, 8, 1, Use::Fill), room(0, 5, 50));
    assert!(!segments.is_to_be_held(segment(0, 4), 6), "the held log has its five");
}

#[test]
fn the_held_log_leaves_segments_to_the_others_and_is_reclaimed_for_its_space_that_is_not_held() {
    // Nine segments: five for the held log.
    let mut segments = segments(10, &[90]);
    assert_eq!(held_max_sectors(10, &[HEAD_SECTORS + 90, HEAD_SECTORS + 30]), 33);
    for index in 0..5 {
        assert_eq!(
            segments.allocate(Log::Held, 8, 1, Use::Fill),
            room(0, index, 10 * u64::from(index))
        );
        segments.settle(segment(0, index), 1, 1);
        segments.live(segment(0, index), 8);
        segments.hold(segment(0, index), 8);
    }
    assert_eq!(segments.allocate(Log::Held, 8, 1, Use::Fill), Allocation::AllHeld);
    assert_eq!(segments.allocate(Log::Held, 8, 1, Use::Kept), Allocation::AllHeld);
    // The other logs can still use the remaining segments.
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), room(0, 5, 50));
    // At most three quarters of segment 3 are held: it may be reclaimed for the held log, but not yet for other logs.
    segments.release_held(segment(0, 3), 1);
    let third = Allocation::Reclaim(segment(0, 3));
    assert_eq!(segments.allocate(Log::Held, 8, 1, Use::Fill), third);
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), room(0, 6, 60));
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), room(0, 7, 70));
    (5..8).for_each(|index| {
        segments.settle(segment(0, index), 1, 1);
        segments.live(segment(0, index), 8);
    });
    let oldest = Allocation::Reclaim(segment(0, 5));
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), oldest);
    segments.release_held(segment(0, 3), 2);
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), third);
    // A due extent may use the spare segment.
    assert_eq!(segments.allocate(Log::Held, 8, 1, Use::Kept), third);
    assert_eq!(segments.allocate(Log::Held, 5, 1, Use::Due), room(0, 8, 80));
    segments.seal(segment(0, 3));
    segments.gone(segment(0, 3), 8);
    segments.release_held(segment(0, 3), 5);
    segments.empty(segment(0, 3));
    segments.release(segment(0, 3));
    assert_eq!(segments.log_of(segment(0, 8)), Log::Held);
    // A sealed segment is given to the held log as it is.
    segments.settle(segment(0, 8), 1, 1);
    segments.make_held(segment(0, 5));
    segments.hold(segment(0, 5), 8);
    assert_eq!(segments.log_of(segment(0, 5)), Log::Held);
    segments.live(segment(0, 8), 5);
    let oldest = Allocation::Reclaim(segment(0, 6));
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), oldest);
    // A segment that is nearly empty is reclaimed first, whichever log it is in.
    segments.gone(segment(0, 1), 7);
    let nearly_empty = Allocation::Reclaim(segment(0, 1));
    assert_eq!(segments.allocate(Log::Small, 8, 1, Use::Fill), nearly_empty);
}

#[test]
#[should_panic(expected = "extents under way: 1 - 2 is below zero")]
fn settling_more_extents_than_are_under_way_is_a_defect() {
    let mut segments = segments(10, &[50]);
    segments.allocate(Log::Small, 8, 1, Use::Fill);
    segments.settle(segment(0, 0), 2, 1);
}

#[test]
#[should_panic(expected = "live_sectors: 8")]
fn emptying_a_segment_whose_extents_are_served_is_a_defect() {
    let mut segments = segments(10, &[50]);
    segments.allocate(Log::Small, 8, 1, Use::Fill);
    segments.settle(segment(0, 0), 1, 1);
    segments.live(segment(0, 0), 8);
    segments.empty(segment(0, 0));
}
