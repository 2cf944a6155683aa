//! Splits a large fetch into batches, and joins their replies.

use std::ops::Range;

use address::RowAddr;
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use wire::Fault;

use super::reply::{Outcome, Reply, Trips, damaged};

/// Splits `0..rows` into as few parts of at most `rows_max` rows as possible, of nearly equal size.
pub(super) fn split(rows: usize, rows_max: usize) -> Vec<Range<usize>> {
    let parts = rows.div_ceil(rows_max);
    (0..parts).map(|i| rows * i / parts..rows * (i + 1) / parts).collect()
}

/// Joins the replies of `parts`, whose ranges are contiguous and begin at 0. `k` is the number of rows that a rerank
/// requested. Positions of missing rows, and of rows that pass a predicate, become positions in the whole fetch.
pub(super) fn join(parts: Vec<(Range<usize>, Reply)>, k: Option<u32>) -> Result<Reply, Fault> {
    let (mut missing, mut trips) = (Vec::new(), Vec::with_capacity(parts.len()));
    let (mut batches, mut near): (Vec<RecordBatch>, Vec<(RowAddr, f32)>) = Default::default();
    let mut passing: Option<Vec<u32>> = None;
    for (range, reply) in parts {
        missing.extend(reply.missing.into_iter().map(|at| at + range.start as u32));
        trips.extend_from_slice(reply.trips.as_slice());
        match reply.outcome {
            Outcome::Rows(batch) => batches.push(batch),
            Outcome::Neighbors(neighbors) => near.extend(neighbors),
            Outcome::Passing(rows) => {
                let rows = rows.into_iter().map(|at| at + range.start as u32);
                passing.get_or_insert_default().extend(rows);
            }
        }
    }
    if let Some(passing) = passing {
        if !batches.is_empty() {
            return Err(damaged("it holds rows beside those that pass"));
        }
        let outcome = Outcome::Passing(passing);
        return Ok(Reply { outcome, missing, trips: Trips::Several(trips) });
    }
    let outcome = match k {
        Some(k) => {
            near.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
            near.truncate(k as usize);
            Outcome::Neighbors(near)
        }
        None => {
            let first = batches.first().ok_or_else(|| damaged("it holds no rows"))?;
            let schema = first.schema();
            // Arrow panics if a batch has fewer columns than the first.
            if batches.iter().any(|batch| batch.num_columns() != schema.fields().len()) {
                return Err(damaged("its parts have different columns"));
            }
            let joined = concat_batches(&schema, &batches);
            Outcome::Rows(joined.map_err(|e| damaged(&e.to_string()))?)
        }
    };
    Ok(Reply { outcome, missing, trips: Trips::Several(trips) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array, RecordBatchOptions};
    use arrow_schema::Schema;
    use tokio::time::Instant;
    use wire::fetch::StageTimes;

    use super::super::reply::{Trip, TripTimeline};
    use super::*;

    fn trip(times: StageTimes) -> Trip {
        let now = Instant::now();
        let timeline = TripTimeline { asked: now, without_credit: None, sent: now, answered: now };
        Trip { timeline, times }
    }

    fn rows(values: &[i32], missing: &[u32], read_us: u32) -> Reply {
        let array: ArrayRef = Arc::new(Int32Array::from(values.to_vec()));
        Reply {
            outcome: Outcome::Rows(RecordBatch::try_from_iter([("x", array)]).unwrap()),
            missing: missing.to_vec(),
            trips: Trips::One(trip(StageTimes { read_us, drive_reads: 2, ..Default::default() })),
        }
    }

    #[test]
    fn parts_are_few_and_even() {
        assert_eq!(split(8, 4), [0..4, 4..8]);
        assert_eq!(split(5, 4), [0..2, 2..5]);
        assert_eq!(split(10, 4), [0..3, 3..6, 6..10]);
        for (rows, max) in [(1, 1), (100, 7), (4097, 4096)] {
            let parts = split(rows, max);
            assert!(parts.iter().all(|part| !part.is_empty() && part.len() <= max), "{parts:?}");
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, rows));
        }
    }

    #[test]
    fn rows_are_joined_in_order_and_missing_ones_keep_their_place() {
        let parts = vec![(0..3, rows(&[1, 2], &[1], 10)), (3..5, rows(&[3], &[0], 7))];
        let joined = join(parts, None).unwrap();
        assert_eq!(joined.missing, [1, 3]);
        assert_eq!((joined.times().read_us, joined.times().drive_reads), (10, 4));
        assert_eq!(joined.outcome, rows(&[1, 2, 3], &[], 0).outcome);
    }

    #[test]
    fn parts_with_different_columns_are_refused() {
        let mut without = rows(&[2], &[], 0);
        let one_row = RecordBatchOptions::new().with_row_count(Some(1));
        let schema = Arc::new(Schema::empty());
        let none = RecordBatch::try_new_with_options(schema, vec![], &one_row).unwrap();
        without.outcome = Outcome::Rows(none);
        let fault = join(vec![(0..1, rows(&[1], &[], 0)), (1..2, without)], None).unwrap_err();
        assert!(fault.message.contains("different columns"), "{fault:?}");
    }

    #[test]
    fn the_nearest_of_all_parts_are_kept_and_ties_go_by_address() {
        let near = |pairs: &[(u64, f32)]| Reply {
            outcome: Outcome::Neighbors(
                pairs.iter().map(|&(a, d)| (RowAddr::from_u64(a), d)).collect(),
            ),
            missing: vec![],
            trips: Trips::One(trip(StageTimes::default())),
        };
        let parts = vec![(0..3, near(&[(9, 0.5), (4, 1.0)])), (3..5, near(&[(3, 1.0), (1, 2.0)]))];
        let joined = join(parts, Some(3)).unwrap();
        assert_eq!(joined.outcome, near(&[(9, 0.5), (3, 1.0), (4, 1.0)]).outcome);
    }

    #[test]
    fn positions_of_rows_that_pass_are_those_in_the_whole() {
        let passing = |rows: &[u32], missing: &[u32]| Reply {
            outcome: Outcome::Passing(rows.to_vec()),
            missing: missing.to_vec(),
            trips: Trips::One(trip(StageTimes::default())),
        };
        let parts = vec![
            (0..3, passing(&[0, 2], &[1])),
            (3..5, passing(&[], &[0])),
            (5..6, passing(&[0], &[])),
        ];
        let joined = join(parts, None).unwrap();
        assert_eq!((joined.outcome, joined.missing), (Outcome::Passing(vec![0, 2, 5]), vec![1, 3]));
        // If a node of an older version, which does not know predicates, takes over between the two parts, it answers
        // the second part with rows.
        let parts = vec![(0..3, passing(&[0], &[])), (3..4, rows(&[1], &[], 0))];
        assert!(join(parts, None).is_err());
    }

    #[test]
    fn each_batch_keeps_its_timeline_and_times_however_often_it_was_split() {
        let part = |value, read_us, exported| {
            let mut reply = rows(&[value], &[], 0);
            let trip = trip(StageTimes { read_us, exported, ..Default::default() });
            reply.trips = Trips::One(trip);
            (reply, trip)
        };
        let ((a, first), (b, second), (c, third)) =
            (part(1, 7, true), part(2, 9, false), part(3, 8, true));
        let halves = join(vec![(0..1, b), (1..2, c)], None).unwrap();
        let joined = join(vec![(0..1, a), (1..3, halves)], None).unwrap();
        assert_eq!(joined.trips.as_slice(), [first, second, third]);
        assert_eq!((joined.times().read_us, joined.times().exported), (9, false));
    }
}
