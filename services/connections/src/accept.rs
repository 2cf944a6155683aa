//! Accepts connections on a thread of its own, and deals those that speak to a node's cores.
//!
//! Nothing that callers cause runs on this thread but their handshakes: a core that is busy delays no newcomer, and
//! strangers that stay silent delay no core. A connection holds a descriptor and a task until it has shaken hands and
//! sent HTTP/2's preface. Those that have not are bounded ([`Caps::waiting`](crate::Caps)); where there are too many,
//! the oldest of the address that has most of them is closed for the newest.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::Instant;

use crate::connection::{Connection, Lifetimes};
use crate::places::{Place, Places, caller};
use crate::socket::{Socket, Wire};
use crate::tls::ServerTls;

/// How long to wait when nothing can be accepted: out of descriptors, mostly. One is freed before.
const PAUSE: Duration = Duration::from_millis(10);

/// Between two lines in the log about the same trouble: a flood of it must not be one of lines.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// What connections are accepted with.
pub struct AcceptOptions {
    /// How clients connect, if not in the clear.
    pub tls: Option<Arc<ServerTls>>,
    /// Places for those that are served.
    pub places: Arc<Places>,
    /// How long they may take and last.
    pub lifetimes: Lifetimes,
}

/// A connection that speaks, on its way to the core that serves it.
pub struct Accepted {
    /// On no runtime.
    pub socket: Socket,
    /// What is known of it.
    pub connection: Arc<Connection>,
    /// Its place.
    pub place: Place,
}

/// The thread that accepts. Dropped, it ends, and nothing listens any more.
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

/// Starts to accept; each connection that speaks is given to `give`, with the core that serves it.
///
/// # Errors
/// A thread or a runtime that can't be had.
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

/// Everything here is on one thread.
struct Accepting<G> {
    options: AcceptOptions,
    give: G,
    waiting: RefCell<Waiting>,
    said: RefCell<Said>,
}

impl<G: Fn(usize, Accepted) + 'static> Accepting<G> {
    fn new(options: AcceptOptions, give: G) -> Rc<Self> {
        let (waiting, said) = Default::default();
        Rc::new(Self { options, give, waiting, said })
    }

    async fn run(self: Rc<Self>, listener: TcpListener, mut ended: oneshot::Receiver<()>) {
        loop {
            let accepted = tokio::select! {
                biased;
                _ = &mut ended => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.begin(stream, peer),
                // Out of descriptors, or a connection that went away: the next may do.
                Err(error) => {
                    self.say("can't accept a connection", None, &error);
                    let is_freed = self.waiting.borrow_mut().close_one();
                    let _ = is_freed || self.options.places.evict_any();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn begin(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr) {
        let number = self.options.places.next_number();
        let ip = caller(peer.ip());
        let this = Rc::clone(self);
        let work = async move {
            let work = this.establish(stream, number);
            let established = tokio::time::timeout(this.options.lifetimes.establish, work).await;
            this.waiting.borrow_mut().remove(ip, number);
            let late = || Err(io::ErrorKind::TimedOut.into());
            match established.unwrap_or_else(|_| late()) {
                Ok((socket, connection)) => this.deal(socket, connection, number, peer),
                // Probes of ports, and clients that were killed: no news.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                Err(error) => this.say("a client did not get to speak", Some(peer), &error),
            }
        };
        // Room is made before the task can end.
        let mut waiting = self.waiting.borrow_mut();
        while waiting.count >= self.options.places.caps().waiting && waiting.close_one() {}
        waiting.add(ip, number, tokio::task::spawn_local(work).abort_handle());
    }

    async fn establish(
        &self,
        stream: TcpStream,
        number: u64,
    ) -> io::Result<(Socket, Arc<Connection>)> {
        stream.set_nodelay(true)?;
        let mut expires = None;
        let mut socket = match &self.options.tls {
            None => Socket::clear(stream),
            Some(tls) => {
                let stream = tls.accept(Wire::Attached(stream)).await?;
                expires = stream.get_ref().1.peer_certificates().and_then(crate::tls::expires);
                Socket::tls(stream)
            }
        };
        socket.preface().await?;
        socket.detach()?;
        let expires = expires.map(instant_of);
        Ok((socket, Connection::new(&self.options.lifetimes, number, expires)))
    }

    fn deal(&self, socket: Socket, connection: Arc<Connection>, number: u64, peer: SocketAddr) {
        let ip = caller(peer.ip());
        let Some(place) = self.options.places.take(number, ip, &connection) else {
            let full =
                io::Error::other("its address, or all addresses together, use all connections");
            return self.say("a connection is refused", Some(peer), &full);
        };
        (self.give)(place.core(), Accepted { socket, connection, place });
    }

    fn say(&self, what: &'static str, peer: Option<SocketAddr>, error: &io::Error) {
        let mut said = self.said.borrow_mut();
        let (at, unsaid) = said.entry(what).or_insert((None, 0));
        if at.is_some_and(|at: Instant| at.elapsed() < SAY_EVERY) {
            *unsaid += 1;
            return;
        }
        let peer = peer.map(tracing::field::display);
        tracing::warn!(peer, %error, like_it_before = *unsaid, "{what}");
        (*at, *unsaid) = (Some(Instant::now()), 0);
    }
}

/// When something was said of a kind of trouble last, and how often it was not since.
type Said = HashMap<&'static str, (Option<Instant>, u64)>;

/// Connections that have not shown yet that they are to be served, by address, the oldest first.
#[derive(Default)]
struct Waiting {
    count: usize,
    peers: HashMap<IpAddr, VecDeque<(u64, AbortHandle)>>,
}

impl Waiting {
    fn add(&mut self, peer: IpAddr, number: u64, task: AbortHandle) {
        self.count += 1;
        self.peers.entry(peer).or_default().push_back((number, task));
    }

    fn remove(&mut self, peer: IpAddr, number: u64) {
        let Some(tasks) = self.peers.get_mut(&peer) else { return };
        if let Some(at) = tasks.iter().position(|(of, _)| *of == number) {
            tasks.remove(at);
            self.count -= 1;
        }
        if tasks.is_empty() {
            self.peers.remove(&peer);
        }
    }

    /// Closes the oldest of the address that has most. Returns whether there was one.
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

/// The moment on the steady clock of seconds since 1970; now if it has passed.
fn instant_of(seconds: u64) -> Instant {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_secs(seconds).saturating_sub(now);
    // Certificates may last for ever; a connection doesn't.
    Instant::now() + left.min(Duration::from_secs(1 << 30))
}
