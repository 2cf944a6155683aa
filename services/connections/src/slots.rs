//! Bounds a node's connections, in total and for each client address, and evicts idle connections for new ones.
//!
//! When all slots are taken, a new connection evicts an idle one, namely the connection that has been idle for longest
//! among those of the address with the most idle connections. If the new connection's own address has half of all
//! slots, the new connection evicts an idle one of this address instead, even if other slots are free. The new
//! connection is refused if it has to evict a connection and there is no idle one to evict. So one address can't take
//! the slots of all others. The limit is half, because many clients may share one address (NAT, a Kubernetes node), and
//! often all connections of an I/O node come from a single query node.
//!
//! Each connection goes to the core that serves the fewest, so that no client can load one core by opening and closing
//! connections.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::connection::Connection;

/// One address may hold at most the number of slots divided by this. The head of this file says why it is half.
const PEER_PART: usize = 2;

/// The number of file descriptors divided by this is the number reserved for uses other than clients' connections:
/// drives, tables, object stores, connections to other nodes, probes.
const RESERVED_PART: u64 = 4;

/// The minimum number of reserved descriptors. They are a quarter of 1,024, a usual limit of descriptors.
const RESERVED_MIN: u64 = 256;

/// The maximum number of connections that are not established yet. Each holds a descriptor and next to no memory. At
/// 1,000 new connections per second, each has a second before it is closed for a newer one.
const WAITING_MAX: usize = 1024;

/// A node that has descriptors for fewer connections than this logs a warning.
const CONNECTIONS_WANTED: u64 = 1024;

/// The limits of a node's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The maximum number of established connections.
    pub total: usize,
    /// The maximum number of established connections of one address.
    pub per_peer: usize,
    /// The maximum number of connections that are not established yet.
    pub waiting: usize,
}

impl Caps {
    /// Derives the limits from the number of descriptors that this process may open, and from the number of connections
    /// that its memory allows.
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
        // Serve a few connections even if all descriptors are reserved.
        let left = usize::try_from(left).unwrap_or(usize::MAX).max(8);
        let waiting = (left / 4).min(WAITING_MAX);
        let total = by_memory.min(left - waiting).max(2);
        Self { total, per_peer: total / PEER_PART, waiting }
    }
}

/// The connection slots of a node. The lock is taken when a connection begins, ends or is evicted, and when the counts
/// are read, but not for requests.
#[derive(Debug)]
pub struct ConnectionSlots {
    caps: Caps,
    used: Mutex<UsedSlots>,
    evicted: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct UsedSlots {
    /// The number of the last connection.
    last: u64,
    connections: HashMap<u64, SlotUser>,
    /// The number of connections of each address.
    peers: HashMap<IpAddr, usize>,
    /// The number of connections of each core.
    cores: Vec<usize>,
    /// The first core to consider when several have equal counts.
    next_core: usize,
}

/// A connection that has a slot.
#[derive(Debug)]
struct SlotUser {
    peer: IpAddr,
    core: usize,
    connection: Arc<Connection>,
}

/// A connection's slot, which becomes free when this is dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    number: u64,
    core: usize,
}

/// The counts of a node's connections, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections that have a slot now.
    pub open: usize,
    /// The number of slots.
    pub max: usize,
    /// Connections that were closed for new ones, since the start.
    pub evicted: u64,
    /// Connections that were refused, since the start.
    pub refused: u64,
}

/// Returns the address by which a caller's connections are counted: the IPv4 address, or the /64 network of an IPv6
/// address, because one host may use all addresses of such a network.
pub fn caller(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(it) => Ipv6Addr::from_bits(it.to_bits() >> 64 << 64).into(),
        four => four,
    }
}

impl ConnectionSlots {
    /// Creates free slots on `cores` cores.
    pub fn new(caps: Caps, cores: usize) -> Arc<Self> {
        let used = UsedSlots { cores: vec![0; cores.max(1)], ..UsedSlots::default() };
        let (evicted, refused) = Default::default();
        Arc::new(Self { caps, used: used.into(), evicted, refused })
    }

    /// Returns the limits.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// Returns a number for a new connection. Each number is returned once.
    pub fn next_number(&self) -> u64 {
        let mut used = self.used();
        used.last += 1;
        used.last
    }

