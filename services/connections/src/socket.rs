//! A socket that is accepted on one thread and served on another.
//!
//! tokio binds a socket to the runtime that first uses it. Handshakes are done where connections are accepted, so that
//! no core waits for strangers; then the socket is detached, dealt, and attached to its core's runtime, with the TLS
//! session around it as it is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// What a client begins HTTP/2 with (RFC 9113, 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A TCP socket, on a runtime or between two.
#[derive(Debug)]
pub enum Wire {
    /// On the runtime of whoever uses it.
    Attached(TcpStream),
    /// On none. `None` only while it is moved.
    Detached(Option<std::net::TcpStream>),
}

/// A connection's bytes, in the clear or not. What was read of them before it was dealt is read again.
#[derive(Debug)]
pub struct Socket {
    transport: Transport,
    head: [u8; PREFACE.len()],
    /// How much of `head` was read, and how much of that was given out again.
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
    /// In the clear.
    pub fn clear(stream: TcpStream) -> Self {
        Self::new(Transport::Clear(Wire::Attached(stream)))
    }

    /// Within TLS, whose handshake is done.
    pub fn tls(stream: TlsStream<Wire>) -> Self {
        Self::new(Transport::Tls(Box::new(stream)))
    }

    fn new(transport: Transport) -> Self {
        Self { transport, head: [0; PREFACE.len()], read: 0, given: 0 }
    }

    /// Waits for the client's preface. Whatever isn't one is for HTTP/2 to refuse: clients learn from its answer what
    /// is spoken here.
    ///
    /// # Errors
    /// A client that has gone, or said nothing before it closed its side.
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

    /// Takes it off this thread's runtime.
    ///
    /// # Errors
    /// What the system says.
    pub fn detach(&mut self) -> io::Result<()> {
        self.wire().detach()
    }

    /// Puts it onto this thread's runtime.
    ///
    /// # Errors
    /// What the system says.
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
