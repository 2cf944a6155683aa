//! The network: connections between clients and nodes, of bytes that arrive in order, late, in pieces, or not at all.
//!
//! ```text
//! poll_write ─► in flight: pieces, each with the time it arrives at; so many bytes at most ─► poll_read
//! ```
//!
//! It says nothing of packets: what TCP makes good is not seen. What TCP can't make good is: a connection that is
//! reset, a peer that is cut off and says nothing any more, one that reads slowly.

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

/// Bytes in flight at most, each way of a connection: what a system's buffers hold.
const IN_FLIGHT_MAX: usize = 96 << 10;

/// All connections; clones are the same network.
#[derive(Clone)]
pub struct Net(Arc<Mutex<State>>);

struct State {
    dice: Dice,
    now_ms: u64,
    troubles: NetTroubles,
    connections: Vec<Connection>,
    /// Of connections that were closed at both ends, to be used again.
    free: Vec<usize>,
    /// By the name of the node, the ends that it has still to accept; nodes that are down have none.
    listening: BTreeMap<String, VecDeque<End>>,
}

/// What is wrong with the network.
#[derive(Clone, Debug)]
pub struct NetTroubles {
    /// How long a byte is on its way, in ms.
    pub latency_ms: RangeInclusive<u64>,
    /// Of 1,000 reads and writes, how many move fewer bytes than they could.
    pub short_per_mille: u64,
}

impl Default for NetTroubles {
    fn default() -> Self {
        Self { latency_ms: 0..=1, short_per_mille: 0 }
    }
}

struct Connection {
    /// The node at its other end.
    node: String,
    /// To the node, and from it.
    ways: [Way; 2],
    was_reset: bool,
    /// Nothing arrives before this time.
    cut_until_ms: u64,
    /// Bytes that the client reads a millisecond at most.
    client_reads_max: usize,
    /// Whether the client's and the node's ends are still there.
    is_held: [bool; 2],
}

/// One direction.
#[derive(Default)]
struct Way {
    in_flight: VecDeque<(u64, VecDeque<u8>)>,
    bytes: usize,
    is_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// When the reader read last, and how much then.
    read: (u64, usize),
}

/// One end of a connection.
pub struct End {
    net: Net,
    connection: usize,
    /// 0 for the client's, 1 for the node's.
    side: usize,
}

impl Net {
    /// One in which nothing is wrong.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            dice: Dice::new(seed, "network"),
            now_ms: 0,
            troubles: NetTroubles::default(),
            connections: Vec::new(),
            free: Vec::new(),
            listening: BTreeMap::new(),
        })))
    }

    /// It is later: what has arrived is told of.
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

    /// From now on this is wrong with it.
    pub fn set_troubles(&self, troubles: NetTroubles) {
        self.lock().troubles = troubles;
    }

    /// A node listens from now on.
    pub fn listen(&self, node: &str) {
        self.lock().listening.entry(node.to_owned()).or_default();
    }

    /// A node listens no more; its connections go on.
    pub fn unlisten(&self, node: &str) {
        let waiting = self.lock().listening.remove(node);
        // Its ends lock the network as they are dropped.
        drop(waiting);
    }

    /// A node is no more: its connections are reset, or cut if nobody is left to reset them.
    pub fn vanish(&self, node: &str, silently: bool) {
        let gone = self.lock().listening.remove(node);
        // Its ends lock the network as they are dropped.
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

    /// Nothing arrives at a node or from it for a while.
    pub fn cut_off(&self, node: &str, for_ms: u64) {
        let until = self.lock().now_ms + for_ms;
        self.each_of(node, |connection, _| {
            connection.cut_until_ms = connection.cut_until_ms.max(until);
        });
    }

    /// Some of a node's clients read slowly from now on: so many bytes a millisecond.
    pub fn slow_some(&self, node: &str, bytes: usize) {
        self.each_of(node, |connection, dice| {
            if dice.per_mille(400) {
                connection.client_reads_max = bytes;
            }
        });
    }

    /// Nothing is wrong with connections any more, but those that nobody answers are reset.
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

    /// The ends that a node is to accept.
    pub fn accept(&self, node: &str) -> Vec<End> {
        let mut state = self.lock();
        state.listening.get_mut(node).map(std::mem::take).unwrap_or_default().into()
    }

    /// Connections of which a node holds its end.
    pub fn held_by(&self, node: &str) -> usize {
        let state = self.lock();
        state.connections.iter().filter(|it| it.node == node && it.is_held[1]).count()
    }

    fn each_of(&self, node: &str, mut act: impl FnMut(&mut Connection, &mut Dice)) {
        let mut state = self.lock();
        let State { connections, dice, .. } = &mut *state;
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dial for Net {
    fn dial(&self, to: &Uri) -> BoxFuture<'static, io::Result<Box<dyn Carrier>>> {
        let (net, node) = (self.clone(), to.host().unwrap_or_default().to_owned());
        async move {
            let wait = {
                let State { dice, troubles, .. } = &mut *net.lock();
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

    /// Whoever waits for something of it.
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
        let State { connections, dice, now_ms, troubles, .. } = &mut *state;
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
        let State { connections, dice, now_ms, troubles, .. } = &mut *state;
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
        let arrives = *now_ms + dice.from(troubles.latency_ms.clone());
        // In order, and those that arrive together as one.
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
