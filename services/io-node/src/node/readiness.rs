//! Makes the node ready: its health reports serving once its start warm (`start_warm.rs`) has ended, and its hit ratio
//! is high enough or no rows are requested. After `start_max` it reports serving in any case.
//!
//! A StatefulSet's update, or a drain under a disruption budget, takes nodes down one after another, each only when the
//! previous one is ready again. So a node that came back without enough of its cache delays the others. Meanwhile it
//! answers requests: query nodes also ask members that are not ready, if they can reach them. A node does not know its
//! hit ratio before the restart, so the operator sets the ratio to wait for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use crate::fetch::NodeState;
use crate::serve::ServiceState;
use crate::shard::CoreSnapshot;

/// The interval at which the counters are sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The number of intervals over which the ratio is computed.
const RATIO_SAMPLES: usize = 10;

/// The number of intervals without a batch after which the node counts as idle. An idle node has no ratio to wait for.
const IDLE_SAMPLES: usize = 30;

/// Waits for the start warm, then for the hit ratio, and makes the node ready. Together they take `start_max` at most.
pub async fn become_ready(shared: Arc<ServiceState>) {
    let began = Instant::now();
    let mut warm = shared.start_warms.ready();
    if warm.wait_for(|&warm| warm).await.is_err() {
        return;
    }
    if shared.node.config.hit_ratio_at_start > 0.0 {
        wait_for_hits(&shared.node, began).await;
    }
    shared.readiness.begin();
}

async fn wait_for_hits(node: &NodeState, began: Instant) {
    let (wanted, limit) = (node.config.hit_ratio_at_start, node.config.start_max);
    tracing::info!(wanted, "waiting for the hit ratio before the node is ready");
    let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut hits = HitRatio::new(wanted);
    loop {
        ticks.tick().await;
        let count = Counts::of(&node.snapshots().await);
        let took = began.elapsed();
        match hits.observe(count) {
            Verdict::Enough(ratio) => {
                let ratio = format_args!("{ratio:.3}");
                tracing::info!(%ratio, ?took, "the hit ratio is reached: the node is ready");
                return;
            }
            Verdict::Idle => {
                tracing::info!(?took, "no rows are requested: the node is ready");
                return;
            }
            Verdict::Wait(ratio) if took >= limit => {
                let ratio = format_args!("{ratio:.3}");
                tracing::warn!(
                    ?limit,
                    %ratio,
                    wanted,
                    "the hit ratio was not reached within `start_max`: the node is ready nevertheless"
                );
                return;
            }
            Verdict::Wait(_) => {}
        }
    }
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    rows: u64,
    /// The number of `rows` for which the table had to be read, for some or all of their columns.
    table_rows: u64,
    /// Batches received, whatever their outcome, plus batches and messages that were shed. A batch that is shed after
    /// it was received counts twice. That is harmless: only changes of this number matter.
    batches: u64,
}

impl Counts {
    fn of(cores: &[CoreSnapshot]) -> Self {
        Self {
            rows: cores.iter().map(|core| core.rows + core.file_sectors).sum(),
            table_rows: cores.iter().map(|core| core.table_rows + core.stored_sectors).sum(),
            // A message for which there is no memory is shed before its batches count as received.
            batches: cores.iter().map(|core| core.received + core.shed).sum(),
        }
    }
}

/// The result of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// The ratio is reached.
    Enough(f64),
    /// No batch arrived for [`IDLE_SAMPLES`] intervals.
    Idle,
    /// Neither is the case yet. Contains the current ratio, or 0 if no rows were served.
    Wait(f64),
}

/// Computes the hit ratio from samples of the counters. Pure.
struct HitRatio {
    wanted: f64,
    /// The latest samples, the newest last.
    samples: VecDeque<Counts>,
}

impl HitRatio {
    fn new(wanted: f64) -> Self {
        Self { wanted, samples: VecDeque::new() }
    }

