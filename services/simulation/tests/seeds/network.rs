//! The simulated network: connections between clients and nodes, whose bytes arrive in order, late, in pieces, or
//! never.
//!
//! ```text
//! poll_write ─► in flight: pieces with their arrival times, bounded in bytes ─► poll_read
//! ```
//!
//! It does not simulate packets, because TCP hides their loss. It simulates what TCP cannot hide: connections that are
//! reset, peers that are cut off silently, and peers that read slowly.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use client::Dial;
use connections::Carrier;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::Uri;

use crate::dice::Dice;

/// The maximum bytes in flight per direction of a connection, about the size of a system's socket buffers.
const IN_FLIGHT_MAX: usize = 96 << 10;

/// The network with all its connections. Clones share it.
#[derive(Clone)]
pub struct Net(Arc<Mutex<NetState>>);

struct NetState {
    dice: Dice,
    now_ms: u64,
    troubles: NetTroubles,
    connections: Vec<Connection>,
    /// Indexes of connections that were closed at both ends, for reuse.
    free: Vec<usize>,
    /// The ends that each node has yet to accept, by the node's name. Nodes that do not listen have no entry.
    listening: BTreeMap<String, VecDeque<End>>,
}

/// The faults of the network.
#[derive(Clone, Debug)]
pub struct NetTroubles {
    /// The latency of bytes, in ms.
    pub latency_ms: RangeInclusive<u64>,
    /// The number of reads and writes in 1,000 that move fewer bytes than they could.
    pub short_per_mille: u64,
}

impl Default for NetTroubles {
    fn default() -> Self {
        Self { latency_ms: 0..=1, short_per_mille: 0 }
    }
}

struct Connection {
    /// The name of its node.
    node: String,
    /// The directions to the node and from it.
    ways: [Way; 2],
    was_reset: bool,
    /// Nothing arrives before this time.
    cut_until_ms: u64,
    /// The maximum bytes that the client reads per millisecond.
    client_reads_max: usize,
    /// Whether the client's and the node's ends still exist.
    is_held: [bool; 2],
}

/// One direction of a connection.
#[derive(Default)]
struct Way {
    in_flight: VecDeque<(u64, VecDeque<u8>)>,
    bytes: usize,
    is_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The time of the last read, in ms, and the bytes read at that time.
    read: (u64, usize),
}

/// One end of a connection.
pub struct End {
    net: Net,
    connection: usize,
    /// 0 for the client's end, 1 for the node's.
    side: usize,
}

