//! The body of a response, counted until its last byte has been sent.
//!
//! HTTP/2 takes one frame of a body at a time, and keeps it until the reader has room. So a large message is handed
//! over in parts. The memory of each part is given back once the part has been sent. This also shows that the reader
//! makes progress.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;

use crate::form::Form;
use crate::memory::holder::Holder;
use crate::memory::{HeldBytes, TrafficMemory, memory_full};

/// The maximum number of bytes of a reply that HTTP/2 gets in one part, from either tier. It is the size of the largest
/// frame that clients accept (`client/src/transport.rs`).
pub const PART_BYTES: usize = 256 << 10;

/// An extension of a response. It says that the body counts its bytes itself.
#[derive(Clone, Copy, Debug)]
pub struct IsCounted;

/// The body of a response, counted until it has been sent. The body keeps the resources of the request, `R`, until
/// then.
pub struct ReplyBody<R> {
    inner: Body,
    memory: Arc<TrafficMemory>,
    holder: Arc<Holder>,
    form: Form,
    is_counted: bool,
    /// The rest of the current message.
    rest: Bytes,
    held: HeldBytes,
    has_ended: bool,
    _request: R,
}

impl<R> ReplyBody<R> {
    /// Counts the bytes of `inner` in `memory`, for `holder`, unless `inner` does so itself (`is_counted`).
    pub fn new(
        inner: Body,
        memory: &Arc<TrafficMemory>,
        holder: &Arc<Holder>,
        form: Form,
        is_counted: bool,
        request: R,
    ) -> Self {
        let (memory, holder) = (Arc::clone(memory), Arc::clone(holder));
        let (rest, held) = (Bytes::new(), HeldBytes::default());
        let has_ended = false;
        Self { inner, memory, holder, form, is_counted, rest, held, has_ended, _request: request }
    }

    fn next_part(&mut self) -> Option<Frame<Bytes>> {
        let part = self.rest.split_to(self.rest.len().min(PART_BYTES));
        if part.is_empty() {
            return None;
        }
        let held = match self.rest.is_empty() {
            true => std::mem::take(&mut self.held),
            false => self.held.split(part.len() as u64),
        };
        Some(Frame::data(held.with(part)))
    }

    /// Ends the reply early, with `status` in its trailers, or as an error if it is plain.
    fn end(&mut self, status: Status) -> Result<Frame<Bytes>, Status> {
        self.has_ended = true;
        if self.form == Form::Plain {
            return Err(status);
        }
        let mut trailers = HeaderMap::new();
        status.add_header(&mut trailers)?;
        Ok(Frame::trailers(trailers))
    }
}

impl<R: Unpin> http_body::Body for ReplyBody<R> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(part) = self.next_part() {
            return Poll::Ready(Some(Ok(part)));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if self.is_counted {
            return Poll::Ready(frame);
        }
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) if data.is_empty() => Poll::Ready(Some(Ok(Frame::data(data)))),
            Some(Ok(Ok(data))) => match self.memory.hold(data.len() as u64, 0) {
                Some(held) => {
                    self.held = held.held_by(&self.holder);
                    self.rest = data;
                    Poll::Ready(self.next_part().map(Ok))
                }
                None => {
                    self.memory.count_refused();
                    Poll::Ready(Some(self.end(memory_full().into())))
                }
            },
            Some(Ok(Err(other))) => Poll::Ready(Some(Ok(other))),
            Some(Err(status)) => Poll::Ready(Some(Err(status))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && (self.has_ended || self.inner.is_end_stream())
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::{BodyExt, Full};

    use super::*;

    #[tokio::test]
    async fn a_reply_counts_until_its_parts_have_been_sent() {
        let len = 2 * PART_BYTES + 3;
        let (memory, holder) = (TrafficMemory::new(len as u64 + 1), Arc::new(Holder::default()));
        let reply = || Body::new(Full::new(Bytes::from(vec![7; len])));
        let other = memory.hold(1, 0).unwrap();
        let mut body = ReplyBody::new(reply(), &memory, &holder, Form::Grpc, false, ());
        let mut parts = Vec::new();
        for expected in [PART_BYTES, PART_BYTES, 3] {
            let part = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(part.len(), expected);
            assert_eq!(holder.bytes(), len as u64, "no part has been sent");
            parts.push(part);
        }
        assert!(body.is_end_stream() && body.frame().await.is_none());
        parts.pop();
        assert_eq!((memory.used(), holder.bytes()), (len as u64 - 2, len as u64 - 3));
        let mut second = ReplyBody::new(reply(), &memory, &holder, Form::Grpc, false, ());
        let trailers = second.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "8");
        assert!(second.is_end_stream() && second.frame().await.is_none());
        let mut plain = ReplyBody::new(reply(), &memory, &holder, Form::Plain, false, ());
        assert!(plain.frame().await.unwrap().is_err(), "a plain reply breaks");
        drop((parts, other, body));
        assert_eq!((memory.used(), holder.bytes()), (0, 0));
    }

    #[tokio::test]
    async fn a_body_that_counts_itself_is_not_changed() {
        let (memory, holder) = (TrafficMemory::new(1), Arc::new(Holder::default()));
        let inner = Body::new(Full::new(Bytes::from(vec![7; 2 * PART_BYTES])));
        let mut body = ReplyBody::new(inner, &memory, &holder, Form::Grpc, true, ());
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 2 * PART_BYTES);
        assert_eq!(memory.used(), 0);
    }
}
