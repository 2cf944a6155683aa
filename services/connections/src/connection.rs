//! A connection's open streams, and the time at which it has to end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic::Holder;

use crate::tls::Presented;

/// The time limits of connections. Nodes use the default, tests use shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// The time for the handshake and the preface. Clients send both without delay, so this allows for several of the
    /// longest round trips.
    pub establish: Duration,
    /// The time for which a connection may have no stream. Clients' pools keep connections for minutes.
    pub idle: Duration,
    /// The maximum age, varied by a tenth. The end of a connection costs its client little: it connects again within
    /// milliseconds.
    pub age: Duration,
    /// The time that open streams get when the connection is to end: the longest deadline.
    pub grace: Duration,
    /// The time that open streams get when a certificate has expired or is revoked, or when the reason for which a
    /// stream was admitted no longer holds. It is enough for a client to connect again, and for most answers under way.
    pub untrusted_grace: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            establish: Duration::from_secs(5),
            idle: Duration::from_secs(300),
            age: Duration::from_secs(600),
            grace: wire::DEADLINE_MAX,
            untrusted_grace: Duration::from_secs(30),
        }
    }
}

/// After the node's certificate was replaced, connections that were made with the earlier one end at times spread over
/// this many milliseconds, so that clients do not all reconnect at once. A change of the files is noticed within 10 s,
/// and each core checks its connections every 5 s. So these connections begin to end within 25 s of the change.
const REPLACED_WITHIN_MS: u64 = 10_000;

/// The maximum number of watch streams (`Health/Watch`) of one connection. A client has one for each service.
pub const WATCHES_MAX: u32 = 8;

/// The other side of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The address. `None` in a simulation.
    pub address: Option<SocketAddr>,
    /// The address of this node to which the connection was made. `None` in a simulation.
    pub reached_at: Option<SocketAddr>,
    /// The DNS names and URIs in the verified client certificate, as written there. Empty without a certificate.
    pub names: Vec<String>,
}

/// The state of an established connection.
#[derive(Debug)]
pub struct Connection {
    began: Instant,
    /// The time at which the connection reaches its maximum age. Its grace begins then.
    ends: Instant,
    /// The earliest expiry of both sides' certificates.
    expires: Option<Instant>,
    idle_max: Duration,
    grace: Duration,
    untrusted_grace: Duration,
    /// The number of open streams, without watch streams.
    streams: AtomicU32,
    /// The number of open streams that may outlast the connection's grace.
    lasting: AtomicU32,
    /// The number of watch streams.
    watches: AtomicU32,
    /// The time at which a stream last ended, in milliseconds since `began`. 0 if none has ended.
    idle_since_ms: AtomicU64,
    retires: CancellationToken,
    is_evicted: AtomicBool,
    is_distrusted: AtomicBool,
    /// The time at which the connection ends because the node's certificate was replaced, in milliseconds since
    /// `began`. `u64::MAX` if it was not replaced.
    replaced_ms: AtomicU64,
    /// Notified when `is_evicted`, `is_distrusted` or `replaced_ms` changes.
    signals: Notify,
    holder: Arc<Holder>,
    peer: Peer,
    presented: Option<Presented>,
    /// Flags, each of which is set once the reason for which a stream was admitted no longer holds.
    withdrawals: Mutex<Vec<Arc<AtomicBool>>>,
}

/// An open stream. The stream is no longer counted when this is dropped.
#[derive(Debug)]
pub struct OpenStream {
    connection: Arc<Connection>,
    lasts: bool,
}