    /// Takes a slot for `connection` from `peer`, and evicts an idle connection if necessary. Returns `None` if the
    /// connection is refused.
    pub fn take(
        self: &Arc<Self>,
        number: u64,
        peer: IpAddr,
        connection: &Arc<Connection>,
    ) -> Option<ConnectionSlot> {
        let mut used = self.used();
        let of_peer = used.peers.get(&peer).copied().unwrap_or(0);
        let has_room = if of_peer >= self.caps.per_peer {
            self.evict_of(&mut used, peer)
        } else {
            used.connections.len() < self.caps.total || self.evict_one(&mut used)
        };
        if !has_room {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let core = used.choose_core();
        let user = SlotUser { peer, core, connection: Arc::clone(connection) };
        used.connections.insert(number, user);
        *used.peers.entry(peer).or_default() += 1;
        Some(ConnectionSlot { slots: Arc::clone(self), number, core })
    }

    /// Closes an idle connection to free its descriptor. Returns whether there was one.
    pub fn evict_any(&self) -> bool {
        self.evict_one(&mut self.used())
    }

    /// Evicts an idle connection of the address with the most idle connections. Returns whether there was one.
    fn evict_one(&self, used: &mut UsedSlots) -> bool {
        let idle = used.connections.values().filter(|it| it.connection.idle_since().is_some());
        let mut counts = HashMap::<IpAddr, usize>::new();
        idle.for_each(|it| *counts.entry(it.peer).or_default() += 1);
        // If counts are equal, the address decides, so that a simulation is reproducible.
        let most = counts.into_iter().max_by_key(|&(peer, count)| (count, peer));
        most.is_some_and(|(peer, _)| self.evict_of(used, peer))
    }

    /// Evicts the connection of `peer` that has been idle for longest. Returns whether there was one.
    fn evict_of(&self, used: &mut UsedSlots, peer: IpAddr) -> bool {
        let idle = |(number, user): (&u64, &SlotUser)| {
            let since: Instant = user.connection.idle_since().filter(|_| user.peer == peer)?;
            Some((since, *number))
        };
        let Some((_, number)) = used.connections.iter().filter_map(idle).min() else {
            return false;
        };
        if let Some(connection) = used.remove(number) {
            connection.evict();
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Returns the current counts.
    pub fn counts(&self) -> ConnectionCounts {
        ConnectionCounts {
            open: self.used().connections.len(),
            max: self.caps.total,
            evicted: self.evicted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    fn used(&self) -> MutexGuard<'_, UsedSlots> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Returns the core that serves the connection.
    pub fn core(&self) -> usize {
        self.core
    }
}

impl UsedSlots {
    /// Counts one more connection for the core that serves the fewest, and returns that core. Cores with equal counts
    /// take turns.
    fn choose_core(&mut self) -> usize {
        let count = self.cores.len();
        let in_turn = (0..count).map(|step| (self.next_core + step) % count);
        let core = in_turn.min_by_key(|&core| self.cores[core]).unwrap_or(0);
        self.cores[core] += 1;
        self.next_core = (core + 1) % count;
        core
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Connection>> {
        let SlotUser { peer, core, connection } = self.connections.remove(&number)?;
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

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        // An evicted connection has lost its slot already.
        let removed = self.slots.used().remove(self.number);
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::connection::{Lifetimes, Peer};

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    struct Client {
        connection: Arc<Connection>,
        slot: Option<ConnectionSlot>,
    }

    fn connect(slots: &Arc<ConnectionSlots>, peer: IpAddr) -> Client {
        let number = slots.next_number();
        let connection = Connection::new(&Lifetimes::default(), number, Peer::default(), None);
        let slot = slots.take(number, peer, &connection);
        Client { connection, slot }
    }

    fn is_evicted(client: &Client) -> bool {
        client.connection.is_evicted()
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_evicts_the_one_that_was_idle_longest() {
        let slots = ConnectionSlots::new(Caps { total: 4, per_peer: 2, waiting: 1 }, 1);
        let first = connect(&slots, ONE);
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = connect(&slots, ONE);
        // The address has half of the slots. It loses its own oldest connection, although other slots are free.
        let third = connect(&slots, ONE);
        assert!(third.slot.is_some() && is_evicted(&first) && !is_evicted(&second));
        let others = [connect(&slots, TWO), connect(&slots, TWO)];
        let three = IpAddr::from([10, 0, 0, 3]);
        let busy = [second.connection.open(false), third.connection.open(false)];
        // All slots are taken. An idle connection is evicted.
        let newcomer = connect(&slots, three);
        assert!(newcomer.slot.is_some());
        assert!(is_evicted(&others[0]));
        assert_eq!(slots.counts(), ConnectionCounts { open: 4, max: 4, evicted: 2, refused: 0 });
        // An address whose connections all have streams gets no further slot.
        assert!(connect(&slots, ONE).slot.is_none());
        let _all = [others[1].connection.open(false), newcomer.connection.open(false)];
        assert!(connect(&slots, three).slot.is_none(), "all connections have streams");
        assert_eq!(slots.counts().refused, 2);
        drop((busy, first, second, third, others, newcomer));
        assert_eq!(slots.counts().open, 0);
        assert!(slots.used().peers.is_empty());
    }

    #[test]
    fn no_core_gets_more_than_its_share_whatever_is_closed() {
        let slots = ConnectionSlots::new(Caps { total: 64, per_peer: 32, waiting: 1 }, 4);
        let of = |client: &Client| client.slot.as_ref().unwrap().core();
        let first: Vec<_> = (0..4).map(|_| connect(&slots, ONE)).collect();
        assert_eq!(first.iter().map(of).collect::<Vec<_>>(), [0, 1, 2, 3]);
        // A client opens four connections at a time, and keeps those of one core.
        let mut kept = Vec::new();
        for _ in 0..24 {
            let dialled = (0..4).map(|_| connect(&slots, ONE));
            let dialled: Vec<_> = dialled.filter(|it| it.slot.is_some()).collect();
            kept.extend(dialled.into_iter().filter(|it| of(it) == 2));
        }
        assert!(kept.len() <= 64 / 4, "{} of 64 on one of 4 cores", kept.len());
        let others: Vec<_> = (0..16).map(|_| connect(&slots, TWO)).collect();
        assert!(others.iter().filter(|it| of(it) == 2).count() <= 4);
        let counts = slots.used().cores.clone();
        assert!(counts.iter().all(|&count| count <= 16), "{counts:?}");
        drop((first, kept, others));
        assert_eq!(slots.used().cores, [0; 4]);
    }

    #[test]
    fn an_ipv6_network_of_64_bits_is_one_caller() {
        let of = |text: &str| caller(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), ONE);
        assert_ne!(ONE, of("10.0.0.2"));
    }

    #[test]
    fn caps_leave_descriptors_for_other_uses() {
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
