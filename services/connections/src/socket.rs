//! A socket that is accepted on one thread and served on another.
//!
//! tokio binds a socket to the runtime in which it is created. The accepting thread does the handshakes, so that no
//! core waits for unknown clients. Then it detaches the socket from its runtime and hands it to a core, which attaches
//! the socket to its own runtime. The TLS session stays as it is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// The first bytes that a client sends over HTTP/2 (RFC 9113, 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A TCP socket that may be attached to a runtime.
#[derive(Debug)]
pub enum Wire {
    /// Attached to the runtime of the thread that uses it.
    Attached(TcpStream),
    /// Not attached to a runtime. `None` while the socket is being attached or detached, and after that has failed.
    Detached(Option<std::net::TcpStream>),
}

/// A connection's byte stream, with or without TLS. Its reads first return the bytes that were read to check the
/// preface.
#[derive(Debug)]
pub struct Socket {
    transport: Transport,
    head: [u8; PREFACE.len()],
    /// The number of bytes that were read into `head` to check the preface, and how many of them were returned
    /// (`given`).
    read: usize,
    given: usize,
}

#[derive(Debug)]
enum Transport {
    Clear(Wire),
    Tls(Box<TlsStream<Wire>>),
}

impl Wire {
    fn attached(&mut self) -> io::Result<&mut TcpStream> {
        match self {
            Self::Attached(stream) => Ok(stream),
            Self::Detached(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn detach(&mut self) -> io::Result<()> {
        if let Self::Attached(_) = self
            && let Self::Attached(stream) = std::mem::replace(self, Self::Detached(None))
        {
            *self = Self::Detached(Some(stream.into_std()?));
        }
        Ok(())
    }

    fn attach(&mut self) -> io::Result<()> {
        if let Self::Detached(stream) = self {
            let stream = stream.take().ok_or(io::ErrorKind::NotConnected)?;
            *self = Self::Attached(TcpStream::from_std(stream)?);
        }
        Ok(())
    }
}

impl Socket {
    /// Creates a socket without TLS.
    pub fn clear(stream: TcpStream) -> Self {
        Self::new(Transport::Clear(Wire::Attached(stream)))
    }

    /// Creates a socket with TLS, whose handshake is done.
    pub fn tls(stream: TlsStream<Wire>) -> Self {
        Self::new(Transport::Tls(Box::new(stream)))
    }

    fn new(transport: Transport) -> Self {
        Self { transport, head: [0; PREFACE.len()], read: 0, given: 0 }
    }

    /// Reads until HTTP/2's preface is complete, or the bytes differ from it. A client whose bytes differ is served by
    /// a node that speaks HTTP/1.1 too. On another node, hyper refuses the client later, with an answer that shows that
    /// this is an HTTP/2 server.
    ///
    /// # Errors
    /// An I/O error, or [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if the client closes its side before then.
    pub async fn preface(&mut self) -> io::Result<()> {
        use tokio::io::AsyncReadExt;
        while self.read < PREFACE.len() && self.head[..self.read] == PREFACE[..self.read] {
            let rest = &mut self.head[self.read..];
            let read = match &mut self.transport {
                Transport::Clear(wire) => wire.read(rest).await?,
                Transport::Tls(stream) => stream.read(rest).await?,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read += read;
        }
        Ok(())
    }

    /// Detaches the socket from this thread's runtime.
    ///
    /// # Errors
    /// An I/O error of the system.
    pub fn detach(&mut self) -> io::Result<()> {
        self.wire().detach()
    }

    /// Attaches the socket to this thread's runtime.
    ///
    /// # Errors
    /// An I/O error of the system.
    pub fn attach(&mut self) -> io::Result<()> {
        self.wire().attach()
    }

    fn wire(&mut self) -> &mut Wire {
        match &mut self.transport {
            Transport::Clear(wire) => wire,
            Transport::Tls(stream) => stream.get_mut().0,
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self.attached()?).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.attached()?).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.attached()?).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.attached()?).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.attached()?).poll_shutdown(cx)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.given < this.read {
            let len = (this.read - this.given).min(buf.remaining());
            buf.put_slice(&this.head[this.given..this.given + len]);
            this.given += len;
            return Poll::Ready(Ok(()));
        }
        match &mut this.transport {
            Transport::Clear(wire) => Pin::new(wire).poll_read(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Clear(wire) => Pin::new(wire).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Clear(wire) => Pin::new(wire).poll_write_vectored(cx, bufs),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Clear(wire) => wire.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Clear(wire) => Pin::new(wire).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Clear(wire) => Pin::new(wire).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
