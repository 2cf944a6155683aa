//! What comes over a Fetch stream, held in memory until its message is whole and taken.
//!
//! HTTP/2's windows bound what nobody has read; tonic reads at once, into a message that may come for as long
//! as its sender likes. So what has arrived of messages counts as the core's traffic.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;
use wire::{Fault, Reason};

use crate::core::{HeldBytes, here};

/// What gRPC puts before each message: a flag, and its length.
const PREFIX_BYTES: usize = 5;

/// A Fetch stream's requests as they arrive.
pub struct RequestBody {
    inner: Body,
    arriving: Arriving,
}

/// Bytes of messages that have arrived and were not taken yet. Both holders are on the core's thread: nobody
/// waits for the lock, which is there because bodies must be `Send`.
#[derive(Clone, Default)]
pub struct Arriving(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    held: HeldBytes,
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
    fn arrived(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let here = self.left.min(data.len());
            self.left -= here;
            data = &data[here..];
            if self.left > 0 || data.is_empty() {
                return;
            }
            let missing = (PREFIX_BYTES - self.prefix.len()).min(data.len());
            self.prefix.extend_from_slice(&data[..missing]);
            data = &data[missing..];
            if let [_, a, b, c, d] = self.prefix[..] {
                self.left = u32::from_be_bytes([a, b, c, d]) as usize;
                self.begun.push_back((PREFIX_BYTES + self.left) as u64);
                self.prefix.clear();
            }
        }
    }
}

impl RequestBody {
    /// The body, and what has arrived of it.
    pub fn new(inner: Body) -> (Self, Arriving) {
        let arriving = Arriving::default();
        (Self { inner, arriving: arriving.clone() }, arriving)
    }
}

impl Arriving {
    /// The next message is whole, and somebody else's.
    pub fn taken(&self) {
        let mut state = self.state();
        let bytes = state.lengths.begun.pop_front().unwrap_or(0);
        state.held.shrink(bytes);
    }

    fn more(&self, data: &[u8]) -> Result<(), Status> {
        let core = here();
        let own = self.state().held.bytes();
        let Some(more) = core.traffic_memory.hold(data.len() as u64, own) else {
            core.stats.shed.add(1);
            let what = "others' requests hold all memory for them; try again later";
            return Err(Fault::new(Reason::Overloaded, what).into());
        };
        let mut state = self.state();
        state.held = std::mem::take(&mut state.held).and(more);
        state.lengths.arrived(data);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
            && let Err(status) = self.arriving.more(data)
        {
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
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
            wire.chunks(cut).for_each(|chunk| lengths.arrived(chunk));
            assert_eq!(lengths.begun, expected, "cut at {cut}");
            assert_eq!((lengths.left, lengths.prefix.len()), (0, 0));
        }
    }
}
