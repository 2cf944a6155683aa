//! Streams that wait for the rest of their requests, and lose their memory when new streams need it.
//!
//! An open stream takes little memory. But opening one costs a caller almost nothing, so callers can open very many. A
//! stream whose request is complete is being worked on, and keeps its memory. A stream that waits for its caller keeps
//! its memory until others need it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;
use wire::{Fault, Reason};

use super::HeldBytes;

/// The number of waiting streams of one connection that are never ended for others. Query nodes need no more, because
/// they open one Fetch stream on each connection. So one address, which may have half of all connections, can hold at
/// most two thirds of a core's memory for streams, if the core's callers may hold at least 6 MiB.
pub const WAITING_KEPT: usize = 8;

/// The time in which a request must arrive. The largest usual requests, of 4 MiB, arrive in time over 1 Mbit/s.
pub const ARRIVAL_MAX: Duration = Duration::from_secs(60);

/// The memory of one open stream. The stream holds the memory until its reply has been sent, unless the stream loses it
/// earlier, to another stream or because its request is late.
#[derive(Debug)]
pub struct StreamRoom {
    began: Instant,
    state: Mutex<RoomState>,
}

#[derive(Debug)]
struct RoomState {
    held: HeldBytes,
    lost: Option<LossReason>,
    /// Wakes the task that reads the stream's request.
    reader: Option<Waker>,
}

/// The reason why a stream lost its memory.
#[derive(Clone, Copy, Debug)]
enum LossReason {
    /// Other streams needed it.
    Others,
    /// The request took too long to arrive.
    Late,
}

/// The streams of one connection that wait for their callers, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct WaitingStreams {
    next: u64,
    /// For each stream, by its number: whether the caller may take as long as it likes, and the stream's memory.
    all: BTreeMap<u64, (bool, Weak<StreamRoom>)>,
}

impl StreamRoom {
    pub(crate) fn new(held: HeldBytes) -> Arc<Self> {
        let state = RoomState { held, lost: None, reader: None };
        Arc::new(Self { began: Instant::now(), state: state.into() })
    }

    fn state(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the memory back, and wakes the reader of the request, which ends the stream.
    fn lose(&self, loss: LossReason) {
        let mut state = self.state();
        state.lost = Some(loss);
        let (held, reader) = (std::mem::take(&mut state.held), state.reader.take());
        drop(state);
        drop(held);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Returns the status that ends the stream, if it has lost its memory.
    pub(crate) fn lost(&self) -> Option<Status> {
        let lost = self.state().lost?;
        let fault = match lost {
            LossReason::Others => Fault::new(
                Reason::Overloaded,
                "the stream waited for its request while others needed its memory; try again later",
            ),
            LossReason::Late => Fault::new(
                Reason::DeadlineExceeded,
                format!("the request was not complete after {} s", ARRIVAL_MAX.as_secs()),
            ),
        };
        Some(fault.into())
    }

    /// Wakes the task of `cx` when the stream loses its memory.
    pub(crate) fn listen(&self, cx: &Context<'_>) {
        let mut state = self.state();
        match &mut state.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }
}

impl WaitingStreams {
    /// Adds a stream, and returns its number. `is_talk` says whether its caller may send messages for as long as it
    /// likes.
    pub(crate) fn add(&mut self, room: &Arc<StreamRoom>, is_talk: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        self.all.insert(number, (is_talk, Arc::downgrade(room)));
        number
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.all.remove(&number);
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Removes the stream that has waited longest.
    pub(crate) fn take_oldest(&mut self) -> Option<Lost> {
        self.all
            .pop_first()
            .and_then(|(_, (_, room))| room.upgrade())
            .map(|it| Lost(it, LossReason::Others))
    }

    /// Removes the streams whose requests have not arrived in time.
    pub(crate) fn take_late(&mut self) -> Vec<Lost> {
        let mut late = Vec::new();
        self.all.retain(|_, (is_talk, room)| {
            let Some(room) = room.upgrade() else { return false };
            let is_late = !*is_talk && room.began.elapsed() >= ARRIVAL_MAX;
            if is_late {
                late.push(Lost(room, LossReason::Late));
            }
            !is_late
        });
        late
    }
}

/// A stream that is to lose its memory, and the reason. Call [`end`](Self::end) when no lock is held.
pub(crate) struct Lost(Arc<StreamRoom>, LossReason);

impl Lost {
    pub(crate) fn end(self) {
        self.0.lose(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::TrafficMemory;
    use crate::memory::holder::{Holder, WaitingStream};

    const STREAM: u64 = 16 << 10;

    /// Opens `count` waiting streams.
    fn waiting(
        memory: &Arc<TrafficMemory>,
        holder: &Arc<Holder>,
        count: usize,
    ) -> Vec<(Arc<StreamRoom>, WaitingStream)> {
        let stream = |_| {
            let room = memory.open_stream(STREAM)?;
            let waits = WaitingStream::new(&room, holder, true);
            Some((room, waits))
        };
        (0..count).filter_map(stream).collect()
    }

    #[test]
    fn new_streams_get_memory_of_the_connection_with_most_waiting_streams() {
        // Streams may have half of the memory, which is enough for 64.
        let memory = TrafficMemory::new(2 << 20);
        let holders = [(); 2].map(|()| Arc::new(Holder::default()));
        holders.iter().for_each(|holder| memory.watch(holder));
        let few = waiting(&memory, &holders[0], WAITING_KEPT);
        let many = waiting(&memory, &holders[1], 64 - WAITING_KEPT);
        assert_eq!(memory.used(), 1 << 20);
        let working: Vec<_> = (0..48).map(|_| memory.open_stream(STREAM).unwrap()).collect();
        assert_eq!(memory.used(), 1 << 20);
        assert!(few.iter().all(|(_, waits)| waits.room.lost().is_none()));
        let lost: Vec<_> = many.iter().map(|(_, waits)| waits.room.lost().is_some()).collect();
        assert_eq!(lost, [vec![true; 48], vec![false; WAITING_KEPT]].concat(), "the oldest ones");
        assert!(memory.open_stream(STREAM).is_none(), "no connection has more than it keeps");
        assert!(many[0].1.room.lost().unwrap().message().contains("others needed its memory"));
        drop((few, many, working));
        assert_eq!(memory.used(), 0);
        assert_eq!(holders.map(|holder| holder.waiting().count()), [0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_arrive_is_late_unless_it_is_a_talk() {
        let memory = TrafficMemory::new(2 << 20);
        let holder = Arc::new(Holder::default());
        memory.watch(&holder);
        let rooms = [(); 2].map(|()| memory.open_stream(STREAM).unwrap());
        let wait = |(at, is_talk): (usize, bool)| WaitingStream::new(&rooms[at], &holder, is_talk);
        let [one, talk] = [(0, false), (1, true)].map(wait);
        tokio::time::advance(ARRIVAL_MAX - Duration::from_secs(1)).await;
        memory.end_late();
        assert!(one.room.lost().is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        memory.end_late();
        assert!(one.room.lost().unwrap().message().contains("60 s") && talk.room.lost().is_none());
        assert_eq!(memory.used(), STREAM);
    }
}
