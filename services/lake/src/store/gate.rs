//! The way to one store: who may pass, and what became of it.

use std::error::Error as StdError;
use std::fmt::Display;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::Error as StoreError;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};

use super::breaker::{Breaker, LetBe, Probe};
use super::hedge::Hedge;
use super::trouble::{NoPlace, is_not_sent};
use super::usage::{StoreUsage, count};
use tables::StoreLimits;

/// A request without an answer for so long speaks against the store, though it was dropped.
const PATIENCE: Duration = Duration::from_secs(5);

/// For so long after a probe began or brought something, requests wait for what comes of it: a store that is back answers
/// within that.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// What all users of one store share.
#[derive(Debug)]
pub struct Gate {
    /// As the URIs of its tables begin, for the log and errors.
    pub store: String,
    /// For how long a body may bring nothing.
    pub stall_max: Duration,
    breaker: Mutex<Breaker>,
    /// The breaker was told something: a failure, an answer, or that a probe was abandoned.
    told: Notify,
    /// None if nothing is to be hedged.
    hedge: Option<Mutex<Hedge>>,
    places: Arc<Semaphore>,
    requests_max: usize,
    wait_max: Duration,
    /// When a place was last taken or given back.
    moved: Mutex<Instant>,
    pub usage: Arc<StoreUsage>,
}

/// A request that may be sent. Belongs to it until its last byte.
#[derive(Debug)]
pub struct Pass {
    gate: Arc<Gate>,
    probe: Option<Probe>,
    /// Since when the store is waited for; none while its reader has what came.
    waits_since: Option<Instant>,
    judged: bool,
    /// None where another request of the same work has it.
    place: Option<OwnedSemaphorePermit>,
}

impl Gate {
    /// To a store of which nothing is known yet, but for what Lance calls it.
    pub fn new(store: &str, limits: &StoreLimits, usage: Arc<StoreUsage>) -> Self {
        Self {
            store: store.replacen('$', "://", 1),
            stall_max: limits.stall_max,
            breaker: Mutex::new(Breaker::new(limits)),
            told: Notify::new(),
            hedge: limits.hedge.then(Mutex::default),
            places: Arc::new(Semaphore::new(limits.requests_max)),
            requests_max: limits.requests_max,
            wait_max: limits.wait_max,
            moved: Mutex::new(Instant::now()),
            usage,
        }
    }

    /// Waits for a place, and for what comes of a probe that began just now.
    ///
    /// # Errors
    /// While the store is let be, or if all places are taken and none is given back for `store.wait_max`: at once, if
    /// that is over.
    pub async fn enter(self: &Arc<Self>) -> object_store::Result<Pass> {
        loop {
            let place = self.place().await?;
            if let Ok(pass) = self.admit(Some(place)) {
                return Ok(pass);
            }
            // One that waited beside this one may be the probe now.
            self.look(Instant::now())?;
        }
    }

    /// Until when to wait for what comes of a probe, if there is one to be waited for.
    ///
    /// # Errors
    /// While the store is let be, and no probe has just begun or brought something.
    fn look(&self, now: Instant) -> object_store::Result<Option<Instant>> {
        let breaker = locked(&self.breaker);
        let Err(let_be) = breaker.check(now.into_std()) else { return Ok(None) };
        let until = breaker.heard().map(|heard| Instant::from_std(heard) + PROBE_WAIT);
        match until.filter(|until| now < *until) {
            Some(until) => Ok(Some(until)),
            None => Err(self.refused(let_be)),
        }
    }

