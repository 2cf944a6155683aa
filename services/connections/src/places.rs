//! How many connections a node has, of whom, and which one makes room for another.
//!
//! A newcomer is served rather than refused: for it the connection is closed that has had no stream for the longest
//! time, of the address that has most of them. It is refused only where all have streams, or where its own address has
//! half of all places already and uses them: one address can't take the places of all others. Half, because many
//! clients may stand behind one address (NAT, a Kubernetes node), and a tier of one query node is usual.
//!
//! Each is served by the core that has fewest, so none has more than its part, whoever opens and closes which.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::connection::Connection;

/// The part of all places that one address may have: one in so many.
const PEER_PART: usize = 2;

/// Of the descriptors that may be open, one in so many is kept for others than callers: drives, tables, stores, nodes
/// that are connected to, probes.
const RESERVED_PART: u64 = 4;

/// The least that is kept for them.
const RESERVED_MIN: u64 = 256;

/// Connections that have not shown yet that they speak HTTP/2, at most. They hold a descriptor and next to no memory;
/// 1,000 newcomers a second have a second each before the oldest is closed for a newer one.
const WAITING_MAX: usize = 1024;

/// Fewer descriptors than for so many connections are worth a warning.
const CONNECTIONS_WANTED: u64 = 1024;

/// What there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Connections that are served.
    pub total: usize,
    /// Of those, of one address.
    pub per_peer: usize,
    /// Connections that have not shown yet that they are to be served.
    pub waiting: usize,
}

impl Caps {
    /// For a process that may open `descriptors`, of whose memory there is enough for `by_memory` connections.
    pub fn new(by_memory: usize, descriptors: u64) -> Self {
        let reserved = (descriptors / RESERVED_PART).max(RESERVED_MIN);
        let left = descriptors.saturating_sub(reserved);
        if left < CONNECTIONS_WANTED {
            tracing::warn!(
                descriptors,
                connections = left,
                "few file descriptors may be open, and so few connections; raise the hard limit (ulimit -Hn, \
                 LimitNOFILE=) to at least {}",
                CONNECTIONS_WANTED * RESERVED_PART / (RESERVED_PART - 1)
            );
        }
        // Even a process with no descriptors to spare serves somebody.
        let left = usize::try_from(left).unwrap_or(usize::MAX).max(8);
        let waiting = (left / 4).min(WAITING_MAX);
        let total = by_memory.min(left - waiting).max(2);
        Self { total, per_peer: total / PEER_PART, waiting }
    }
}

/// The places of one node's connections. Locked when one comes or goes.
#[derive(Debug)]
pub struct Places {
    caps: Caps,
    taken: Mutex<Taken>,
    evicted: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    connections: HashMap<u64, Taker>,
    peers: HashMap<IpAddr, usize>,
    /// How many each core serves.
    cores: Vec<usize>,
    /// Whose turn it is among cores that serve equally many.
    next_core: usize,
}

/// Who has a place.
#[derive(Debug)]
struct Taker {
    peer: IpAddr,
    core: usize,
    connection: Arc<Connection>,
}

/// A place, until this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
    core: usize,
}

/// How connections are, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceCounts {
    /// Served now.
    pub open: usize,
    /// That may be.
    pub max: usize,
    /// Closed for others, since the start.
    pub evicted: u64,
    /// Refused, since the start.
    pub refused: u64,
}

/// Who counts as one caller: an IPv4 address, or an IPv6 network of 64 bits, which one host has all addresses of.
pub fn caller(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(it) => Ipv6Addr::from_bits(it.to_bits() >> 64 << 64).into(),
        four => four,
    }
}

impl Places {
    /// All free, on `cores`.
    pub fn new(caps: Caps, cores: usize) -> Arc<Self> {
        let taken = Taken { cores: vec![0; cores.max(1)], ..Taken::default() };
        let (evicted, refused) = Default::default();
        Arc::new(Self { caps, taken: taken.into(), evicted, refused })
    }

    /// What there may be.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// A number for a connection that comes; none comes twice.
    pub fn next_number(&self) -> u64 {
        let mut taken = self.taken();
        taken.next += 1;
        taken.next
    }

