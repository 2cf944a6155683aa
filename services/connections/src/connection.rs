//! What is known of one connection while it is served: its streams, and when it has to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use traffic::Holder;

/// How long connections may take and last. Fixed in a node; tests have shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// Until a client has shaken hands and sent its preface. Clients do so at once; the longest round trips there are
    /// fit several times.
    pub establish: Duration,
    /// Without a stream. Pools of clients keep connections for minutes.
    pub idle: Duration,
    /// At most, give or take a tenth: a certificate that was revoked, or an authority that was removed, is trusted for
    /// so long on connections that are open. A client dials again within milliseconds.
    pub age: Duration,
    /// For the streams of a connection that is to end: the longest deadline.
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

/// Streams of one connection that only watch (`Health/Watch`). A client has one for each service.
pub const WATCHES_MAX: u32 = 8;

/// A connection that is served.
#[derive(Debug)]
pub struct Connection {
    began: Instant,
    /// When it ends at the latest, before its grace.
    ends: Instant,
    idle_max: Duration,
    grace: Duration,
    streams: AtomicU32,
    /// Those of them that may outlast the connection's grace.
    lasting: AtomicU32,
    /// Streams that only watch, which are not among them.
    watches: AtomicU32,
    /// When it had its last stream, in milliseconds since `began`.
    idle_since_ms: AtomicU64,
    retires: watch::Sender<bool>,
    evicted: Notify,
    holder: Arc<Holder>,
}

/// A stream that is open, until this is dropped.
#[derive(Debug)]
pub struct OpenStream {
    of: Arc<Connection>,
    lasts: bool,
}

/// A stream that only watches, until this is dropped.
#[derive(Debug)]
pub struct OpenWatch(Arc<Connection>);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    /// One that begins now. `number` tells it from others, which end at another moment; `expires` is when the client's
    /// certificate does.
    pub fn new(lifetimes: &Lifetimes, number: u64, expires: Option<Instant>) -> Arc<Self> {
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
            retires: watch::Sender::new(false),
            evicted: Notify::new(),
            holder: Arc::default(),
        })
    }

    /// What it holds of its core's memory.
    pub fn holder(&self) -> &Arc<Holder> {
        &self.holder
    }

    /// Counts a stream, which `lasts` past the connection's grace if it has to.
    pub fn open(self: &Arc<Self>, lasts: bool) -> OpenStream {
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.lasting.fetch_add(u32::from(lasts), Ordering::Relaxed);
        OpenStream { of: Arc::clone(self), lasts }
    }

    /// Counts a stream that only watches; `None` where there are as many as may be.
    pub fn watch(self: &Arc<Self>) -> Option<OpenWatch> {
        if self.watches.fetch_add(1, Ordering::Relaxed) >= WATCHES_MAX {
            self.watches.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(OpenWatch(Arc::clone(self)))
    }

    /// Whether it has streams that may outlast its grace.
    pub fn has_lasting(&self) -> bool {
        self.lasting.load(Ordering::Relaxed) > 0
    }

    /// Turns true when the connection is about to end: streams that would outlast its grace say so to their clients.
    pub fn retires(&self) -> watch::Receiver<bool> {
        self.retires.subscribe()
    }

    /// Since when it has no stream; `None` while it has one.
    pub fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.streams.load(Ordering::Relaxed) == 0;
        let since = Duration::from_millis(self.idle_since_ms.load(Ordering::Relaxed));
        is_idle.then(|| self.began + since)
    }

    /// How long its streams have once it ends.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Has it closed: another one needs its place.
    pub fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Waits until it is to be closed for another one.
    pub async fn is_evicted(&self) {
        self.evicted.notified().await;
    }

    /// Says to its streams that it is about to end.
    pub fn retire(&self) {
        self.retires.send_replace(true);
    }

    /// When it has to end if nothing changes: for its age, its certificate, or for want of streams.
    pub fn ends(&self) -> Instant {
        match self.idle_since() {
            Some(since) => self.ends.min(since + self.idle_max),
            // It may become idle in a moment.
            None => self.ends.min(Instant::now() + self.idle_max),
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let ms = u64::try_from(self.of.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.of.idle_since_ms.store(ms, Ordering::Relaxed);
        self.of.lasting.fetch_sub(u32::from(self.lasts), Ordering::Relaxed);
        self.of.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// From nine to eleven tenths of `age`: connections that were made together don't end together. No dice: a simulation
/// is to repeat.
fn spread(age: Duration, number: u64) -> Duration {
    // The golden ratio's multiples are spread evenly, however many there are.
    let at = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    age * 9 / 10 + age / 5 * at as u32 / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_by_its_age_its_certificate_or_for_want_of_streams() {
        let seconds = Duration::from_secs;
        let lifetimes = Lifetimes { idle: seconds(60), age: seconds(600), ..Default::default() };
        let began = Instant::now();
        let connection = Connection::new(&lifetimes, 7, None);
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
        assert_eq!(Connection::new(&lifetimes, 7, Some(expires)).ends(), expires);
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