/// An open watch stream. The stream is no longer counted when this is dropped.
#[derive(Debug)]
pub struct OpenWatch(Arc<Connection>);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    /// Creates a connection that begins now. Connections with different values of `number` reach their maximum age at
    /// different times.
    pub fn new(
        lifetimes: &Lifetimes,
        number: u64,
        peer: Peer,
        presented: Option<Presented>,
    ) -> Arc<Self> {
        let began = Instant::now();
        Arc::new(Self {
            began,
            ends: began + spread(lifetimes.age, number),
            expires: presented.as_ref().and_then(Presented::expires),
            idle_max: lifetimes.idle,
            grace: lifetimes.grace,
            untrusted_grace: lifetimes.untrusted_grace,
            streams: AtomicU32::new(0),
            watches: AtomicU32::new(0),
            lasting: AtomicU32::new(0),
            idle_since_ms: AtomicU64::new(0),
            retires: CancellationToken::new(),
            is_evicted: AtomicBool::new(false),
            is_distrusted: AtomicBool::new(false),
            replaced_ms: AtomicU64::new(u64::MAX),
            signals: Notify::new(),
            holder: Arc::default(),
            peer,
            presented,
            withdrawals: Mutex::default(),
        })
    }

    /// Returns the client at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the account of the connection's memory on its core.
    pub fn holder(&self) -> &Arc<Holder> {
        &self.holder
    }

    /// Counts a new stream. `lasts` is whether it may outlast the connection's grace.
    pub fn open(self: &Arc<Self>, lasts: bool) -> OpenStream {
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.lasting.fetch_add(u32::from(lasts), Ordering::Relaxed);
        OpenStream { connection: Arc::clone(self), lasts }
    }

    /// Counts a new watch stream. Returns `None` if there are [`WATCHES_MAX`] already.
    pub fn watch(self: &Arc<Self>) -> Option<OpenWatch> {
        if self.watches.fetch_add(1, Ordering::Relaxed) >= WATCHES_MAX {
            self.watches.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(OpenWatch(Arc::clone(self)))
    }

    /// Returns whether the connection has streams that may outlast the grace.
    pub fn has_lasting(&self) -> bool {
        self.lasting.load(Ordering::Relaxed) > 0
    }

    /// Returns a token that is cancelled when the connection is about to end because the node stops, because of its
    /// age, because it is idle, because the node's certificate was replaced, or because it is no longer trusted. A
    /// stream that would outlast the grace then ends, or asks its client to open another stream.
    pub fn retires(&self) -> CancellationToken {
        self.retires.clone()
    }

    /// Returns the time since which the connection has had no stream. Returns `None` while it has one.
    pub fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.streams.load(Ordering::Relaxed) == 0;
        let since = Duration::from_millis(self.idle_since_ms.load(Ordering::Relaxed));
        is_idle.then(|| self.began + since)
    }

    /// Returns the time that open streams get when the connection is to end.
    pub fn grace(&self) -> Duration {
        if self.is_trusted() { self.grace } else { self.untrusted_grace.min(self.grace) }
    }

    /// Asks the connection to close, because a new one needs its slot or its descriptor.
    pub fn evict(&self) {
        self.is_evicted.store(true, Ordering::Relaxed);
        self.signals.notify_one();
    }

    /// Returns whether the connection was asked to close, because a new one needs its slot or its descriptor.
    pub fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Relaxed)
    }

    /// Returns whether both sides' certificates are valid, as far as is known, and the reasons for which the streams
    /// were admitted still hold.
    pub fn is_trusted(&self) -> bool {
        let has_expired = self.expires.is_some_and(|expires| expires <= Instant::now());
        !has_expired && !self.is_distrusted.load(Ordering::Relaxed)
    }

    /// Makes the connection end soon after `withdrawn` is set. A service calls this when it admits a stream for a
    /// reason that may cease to hold.
    pub fn depend_on(&self, withdrawn: &Arc<AtomicBool>) {
        let mut withdrawals = self.withdrawals();
        if !withdrawals.iter().any(|it| Arc::ptr_eq(it, withdrawn)) {
            withdrawals.push(Arc::clone(withdrawn));
        }
    }

    /// Returns whether [`check`](Self::check) has something to do. Cheap.
    pub(crate) fn has_to_be_checked(&self) -> bool {
        self.presented.as_ref().is_some_and(Presented::is_stale) || self.is_withdrawn()
    }

    /// Verifies the client's certificate with the current TLS files, and begins to end the connection if the
    /// certificate is no longer trusted, or if the reason for which a stream was admitted no longer holds. If the
    /// node's own certificate was replaced, the connection ends soon, as if it had reached its maximum age: clients may
    /// stop trusting the authority of the earlier certificate, and would then break off the connection.
    pub(crate) fn check(&self) {
        if self.presented.as_ref().is_some_and(Presented::is_replaced) {
            self.replaced();
        }
        let is_withdrawn = self.is_withdrawn();
        let verified = self.presented.as_ref().map_or(Ok(()), Presented::verify);
        if let Err(error) = &verified {
            let Peer { address, names, .. } = &self.peer;
            let address = address.map(tracing::field::display);
            tracing::warn!(address, ?names, %error, "a client's certificate is no longer trusted");
        }
        if (is_withdrawn || verified.is_err()) && !self.is_distrusted.swap(true, Ordering::Relaxed)
        {
            self.signals.notify_one();
        }
    }

    fn replaced(&self) {
        // `ends` differs between connections, so its remainder spreads these times too.
        let pause_ms = (self.ends - self.began).as_millis() as u64 % REPLACED_WITHIN_MS;
        let at_ms = self.began.elapsed().as_millis() as u64 + pause_ms;
        if self.replaced_ms.fetch_min(at_ms, Ordering::Relaxed) == u64::MAX {
            self.signals.notify_one();
        }
    }

    fn is_withdrawn(&self) -> bool {
        let is_distrusted = self.is_distrusted.load(Ordering::Relaxed);
        !is_distrusted && self.withdrawals().iter().any(|it| it.load(Ordering::Relaxed))
    }

    fn withdrawals(&self) -> MutexGuard<'_, Vec<Arc<AtomicBool>>> {
        self.withdrawals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the connection is evicted, or a check finds that it is no longer trusted or that the node's
    /// certificate was replaced. Returns at once if that has happened since the last wait.
    pub async fn signalled(&self) {
        self.signals.notified().await;
    }

    /// Tells the streams that the connection is about to end.
    pub fn retire(&self) {
        self.retires.cancel();
    }

    /// Returns the time at which the connection ends because of its age, because a certificate expires, because the
    /// node's certificate was replaced, or because it is idle. While the connection has a stream, the time may be too
    /// early, so the caller has to call this again at that time.
    pub fn ends(&self) -> Instant {
        // If the connection has a stream, it may become idle soon, so the caller checks again after at most `idle_max`.
        let idle_since = self.idle_since().unwrap_or_else(Instant::now);
        let replaced = Duration::from_millis(self.replaced_ms.load(Ordering::Relaxed));
        let ends = self.began.checked_add(replaced).map_or(self.ends, |at| self.ends.min(at));
        let ends = ends.min(idle_since + self.idle_max);
        self.expires.map_or(ends, |expires| ends.min(expires))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let ms = u64::try_from(self.connection.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.connection.idle_since_ms.store(ms, Ordering::Relaxed);
        self.connection.lasting.fetch_sub(u32::from(self.lasts), Ordering::Relaxed);
        self.connection.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns a duration from 0.9 to 1.1 times `age`, so that connections that were made together don't end together. It
/// depends on `number` instead of being random, so that a simulation is reproducible.
fn spread(age: Duration, number: u64) -> Duration {
    // Multiples of the golden ratio are spread evenly, however many there are.
    let at = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    age * 9 / 10 + age / 5 * at as u32 / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_by_age_or_when_idle() {
        let seconds = Duration::from_secs;
        let lifetimes = Lifetimes { idle: seconds(60), age: seconds(600), ..Default::default() };
        let began = Instant::now();
        let connection = Connection::new(&lifetimes, 7, Peer::default(), None);
        assert_eq!(connection.ends(), began + seconds(60));
        tokio::time::advance(seconds(50)).await;
        let stream = connection.open(false);
        assert_eq!(connection.idle_since(), None);
        tokio::time::advance(seconds(20)).await;
        assert_eq!(connection.ends(), began + seconds(130));
        drop(stream);
        assert_eq!(connection.idle_since(), Some(began + seconds(70)));
        let _stream = connection.open(false);
        tokio::time::advance(seconds(520)).await;
        let aged = connection.ends() - began;
        assert!(seconds(540) <= aged && aged < seconds(660), "{aged:?}");
    }

    #[test]
    fn connections_made_together_end_at_different_times() {
        let age = Duration::from_secs(600);
        let mut ends: Vec<_> = (0..100).map(|number| spread(age, number).as_secs()).collect();
        ends.sort_unstable();
        ends.dedup();
        assert!(ends.len() > 60, "{}", ends.len());
        assert!(ends[0] >= 540 && *ends.last().unwrap() < 660);
    }
}
