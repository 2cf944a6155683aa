//! Accepts connections on a thread of its own, and hands established connections to a node's cores.
//!
//! To establish connections is the only work that this thread does for clients. So a busy core does not delay new
//! connections, and silent clients do not delay a core. A connection is established once its TLS handshake is done and
//! its client has sent HTTP/2's preface, or first bytes that differ from it. Until then, it holds a descriptor and a
//! task. The number of connections that are not established is bounded ([`Caps::waiting`](crate::Caps)): if there are
//! too many, the oldest connection of the address with the most of them is closed to make room for the newest.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use audit::{Handshake, HandshakeAudit};
use futures::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use crate::connection::{Connection, Lifetimes, Peer};
use crate::slots::{ConnectionSlot, ConnectionSlots, caller};
use crate::socket::{Socket, Wire};
use crate::tls::{Presented, ServerTls};

/// The pause after a failed accept. The usual reason is a lack of descriptors, so a connection is closed before the
/// pause if one can be.
const PAUSE: Duration = Duration::from_millis(10);

/// The interval at which the TLS files are checked for changes, even if no connection is made. A change is noticed
/// within twice this time, because `tls/reload.rs` ignores a check that comes within 5 s of another.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The minimum time between two log lines with the same message, so that a flood of connections does not flood the log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The options of [`accept`].
pub struct AcceptOptions {
    /// The TLS settings. `None` for connections without TLS.
    pub tls: Option<Arc<ServerTls>>,
    /// Writes a line for each TLS handshake that is refused. `None` without an audit log.
    pub audit: Option<HandshakeAudit>,
    /// The slots for established connections.
    pub slots: Arc<ConnectionSlots>,
    /// The time limits of connections.
    pub lifetimes: Lifetimes,
}

/// An established connection, on its way to the core that serves it.
pub struct Accepted {
    /// The socket, detached from any runtime.
    pub socket: Socket,
    /// The connection's streams and limits.
    pub connection: Arc<Connection>,
    /// The connection's slot.
    pub slot: ConnectionSlot,
}

/// The thread that accepts connections. It ends, and closes the listener, when this is dropped.
#[derive(Debug)]
pub struct Acceptor {
    ends: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts to accept connections. Calls `give` with each established connection that gets a slot, and with the number of
/// the core that is to serve it.
///
/// # Errors
/// An I/O error if `listener` can't be made non-blocking, or if the thread or its runtime can't be created.
pub fn accept(
    listener: std::net::TcpListener,
    options: AcceptOptions,
    give: impl Fn(usize, Accepted) + Send + 'static,
) -> io::Result<Acceptor> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (ends, ended) = oneshot::channel::<()>();
    let work = move || {
        let local = LocalSet::new();
        let accepting = async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => Accepting::new(options, give).run(listener, ended).await,
                Err(error) => tracing::error!(%error, "can't accept connections"),
            }
        };
        local.block_on(&runtime, accepting);
    };
    let thread = std::thread::Builder::new().name("bireme-accept".into()).spawn(work)?;
    Ok(Acceptor { ends: Some(ends), thread: Some(thread) })
}

/// The state of the accepting thread.
struct Accepting<G> {
    options: AcceptOptions,
    give: G,
    waiting: RefCell<WaitingConnections>,
    logged: RefCell<LogTimes>,
}

