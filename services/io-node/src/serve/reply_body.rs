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
use traffic::PART_BYTES;
use wire::grpc_pieces;

use crate::fetch::{Outgoing, here};
use crate::shard::{HeldBytes, SessionNo};

/// The messages of one stream, each in parts of at most [`PART_BYTES`], and then its status.
pub struct ReplyBody {
    session: SessionNo,
    messages: mpsc::UnboundedReceiver<Outgoing>,
    /// Receives a status if the stream is to end with an error.
    ending: mpsc::Receiver<Status>,
    pieces: VecDeque<Bytes>,
    /// The memory of the message that `pieces` belong to.
    held: Option<HeldBytes>,
    /// The bytes of the message that were handed over, but whose memory is not attached to a part yet.
    unattached: usize,
    has_ended: bool,
}

impl ReplyBody {
    /// Creates the body of `session`'s response.
    pub fn new(
        session: SessionNo,
        messages: mpsc::UnboundedReceiver<Outgoing>,
        ending: mpsc::Receiver<Status>,
    ) -> Self {
        let (pieces, held, unattached, has_ended) = Default::default();
        Self { session, messages, ending, pieces, held, unattached, has_ended }
    }

    /// Returns the next part of the current message. HTTP/2 keeps the parts until a slow reader has room for them, so
    /// they hold the message's memory. The parts are sent in order, so one part holds the memory of small ones before
    /// it. Once it has been sent, its memory is given back, which shows that the reader makes progress.
    fn next_part(&mut self) -> Option<Bytes> {
        let piece = self.pieces.front_mut()?;
        let part = piece.split_to(piece.len().min(PART_BYTES));
        if piece.is_empty() {
            self.pieces.pop_front();
        }
        self.unattached += part.len();
        let is_last = self.pieces.is_empty();
        if !is_last && self.unattached < PART_BYTES {
            return Some(part);
        }
        let bytes = std::mem::take(&mut self.unattached) as u64;
        let held = match is_last {
            true => self.held.take(),
            false => self.held.as_mut().map(|held| held.split(bytes)),
        };
        Some(match held {
            Some(held) => held.with(part),
            None => part,
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
        if let Some(part) = self.next_part() {
            return Poll::Ready(Some(Ok(Frame::data(part))));
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
                Poll::Ready(self.next_part().map(|part| Ok(Frame::data(part))))
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

#[cfg(test)]
mod tests {
    use traffic::Holder;

    use super::*;
    use crate::shard::TrafficMemory;

    #[test]
    fn parts_that_were_sent_give_their_memory_back() {
        let ((_, messages), (_, ending)) = (mpsc::unbounded_channel(), mpsc::channel(1));
        let mut body = ReplyBody::new(SessionNo(0), messages, ending);
        let (memory, holder) = (TrafficMemory::new(1 << 30), Arc::new(Holder::default()));
        let lens = [10, 3 * PART_BYTES + 5, 20];
        let all = lens.iter().sum::<usize>() as u64;
        body.pieces = lens.iter().map(|&len| Bytes::from(vec![7; len])).collect();
        // A message holds a little more than its own bytes.
        body.held = memory.hold(all + 100, 0).map(|held| held.held_by(&holder));
        let mut parts: VecDeque<_> = std::iter::from_fn(|| body.next_part()).collect();
        let part_lens: Vec<_> = parts.iter().map(Bytes::len).collect();
        assert_eq!(part_lens, [10, PART_BYTES, PART_BYTES, PART_BYTES, 5, 20]);
        // The part behind the small one holds its memory too, and so does the last.
        let part = PART_BYTES as u64;
        let mut left = all + 100;
        for given_back in [0, 10 + part, part, part, 0, 125] {
            assert_eq!((memory.used(), holder.bytes()), (left, left));
            drop(parts.pop_front());
            left -= given_back;
        }
        assert_eq!((left, memory.used(), holder.bytes()), (0, 0, 0));
    }

    #[test]
    fn a_message_without_memory_is_sent_in_parts_too() {
        let ((_, messages), (_, ending)) = (mpsc::unbounded_channel(), mpsc::channel(1));
        let mut body = ReplyBody::new(SessionNo(0), messages, ending);
        body.pieces = [Bytes::from(vec![7; PART_BYTES + 1])].into();
        let lens: Vec<_> = std::iter::from_fn(|| body.next_part()).map(|part| part.len()).collect();
        assert_eq!((lens, body.unattached), (vec![PART_BYTES, 1], 0));
    }
}