impl Net {
    /// Creates a network without faults.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(NetState {
            dice: Dice::new(seed, "network"),
            now_ms: 0,
            troubles: NetTroubles::default(),
            connections: Vec::new(),
            free: Vec::new(),
            listening: BTreeMap::new(),
        })))
    }

    /// Sets the time, and wakes readers whose bytes have arrived.
    pub fn tick(&self, now_ms: u64) {
        let mut state = self.lock();
        state.now_ms = now_ms;
        let mut wakers = Vec::new();
        for connection in &mut state.connections {
            for way in &mut connection.ways {
                if way.in_flight.front().is_some_and(|(due, _)| *due <= now_ms) {
                    wakers.extend(way.reader.take());
                }
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Sets the faults.
    pub fn set_troubles(&self, troubles: NetTroubles) {
        self.lock().troubles = troubles;
    }

    /// Makes a node listen.
    pub fn listen(&self, node: &str) {
        self.lock().listening.entry(node.to_owned()).or_default();
    }

    /// Makes a node stop listening. Its connections remain open.
    pub fn unlisten(&self, node: &str) {
        let waiting = self.lock().listening.remove(node);
        // Drop these ends after the lock is released, because dropping an end locks the network.
        drop(waiting);
    }

    /// Ends a node. Its connections are reset; with `silently`, as if its machine had failed, they are only cut off.
    pub fn vanish(&self, node: &str, silently: bool) {
        let gone = self.lock().listening.remove(node);
        // Drop these ends after the lock is released, because dropping an end locks the network.
        drop(gone);
        self.each_of(node, |connection, _| match silently {
            true => connection.cut_until_ms = u64::MAX,
            false => connection.was_reset = true,
        });
    }

    /// Resets some of a node's connections.
    pub fn reset_some(&self, node: &str) {
        self.each_of(node, |connection, dice| connection.was_reset |= dice.per_mille(500));
    }

    /// Cuts off a node's open connections: nothing arrives over them for `for_ms`. New connections are not affected.
    pub fn cut_off(&self, node: &str, for_ms: u64) {
        let until = self.lock().now_ms + for_ms;
        self.each_of(node, |connection, _| {
            connection.cut_until_ms = connection.cut_until_ms.max(until);
        });
    }

    /// Makes some of a node's clients read slowly: `bytes` per millisecond.
    pub fn slow_some(&self, node: &str, bytes: usize) {
        self.each_of(node, |connection, dice| {
            if dice.per_mille(400) {
                connection.client_reads_max = bytes;
            }
        });
    }

    /// Ends all faults. Connections to machines that have failed are reset.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.troubles = NetTroubles::default();
        let mut wakers = Vec::new();
        for connection in &mut state.connections {
            connection.was_reset |= connection.cut_until_ms == u64::MAX;
            (connection.cut_until_ms, connection.client_reads_max) = (0, usize::MAX);
            wakers.extend(connection.wakers());
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Removes and returns the ends that a node has yet to accept.
    pub fn accept(&self, node: &str) -> Vec<End> {
        let mut state = self.lock();
        state.listening.get_mut(node).map(std::mem::take).unwrap_or_default().into()
    }

    /// Returns the number of connections whose node's end still exists.
    pub fn held_by(&self, node: &str) -> usize {
        let state = self.lock();
        state.connections.iter().filter(|it| it.node == node && it.is_held[1]).count()
    }

    fn each_of(&self, node: &str, mut act: impl FnMut(&mut Connection, &mut Dice)) {
        let mut state = self.lock();
        let NetState { connections, dice, .. } = &mut *state;
        let mut wakers = Vec::new();
        for connection in connections.iter_mut().filter(|it| it.node == node && it.is_open()) {
            act(connection, dice);
            wakers.extend(connection.wakers());
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn connect(&self, node: &str) -> io::Result<End> {
        let mut state = self.lock();
        if !state.listening.contains_key(node) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let connection = Connection {
            node: node.to_owned(),
            ways: Default::default(),
            was_reset: false,
            cut_until_ms: 0,
            client_reads_max: usize::MAX,
            is_held: [true; 2],
        };
        let at = match state.free.pop() {
            Some(at) => {
                state.connections[at] = connection;
                at
            }
            None => {
                state.connections.push(connection);
                state.connections.len() - 1
            }
        };
        let end = |side| End { net: self.clone(), connection: at, side };
        if let Some(waiting) = state.listening.get_mut(node) {
            waiting.push_back(end(1));
        }
        Ok(end(0))
    }

    fn lock(&self) -> MutexGuard<'_, NetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dial for Net {
    fn dial(&self, to: &Uri) -> BoxFuture<'static, io::Result<Box<dyn Carrier>>> {
        let (net, node) = (self.clone(), to.host().unwrap_or_default().to_owned());
        async move {
            let wait = {
                let NetState { dice, troubles, .. } = &mut *net.lock();
                dice.ms(troubles.latency_ms.clone())
            };
            tokio::time::sleep(wait + Duration::from_millis(1)).await;
            net.connect(&node).map(|end| Box::new(end) as _)
        }
        .boxed()
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        self.is_held[0] || self.is_held[1]
    }

    /// Takes the wakers of all tasks that wait for the connection.
    fn wakers(&mut self) -> Vec<Waker> {
        let of_way = |way: &mut Way| [way.reader.take(), way.writer.take()];
        self.ways.iter_mut().flat_map(of_way).flatten().collect()
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.net.lock();
        let NetState { connections, dice, now_ms, troubles, .. } = &mut *state;
        let connection = &mut connections[self.connection];
        if connection.was_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let is_cut = connection.cut_until_ms > *now_ms;
        let reads_max = if self.side == 0 { connection.client_reads_max } else { usize::MAX };
        let way = &mut connection.ways[1 - self.side];
        if way.read.0 != *now_ms {
            way.read = (*now_ms, 0);
        }
        let mut room = buf.remaining().min(reads_max - way.read.1.min(reads_max));
        if dice.per_mille(troubles.short_per_mille) {
            room = room.min(1 + dice.below(100));
        }
        let before = buf.filled().len();
        while room > 0
            && !is_cut
            && let Some((due, piece)) = way.in_flight.front_mut()
            && *due <= *now_ms
        {
            let (bytes, _) = piece.as_slices();
            let len = bytes.len().min(room);
            buf.put_slice(&bytes[..len]);
            piece.drain(..len);
            room -= len;
            if piece.is_empty() {
                way.in_flight.pop_front();
            }
        }
        let moved = buf.filled().len() - before;
        way.bytes -= moved;
        way.read.1 += moved;
        let is_over = way.is_closed && way.in_flight.is_empty() && !is_cut;
        if moved > 0 || is_over || buf.remaining() == 0 {
            let writer = way.writer.take();
            drop(state);
            writer.into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(()));
        }
        way.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.net.lock();
        let NetState { connections, dice, now_ms, troubles, .. } = &mut *state;
        let connection = &mut connections[self.connection];
        if connection.was_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if !connection.is_held[1 - self.side] && connection.cut_until_ms <= *now_ms {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let way = &mut connection.ways[self.side];
        let mut len = buf.len().min(IN_FLIGHT_MAX - way.bytes);
        if len > 0 && dice.per_mille(troubles.short_per_mille) {
            len = 1 + dice.below(len.min(2000));
        }
        if len == 0 && !buf.is_empty() {
            way.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let arrives = *now_ms + dice.in_range(troubles.latency_ms.clone());
        // Bytes arrive in order; bytes that arrive at the same time are one piece.
        let arrives = way.in_flight.back().map_or(arrives, |(due, _)| arrives.max(*due));
        match way.in_flight.back_mut() {
            Some((due, piece)) if *due == arrives => piece.extend(&buf[..len]),
            _ => way.in_flight.push_back((arrives, buf[..len].iter().copied().collect())),
        }
        way.bytes += len;
        let reader = (arrives <= *now_ms).then(|| way.reader.take()).flatten();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.net.lock();
        let way = &mut state.connections[self.connection].ways[self.side];
        way.is_closed = true;
        let reader = way.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.net.lock();
        let connection = &mut state.connections[self.connection];
        connection.is_held[self.side] = false;
        connection.ways[self.side].is_closed = true;
        let wakers = connection.wakers();
        if !connection.is_open() {
            state.free.push(self.connection);
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}
