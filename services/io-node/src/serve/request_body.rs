//! What comes over a Fetch stream, held in memory until its message is whole and taken.
//!
//! HTTP/2's windows bound what nobody has read; tonic reads at once, into a message that may come for as long
//! as its sender likes. So what has arrived of messages counts as the core's traffic.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use prost::Message;
use tonic::Status;
use tonic::body::Body;
use wire::fetch::FetchRequest;
use wire::{Fault, Reason};

use crate::core::{HeldBytes, here};

/// What gRPC puts before each message, in bytes.
const PREFIX_BYTES: usize = 5;

/// A Fetch stream's requests as they arrive.
pub struct RequestBody {
    inner: Body,
    arriving: Arriving,
}

/// Bytes of messages that have arrived and were not taken yet. Both holders are on the core's thread: nobody
/// waits for the lock, which is there because bodies must be `Send`.
#[derive(Clone, Default)]
pub struct Arriving(Arc<Mutex<HeldBytes>>);

impl RequestBody {
    /// The body, and what has arrived of it.
    pub fn new(inner: Body) -> (Self, Arriving) {
        let arriving = Arriving::default();
        (Self { inner, arriving: arriving.clone() }, arriving)
    }
}

impl Arriving {
    /// A message is whole, and somebody else's.
    pub fn taken(&self, message: &FetchRequest) {
        let bytes = PREFIX_BYTES + message.encoded_len();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).shrink(bytes as u64);
    }

    fn more(&self, bytes: usize) -> Result<(), Status> {
        let Some(more) = here().traffic_memory.hold(bytes as u64) else {
            let what = "others' requests hold all memory for them; try again later";
            return Err(Fault::new(Reason::Overloaded, what).into());
        };
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *held = std::mem::take(&mut *held).and(more);
        Ok(())
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(status) = self.arriving.more(data.len())
        {
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}
