//! Rows over HTTP/2, from memory to a client on this machine, with the library, windows and frames of Bireme's streams.
//!
//! Each connection has a thread for its server and one for its client. The server's response has batches of rows until
//! the client leaves.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::FRAME_BYTES;
use client::fetch::FetchOptions;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Frame};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rand::rngs::StdRng;
use tokio::runtime::Builder;

use super::row_memory::RowMemory;
use crate::bench::random;
use crate::error::{CliError, Result};

/// Sends rows over `connections` connections for `time`. Returns the number of rows that were received.
pub fn bare_stream(memory: &RowMemory, connections: usize, time: Duration) -> Result<u64> {
    let received = std::thread::scope(|scope| {
        let mut clients = Vec::with_capacity(connections);
        for number in 0..connections {
            // Connect before the threads start: if a client's thread fails, its socket is closed, and the server ends.
            let (client, server) = connected()?;
            let rows = Rows { memory: memory.clone(), random: random(2, number as u64) };
            scope.spawn(move || on_this_thread(serve(server, rows)));
            clients.push(scope.spawn(move || on_this_thread(receive(client, time))));
        }
        let all = clients.into_iter().map(|client| client.join().expect("it does not panic"));
        all.sum::<io::Result<u64>>()
    });
    let bytes = received.map_err(|error| CliError::os("a bare stream failed", &error, ""))?;
    Ok(bytes / memory.row_bytes() as u64)
}

/// Returns the client's and the server's socket of a new connection.
fn connected() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // The kernel completes the connection, so neither call waits for the other.
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    for socket in [&client, &server] {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
    }
    Ok((client, server))
}

fn on_this_thread<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Answers the request on `socket` with `rows`, until the client leaves.
async fn serve(socket: TcpStream, rows: Rows) -> io::Result<()> {
    let socket = tokio::net::TcpStream::from_std(socket)?;
    let service = service_fn(move |_| ready(Ok::<_, Infallible>(Response::new(rows.clone()))));
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(socket), service)
        .await;
    // The client leaves in the middle of the response, which is an error of the connection.
    drop(served);
    Ok(())
}

/// Receives the response of the server on `socket` for `time`. Returns the number of bytes.
async fn receive(socket: TcpStream, time: Duration) -> io::Result<u64> {
    let socket = tokio::net::TcpStream::from_std(socket)?;
    let address = socket.peer_addr()?;
    let options = FetchOptions::default();
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(options.stream_window_bytes)
        .initial_connection_window_size(options.connection_window_bytes)
        .max_frame_size(FRAME_BYTES)
        .handshake(TokioIo::new(socket))
        .await
        .map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let request = Request::get(format!("http://{address}/")).body(Empty::<Bytes>::new());
    let request = request.map_err(io::Error::other)?;
    let mut rows = sender.send_request(request).await.map_err(io::Error::other)?.into_body();
    let (began, mut bytes) = (Instant::now(), 0);
    while began.elapsed() < time {
        let frame = rows.frame().await.ok_or(io::ErrorKind::UnexpectedEof)?;
        let frame = frame.map_err(io::Error::other)?;
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    connection.abort();
    Ok(bytes)
}

/// A response without end: batches of rows at random positions.
#[derive(Clone)]
struct Rows {
    memory: RowMemory,
    random: StdRng,
}

impl Body for Rows {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        let Self { memory, random } = &mut *self;
        Poll::Ready(Some(Ok(Frame::data(memory.batch(random)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_receives_rows() {
        let memory = RowMemory::new(2_000, 64);
        let rows = bare_stream(&memory, 2, Duration::from_millis(50)).unwrap();
        // Each connection receives at least one frame.
        assert!(rows > 0);
    }

    #[test]
    fn a_server_ends_if_its_client_fails_before_it_sends_anything() {
        let (client, server) = connected().unwrap();
        drop(client);
        let rows = Rows { memory: RowMemory::new(2_000, 64), random: random(2, 0) };
        let served =
            async { tokio::time::timeout(Duration::from_secs(60), serve(server, rows)).await? };
        on_this_thread(served).unwrap();
    }
}
