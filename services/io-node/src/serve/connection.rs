//! A connection, with the memory that it holds.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use connections::Carrier;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use crate::core::{HeldBytes, here};

/// What a connection holds without its streams: HTTP/2's state and buffers.
const CONNECTION_BYTES: u64 = 64 << 10;

/// A connection on its way to the core that is to serve it.
pub enum Accepted {
    /// Over TCP.
    Socket(std::net::TcpStream),
    /// Over a network that is simulated.
    Simulated(Box<dyn Carrier>),
}

impl Accepted {
    /// The connection as the runtime of this thread sees it; `None` if it can't be served.
    pub fn adopt(self) -> Option<Box<dyn Carrier>> {
        match self {
            Self::Socket(stream) => connections::adopt(stream).map(|it| Box::new(it) as _),
            Self::Simulated(carrier) => Some(carrier),
        }
    }
}

/// A connection that is served.
pub struct Connection {
    stream: Box<dyn Carrier>,
    _held: HeldBytes,
}

impl Connection {
    /// Takes a connection in, or closes it if there is no memory for one more.
    pub fn new(stream: Box<dyn Carrier>) -> Option<Self> {
        let core = here();
        match core.traffic_memory.hold_standing(CONNECTION_BYTES) {
            Some(held) => Some(Self { stream, _held: held }),
            None => {
                core.stats.shed.add(1);
                None
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
