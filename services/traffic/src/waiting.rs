//! Streams that wait for the rest of their requests, and lose their room when newcomers need it.
//!
//! What a stream takes by being there is little, but streams cost their opener next to nothing. One whose request is
//! whole is at work, and keeps its room; one that waits for its caller keeps it for as long as nobody else needs it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;
use wire::{Fault, Reason};

use crate::holder::Holder;
use crate::memory::HeldBytes;

/// So many waiting streams of one connection are never ended for others. Query nodes have two streams to an I/O node
/// from each core; an address that has half of all connections holds less than half of the room for streams this way.
pub const WAITING_KEPT: usize = 8;

/// How long a request may take to arrive. The largest that are usual, of 4 MiB, arrive over 1 Mbit/s.
pub const ARRIVAL_MAX: Duration = Duration::from_secs(60);

/// What one stream takes by being there, until its reply has left or its connection loses it.
#[derive(Debug)]
pub struct StreamRoom {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    held: HeldBytes,
    lost: Option<Loss>,
    reader: Option<Waker>,
}

#[derive(Clone, Copy, Debug)]
enum Loss {
    /// Others needed its room.
    Others,
    /// Its request took too long to arrive.
    Late,
}

/// The streams of one connection that wait for their callers, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct WaitingStreams {
    next: u64,
    all: BTreeMap<u64, (bool, Weak<StreamRoom>)>,
}

/// A stream that waits for its caller, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waits {
    room: Arc<StreamRoom>,
    holder: Arc<Holder>,
    number: u64,
}

impl StreamRoom {
    pub(crate) fn new(held: HeldBytes) -> Arc<Self> {
        let state = State { held, lost: None, reader: None };
        Arc::new(Self { began: Instant::now(), state: state.into() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives its room back now; who reads its request ends it.
    fn lose(&self, loss: Loss) {
        let mut state = self.state();
        state.lost = Some(loss);
        let (held, reader) = (std::mem::take(&mut state.held), state.reader.take());
        drop(state);
        drop(held);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Waits {
    /// `is_talk` where its caller may send messages for as long as it likes.
    pub(crate) fn new(room: &Arc<StreamRoom>, holder: &Arc<Holder>, is_talk: bool) -> Self {
        let mut waiting = holder.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.all.insert(number, (is_talk, Arc::downgrade(room)));
        drop(waiting);
        Self { room: Arc::clone(room), holder: Arc::clone(holder), number }
    }

    /// Why the stream is to end, if it has lost its room.
    pub(crate) fn lost(&self) -> Option<Status> {
        let lost = self.room.state().lost?;
        let fault = match lost {
            Loss::Others => Fault::new(
                Reason::Overloaded,
                "the stream waited for its request while others needed its room; try again later",
            ),
            Loss::Late => Fault::new(
                Reason::DeadlineExceeded,
                format!("the request was not whole after {} s", ARRIVAL_MAX.as_secs()),
            ),
        };
        Some(fault.into())
    }

    /// Has `cx` woken when the room is lost.
    pub(crate) fn listen(&self, cx: &Context<'_>) {
        let mut state = self.room.state();
        match &mut state.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.holder.waiting().all.remove(&self.number);
    }
}

impl WaitingStreams {
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// The one that has waited longest has no room any more.
    pub(crate) fn take_oldest(&mut self) -> Option<Lost> {
        self.all
            .pop_first()
            .and_then(|(_, (_, room))| room.upgrade())
            .map(|it| Lost(it, Loss::Others))
    }

    /// Those whose requests are late.
    pub(crate) fn take_late(&mut self) -> Vec<Lost> {
        let mut late = Vec::new();
        self.all.retain(|_, (is_talk, room)| {
            let Some(room) = room.upgrade() else { return false };
            let is_late = !*is_talk && room.began.elapsed() >= ARRIVAL_MAX;
            if is_late {
                late.push(Lost(room, Loss::Late));
            }
            !is_late
        });
        late
    }
}

/// A stream that is to lose its room, once no lock is held.
pub(crate) struct Lost(Arc<StreamRoom>, Loss);

impl Lost {
    pub(crate) fn end(self) {
        self.0.lose(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::TrafficMemory;

    const STREAM: u64 = 16 << 10;

    /// `count` streams that wait; what they have is dropped with them.
    fn waiting(
        memory: &Arc<TrafficMemory>,
        holder: &Arc<Holder>,
        count: usize,
    ) -> Vec<(Arc<StreamRoom>, Waits)> {
        let stream = |_| {
            let room = memory.open_stream(STREAM)?;
            let waits = Waits::new(&room, holder, true);
            Some((room, waits))
        };
        (0..count).filter_map(stream).collect()
    }

    #[test]
    fn newcomers_have_the_room_of_the_connection_with_most_waiting_streams() {
        // Room for 64 streams.
        let memory = TrafficMemory::new(2 << 20);
        let holders = [(); 2].map(|()| Arc::new(Holder::default()));
        holders.iter().for_each(|holder| memory.watch(holder));
        let few = waiting(&memory, &holders[0], WAITING_KEPT);
        let many = waiting(&memory, &holders[1], 64 - WAITING_KEPT);
        assert_eq!(memory.used(), 1 << 20);
        let working: Vec<_> = (0..48).map(|_| memory.open_stream(STREAM).unwrap()).collect();
        assert_eq!(memory.used(), 1 << 20);
        assert!(few.iter().all(|(_, waits)| waits.lost().is_none()));
        let lost: Vec<_> = many.iter().map(|(_, waits)| waits.lost().is_some()).collect();
        assert_eq!(lost, [vec![true; 48], vec![false; WAITING_KEPT]].concat(), "the oldest");
        assert!(memory.open_stream(STREAM).is_none(), "no connection has more than it may keep");
        assert!(many[0].1.lost().unwrap().message().contains("others needed its room"));
        drop((few, many, working));
        assert_eq!(memory.used(), 0);
        assert_eq!(holders.map(|holder| holder.waiting().count()), [0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_arrive_is_late_and_a_talk_is_not() {
        let memory = TrafficMemory::new(2 << 20);
        let holder = Arc::new(Holder::default());
        memory.watch(&holder);
        let rooms = [(); 2].map(|()| memory.open_stream(STREAM).unwrap());
        let [one, talk] =
            [(0, false), (1, true)].map(|(at, is_talk)| Waits::new(&rooms[at], &holder, is_talk));
        tokio::time::advance(ARRIVAL_MAX - Duration::from_secs(1)).await;
        memory.end_late();
        assert!(one.lost().is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        memory.end_late();
        assert!(one.lost().unwrap().message().contains("60 s") && talk.lost().is_none());
        assert_eq!(memory.used(), STREAM);
    }
}
