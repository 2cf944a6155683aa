//! What comes with a request, counted until its messages are whole and done with.
//!
//! HTTP/2's windows bound what nobody has read; tonic reads at once, into a message that may come for as long as its
//! sender likes. So what has arrived of messages counts.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tonic::Status;
use wire::{Fault, Reason};

use crate::holder::Holder;
use crate::memory::{HeldBytes, TrafficMemory};
use crate::waiting::{StreamRoom, Waits};

/// What gRPC puts before each message: a flag, and its length.
const PREFIX_BYTES: usize = 5;

/// The body of a request, counted as it arrives.
pub struct RequestBody<B> {
    inner: B,
    arriving: Arriving,
    memory: Arc<TrafficMemory>,
    holder: Arc<Holder>,
    message_bytes_max: usize,
    is_talk: bool,
    /// Until the request is whole.
    waits: Option<Waits>,
}

/// Bytes of messages that have arrived and are not done with. In a request's extensions, for services that take
/// several messages of one request. Dropped with the request, it gives back all that is left.
///
/// Its holders are on one thread: nobody waits for the lock, which is there because bodies must be `Send`.
#[derive(Clone, Default)]
pub struct Arriving(Arc<Mutex<Unfinished>>);

#[derive(Default)]
struct Unfinished {
    /// Of messages that are not whole yet: its sender can make them move.
    held: HeldBytes,
    /// Of those that wait for the node.
    whole: HeldBytes,
    lengths: Lengths,
}

/// Where messages end, by what is on the wire: what a newer client adds to them counts too.
#[derive(Default)]
struct Lengths {
    /// Of the next message, as far as its prefix has come.
    prefix: Vec<u8>,
    /// What is still to come of the message whose prefix was whole last.
    left: usize,
    /// Of messages that have begun and were not taken yet, prefixes included.
    begun: VecDeque<u64>,
}

impl Lengths {
    /// Whether all messages that have begun are whole.
    fn is_between(&self) -> bool {
        self.left == 0 && self.prefix.is_empty()
    }

    /// Counts `data`; `Err` is the length of a message above `bytes_max`.
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
    /// Counts `inner` in `memory`, for `holder`. A message of more than `message_bytes_max` is refused when its length
    /// is known. Returns the body, and what has arrived of it.
    pub fn new(
        inner: B,
        memory: &Arc<TrafficMemory>,
        holder: &Arc<Holder>,
        message_bytes_max: usize,
    ) -> (Self, Arriving) {
        let arriving = Arriving::default();
        let (memory, holder) = (Arc::clone(memory), Arc::clone(holder));
        let (arriving_here, is_talk, waits) = (arriving.clone(), false, None);
        let body = Self {
            inner,
            arriving: arriving_here,
            memory,
            holder,
            message_bytes_max,
            is_talk,
            waits,
        };
        (body, arriving)
    }

    /// The same as a part of a stream that has `room`, which it may lose until the request is whole. `is_talk` where
    /// messages may come for as long as the caller likes.
    pub fn in_room(mut self, room: &Arc<StreamRoom>, is_talk: bool) -> Self {
        self.is_talk = is_talk;
        if !self.inner.is_end_stream() {
            self.waits = Some(Waits::new(room, &self.holder, is_talk));
        }
        self
    }

    fn arrived(&self, data: &[u8]) -> Result<(), Status> {
        let mut unfinished = self.arriving.unfinished();
        let own = unfinished.held.bytes() + unfinished.whole.bytes();
        let Some(more) = self.memory.hold(data.len() as u64, own) else {
            self.memory.count_refused();
            let what = "others' requests hold all memory for them; try again later";
            return Err(Fault::new(Reason::Overloaded, what).into());
        };
        let held = std::mem::take(&mut unfinished.held);
        unfinished.held = held.and(more.of(&self.holder));
        unfinished.lengths.arrived(data, self.message_bytes_max).map_err(|bytes| {
            let max = self.message_bytes_max;
            let what = format!("a message of {bytes} bytes; at most {max} are taken by this call");
            Status::from(Fault::new(Reason::BadArgument, what))
        })?;
        // Calls of one message begin when the request ends; others with each message.
        if self.is_talk && unfinished.lengths.is_between() {
            unfinished.let_go();
        }
        Ok(())
    }

