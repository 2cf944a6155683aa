//! The body of a request, whose bytes are counted from their arrival until their messages have been processed.
//!
//! HTTP/2's windows bound only bytes that have not been read. tonic reads bytes as soon as they arrive, into a message
//! that its sender may take any time to complete. So the part of each message that has arrived is counted.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tonic::Status;
use wire::{Fault, Reason};

use crate::form::Form;
use crate::memory::holder::{Holder, WaitingStream};
use crate::memory::waiting::StreamRoom;
use crate::memory::{HeldBytes, TrafficMemory, memory_full};

/// The length of gRPC's prefix of each message: a flag and the message's length.
const PREFIX_BYTES: usize = 5;

/// The body of a request, counted as it arrives.
pub struct RequestBody<B> {
    inner: B,
    arriving: Arriving,
    memory: Arc<TrafficMemory>,
    holder: Arc<Holder>,
    form: Form,
    /// Maximum size in bytes of a message; of the body, if it is plain.
    message_bytes_max: usize,
    /// Whether the caller may send messages for as long as it likes.
    is_talk: bool,
    /// Whether the service reads messages without taking their accounts.
    frees_read: bool,
    /// `Some` from [`in_room`](Self::in_room) until the request is complete or its stream loses its memory.
    waits: Option<WaitingStream>,
}

/// The account of a request's bytes that have arrived and have not been processed. It is in the request's extensions,
/// for services that take several messages of one request. It gives back all remaining bytes when it is dropped with
/// the request.
///
/// All clones are on one thread, so the lock is never contended. It is there because bodies must be `Send`.
#[derive(Clone, Default)]
pub struct Arriving(Arc<Mutex<Unfinished>>);

/// The bytes of one message that is being processed.
pub struct MessageBytes {
    _complete: HeldBytes,
    _held: HeldBytes,
}

#[derive(Default)]
struct Unfinished {
    /// The bytes that wait for their sender, until `complete()` moves them to the field `complete`.
    held: HeldBytes,
    /// The bytes of complete messages, which wait for the node.
    complete: HeldBytes,
    lengths: Lengths,
}

/// Finds the ends of messages by the lengths in their prefixes. So unknown fields of a newer client are counted too.
#[derive(Default)]
struct Lengths {
    /// The part of the next message's prefix that has arrived.
    prefix: Vec<u8>,
    /// The number of bytes of the current message that have not arrived.
    left: usize,
    /// The lengths, including prefixes, of the messages that have begun and were not taken yet.
    begun: VecDeque<u64>,
}

impl Lengths {
    /// Returns whether all messages that have begun are complete.
    fn is_between(&self) -> bool {
        self.left == 0 && self.prefix.is_empty()
    }

    /// Processes data that has arrived. If a message is longer than `bytes_max`, returns its length as an error.
    fn arrived(&mut self, mut data: &[u8], bytes_max: usize) -> Result<(), usize> {
        while !data.is_empty() {
            let here = self.left.min(data.len());
            self.left -= here;
            data = &data[here..];
            if self.left > 0 || data.is_empty() {
                return Ok(());
            }
            let missing = (PREFIX_BYTES - self.prefix.len()).min(data.len());
            self.prefix.extend_from_slice(&data[..missing]);
            data = &data[missing..];
            if let [_, a, b, c, d] = self.prefix[..] {
                self.left = u32::from_be_bytes([a, b, c, d]) as usize;
                if self.left > bytes_max {
                    return Err(self.left);
                }
                self.begun.push_back((PREFIX_BYTES + self.left) as u64);
                self.prefix.clear();
            }
        }
        Ok(())
    }
}

impl<B: http_body::Body> RequestBody<B> {
    /// Counts the bytes of `inner` in `memory`, for `holder`. A message of more than `message_bytes_max` bytes is
    /// refused as soon as its length is known; a plain body is one message. Returns the body, and the account of its
    /// arrived bytes.
    pub fn new(
        inner: B,
        memory: &Arc<TrafficMemory>,
        holder: &Arc<Holder>,
        form: Form,
        message_bytes_max: usize,
    ) -> (Self, Arriving) {
        let arriving = Arriving::default();
        let (memory, holder) = (Arc::clone(memory), Arc::clone(holder));
        let (arriving_here, is_talk, frees_read, waits) = (arriving.clone(), false, false, None);
        let body = Self {
            inner,
            arriving: arriving_here,
            memory,
            holder,
            form,
            message_bytes_max,
            is_talk,
            frees_read,
            waits,
        };
        (body, arriving)
    }

    /// Attaches the body to the stream whose memory is `room`, which the stream may lose until the request is complete.
    /// `is_talk` says whether the caller may send messages for as long as it likes. `frees_read` says that the service
    /// does not call [`Arriving::take`]: the bytes of its messages are given back when it reads on.
    pub fn in_room(mut self, room: &Arc<StreamRoom>, is_talk: bool, frees_read: bool) -> Self {
        (self.is_talk, self.frees_read) = (is_talk, frees_read);
        if !self.inner.is_end_stream() {
            self.waits = Some(WaitingStream::new(room, &self.holder, is_talk));
        }
        self
    }

