//! Limits the requests to one store: concurrency limit, circuit breaker and hedging, shared by all tables in the store.

use std::error::Error as StdError;
use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::Error as StoreError;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::breaker::{Breaker, BreakerOpen, Probe};
use super::guard_error::causes;
use super::hedge::Hedge;
use super::mark::unmarked;
use super::usage::{StoreUsage, count};
use stores::StoreLimits;

/// A request that is dropped counts as failed if its caller has waited for the store for this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Requests wait for a probe's outcome for this long after the probe began or made progress: a store that has recovered
/// answers within that.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// Limits the requests to one store.
#[derive(Debug)]
pub struct StoreLimiter {
    /// The beginning of the URIs of the store's tables, for the log and errors.
    pub store: String,
    /// The longest time that a body may make no progress.
    pub stall_max: Duration,
    breaker: Mutex<Breaker>,
    /// Notified after a failure, after a success that closed the breaker, and when a probe was abandoned.
    breaker_changed: Notify,
    /// `None` if reads are not hedged.
    hedge: Option<Mutex<Hedge>>,
    /// The concurrency limit.
    permits: Arc<Semaphore>,
    pub usage: Arc<StoreUsage>,
}

/// A request that may be sent. It holds its permit until the answer's body ends or is dropped.
#[derive(Debug)]
pub struct AdmittedRequest {
    limiter: Arc<StoreLimiter>,
    probe: Option<Probe>,
    /// The time at which the caller began to wait for the store; `None` while the caller works on what it received.
    waits_since: Option<Instant>,
    judged: bool,
    _permit: OwnedSemaphorePermit,
}

impl StoreLimiter {
    /// The limiter of the store with Lance's name `store`. The circuit breaker is closed.
    pub fn new(store: &str, limits: &StoreLimits, usage: Arc<StoreUsage>) -> Self {
        Self {
            store: store.replacen('$', "://", 1),
            stall_max: limits.stall_max,
            breaker: Mutex::new(Breaker::new(limits)),
            breaker_changed: Notify::new(),
            hedge: limits.hedge.then(Mutex::default),
            permits: Arc::new(Semaphore::new(limits.requests_max)),
            usage,
        }
    }

    /// Waits for a permit, and for the outcome of a probe that has just begun or made progress. If the breaker opens
    /// meanwhile, all waiting requests are refused one after another: each passes on the permit that it gets.
    ///
    /// # Errors
    /// [`BreakerOpen`].
    pub async fn acquire(self: &Arc<Self>) -> object_store::Result<AdmittedRequest> {
        loop {
            // Created before the breaker is checked, so that no later change is missed.
            let breaker_changed = self.breaker_changed.notified();
            // The breaker is checked before the wait for a permit, because requests that hang may hold all permits.
            if let Some(until) = self.check_breaker(Instant::now())? {
                let _ = timeout_at(until, breaker_changed).await;
                continue;
            }
            let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(generic)?;
            // The breaker may have opened, or another request may have become the probe.
            if let Ok(request) = self.admit(permit) {
                return Ok(request);
            }
        }
    }

    /// Returns the time until which to wait for the outcome of a probe, or `None` if there is no need to wait.
    ///
    /// # Errors
    /// [`BreakerOpen`] if the breaker is open, and no probe has just begun or made progress.
    fn check_breaker(&self, now: Instant) -> object_store::Result<Option<Instant>> {
        let breaker = locked(&self.breaker);
        let Err(open) = breaker.check(now.into_std()) else { return Ok(None) };
        let until = breaker.probe_active_at().map(|active| Instant::from_std(active) + PROBE_WAIT);
        match until.filter(|until| now < *until) {
            Some(until) => Ok(Some(until)),
            None => Err(self.refused(open)),
        }
    }

    fn admit(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
    ) -> Result<AdmittedRequest, BreakerOpen> {
        let now = Instant::now();
        let probe = locked(&self.breaker).admit(now.into_std())?;
        count(&self.usage.under_way, 1);
        let (limiter, waits_since) = (Arc::clone(self), Some(now));
        Ok(AdmittedRequest { limiter, probe, waits_since, judged: false, _permit: permit })
    }

    fn refused(&self, open: BreakerOpen) -> StoreError {
        count(&self.usage.refused, 1);
        generic(open)
    }

    /// Counts a read that begins. Returns the delay after which it may be hedged.
    pub fn hedge_after(&self) -> Option<Duration> {
        locked(self.hedge.as_ref()?).wait()
    }

