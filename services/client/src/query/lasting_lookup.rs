//! A projection that outlasts the streams on which it is open.
//!
//! A stream ends when the node stops, when its connection reaches the maximum age, and when the connection breaks.
//! Look-ups only read, so those that got no answer are made again, on another stream.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use wire::query::lookup_batch::Keys;
use wire::{Fault, Reason};

use super::lookup::{LookedUp, Lookup};

/// The time after which keys are looked up again if their stream has ended, or no other could be opened. A node that
/// stops and starts is away for seconds.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// A projection that is opened on another stream when its stream has ended because the node was unavailable.
pub struct LastingLookup {
    timeout: Option<Duration>,
    current: Mutex<Current>,
}

struct Current {
    lookup: Lookup,
    /// The time and the fault of the last failed attempt to open the projection on another stream.
    failed: Option<(Instant, Fault)>,
}

/// The failure of a look-up.
pub struct LookupFailure {
    pub fault: Fault,
    /// The time after which the caller should try again, or `None` if a retry would fail again.
    pub retry_after: Option<Duration>,
}

impl From<Fault> for LookupFailure {
    fn from(fault: Fault) -> Self {
        Self { retry_after: fault.retry_after(), fault }
    }
}

impl LookupFailure {
    /// The failure of a look-up whose stream has ended, or of an attempt to open another stream.
    fn without_stream(fault: Fault) -> Self {
        let is_away = fault.reason == Reason::NodeUnavailable;
        let retry_after = fault.retry_after().or_else(|| is_away.then_some(AGAIN_AFTER));
        Self { fault, retry_after }
    }

    fn for_good(fault: Fault) -> Self {
        Self { fault, retry_after: None }
    }
}

impl LastingLookup {
    pub fn new(lookup: Lookup) -> Self {
        let timeout = lookup.timeout();
        Self { timeout, current: Mutex::new(Current { lookup, failed: None }) }
    }

    /// Returns the timeout of each batch; `None` for the node's.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns the rows of `keys`. If the stream has ended, opens another one first.
    ///
    /// # Errors
    /// The errors of [`Lookup::get`] and of opening a stream and the projection.
    pub async fn get(&self, keys: Keys) -> Result<LookedUp, LookupFailure> {
        let lookup = self.open().await?;
        lookup.get(keys).await.map_err(|fault| match lookup.end() {
            None => LookupFailure::from(fault),
            Some(end) if end.reason == Reason::NodeUnavailable => {
                LookupFailure::without_stream(fault)
            }
            // The node does not accept the caller, or its messages.
            Some(_) => LookupFailure::for_good(fault),
        })
    }

    /// Returns the projection on a stream that is open. Calls that wait for another stream share one attempt.
    async fn open(&self) -> Result<Lookup, LookupFailure> {
        let began = Instant::now();
        let mut current = self.current.lock().await;
        match current.lookup.end() {
            None => return Ok(current.lookup.clone()),
            Some(end) if end.reason != Reason::NodeUnavailable => {
                return Err(LookupFailure::for_good(end));
            }
            Some(_) => {}
        }
        if let Some((at, fault)) = &current.failed
            && *at >= began
        {
            return Err(LookupFailure::without_stream(fault.clone()));
        }
        // This is rare, and its future is large, so it is boxed to keep it out of every look-up's future.
        let reopened = Box::pin(current.lookup.reopened()).await;
        match reopened {
            Ok(lookup) => {
                current.lookup = lookup.clone();
                Ok(lookup)
            }
            Err(fault) => {
                current.failed = Some((Instant::now(), fault.clone()));
                Err(LookupFailure::without_stream(fault))
            }
        }
    }
}
