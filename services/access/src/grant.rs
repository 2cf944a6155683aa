//! Grants: what callers may do with tables, within limits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use scheduler::Flow;
use tokio::time::Instant;

use crate::digest::digest;
use crate::identity::{Identity, Who};
use crate::part::Part;
use crate::pattern::Pattern;
use crate::rate::Taken;

/// A right to a table, or to the state of the nodes. A new one needs a variant here, in [`ALL`](Self::ALL) and in
/// `PermissionEntry` (`policy.rs`), and a call that names it when it opens its table (`Call::open`, query-node).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Read and describe the table.
    Read,
    /// Fill the cache with the table, and measure its recall curves.
    Warm,
    /// See where the table is placed, and the state of the nodes.
    Observe,
}

impl Permission {
    /// Every permission.
    pub const ALL: [Self; 3] = [Self::Read, Self::Warm, Self::Observe];

    /// Returns the permission as it is written in a policy.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Warm => "warm",
            Self::Observe => "observe",
        }
    }
}

/// The limits of a grant; `None` for no limit. A new limit needs a field here, and code in these places:
/// - `GrantEntry` (`policy.rs`) parses it and rejects values that make no sense.
/// - [`Grant::begin`] or [`Grant::take_rows`] enforces a count or rate. `RequestContext::under` (query-node) enforces a
///   bound on how a request runs. I/O nodes know no grants: they enforce only what `Batch` (`fetch.proto`) carries,
///   such as the deadline, the priority and the weight.
/// - `limits_refuse_and_name_themselves` (below) and `tests/query/access.rs` (query-node) test it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Requests per second.
    pub requests_per_second: Option<u64>,
    /// Rows per second.
    pub rows_per_second: Option<u64>,
    /// Requests in progress at a time.
    pub concurrent: Option<usize>,
    /// The longest time that a request may take.
    pub timeout: Option<Duration>,
    /// Whether all requests are batch work.
    pub batch_only: bool,
}

/// A grant of the policy.
pub struct Grant {
    pub(crate) name: String,
    pub(crate) who: Vec<Who>,
    pub(crate) tables: Vec<Pattern>,
    pub(crate) may: Vec<Permission>,
    /// The part of its tables that the grant shows; `None` for all of them.
    pub(crate) part: Option<Arc<Part>>,
    pub(crate) limits: Limits,
    /// The flow of the grant's requests in the fair queues of both tiers.
    pub(crate) flow: Flow,
    /// The use of the grant. A grant of the same name in the next policy continues with it.
    pub(crate) state: Arc<GrantState>,
}

/// The use of a grant since the node's start.
pub(crate) struct GrantState {
    began: Instant,
    requests_taken: Taken,
    rows_taken: Taken,
    running: AtomicUsize,
    requests: AtomicU64,
    refused: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl Default for GrantState {
    fn default() -> Self {
        let (requests_taken, rows_taken, running, requests, refused, rows, bytes) =
            Default::default();
        let began = Instant::now();
        Self { began, requests_taken, rows_taken, running, requests, refused, rows, bytes }
    }
}

/// Counters of a grant since the node's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Requests that began.
    pub requests: u64,
    /// Requests refused because a limit was reached.
    pub refused: u64,
    /// Rows returned.
    pub rows: u64,
    /// Bytes of rows returned.
    pub bytes: u64,
}

/// A request that counts as in progress until this is dropped.
pub struct Running(Arc<GrantState>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A limit of a grant is reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("grant `{grant}` has reached its limit `{limit}`; try again in {} ms", retry_after.as_millis().max(1))]
pub struct LimitReached {
    /// The grant's name.
    pub grant: String,
    /// The limit as it is written in a policy: one of [`ALL`](Self::ALL).
    pub limit: &'static str,
    /// The time until a request may be allowed.
    pub retry_after: Duration,
}

impl LimitReached {
    /// Every limit that refuses requests.
    pub const ALL: [&'static str; 3] = ["concurrent", "requests_per_second", "rows_per_second"];
}

/// Returns the flow of the grant with this name. The flow's id is a hash of the name, so that all query nodes send the
/// same id to I/O nodes, which do not know the grants.
pub(crate) fn flow_of(name: &str, weight: u32) -> Flow {
    let [a, b, c, d, e, f, g, h, ..] = digest(name.as_bytes());
    Flow::new(u64::from_le_bytes([a, b, c, d, e, f, g, h]), weight)
}

/// The time after which a request beyond `concurrent` should be tried again. The node does not know when the other
/// requests will end.
const CONCURRENT_RETRY: Duration = Duration::from_millis(100);

impl Grant {
    /// Returns the grant's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the flow of the grant's requests in the fair queues of both tiers. Its id is the same on all query nodes
    /// that have a grant of this name.
    pub fn flow(&self) -> Flow {
        self.flow
    }

    /// Returns the part of its tables that the grant shows; `None` if it shows them whole.
    pub fn part(&self) -> Option<&Arc<Part>> {
        self.part.as_ref()
    }