    /// A place for `connection` from `peer`; `None` if all are in use.
    pub fn take(
        self: &Arc<Self>,
        number: u64,
        peer: IpAddr,
        connection: &Arc<Connection>,
    ) -> Option<Place> {
        let mut taken = self.taken();
        let of_peer = taken.peers.get(&peer).copied().unwrap_or(0);
        let has_room = if of_peer >= self.caps.per_peer {
            self.evict_of(&mut taken, peer)
        } else {
            taken.connections.len() < self.caps.total || self.evict_one(&mut taken)
        };
        if !has_room {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let core = taken.choose_core();
        let taker = Taker { peer, core, connection: Arc::clone(connection) };
        taken.connections.insert(number, taker);
        *taken.peers.entry(peer).or_default() += 1;
        Some(Place { places: Arc::clone(self), number, core })
    }

    /// Closes one that has no stream, for its descriptor. Returns whether there was one.
    pub fn evict_any(&self) -> bool {
        self.evict_one(&mut self.taken())
    }

    /// Of the address that has most of those without streams.
    fn evict_one(&self, taken: &mut Taken) -> bool {
        let idle = taken.connections.values().filter(|it| it.connection.idle_since().is_some());
        let mut counts = HashMap::<IpAddr, usize>::new();
        idle.for_each(|it| *counts.entry(it.peer).or_default() += 1);
        // The address itself decides between equals: the same one each time.
        let most = counts.into_iter().max_by_key(|&(peer, count)| (count, peer));
        most.is_some_and(|(peer, _)| self.evict_of(taken, peer))
    }

    fn evict_of(&self, taken: &mut Taken, peer: IpAddr) -> bool {
        let idle = |(number, taker): (&u64, &Taker)| {
            let since: Instant = taker.connection.idle_since().filter(|_| taker.peer == peer)?;
            Some((since, *number))
        };
        let Some((_, number)) = taken.connections.iter().filter_map(idle).min() else {
            return false;
        };
        if let Some(connection) = taken.remove(number) {
            connection.evict();
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// How they are.
    pub fn counts(&self) -> PlaceCounts {
        PlaceCounts {
            open: self.taken().connections.len(),
            max: self.caps.total,
            evicted: self.evicted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Which core is to serve it.
    pub fn core(&self) -> usize {
        self.core
    }
}

impl Taken {
    /// The core that serves fewest, for one more; in turn where several do.
    fn choose_core(&mut self) -> usize {
        let count = self.cores.len();
        let in_turn = (0..count).map(|step| (self.next_core + step) % count);
        let core = in_turn.min_by_key(|&core| self.cores[core]).unwrap_or(0);
        self.cores[core] += 1;
        self.next_core = (core + 1) % count;
        core
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Connection>> {
        let Taker { peer, core, connection } = self.connections.remove(&number)?;
        self.cores[core] -= 1;
        if let Some(count) = self.peers.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&peer);
            }
        }
        Some(connection)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // One that was evicted has lost it already.
        let removed = self.places.taken().remove(self.number);
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::connection::Lifetimes;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    struct Client {
        connection: Arc<Connection>,
        place: Option<Place>,
    }

    fn connect(places: &Arc<Places>, peer: IpAddr) -> Client {
        let number = places.next_number();
        let connection = Connection::new(&Lifetimes::default(), number, None);
        let place = places.take(number, peer, &connection);
        Client { connection, place }
    }

    async fn is_evicted(client: &Client) -> bool {
        let evicted = client.connection.is_evicted();
        tokio::time::timeout(Duration::from_millis(1), evicted).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_takes_the_place_of_who_was_idle_longest() {
        let places = Places::new(Caps { total: 4, per_peer: 2, waiting: 1 }, 1);
        let first = connect(&places, ONE);
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = connect(&places, ONE);
        // Of the address that has its part: its own oldest goes, though there are places.
        let third = connect(&places, ONE);
        assert!(third.place.is_some() && is_evicted(&first).await && !is_evicted(&second).await);
        let others = [connect(&places, TWO), connect(&places, TWO)];
        let three = IpAddr::from([10, 0, 0, 3]);
        let busy = [second.connection.open(false), third.connection.open(false)];
        // All places are taken: of those without streams one goes.
        let newcomer = connect(&places, three);
        assert!(newcomer.place.is_some());
        assert!(is_evicted(&others[0]).await);
        assert_eq!(places.counts(), PlaceCounts { open: 4, max: 4, evicted: 2, refused: 0 });
        // Who uses all of its part has no further place.
        assert!(connect(&places, ONE).place.is_none());
        let _all = [others[1].connection.open(false), newcomer.connection.open(false)];
        assert!(connect(&places, three).place.is_none(), "all have streams");
        assert_eq!(places.counts().refused, 2);
        drop((busy, first, second, third, others, newcomer));
        assert_eq!(places.counts().open, 0);
        assert!(places.taken().peers.is_empty());
    }

    #[test]
    fn no_core_gets_more_than_its_part_whatever_is_closed() {
        let places = Places::new(Caps { total: 64, per_peer: 32, waiting: 1 }, 4);
        let of = |client: &Client| client.place.as_ref().unwrap().core();
        let first: Vec<_> = (0..4).map(|_| connect(&places, ONE)).collect();
        assert_eq!(first.iter().map(of).collect::<Vec<_>>(), [0, 1, 2, 3]);
        // Dials four at a time, and keeps those of one core.
        let mut kept = Vec::new();
        for _ in 0..24 {
            let dialled = (0..4).map(|_| connect(&places, ONE));
            let dialled: Vec<_> = dialled.filter(|it| it.place.is_some()).collect();
            kept.extend(dialled.into_iter().filter(|it| of(it) == 2));
        }
        assert!(kept.len() <= 64 / 4, "{} of 64 on one of 4 cores", kept.len());
        let others: Vec<_> = (0..16).map(|_| connect(&places, TWO)).collect();
        assert!(others.iter().filter(|it| of(it) == 2).count() <= 4);
        let counts = places.taken().cores.clone();
        assert!(counts.iter().all(|&count| count <= 16), "{counts:?}");
        drop((first, kept, others));
        assert_eq!(places.taken().cores, [0; 4]);
    }

    #[test]
    fn a_network_of_64_bits_is_one_caller() {
        let of = |text: &str| caller(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), ONE);
        assert_ne!(ONE, of("10.0.0.2"));
    }

    #[test]
    fn caps_leave_descriptors_and_memory_for_others() {
        let caps = |by_memory, descriptors| {
            let Caps { total, per_peer, waiting } = Caps::new(by_memory, descriptors);
            (total, per_peer, waiting)
        };
        assert_eq!(caps(10_000, 1 << 20), (10_000, 5_000, 1024));
        assert_eq!(caps(10_000, 1024), (576, 288, 192));
        assert_eq!(caps(100, 1024), (100, 50, 192));
        assert_eq!(caps(100, 100), (6, 3, 2));
    }
}