    async fn place(&self) -> object_store::Result<OwnedSemaphorePermit> {
        let mut place = pin!(Arc::clone(&self.places).acquire_owned());
        loop {
            // Begun before the look at the breaker, so that it misses nothing after it.
            let told = self.told.notified();
            // Also while it waits, as all places may be taken by what hangs.
            let now = Instant::now();
            if let Some(until) = self.look(now)? {
                tokio::select! {
                    () = told => {}
                    () = sleep_until(until) => {}
                }
                continue;
            }
            let moved = {
                let mut moved = locked(&self.moved);
                // Under the lock: whoever finds no place also finds when the last was taken.
                if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                    *moved = now;
                    return Ok(place);
                }
                *moved
            };
            tokio::select! {
                biased;
                place = &mut place => return place.map_err(generic),
                () = told => {}
                () = sleep(self.wait_max.saturating_sub(moved.elapsed())) => {
                    if *locked(&self.moved) == moved {
                        let (store, places) = (self.store.clone(), self.requests_max);
                        return Err(self.refused(NoPlace { store, places, waited: moved.elapsed() }));
                    }
                }
            }
        }
    }

    /// The same for what takes its turns with requests that have places of their own, and would wait for itself: a
    /// delete of what a listing finds.
    ///
    /// # Errors
    /// While the store is let be.
    pub fn enter_beside(self: &Arc<Self>) -> object_store::Result<Pass> {
        self.admit(None).map_err(|let_be| self.refused(let_be))
    }

    fn admit(self: &Arc<Self>, place: Option<OwnedSemaphorePermit>) -> Result<Pass, LetBe> {
        let now = Instant::now();
        let probe = locked(&self.breaker).admit(now.into_std())?;
        count(&self.usage.under_way, 1);
        let waits_since = Some(now);
        Ok(Pass { gate: Arc::clone(self), probe, waits_since, judged: false, place })
    }

    fn refused(&self, why: impl StdError + Send + Sync + 'static) -> StoreError {
        count(&self.usage.refused, 1);
        generic(why)
    }

    /// A read begins: after how long to ask for it again.
    pub fn hedge_after(&self) -> Option<Duration> {
        locked(self.hedge.as_ref()?).wait()
    }

    /// Whether it may be asked for again.
    pub fn may_hedge(&self) -> bool {
        self.hedge.as_ref().is_some_and(|hedge| locked(hedge).spend())
    }

    /// A read was answered.
    pub fn read_took(&self, took: Duration) {
        if let Some(hedge) = &self.hedge {
            locked(hedge).answered(took);
        }
    }
}

impl Pass {
    /// The way that it is for.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Who asked waits for the store from now on, as it did when it entered.
    pub fn waits(&mut self) {
        self.waits_since = Some(Instant::now());
    }

    /// Something came: what goes by until the next wait is no time of the store's.
    pub fn came(&mut self) {
        self.waits_since = None;
        if let Some(probe) = self.probe {
            locked(&self.gate.breaker).came(probe, Instant::now().into_std());
        }
    }

    /// Judges the store by what came of the request.
    pub fn judge<T>(&mut self, outcome: &object_store::Result<T>) {
        let Err(error) = outcome else {
            self.judged = true;
            return self.answered();
        };
        // Another request that this one is made of was not let through: nothing was asked of the store.
        if is_not_sent(error) {
            return;
        }
        self.judged = true;
        if !is_the_stores(error) {
            return self.answered();
        }
        self.failed(error);
    }

    fn failed(&self, why: &dyn Display) {
        count(&self.gate.usage.failed, 1);
        let now = Instant::now().into_std();
        if locked(&self.gate.breaker).failed(self.probe, now, rand::random()) {
            count(&self.gate.usage.let_be, 1);
            tracing::warn!(store = self.gate.store, %why, "the store keeps failing and is let be");
        }
        self.gate.told.notify_waiters();
    }

    fn answered(&self) {
        if locked(&self.gate.breaker).answered() {
            self.gate.usage.let_be.fetch_sub(1, Ordering::Relaxed);
            tracing::info!(store = self.gate.store, "the store answers again");
            self.gate.told.notify_waiters();
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.usage.under_way.fetch_sub(1, Ordering::Relaxed);
        if self.place.is_some() {
            *locked(&self.gate.moved) = Instant::now();
        }
        if self.judged {
            return;
        }
        // Who asked has lost patience: with this store, if it had time enough.
        if self.waits_since.is_some_and(|since| since.elapsed() >= PATIENCE) {
            self.failed(&"it does not answer");
        } else if let Some(probe) = self.probe {
            locked(&self.gate.breaker).abandoned(probe);
            self.gate.told.notify_waiters();
        }
    }
}

/// Whether an error speaks against the store, rather than of what was asked for.
fn is_the_stores(error: &StoreError) -> bool {
    match error {
        StoreError::Generic { source, .. } => !is_the_requests(&**source),
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

/// Whether a store answered that the request is wrong: a 4xx, but for those that say that it is too slow or has too much
/// to do. Its client has types for some of them, and for the others nothing but its text.
fn is_the_requests(error: &(dyn StdError + 'static)) -> bool {
    const STATUS: &str = "status code: ";
    let causes =
        std::iter::successors(Some(error), |error: &&(dyn StdError + 'static)| (*error).source());
    let mut texts = causes.map(ToString::to_string);
    texts.any(|text| {
        let status = text.split_once(STATUS).and_then(|(_, rest)| rest.get(..3)?.parse().ok());
        status.is_some_and(|status: u16| {
            (400..500).contains(&status) && ![408, 429].contains(&status)
        })
    })
}

/// An error of the guard's own, as stores' errors are.
pub fn generic(error: impl StdError + Send + Sync + 'static) -> StoreError {
    StoreError::Generic { store: "bireme", source: Box::new(error) }
}

/// What is locked is plain state that no panic leaves half-changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