    /// Returns the longest time that a request may take.
    pub fn timeout(&self) -> Option<Duration> {
        self.limits.timeout
    }

    /// Returns whether all of the grant's requests are batch work.
    pub fn batch_only(&self) -> bool {
        self.limits.batch_only
    }

    /// Begins a request.
    ///
    /// # Errors
    /// [`LimitReached`] for `concurrent` or `requests_per_second`.
    pub fn begin(&self) -> Result<Running, LimitReached> {
        let state = &self.state;
        let before = state.running.fetch_add(1, Ordering::Relaxed);
        let running = Running(Arc::clone(state));
        if self.limits.concurrent.is_some_and(|max| before >= max) {
            return Err(self.reached("concurrent", CONCURRENT_RETRY));
        }
        if let Some(rate) = self.limits.requests_per_second {
            let taken = state.requests_taken.take(1, rate, state.began.elapsed());
            taken.map_err(|wait| self.reached("requests_per_second", wait))?;
        }
        state.requests.fetch_add(1, Ordering::Relaxed);
        Ok(running)
    }

    /// Takes rows from the rate limit. A request may take more rows than are left; following requests are then refused
    /// until the rate has made up for the excess.
    ///
    /// # Errors
    /// [`LimitReached`] for `rows_per_second`.
    pub fn take_rows(&self, rows: usize) -> Result<(), LimitReached> {
        self.try_take_rows(rows).map_err(|wait| self.refuse_rows(wait))
    }

    /// Takes rows as [`take_rows`](Self::take_rows) does, for a request that waits for them.
    ///
    /// # Errors
    /// The time until a request may take rows. This is not counted as a refusal.
    pub fn try_take_rows(&self, rows: usize) -> Result<(), Duration> {
        let Some(rate) = self.limits.rows_per_second else { return Ok(()) };
        self.state.rows_taken.take(rows as u64, rate, self.state.began.elapsed())
    }

    /// Counts the refusal of a request that can't wait for its rows, and returns it.
    pub fn refuse_rows(&self, retry_after: Duration) -> LimitReached {
        self.reached("rows_per_second", retry_after)
    }

    fn reached(&self, limit: &'static str, retry_after: Duration) -> LimitReached {
        self.state.refused.fetch_add(1, Ordering::Relaxed);
        LimitReached { grant: self.name.clone(), limit, retry_after }
    }

    /// Counts the rows and bytes that a request returned.
    pub fn count(&self, rows: u64, bytes: u64) {
        self.state.rows.fetch_add(rows, Ordering::Relaxed);
        self.state.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the grant's counters.
    pub fn used(&self) -> Used {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let state = &self.state;
        Used {
            requests: load(&state.requests),
            refused: load(&state.refused),
            rows: load(&state.rows),
            bytes: load(&state.bytes),
        }
    }

    pub(crate) fn is_for(&self, identity: &Identity) -> bool {
        self.who.iter().any(|who| who.covers(identity))
    }

    pub(crate) fn names(&self, table: &str) -> bool {
        self.tables.iter().any(|tables| tables.covers(table))
    }

    pub(crate) fn names_all(&self) -> bool {
        self.tables.iter().any(Pattern::covers_all)
    }

    pub(crate) fn allows(&self, permission: Permission) -> bool {
        self.may.contains(&permission)
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Grant").field(&self.name).finish()
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(limits: Limits) -> Grant {
        let (who, tables, may) = Default::default();
        let (flow, state) = Default::default();
        Grant { name: "g".into(), who, tables, may, part: None, limits, flow, state }
    }

    #[tokio::test(start_paused = true)]
    async fn limits_refuse_and_name_themselves() {
        let limits = Limits {
            requests_per_second: Some(4),
            rows_per_second: Some(100),
            concurrent: Some(2),
            ..Default::default()
        };
        let grant = grant(limits);
        let (one, _two) = (grant.begin().unwrap(), grant.begin().unwrap());
        assert_eq!(grant.begin().unwrap_err().limit, "concurrent");
        drop(one);
        drop(grant.begin().unwrap());
        drop(grant.begin().unwrap());
        let reached = grant.begin().unwrap_err();
        assert_eq!(
            (reached.limit, reached.retry_after),
            ("requests_per_second", Duration::from_millis(250))
        );
        assert_eq!(
            reached.to_string(),
            "grant `g` has reached its limit `requests_per_second`; try again in 250 ms"
        );
        tokio::time::advance(reached.retry_after).await;
        drop(grant.begin().unwrap());
        grant.take_rows(300).unwrap();
        assert_eq!(grant.take_rows(1).unwrap_err().limit, "rows_per_second");
        assert_eq!(grant.try_take_rows(1), Err(Duration::from_millis(2010)), "no refusal");
        grant.count(3, 1024);
        assert_eq!(grant.used(), Used { requests: 5, refused: 3, rows: 3, bytes: 1024 });
    }
}
