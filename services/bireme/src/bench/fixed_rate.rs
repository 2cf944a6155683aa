//! Starts requests on a schedule, however long earlier ones take.
//!
//! Latency counts from a request's scheduled start, not from its actual start: a stall of the endpoint shows in every
//! request that was due meanwhile (no coordinated omission).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

use super::tally::Tally;
use super::workload::Workload;

/// A request counts as late if it starts more than this after it was due.
const LATE: Duration = Duration::from_millis(1);

/// The number of tallies. Requests use them in turn, so that they rarely wait for each other.
const SHARDS: usize = 16;

/// Returns when request `number` is due, counted from the first one.
fn due(number: u64, rate: f64) -> Duration {
    Duration::from_secs_f64(number as f64 / rate)
}

/// Returns how many requests are due within `time`.
fn total(rate: f64, time: Duration) -> u64 {
    (rate * time.as_secs_f64()).ceil() as u64
}

struct Pace<W> {
    workload: Arc<W>,
    rate: f64,
    time: Duration,
    permits: Arc<Semaphore>,
    tallies: Arc<[Mutex<Tally>]>,
}

/// Sends `rate` requests per second for `time`, at most `in_flight_max` at once. Requests beyond that start late; those
/// that have not started when the time is over are counted as unstarted.
pub async fn fixed_rate<W: Workload>(
    workload: Arc<W>,
    rate: f64,
    in_flight_max: usize,
    time: Duration,
) -> Result<Tally, JoinError> {
    let permits = Arc::new(Semaphore::new(in_flight_max));
    let tallies: Arc<[Mutex<Tally>]> = (0..SHARDS).map(|_| Mutex::new(Tally::new())).collect();
    let pace =
        Pace { workload, rate, time, permits: Arc::clone(&permits), tallies: Arc::clone(&tallies) };
    let runtime = Handle::current();
    // The schedule runs on a thread of its own, because tokio's timer is only exact to a millisecond.
    let unstarted = tokio::task::spawn_blocking(move || pace.run(&runtime)).await?;
    let all = u32::try_from(in_flight_max).unwrap_or(u32::MAX);
    // Wait until all requests have ended. This fails only if the semaphore is closed, and nothing closes it.
    let _ = permits.acquire_many(all).await;
    let mut total = Tally::new();
    for tally in tallies.iter() {
        total.merge(&tally.lock().unwrap_or_else(PoisonError::into_inner));
    }
    total.add_unstarted(unstarted);
    Ok(total)
}

impl<W: Workload> Pace<W> {
    /// Starts the requests. Returns how many were due and not started.
    fn run(self, runtime: &Handle) -> u64 {
        let total = total(self.rate, self.time);
        let start = Instant::now();
        let end = start + self.time;
        for number in 0..total {
            let intended = start + due(number, self.rate);
            let now = Instant::now();
            if let Some(wait) = intended.checked_duration_since(now) {
                std::thread::sleep(wait);
            } else if now >= end && now > intended + LATE {
                return total - number;
            }
            let Some(permit) = self.permit(runtime, end) else { return total - number };
            runtime.spawn(self.request(number, intended, permit));
        }
        0
    }

    /// Waits until one more request may start, but at most until `end`.
    fn permit(&self, runtime: &Handle, end: Instant) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Some(permit);
        }
        let waited = tokio::time::timeout_at(end.into(), Arc::clone(&self.permits).acquire_owned());
        runtime.block_on(waited).ok()?.ok()
    }

    fn request(
        &self,
        number: u64,
        intended: Instant,
        permit: OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (workload, tallies) = (Arc::clone(&self.workload), Arc::clone(&self.tallies));
        async move {
            let late = intended.elapsed() > LATE;
            let outcome = workload.request(number).await;
            let latency = intended.elapsed();
            let tally = &tallies[number as usize % SHARDS];
            tally.lock().unwrap_or_else(PoisonError::into_inner).add(latency, late, outcome);
            drop(permit);
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::Fault;

    use super::*;
    use crate::bench::workload::Done;

    /// A workload whose requests take this long.
    struct Takes(Duration);

    impl Workload for Takes {
        async fn request(&self, _number: u64) -> Result<Done, Fault> {
            tokio::time::sleep(self.0).await;
            Ok(Done { rows: 1, missing: 0 })
        }
    }

    #[test]
    fn requests_are_due_on_a_schedule() {
        assert_eq!(due(0, 1000.0), Duration::ZERO);
        assert_eq!(due(1500, 1000.0), Duration::from_millis(1500));
        assert_eq!(total(1000.0, Duration::from_millis(1500)), 1500);
        assert_eq!(total(0.5, Duration::from_secs(1)), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_requests_are_made_when_there_is_room() {
        let takes = Arc::new(Takes(Duration::from_millis(5)));
        let tally = fixed_rate(takes, 200.0, 64, Duration::from_millis(200)).await.unwrap();
        assert_eq!((tally.requests(), tally.rows(), tally.unstarted()), (40, 40, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_slow_endpoint_shows_in_every_latency_it_delayed() {
        // One at a time, 20 ms each: of the 100 that are due in 200 ms at most eleven can start, and
        // the last of them waited for the others.
        let takes = Arc::new(Takes(Duration::from_millis(20)));
        let tally = fixed_rate(takes, 500.0, 1, Duration::from_millis(200)).await.unwrap();
        assert!((2..=11).contains(&tally.requests()), "{}", tally.requests());
        assert_eq!(tally.requests() + tally.unstarted(), 100);
        assert!(tally.late() >= tally.requests() - 1);
        let latency = tally.latency().unwrap();
        let queued = (tally.requests() as f64 - 1.0) * 18_000.0;
        assert!(latency.max >= queued + 20_000.0 - 1.0, "{latency:?}");
    }
}