    /// All has come: what is held waits for the node, not for its caller.
    fn ended(&mut self) {
        self.waits = None;
        self.arriving.unfinished().let_go();
    }
}

impl Unfinished {
    fn let_go(&mut self) {
        let (whole, held) = (std::mem::take(&mut self.whole), std::mem::take(&mut self.held));
        self.whole = whole.and(held.let_go());
    }
}

impl Arriving {
    /// The oldest message is done with: its bytes are given back.
    pub fn taken(&self) {
        let mut unfinished = self.unfinished();
        let bytes = unfinished.lengths.begun.pop_front().unwrap_or(0);
        let of_whole = bytes.min(unfinished.whole.bytes());
        unfinished.whole.shrink(of_whole);
        unfinished.held.shrink(bytes - of_whole);
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
        if let Some(lost) = self.waits.as_ref().and_then(Waits::lost) {
            self.waits = None;
            return Poll::Ready(Some(Err(lost)));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else {
            if let Some(waits) = &self.waits {
                waits.listen(cx);
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
    fn messages_end_where_the_wire_says_however_they_are_cut() {
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
    async fn what_arrives_counts_until_its_message_is_taken_or_dropped() {
        let (memory, holder) = (TrafficMemory::new(20), Arc::new(Holder::default()));
        let other = memory.hold(5, 0).unwrap();
        let of = |bytes: &'static [u8]| Full::new(Bytes::from_static(bytes));
        // Its sender has not said that this is all.
        let unended = of(b"\0\0\0\0\x03abc").with_trailers(std::future::pending());
        let (mut body, arriving) = RequestBody::new(unended, &memory, &holder, 3);
        body.frame().await.unwrap().unwrap();
        assert_eq!((memory.used(), holder.bytes()), (13, 8));
        let (mut second, _) = RequestBody::new(of(b"\0\0\0\0\x03abc"), &memory, &holder, 3);
        let refused = second.frame().await.unwrap().unwrap_err();
        assert_eq!(Fault::from_status(&refused).reason, Reason::Overloaded);
        arriving.taken();
        assert_eq!((memory.used(), holder.bytes()), (5, 0));
        let (mut third, _) = RequestBody::new(of(b"\0\0\0\0\x04"), &memory, &holder, 3);
        let refused = third.frame().await.unwrap().unwrap_err();
        assert!(refused.message().contains("4 bytes; at most 3"), "{refused}");
        drop((body, second, third, arriving, other));
        assert_eq!((memory.used(), holder.bytes()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_whole_is_no_stalled_one_however_long_it_waits() {
        let (memory, holder) = (TrafficMemory::new(256 << 10), Arc::new(Holder::default()));
        memory.watch(&holder);
        let len = 128 << 10;
        let mut message = vec![0];
        message.extend((len as u32).to_be_bytes());
        message.resize(PREFIX_BYTES + len, 7);
        let whole = Full::new(Bytes::from(message));
        let (mut body, arriving) = RequestBody::new(whole.clone(), &memory, &holder, len);
        body.frame().await.unwrap().unwrap();
        let held = (PREFIX_BYTES + len) as u64;
        assert_eq!((memory.used(), holder.bytes()), (held, 0));
        // It waits for a permit, or a slow store.
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        assert!(memory.hold(128 << 10, 0).is_none());
        let ended = tokio::time::timeout(std::time::Duration::from_millis(1), holder.ended()).await;
        assert!(ended.is_err(), "an honest caller's connection");
        drop((body, arriving));
        assert_eq!(memory.used(), 0);
        // The same of a call of many messages, each of which is whole.
        let room = memory.open_stream(0).unwrap();
        let unended = whole.with_trailers(std::future::pending());
        let (body, arriving) = RequestBody::new(unended, &memory, &holder, len);
        let mut body = body.in_room(&room, true);
        body.frame().await.unwrap().unwrap();
        assert_eq!((memory.used(), holder.bytes()), (held, 0));
        arriving.taken();
        assert_eq!((memory.used(), holder.bytes()), (0, 0));
    }
}
