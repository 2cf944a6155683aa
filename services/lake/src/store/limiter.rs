//! Limits the requests to one store: concurrency limit, circuit breaker and hedging, shared by all who use the store.

use std::error::Error as StdError;
use std::fmt::Display;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::Error as StoreError;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};

use super::breaker::{Breaker, BreakerOpen, Probe};
use super::guard_error::{NoPermit, causes, is_not_sent};
use super::hedge::Hedge;
use super::mark::unmarked;
use super::usage::{StoreUsage, count};
use stores::StoreLimits;

/// A request that is dropped counts as failed if the store was waited for this long.
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
    requests_max: usize,
    wait_max: Duration,
    /// When a permit was last taken or released.
    permits_changed_at: Mutex<Instant>,
    pub usage: Arc<StoreUsage>,
}

/// A request that may be sent. It holds its permit until the last byte of the answer.
#[derive(Debug)]
pub struct AdmittedRequest {
    limiter: Arc<StoreLimiter>,
    probe: Option<Probe>,
    /// Since when the caller waits for the store; `None` while the caller works on what it received.
    waits_since: Option<Instant>,
    judged: bool,
    /// `None` if the request does not count against the concurrency limit.
    permit: Option<OwnedSemaphorePermit>,
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
            requests_max: limits.requests_max,
            wait_max: limits.wait_max,
            permits_changed_at: Mutex::new(Instant::now()),
            usage,
        }
    }

    /// Waits for a permit, and for the outcome of a probe that began just now.
    ///
    /// # Errors
    /// [`BreakerOpen`]; [`NoPermit`] if no permit was taken or released for `wait_max`, at once if that time has
    /// passed already.
    pub async fn acquire(self: &Arc<Self>) -> object_store::Result<AdmittedRequest> {
        loop {
            let permit = self.permit().await?;
            if let Ok(request) = self.admit(Some(permit)) {
                return Ok(request);
            }
            // Another waiting request may have become the probe.
            self.check_breaker(Instant::now())?;
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

    async fn permit(&self) -> object_store::Result<OwnedSemaphorePermit> {
        let mut permit = pin!(Arc::clone(&self.permits).acquire_owned());
        loop {
            // Created before the breaker is checked, so that no later change is missed.
            let breaker_changed = self.breaker_changed.notified();
            // Checked after each wait too: requests that hang may hold all permits.
            let now = Instant::now();
            if let Some(until) = self.check_breaker(now)? {
                tokio::select! {
                    () = breaker_changed => {}
                    () = sleep_until(until) => {}
                }
                continue;
            }
            let changed_at = {
                let mut changed_at = locked(&self.permits_changed_at);
                // Under the lock: whoever finds no permit also reads when the last one was taken.
                if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                    *changed_at = now;
                    return Ok(permit);
                }
                *changed_at
            };
            tokio::select! {
                biased;
                permit = &mut permit => return permit.map_err(generic),
                () = breaker_changed => {}
                () = sleep(self.wait_max.saturating_sub(changed_at.elapsed())) => {
                    if *locked(&self.permits_changed_at) == changed_at {
                        let (store, requests_max) = (self.store.clone(), self.requests_max);
                        let waited = changed_at.elapsed();
                        return Err(self.refused(NoPermit { store, requests_max, waited }));
                    }
                }
            }
        }
    }

    /// Admits a request that does not count against the concurrency limit: a delete of what a listing finds. The
    /// listing holds a permit meanwhile, so the two could wait for each other.
    ///
    /// # Errors
    /// [`BreakerOpen`].
    pub fn acquire_beyond_limit(self: &Arc<Self>) -> object_store::Result<AdmittedRequest> {
        self.admit(None).map_err(|open| self.refused(open))
    }

    fn admit(
        self: &Arc<Self>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<AdmittedRequest, BreakerOpen> {
        let now = Instant::now();
        let probe = locked(&self.breaker).admit(now.into_std())?;
        count(&self.usage.under_way, 1);
        let (limiter, waits_since) = (Arc::clone(self), Some(now));
        Ok(AdmittedRequest { limiter, probe, waits_since, judged: false, permit })
    }

    fn refused(&self, why: impl StdError + Send + Sync + 'static) -> StoreError {
        count(&self.usage.refused, 1);
        generic(why)
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

    /// Notes that the caller waits for the store from now on. It does so from the start.
    pub fn waits(&mut self) {
        self.waits_since = Some(Instant::now());
    }

    /// Notes that something arrived. Until the next wait, time passes on the caller's account.
    pub fn received(&mut self) {
        self.waits_since = None;
        if let Some(probe) = self.probe {
            locked(&self.limiter.breaker).progressed(probe, Instant::now().into_std());
        }
    }

    /// Reports the request's outcome to the circuit breaker.
    pub fn judge<T>(&mut self, outcome: &object_store::Result<T>) {
        let Err(error) = outcome else {
            self.judged = true;
            return self.answered();
        };
        // Another request that this one is made of was refused here: the store was not asked.
        if is_not_sent(error) {
            return;
        }
        self.judged = true;
        if !is_store_failure(error) {
            return self.answered();
        }
        self.failed(error);
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
        if self.permit.is_some() {
            *locked(&self.limiter.permits_changed_at) = Instant::now();
        }
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

/// Whether the store failed, rather than the request being wrong.
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

/// Whether the store answered with a 4xx other than 408 (timeout) and 429 (overload). Its client has types for some of
/// these statuses; the others are only in the error's text.
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

/// Locks a mutex, poisoned or not: no panic leaves what these mutexes protect half-changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