    /// Takes a hedge from the budget. Returns whether there was one.
    pub fn may_hedge(&self) -> bool {
        self.hedge.as_ref().is_some_and(|hedge| locked(hedge).spend())
    }

    /// Records the latency of a read that was answered.
    pub fn read_took(&self, took: Duration) {
        if let Some(hedge) = &self.hedge {
            locked(hedge).answered(took);
        }
    }
}

impl AdmittedRequest {
    /// The limiter that admitted the request.
    pub fn limiter(&self) -> &StoreLimiter {
        &self.limiter
    }

    /// Notes that the caller waits for the store from now on. A request begins in this state.
    pub fn waits(&mut self) {
        self.waits_since = Some(Instant::now());
    }

    /// Notes that something arrived. Until the caller waits again, time does not count against the store.
    pub fn received(&mut self) {
        self.waits_since = None;
        if let Some(probe) = self.probe {
            locked(&self.limiter.breaker).progressed(probe, Instant::now().into_std());
        }
    }

    /// Reports the request's outcome to the circuit breaker.
    pub fn judge<T>(&mut self, outcome: &object_store::Result<T>) {
        self.judged = true;
        match outcome {
            Err(error) if is_store_failure(error) => self.failed(error),
            _ => self.answered(),
        }
    }

    fn failed(&self, why: &dyn Display) {
        let limiter = &self.limiter;
        count(&limiter.usage.failed, 1);
        let now = Instant::now().into_std();
        if locked(&limiter.breaker).failed(self.probe, now, rand::random()) {
            count(&limiter.usage.open_breakers, 1);
            tracing::warn!(
                store = limiter.store,
                why = %unmarked(&why.to_string()),
                "the store keeps failing; its circuit breaker is open"
            );
        }
        limiter.breaker_changed.notify_waiters();
    }

    fn answered(&self) {
        if locked(&self.limiter.breaker).answered() {
            self.limiter.usage.open_breakers.fetch_sub(1, Ordering::Relaxed);
            tracing::info!(store = self.limiter.store, "the store answers again");
            self.limiter.breaker_changed.notify_waiters();
        }
    }
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        self.limiter.usage.under_way.fetch_sub(1, Ordering::Relaxed);
        if self.judged {
            return;
        }
        // The caller gave up. That counts against the store if the store had enough time.
        if self.waits_since.is_some_and(|since| since.elapsed() >= PATIENCE) {
            self.failed(&"it does not answer");
        } else if let Some(probe) = self.probe {
            locked(&self.limiter.breaker).abandoned(probe);
            self.limiter.breaker_changed.notify_waiters();
        }
    }
}

/// Returns whether the store failed, as opposed to the request being wrong. The circuit breaker counts such errors as
/// failures. The store's client and Lance decide which errors are retried.
fn is_store_failure(error: &StoreError) -> bool {
    match error {
        StoreError::Generic { source, .. } => !is_bad_request(&**source),
        StoreError::JoinError { .. } => true,
        StoreError::NotFound { .. }
        | StoreError::InvalidPath { .. }
        | StoreError::NotSupported { .. }
        | StoreError::AlreadyExists { .. }
        | StoreError::Precondition { .. }
        | StoreError::NotModified { .. }
        | StoreError::NotImplemented { .. }
        | StoreError::PermissionDenied { .. }
        | StoreError::Unauthenticated { .. }
        | StoreError::UnknownConfigurationKey { .. } => false,
        // The enum may grow.
        _ => true,
    }
}

/// Returns whether the store answered with a 4xx other than 408 (timeout) and 429 (overload). The store's client has
/// types for some of these statuses; the others are only in the error's text.
fn is_bad_request(error: &(dyn StdError + 'static)) -> bool {
    const STATUS: &str = "status code: ";
    let mut texts = causes(error).map(ToString::to_string);
    texts.any(|text| {
        let status = text.split_once(STATUS).and_then(|(_, rest)| rest.get(..3)?.parse().ok());
        status.is_some_and(|status: u16| {
            (400..500).contains(&status) && ![408, 429].contains(&status)
        })
    })
}

/// Wraps an error of the guard in the type that stores return.
pub fn generic(error: impl StdError + Send + Sync + 'static) -> StoreError {
    StoreError::Generic { store: "bireme", source: Box::new(error) }
}

/// Locks a mutex, poisoned or not: no panic leaves the data that these mutexes protect half-changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
