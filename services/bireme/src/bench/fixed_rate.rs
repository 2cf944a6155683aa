//! Starts requests on a schedule, however long earlier ones take.
//!
//! Latency counts from a request's scheduled start, not from its actual start: a stall of the endpoint shows in every
//! request that was due meanwhile (no coordinated omission).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use rand_distr::Exp1;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

use super::tally::Tally;
use super::workload::Workload;

/// A request counts as late if it starts more than this after it was due.
const LATE: Duration = Duration::from_millis(1);

/// The number of tallies. Requests use the tallies in turn, so that one request rarely waits for another's tally.
const SHARDS: usize = 16;

/// The times at which requests are due.
#[derive(Clone)]
pub struct Schedule {
    /// Requests per second.
    pub rate: f64,
    /// The duration of the schedule.
    pub time: Duration,
    /// If given, the requests are due at random times (a Poisson process), otherwise at equal intervals.
    pub random: Option<StdRng>,
}

impl Schedule {
    /// Returns the times at which requests are due, counted from the start.
    fn times(self) -> impl Iterator<Item = Duration> {
        let Self { rate, time, mut random } = self;
        let mut at = 0.0;
        let times = (0u64..).map(move |number| match &mut random {
            None => number as f64 / rate,
            Some(random) => {
                let gap: f64 = random.sample(Exp1);
                at += gap / rate;
                at
            }
        });
        times.take_while(move |at| *at < time.as_secs_f64()).map(Duration::from_secs_f64)
    }
}

struct Pace<W> {
    workload: Arc<W>,
    schedule: Schedule,
    permits: Arc<Semaphore>,
    tallies: Arc<[Mutex<Tally>]>,
}

/// Sends requests on a schedule, at most `in_flight_max` at once. Requests beyond that start late; those that have not
/// started when the time is over are counted as unstarted.
pub async fn fixed_rate<W: Workload>(
    workload: Arc<W>,
    schedule: Schedule,
    in_flight_max: usize,
) -> Result<Tally, JoinError> {
    let permits = Arc::new(Semaphore::new(in_flight_max));
    let tallies: Arc<[Mutex<Tally>]> = (0..SHARDS).map(|_| Mutex::new(Tally::new())).collect();
    let pace =
        Pace { workload, schedule, permits: Arc::clone(&permits), tallies: Arc::clone(&tallies) };
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
        let start = Instant::now();
        let end = start + self.schedule.time;
        let mut times = (0u64..).zip(self.schedule.clone().times());
        while let Some((number, due)) = times.next() {
            let intended = start + due;
            let now = Instant::now();
            if let Some(wait) = intended.checked_duration_since(now) {
                std::thread::sleep(wait);
            } else if now >= end && now > intended + LATE {
                return 1 + times.count() as u64;
            }
            let Some(permit) = self.permit(runtime, end) else { return 1 + times.count() as u64 };
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
    use crate::bench::workload::{Done, random};

    /// A workload whose requests take this long.
    struct Takes(Duration);

    impl Workload for Takes {
        async fn request(&self, _number: u64) -> Result<Done, Fault> {
            tokio::time::sleep(self.0).await;
            Ok(Done { rows: 1, missing: 0 })
        }
    }

    /// A schedule of equal intervals over `ms` milliseconds.
    fn schedule(rate: f64, ms: u64) -> Schedule {
        Schedule { rate, time: Duration::from_millis(ms), random: None }
    }

    #[test]
    fn requests_are_due_on_a_schedule() {
        let times = |rate, ms| schedule(rate, ms).times();
        assert_eq!(times(1000.0, 1500).count(), 1500);
        assert_eq!(times(1000.0, 1500).last(), Some(Duration::from_millis(1499)));
        assert_eq!(times(0.5, 1000).collect::<Vec<_>>(), [Duration::ZERO]);
    }

    #[test]
    fn random_times_have_the_rate_and_the_spread_of_a_poisson_process() {
        let random = Some(random(7, 0));
        let times: Vec<_> = Schedule { random, ..schedule(1000.0, 100_000) }.times().collect();
        assert!(times.is_sorted());
        // The number has a standard deviation of about 316, and e^-1 of all gaps are longer than their mean.
        assert!((99_000..101_000).contains(&times.len()), "{}", times.len());
        let mean = Duration::from_millis(1);
        let long = times.windows(2).filter(|pair| pair[1] - pair[0] > mean).count();
        let part = long as f64 / times.len() as f64;
        assert!((0.36..0.376).contains(&part), "{part}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_requests_are_made_when_there_is_room() {
        let takes = Arc::new(Takes(Duration::from_millis(5)));
        // The last request is due 250 ms before the end, so a thread that wakes late still starts it in time.
        let tally = fixed_rate(takes, schedule(4.0, 1000), 64).await.unwrap();
        assert_eq!((tally.requests(), tally.rows(), tally.unstarted()), (4, 4, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_slow_endpoint_shows_in_every_latency_it_delayed() {
        // Requests run one at a time and take 20 ms each. 100 are due within 200 ms. At most eleven of these can start,
        // and the last one has waited for all before it.
        let takes = Arc::new(Takes(Duration::from_millis(20)));
        let tally = fixed_rate(takes, schedule(500.0, 200), 1).await.unwrap();
        assert!((2..=11).contains(&tally.requests()), "{}", tally.requests());
        assert_eq!(tally.requests() + tally.unstarted(), 100);
        assert!(tally.late() >= tally.requests() - 1);
        let latency = tally.latency().unwrap();
        let queued = (tally.requests() as f64 - 1.0) * 18_000.0;
        assert!(latency.max >= queued + 20_000.0 - 1.0, "{latency:?}");
    }
}