    fn arrived(&self, data: &[u8]) -> Result<(), Status> {
        let mut unfinished = self.arriving.unfinished();
        let own = unfinished.held.bytes() + unfinished.complete.bytes();
        let Some(more) = self.memory.hold(data.len() as u64, own) else {
            self.memory.count_refused();
            return Err(memory_full().into());
        };
        let held = std::mem::take(&mut unfinished.held);
        unfinished.held = held.and(more.held_by(&self.holder));
        let max = self.message_bytes_max;
        let fits = match self.form {
            Form::Grpc => unfinished.lengths.arrived(data, max),
            Form::Plain => match own as usize + data.len() {
                bytes if bytes > max => Err(bytes),
                _ => Ok(()),
            },
        };
        fits.map_err(|bytes| {
            let (reason, what) = match self.form {
                Form::Grpc => (Reason::BadArgument, format!("a message of {bytes} bytes")),
                Form::Plain => (Reason::TooLarge, format!("a body of {bytes} bytes or more")),
            };
            let what = format!("{what}; at most {max} are taken by this call");
            Status::from(Fault::new(reason, what))
        })?;
        if !self.is_talk && unfinished.lengths.begun.len() > 1 {
            // The server would read on and drop them, and the list of their lengths is not counted.
            let what = "this call takes one message, and the request has more";
            return Err(Fault::new(Reason::BadArgument, what).into());
        }
        // A call with one message is processed once its request has ended. If the caller may send many messages, each
        // is processed as soon as it is complete.
        if self.is_talk && unfinished.lengths.is_between() {
            unfinished.complete();
        }
        Ok(())
    }

    /// Records that the request is complete: its bytes now wait for the node, not for the caller.
    fn ended(&mut self) {
        self.waits = None;
        self.arriving.unfinished().complete();
    }
}

impl Unfinished {
    /// Counts all bytes as those of complete messages. They no longer count as held by the connection.
    fn complete(&mut self) {
        let (complete, held) = (std::mem::take(&mut self.complete), std::mem::take(&mut self.held));
        self.complete = complete.and(held.without_holder());
    }

    /// Gives back the bytes of all messages that have arrived whole.
    fn free_whole(&mut self) {
        let begun = &mut self.lengths.begun;
        let whole = begun.len() - usize::from(self.lengths.left > 0);
        let bytes: u64 = begun.drain(..whole).sum();
        let complete = self.complete.split(bytes);
        self.held.shrink(bytes - complete.bytes());
    }
}

impl Arriving {
    /// Takes the account of the oldest message, which has just been read. Dropping the account, once the message has
    /// been processed, gives its bytes back.
    pub fn take(&self) -> MessageBytes {
        let mut unfinished = self.unfinished();
        let bytes = unfinished.lengths.begun.pop_front().unwrap_or(0);
        let complete = unfinished.complete.split(bytes);
        let held = unfinished.held.split(bytes - complete.bytes());
        MessageBytes { _complete: complete, _held: held }
    }

