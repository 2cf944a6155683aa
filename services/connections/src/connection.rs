//! A connection's open streams, and the time at which it has to end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic::Holder;

/// The time limits of connections. Nodes use the default, tests use shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// The time for the handshake and the preface. Clients send both at once, so this allows for several of the longest
    /// round trips.
    pub establish: Duration,
    /// The time for which a connection may have no stream. Clients' pools keep connections for minutes.
    pub idle: Duration,
    /// The maximum age, varied by a tenth. An open connection keeps using a revoked certificate or a removed authority
    /// for this long. A client connects again within milliseconds.
    pub age: Duration,
    /// The time that open streams get when the connection is to end: the longest deadline.
    pub grace: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            establish: Duration::from_secs(5),
            idle: Duration::from_secs(300),
            age: Duration::from_secs(600),
            grace: wire::DEADLINE_MAX,
        }
    }
}

/// The maximum number of watch streams (`Health/Watch`) of one connection. A client has one for each service.
pub const WATCHES_MAX: u32 = 8;

/// The other side of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The address. `None` in a simulation.
    pub address: Option<SocketAddr>,
    /// The DNS names and URIs in the verified client certificate, as they stand there. Empty without a certificate.
    pub names: Vec<String>,
}

/// The state of an established connection.
#[derive(Debug)]
pub struct Connection {
    began: Instant,
    /// The time at which the connection ends by its age or its client's certificate. The grace comes after this.
    ends: Instant,
    idle_max: Duration,
    grace: Duration,
    /// The number of open streams, without watch streams.
    streams: AtomicU32,
    /// The number of open streams that may outlast the connection's grace.
    lasting: AtomicU32,
    /// The number of watch streams.
    watches: AtomicU32,
    /// The time at which a stream last ended, in milliseconds since `began`. 0 if none has ended.
    idle_since_ms: AtomicU64,
    retires: CancellationToken,
    evicted: Notify,
    holder: Arc<Holder>,
    peer: Peer,
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
    /// different times. `expires` is the expiry of the client's certificate.
    pub fn new(
        lifetimes: &Lifetimes,
        number: u64,
        peer: Peer,
        expires: Option<Instant>,
    ) -> Arc<Self> {
        let began = Instant::now();
        let ends = began + spread(lifetimes.age, number);
        Arc::new(Self {
            began,
            ends: expires.map_or(ends, |expires| ends.min(expires)),
            idle_max: lifetimes.idle,
            grace: lifetimes.grace,
            streams: AtomicU32::new(0),
            watches: AtomicU32::new(0),
            lasting: AtomicU32::new(0),
            idle_since_ms: AtomicU64::new(0),
            retires: CancellationToken::new(),
            evicted: Notify::new(),
            holder: Arc::default(),
            peer,
        })
    }

    /// Returns the other side.
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

    /// Returns whether there are streams that may outlast the grace.
    pub fn has_lasting(&self) -> bool {
        self.lasting.load(Ordering::Relaxed) > 0
    }

    /// Returns a token that is cancelled when the connection is about to end by its age, its client's certificate or
    /// because it is idle. A stream that would outlast the grace then tells its client.
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
        self.grace
    }

    /// Asks the connection to close, because another one needs its slot.
    pub fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Waits until [`evict`](Self::evict) is called.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Tells the streams that the connection is about to end.
    pub fn retire(&self) {
        self.retires.cancel();
    }

    /// Returns the time at which the connection ends by its age, by the client's certificate, or because it is idle.
    /// While the connection has a stream, the time may be too early, so the caller has to call this again at that time.
    pub fn ends(&self) -> Instant {
        match self.idle_since() {
            Some(since) => self.ends.min(since + self.idle_max),
            // It may become idle soon, so the caller looks again after at most `idle_max`.
            None => self.ends.min(Instant::now() + self.idle_max),
        }
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
    async fn a_connection_ends_by_age_by_certificate_or_when_idle() {
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
        let expires = began + seconds(595);
        assert_eq!(Connection::new(&lifetimes, 7, Peer::default(), Some(expires)).ends(), expires);
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
