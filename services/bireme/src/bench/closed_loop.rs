//! A fixed number of callers, each of which sends its next request once its last one is answered. The rate drops when
//! the endpoint is slow, so the latencies don't show how long requests that arrive at a constant rate would wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet};

use super::tally::Tally;
use super::workload::Workload;

/// The pause of a caller after a failure, so that it does not flood an endpoint that is gone.
const PAUSE: Duration = Duration::from_millis(10);

/// Sends requests for `time`, at most `requests` of them.
pub async fn closed_loop<W: Workload>(
    workload: Arc<W>,
    callers: usize,
    time: Duration,
    requests: u64,
) -> Result<Tally, JoinError> {
    let end = Instant::now() + time;
    let next = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    for _ in 0..callers {
        running.spawn(caller(Arc::clone(&workload), Arc::clone(&next), end, requests));
    }
    let mut total = Tally::new();
    while let Some(tally) = running.join_next().await {
        total.merge(&tally?);
    }
    Ok(total)
}

async fn caller<W: Workload>(
    workload: Arc<W>,
    next: Arc<AtomicU64>,
    end: Instant,
    requests: u64,
) -> Tally {
    let mut tally = Tally::new();
    loop {
        let began = Instant::now();
        let number = next.fetch_add(1, Ordering::Relaxed);
        if began >= end || number >= requests {
            return tally;
        }
        let outcome = workload.request(number).await;
        let failed = outcome.is_err();
        tally.add(began.elapsed(), false, outcome);
        if failed {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::{Fault, Reason};

    use super::*;
    use crate::bench::workload::Done;

    /// Fails every third request.
    struct Flaky;

    impl Workload for Flaky {
        async fn request(&self, number: u64) -> Result<Done, Fault> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            match number % 3 {
                2 => Err(Fault::new(Reason::Overloaded, "x")),
                _ => Ok(Done { rows: 5, missing: 0 }),
            }
        }
    }

    #[tokio::test]
    async fn every_request_is_counted_once() {
        let time = Duration::from_secs(1);
        let tally = closed_loop(Arc::new(Flaky), 4, time, u64::MAX).await.unwrap();
        assert!(tally.requests() >= 8, "{}", tally.requests());
        assert_eq!(tally.rows(), 5 * tally.requests());
        let errors = tally.errors()["OVERLOADED"];
        // Numbers are given out in order, so ⌊n / 3⌋ of n requests fail.
        assert_eq!(errors, (errors + tally.requests()) / 3);
        assert!(tally.latency().unwrap().p50 >= 1000.0);

        let few = closed_loop(Arc::new(Flaky), 4, Duration::from_secs(60), 8).await.unwrap();
        assert_eq!(few.requests(), 6, "of 8, of which the third and the sixth fail");
    }
}