impl<G: Fn(usize, Accepted) + 'static> Accepting<G> {
    fn new(options: AcceptOptions, give: G) -> Rc<Self> {
        let (waiting, logged) = Default::default();
        Rc::new(Self { options, give, waiting, logged })
    }

    async fn run(self: Rc<Self>, listener: TcpListener, mut ended: oneshot::Receiver<()>) {
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        loop {
            let accepted = tokio::select! {
                biased;
                _ = &mut ended => return,
                _ = checks.tick() => {
                    self.options.tls.iter().for_each(|tls| tls.check());
                    continue;
                }
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.begin(stream, peer),
                // There is no descriptor left, or the client has gone. Go on with the next connection.
                Err(error) => {
                    self.warn("can't accept a connection", None, &error);
                    let is_freed = self.waiting.borrow_mut().close_one();
                    let _ = is_freed || self.options.slots.evict_any();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn begin(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr) {
        let number = self.options.slots.next_number();
        let ip = caller(peer.ip());
        let this = Rc::clone(self);
        // Reserve a place for the handshake's line in the audit log now if one is free, because the task that runs
        // `work` may be aborted before it runs for the first time.
        let audit = self.options.audit.as_ref().filter(|_| self.options.tls.is_some());
        let handshake = audit.and_then(|audit| audit.begin(peer).now_or_never());
        let work = async move {
            let work = this.establish(stream, peer, number, handshake);
            let established = tokio::time::timeout(this.options.lifetimes.establish, work).await;
            this.waiting.borrow_mut().remove(ip, number);
            let late = || Err(io::ErrorKind::TimedOut.into());
            match established.unwrap_or_else(|_| late()) {
                Ok((socket, connection)) => this.deal(socket, connection, number, peer),
                // Port probes and killed clients are not worth a log line.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                Err(error) => this.warn("a connection was not established", Some(peer), &error),
            }
        };
        // Make room and add the task before it can run to its end.
        let mut waiting = self.waiting.borrow_mut();
        while waiting.count >= self.options.slots.caps().waiting && waiting.close_one() {}
        waiting.add(ip, number, tokio::task::spawn_local(work).abort_handle());
    }

    async fn establish(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        number: u64,
        handshake: Option<Handshake>,
    ) -> io::Result<(Socket, Arc<Connection>)> {
        stream.set_nodelay(true)?;
        let reached_at = Some(stream.local_addr()?);
        let (mut socket, presented) = match &self.options.tls {
            None => (Socket::clear(stream), None),
            Some(tls) => {
                let (stream, presented) = self.shake_hands(tls, stream, address, handshake).await?;
                (Socket::tls(stream), Some(presented))
            }
        };
        socket.preface().await?;
        socket.detach()?;
        let names = presented.as_ref().map(Presented::names).unwrap_or_default();
        let peer = Peer { address: Some(address), reached_at, names };
        Ok((socket, Connection::new(&self.options.lifetimes, number, peer, presented)))
    }

    /// Performs the TLS handshake. With an audit log, the handshake begins only once a place for its line is reserved:
    /// the one in `handshake`, or one that this function waits for. So every handshake that is refused, or closed to
    /// make room for a newer one, gets its line. Handshakes are bounded in number and time, so a flood of them takes
    /// bounded memory and few places of the log.
    async fn shake_hands(
        &self,
        tls: &ServerTls,
        stream: TcpStream,
        peer: SocketAddr,
        handshake: Option<Handshake>,
    ) -> io::Result<(TlsStream<Wire>, Presented)> {
        let handshake = match &self.options.audit {
            Some(audit) if handshake.is_none() => Some(audit.begin(peer).await),
            _ => handshake,
        };
        let shaken = tls.accept(Wire::Attached(stream)).await;
        match (handshake, &shaken) {
            (Some(handshake), Ok(_)) => handshake.succeeded(),
            (Some(handshake), Err(error)) => handshake.refused(&error.to_string()),
            (None, _) => {}
        }
        shaken
    }

    fn deal(&self, socket: Socket, connection: Arc<Connection>, number: u64, peer: SocketAddr) {
        let ip = caller(peer.ip());
        let Some(slot) = self.options.slots.take(number, ip, &connection) else {
            let full =
                io::Error::other("its address, or all addresses together, use all connections");
            return self.warn("a connection is refused", Some(peer), &full);
        };
        (self.give)(slot.core(), Accepted { socket, connection, slot });
    }

    /// Logs a warning, unless the same message was logged less than [`LOG_INTERVAL`] ago.
    fn warn(&self, message: &'static str, peer: Option<SocketAddr>, error: &io::Error) {
        let mut logged = self.logged.borrow_mut();
        let (at, suppressed) = logged.entry(message).or_insert((None, 0));
        if at.is_some_and(|at: Instant| at.elapsed() < LOG_INTERVAL) {
            *suppressed += 1;
            return;
        }
        let peer = peer.map(tracing::field::display);
        tracing::warn!(peer, %error, suppressed = *suppressed, "{message}");
        (*at, *suppressed) = (Some(Instant::now()), 0);
    }
}

/// For each message, the time at which it was last logged, and how often it has been suppressed since.
type LogTimes = HashMap<&'static str, (Option<Instant>, u64)>;

/// The connections that are not established yet, by address, the oldest first.
#[derive(Default)]
struct WaitingConnections {
    count: usize,
    peers: HashMap<IpAddr, VecDeque<(u64, AbortHandle)>>,
}

impl WaitingConnections {
    fn add(&mut self, peer: IpAddr, number: u64, task: AbortHandle) {
        self.count += 1;
        self.peers.entry(peer).or_default().push_back((number, task));
    }

    fn remove(&mut self, peer: IpAddr, number: u64) {
        let Some(tasks) = self.peers.get_mut(&peer) else { return };
        if let Some(at) = tasks.iter().position(|(it, _)| *it == number) {
            tasks.remove(at);
            self.count -= 1;
        }
        if tasks.is_empty() {
            self.peers.remove(&peer);
        }
    }

    /// Closes the oldest connection of the address that has the most connections. Returns whether there was one.
    fn close_one(&mut self) -> bool {
        let most = self.peers.iter().max_by_key(|(peer, tasks)| (tasks.len(), **peer));
        let Some((&peer, tasks)) = most else { return false };
        let Some((number, task)) = tasks.front() else { return false };
        let number = *number;
        task.abort();
        self.remove(peer, number);
        true
    }
}
