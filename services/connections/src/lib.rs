//! Connections, dealt to the cores of a node.
//!
//! Both nodes serve a connection whole on one core, from socket to socket: one task accepts, and each
//! core's own runtime takes over what it is dealt, and may go on asking for more before it sleeps.

pub mod idle;
pub mod tls;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::ready;
use futures::stream::{BoxStream, Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::server::Connected;

use self::tls::ServerTls;

/// What carries a connection's bytes: a socket, or a network that a simulation makes up.
pub trait Carrier: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Carrier for T {}

impl Connected for Box<dyn Carrier> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

/// How long to wait when nothing can be accepted: out of descriptors, mostly.
const PAUSE: Duration = Duration::from_millis(10);

/// Accepts connections for as long as it is polled, and deals them to `cores` in turn.
pub async fn deal(listener: TcpListener, cores: usize, give: impl Fn(usize, std::net::TcpStream)) {
    for core in (0..cores).cycle() {
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                // Out of descriptors, or a connection that went away: the next may do.
                Err(error) => {
                    tracing::warn!(%error, "can't accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        match stream.into_std() {
            Ok(stream) => give(core, stream),
            Err(error) => tracing::warn!(%error, "can't deal a connection"),
        }
    }
}

/// A connection that was dealt, as the runtime of this thread sees it; one that can't be served is
/// dropped, and the next may do.
pub fn adopt(stream: std::net::TcpStream) -> Option<TcpStream> {
    let adopt = || -> io::Result<TcpStream> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        TcpStream::from_std(stream)
    };
    adopt().inspect_err(|error| tracing::warn!(%error, "a connection can't be served")).ok()
}

/// Clients that shake hands on a core at the same time; the next one waits.
const HANDSHAKES_MAX: usize = 1024;

/// The connections that may be served: all, or where TLS is spoken those whose handshake succeeds.
pub fn secured(
    connections: impl Stream<Item = Box<dyn Carrier>> + Send + 'static,
    tls: Option<Arc<ServerTls>>,
) -> BoxStream<'static, Box<dyn Carrier>> {
    let secure = move |connection: Box<dyn Carrier>| {
        let tls = tls.clone();
        async move {
            match tls {
                None => Some(connection),
                Some(tls) => match tls.accept(connection).await {
                    Ok(secured) => Some(Box::new(secured) as Box<dyn Carrier>),
                    Err(error) => {
                        tracing::debug!(%error, "a client's TLS handshake failed");
                        None
                    }
                },
            }
        }
    };
    connections.map(secure).buffer_unordered(HANDSHAKES_MAX).filter_map(ready).boxed()
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn each_core_gets_every_second_of_two() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (given, mut taken) = mpsc::unbounded_channel();
        let dealer = tokio::spawn(deal(listener, 2, move |core, stream| {
            given.send((core, stream)).unwrap();
        }));
        for expected in [0, 1, 0, 1] {
            let caller = TcpStream::connect(address).await.unwrap();
            let (core, stream) = taken.recv().await.unwrap();
            assert_eq!(core, expected);
            let stream = adopt(stream).unwrap();
            assert!(stream.nodelay().unwrap());
            assert_eq!(stream.peer_addr().unwrap(), caller.local_addr().unwrap());
        }
        dealer.abort();
    }
}