    fn unfinished(&self) -> MutexGuard<'_, Unfinished> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> http_body::Body for RequestBody<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(lost) = self.waits.as_ref().and_then(|waits| waits.room.lost()) {
            self.waits = None;
            return Poll::Ready(Some(Err(lost)));
        }
        if self.frees_read {
            // tonic reads on only once it has handed over all whole messages.
            self.arriving.unfinished().free_whole();
        }
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else {
            if let Some(waits) = &self.waits {
                waits.room.listen(cx);
            }
            return Poll::Pending;
        };
        let Some(frame) = frame else {
            self.ended();
            return Poll::Ready(None);
        };
        let frame = frame.map_err(|error| Status::from_error(error.into()))?;
        if let Some(data) = frame.data_ref() {
            self.arrived(data)?;
        }
        if self.inner.is_end_stream() {
            self.ended();
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    #[test]
    fn messages_end_by_their_lengths_however_they_are_cut() {
        let mut wire = Vec::new();
        let sizes = [0, 3, 300, 0, 70_000];
        for size in sizes {
            wire.push(0);
            wire.extend((size as u32).to_be_bytes());
            wire.extend(vec![7; size]);
        }
        let expected: Vec<u64> =
            sizes.iter().map(|&size| PREFIX_BYTES as u64 + size as u64).collect();
        for cut in [1, 2, 4, 5, 6, 1000, wire.len()] {
            let mut lengths = Lengths::default();
            wire.chunks(cut).for_each(|chunk| lengths.arrived(chunk, 70_000).unwrap());
            assert_eq!(lengths.begun, expected, "cut at {cut}");
            assert_eq!((lengths.left, lengths.prefix.len()), (0, 0));
            let mut lengths = Lengths::default();
            let refused = wire.chunks(cut).find_map(|chunk| lengths.arrived(chunk, 69_999).err());
            assert_eq!(refused, Some(70_000), "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn arrived_bytes_count_until_their_message_is_taken_or_dropped() {
        let (memory, holder) = (TrafficMemory::new(20), Arc::new(Holder::default()));
        let other = memory.hold(5, 0).unwrap();
        let of = |bytes: &'static [u8]| Full::new(Bytes::from_static(bytes));
        // The request has not ended.
        let unended = of(b"\0\0\0\0\x03abc").with_trailers(std::future::pending());
        let (mut body, arriving) = RequestBody::new(unended, &memory, &holder, Form::Grpc, 3);
        body.frame().await.unwrap().unwrap();
        assert_eq!((memory.used(), holder.bytes()), (13, 8));
        let (mut second, _) =
            RequestBody::new(of(b"\0\0\0\0\x03abc"), &memory, &holder, Form::Grpc, 3);
        let refused = second.frame().await.unwrap().unwrap_err();
        assert_eq!(Fault::from_status(&refused).reason, Reason::Overloaded);
        drop(arriving.take());
        assert_eq!((memory.used(), holder.bytes()), (5, 0));
        let (mut third, _) = RequestBody::new(of(b"\0\0\0\0\x04"), &memory, &holder, Form::Grpc, 3);
        let refused = third.frame().await.unwrap().unwrap_err();
        assert!(refused.message().contains("4 bytes; at most 3"), "{refused}");
        let (mut fourth, _) =
            RequestBody::new(of(b"\0\0\0\0\0\0\0\0\0\0"), &memory, &holder, Form::Grpc, 3);
        let refused = fourth.frame().await.unwrap().unwrap_err();
        assert!(refused.message().contains("takes one message"), "{refused}");
        drop((body, second, third, fourth, arriving, other));
        assert_eq!((memory.used(), holder.bytes()), (0, 0));
    }

    #[tokio::test]
    async fn messages_whose_accounts_nobody_takes_count_until_the_service_reads_on() {
        let (memory, holder) = (TrafficMemory::new(1 << 20), Arc::new(Holder::default()));
        let room = memory.open_stream(0).unwrap();
        // (what has arrived, the bytes of it that are held by the caller, those that count once the service reads on)
        let cases: [(&'static [u8], u64, u64); 3] = [
            (b"\0\0\0\0\x03abc\0\0\0\0\0", 0, 0),
            (b"\0\0\0\0\x03abc\0\0", 10, 2),
            (b"\0\0\0\0\x03abc\0\0\0\0\x03a", 14, 6),
        ];
        for (data, by_caller, left) in cases {
            let unended = Full::new(Bytes::from_static(data)).with_trailers(std::future::pending());
            let (body, arriving) = RequestBody::new(unended, &memory, &holder, Form::Grpc, 3);
            let mut body = body.in_room(&room, true, true);
            body.frame().await.unwrap().unwrap();
            assert_eq!((memory.used(), holder.bytes()), (data.len() as u64, by_caller));
            let mut cx = Context::from_waker(std::task::Waker::noop());
            assert!(Pin::new(&mut body.frame()).poll(&mut cx).is_pending());
            assert_eq!((memory.used(), holder.bytes()), (left, left), "{data:?}");
            drop((body, arriving));
            assert_eq!(memory.used(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_complete_request_is_never_stalled() {
        let (memory, holder) = (TrafficMemory::new(256 << 10), Arc::new(Holder::default()));
        memory.watch(&holder);
        let len = 128 << 10;
        let mut message = vec![0];
        message.extend((len as u32).to_be_bytes());
        message.resize(PREFIX_BYTES + len, 7);
        let whole = Full::new(Bytes::from(message));
        let (mut body, arriving) =
            RequestBody::new(whole.clone(), &memory, &holder, Form::Grpc, len);
        body.frame().await.unwrap().unwrap();
        let held = (PREFIX_BYTES + len) as u64;
        assert_eq!((memory.used(), holder.bytes()), (held, 0));
        // The request waits for the node, such as for a permit or a slow store.
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        assert!(memory.hold(128 << 10, 0).is_none());
        let ended = tokio::time::timeout(std::time::Duration::from_millis(1), holder.ended()).await;
        assert!(ended.is_err(), "the connection is not ended");
        drop((body, arriving));
        assert_eq!(memory.used(), 0);
        // The same holds for each complete message of a call with many messages.
        let room = memory.open_stream(0).unwrap();
        let unended = whole.with_trailers(std::future::pending());
        let (body, arriving) = RequestBody::new(unended, &memory, &holder, Form::Grpc, len);
        let mut body = body.in_room(&room, true, false);
        body.frame().await.unwrap().unwrap();
        assert_eq!((memory.used(), holder.bytes()), (held, 0));
        drop(arriving.take());
        assert_eq!((memory.used(), holder.bytes()), (0, 0));
    }
}
