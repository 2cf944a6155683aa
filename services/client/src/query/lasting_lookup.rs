//! A projection that outlasts the streams on which it is open.
//!
//! A stream ends when the node stops, when its connection reaches the maximum age, and when the connection breaks.
//! Look-ups only read, so those that got no answer are made again, on another stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use wire::query::lookup_batch::Keys;
use wire::{Fault, Reason};

use super::lookup::{LookedUp, Lookup};

/// The time after which keys are looked up again if their stream has ended, or no other could be opened. A node that
/// stops and starts is away for seconds.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// A projection that is opened on another stream when its stream has ended because the node was unavailable.
pub struct LastingLookup(Arc<Opener>);

struct Opener {
    current: Mutex<Lookup>,
    /// The time and the fault of the last failed attempt to open the projection on another stream. Locked during an
    /// attempt.
    failed: tokio::sync::Mutex<Option<(Instant, Fault)>>,
}

/// The failure of a look-up.
pub struct LookupFailure {
    pub fault: Fault,
    /// When the caller should try again, or `None` if a retry would fail again.
    pub retry_at: Option<Instant>,
}

impl From<Fault> for LookupFailure {
    fn from(fault: Fault) -> Self {
        let retry_at = fault.retry_after().map(soon_after);
        Self { fault, retry_at }
    }
}

impl LookupFailure {
    /// The failure of a look-up whose stream has ended, or of an attempt to open another stream.
    fn without_stream(fault: Fault) -> Self {
        let is_away = fault.reason == Reason::NodeUnavailable;
        let after = fault.retry_after().or_else(|| is_away.then_some(AGAIN_AFTER));
        Self { fault, retry_at: after.map(soon_after) }
    }

    fn for_good(fault: Fault) -> Self {
        Self { fault, retry_at: None }
    }
}

/// Returns the time in `after`, to which up to a half is added, so that callers that were refused together do not all
/// come back at the same moment.
#[expect(clippy::disallowed_methods, reason = "no query node is part of the simulation")]
fn soon_after(after: Duration) -> Instant {
    Instant::now() + after.mul_f64(1.0 + rand::random::<f64>() / 2.0)
}

impl LastingLookup {
    pub fn new(lookup: Lookup) -> Self {
        let opener = Opener { current: Mutex::new(lookup), failed: Default::default() };
        Self(Arc::new(opener))
    }

    /// Returns the timeout of each batch; `None` for the node's.
    pub fn timeout(&self) -> Option<Duration> {
        self.0.current().timeout()
    }

    /// Returns the rows of `keys`. If the stream has ended, opens another one first.
    ///
    /// # Errors
    /// The errors of [`Lookup::get`] and of opening a stream and the projection.
    pub async fn get(&self, keys: Keys) -> Result<LookedUp, LookupFailure> {
        let lookup = match self.0.known() {
            Some(known) => known?,
            // In a task of its own: the caller may not be polled while others wait, and must not hold the lock then.
            None => {
                let opened = tokio::spawn(Arc::clone(&self.0).open(Instant::now())).await;
                let failed =
                    |error: tokio::task::JoinError| Fault::new(Reason::Internal, error.to_string());
                opened.map_err(failed)??
            }
        };
        lookup.get(keys).await.map_err(|fault| match lookup.end() {
            None => LookupFailure::from(fault),
            Some(end) if end.reason == Reason::NodeUnavailable => {
                LookupFailure::without_stream(fault)
            }
            // The node does not accept the caller, or its messages.
            Some(_) => LookupFailure::for_good(fault),
        })
    }
}

impl Opener {
    fn current(&self) -> MutexGuard<'_, Lookup> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the projection if its stream is open, or the reason why no other stream will be. Returns `None` if
    /// another one is to be opened.
    fn known(&self) -> Option<Result<Lookup, LookupFailure>> {
        let current = self.current();
        match current.end() {
            None => Some(Ok(current.clone())),
            Some(end) if end.reason == Reason::NodeUnavailable => None,
            Some(end) => Some(Err(LookupFailure::for_good(end))),
        }
    }

    /// Returns the projection on a stream that is open. Calls that wait for another stream share one attempt, and its
    /// failure if it ended after they `began`.
    async fn open(self: Arc<Self>, began: Instant) -> Result<Lookup, LookupFailure> {
        let mut failed = self.failed.lock().await;
        if let Some(known) = self.known() {
            return known;
        }
        if let Some((at, fault)) = &*failed
            && *at >= began
        {
            return Err(LookupFailure::without_stream(fault.clone()));
        }
        let ended = self.current().clone();
        match ended.reopened().await {
            Ok(lookup) => {
                *self.current() = lookup.clone();
                Ok(lookup)
            }
            Err(fault) => {
                *failed = Some((Instant::now(), fault.clone()));
                Err(LookupFailure::without_stream(fault))
            }
        }
    }
}