    fn observe(&mut self, now: Counts) -> Verdict {
        self.samples.push_back(now);
        if self.samples.len() > IDLE_SAMPLES + 1 {
            self.samples.pop_front();
        }
        let last = self.samples.len() - 1;
        let since = self.samples[last.saturating_sub(RATIO_SAMPLES)];
        // The sums shrink when a core stops, because only running cores are counted.
        let rows = now.rows.saturating_sub(since.rows);
        let table_rows = now.table_rows.saturating_sub(since.table_rows);
        let ratio = match rows {
            0 => 0.0,
            rows => rows.saturating_sub(table_rows) as f64 / rows as f64,
        };
        if last >= IDLE_SAMPLES && self.samples[0].batches == now.batches {
            Verdict::Idle
        } else if last >= RATIO_SAMPLES && rows > 0 && ratio >= self.wanted {
            Verdict::Enough(ratio)
        } else {
            Verdict::Wait(ratio)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the verdict after each interval. `looks` has, for each interval, its number of rows, and how many of
    /// them came from the table.
    fn verdicts(wanted: f64, looks: impl IntoIterator<Item = (u64, u64)>) -> Vec<Verdict> {
        let mut hits = HitRatio::new(wanted);
        let mut count = Counts { rows: 0, table_rows: 0, batches: 0 };
        let look = |(rows, table_rows)| {
            count.rows += rows;
            count.table_rows += table_rows;
            count.batches += u64::from(rows > 0);
            hits.observe(count)
        };
        looks.into_iter().map(look).collect()
    }

    /// Returns the first verdict other than `Wait`, and its index.
    fn first(verdicts: &[Verdict]) -> Option<(usize, Verdict)> {
        let at = verdicts.iter().position(|verdict| !matches!(verdict, Verdict::Wait(_)))?;
        Some((at, verdicts[at]))
    }

    #[test]
    fn a_node_that_kept_its_cache_is_ready_after_ten_seconds() {
        let all = verdicts(0.9, [(100, 0); 20]);
        assert_eq!(first(&all), Some((RATIO_SAMPLES, Verdict::Enough(1.0))));
    }

    #[test]
    fn an_empty_node_waits_until_the_last_ten_seconds_are_good_enough() {
        // Half from the table for a minute, then none: 9 of 10 intervals must be without table rows.
        let looks = [(100, 50)].repeat(60).into_iter().chain([(100, 0)].repeat(20));
        let all = verdicts(0.95, looks);
        assert_eq!(first(&all), Some((60 + 8, Verdict::Enough(0.95))));
        assert_eq!(all[59], Verdict::Wait(0.5));
    }

    #[test]
    fn a_node_below_the_ratio_keeps_waiting() {
        assert_eq!(first(&verdicts(0.9, [(10, 2); 500])), None);
    }

    #[test]
    fn an_idle_node_is_ready_after_half_a_minute() {
        let all = verdicts(0.9, [(0, 0); 40]);
        assert_eq!(first(&all), Some((IDLE_SAMPLES, Verdict::Idle)));
        // A row that is requested within the first half minute restarts the wait.
        let looks = [(0, 0)].repeat(25).into_iter().chain([(1, 1)]).chain([(0, 0)].repeat(60));
        let all = verdicts(0.9, looks);
        assert_eq!(first(&all), Some((25 + IDLE_SAMPLES, Verdict::Idle)));
    }

    #[test]
    fn a_node_that_fails_all_batches_is_not_idle() {
        let mut hits = HitRatio::new(0.9);
        for batches in 0..200 {
            let verdict = hits.observe(Counts { rows: 0, table_rows: 0, batches });
            assert_eq!(verdict, Verdict::Wait(0.0));
        }
    }
    #[test]
    fn a_node_that_only_sheds_is_not_idle() {
        let mut hits = HitRatio::new(0.9);
        for shed in 0..200 {
            let core = CoreSnapshot { shed, ..Default::default() };
            assert_eq!(hits.observe(Counts::of(&[core])), Verdict::Wait(0.0));
        }
    }
}
