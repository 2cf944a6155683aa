//! The messages of a Fetch stream as the body of an HTTP/2 response.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use tokio::sync::mpsc;
use tonic::Status;
use wire::grpc_pieces;

use crate::fetch::{Outgoing, here};
use crate::shard::{HeldBytes, SessionNo};

/// The messages of one stream, each in pieces, and then its status.
pub struct ReplyBody {
    session: SessionNo,
    messages: mpsc::UnboundedReceiver<Outgoing>,
    /// Receives a status if the stream is to end with an error.
    ending: mpsc::Receiver<Status>,
    pieces: VecDeque<Bytes>,
    /// The memory of the message that `pieces` belong to.
    held: Option<HeldBytes>,
    has_ended: bool,
}

impl ReplyBody {
    /// Creates the body of `session`'s response.
    pub fn new(
        session: SessionNo,
        messages: mpsc::UnboundedReceiver<Outgoing>,
        ending: mpsc::Receiver<Status>,
    ) -> Self {
        let pieces = VecDeque::new();
        Self { session, messages, ending, pieces, held: None, has_ended: false }
    }

    /// Returns the next piece of the current message.
    fn next_piece(&mut self) -> Option<Bytes> {
        let piece = self.pieces.pop_front()?;
        if !self.pieces.is_empty() {
            return Some(piece);
        }
        // The last piece holds the message's memory from here on, because HTTP/2 keeps the pieces until a slow reader
        // has room for them.
        Some(match self.held.take() {
            Some(held) => held.with(piece),
            None => piece,
        })
    }

    fn end(&mut self, status: Status) -> Result<Frame<Bytes>, Status> {
        self.has_ended = true;
        let mut trailers = HeaderMap::new();
        status.add_header(&mut trailers)?;
        Ok(Frame::trailers(trailers))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if let Some(piece) = self.next_piece() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if let Poll::Ready(Some(status)) = self.ending.poll_recv(cx) {
            return Poll::Ready(Some(self.end(status)));
        }
        match ready!(self.messages.poll_recv(cx)) {
            Some(Outgoing { response, credit_rows, held }) => {
                let core = here();
                if let Some(session) = core.sessions.borrow_mut().get_mut(self.session) {
                    session.has_left(credit_rows, held.is_some());
                }
                let buffers = Arc::clone(&core.buffers);
                self.pieces = grpc_pieces(response, |buffer| buffers.lend(buffer)).into();
                self.held = held;
                Poll::Ready(self.next_piece().map(|piece| Ok(Frame::data(piece))))
            }
            // The session was removed, perhaps because of an error whose status is to be sent.
            None => {
                let status = ready!(self.ending.poll_recv(cx));
                let status = status.unwrap_or_else(|| Status::ok(""));
                Poll::Ready(Some(self.end(status)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}
