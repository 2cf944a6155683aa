//! The task that moves a ring: it submits what was queued, and reaps when the kernel says so.
//!
//! The first operation queued since the last submission wakes the task, which goes to the back of
//! the runtime's run queue: whatever is ready to run now queues its reads too before all of them are
//! submitted in one go. So batches form out of what is already waiting, without a timer, and an idle
//! ring submits at once. The task itself holds no ring (a ring isn't `Send`, a spawned task has to
//! be): it finds it by number among those of its thread.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::unix::AsyncFd;

use crate::ring::Inner;

thread_local! {
    static RINGS: RefCell<Vec<(u64, Weak<Inner>)>> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// Submits what waits in every ring of the calling thread: to be given to
/// [`on_thread_park`](tokio::runtime::Builder::on_thread_park), for what was queued outside of any
/// task. Costs next to nothing if nothing waits.
pub fn submit_all() {
    let ring_at = |place: usize| RINGS.try_with(|rings| rings.borrow().get(place)?.1.upgrade());
    let mut place = 0;
    while let Ok(Some(ring)) = ring_at(place) {
        ring.submit();
        place += 1;
    }
}

/// How a ring and its task talk.
#[derive(Default)]
pub(crate) struct Link {
    kicked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Link {
    /// Has the task submit, soon. Wakes, so the ledger may not be borrowed.
    pub fn kick(&self) {
        if !self.kicked.replace(true) {
            let waker = self.waker.borrow().clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn take_kick(&self, cx: &Context<'_>) -> bool {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        self.kicked.take()
    }
}

/// Enters a ring into the register of its thread.
pub(crate) fn register(ring: &Rc<Inner>) -> u64 {
    let number = NEXT.replace(NEXT.get() + 1);
    RINGS.with_borrow_mut(|rings| rings.push((number, Rc::downgrade(ring))));
    number
}

/// Takes it out; also while the thread ends.
pub(crate) fn unregister(number: u64) {
    let _ = RINGS.try_with(|rings| rings.borrow_mut().retain(|(other, _)| *other != number));
}

fn find(number: u64) -> Option<Rc<Inner>> {
    RINGS.with_borrow(|rings| {
        rings.iter().find(|(other, _)| *other == number).and_then(|(_, ring)| ring.upgrade())
    })
}

enum Event {
    Kicked,
    Readable,
    Gone,
}

/// The task of a ring whose backend has a descriptor.
pub(crate) async fn drive(number: u64, readiness: AsyncFd<OwnedFd>) {
    loop {
        let event = poll_fn(|cx| {
            let Some(ring) = find(number) else { return Poll::Ready(Event::Gone) };
            if ring.link.take_kick(cx) {
                return Poll::Ready(Event::Kicked);
            }
            match readiness.poll_read_ready(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(_)) => Poll::Ready(Event::Gone),
                Poll::Ready(Ok(mut guard)) => {
                    // Before reaping: what completes meanwhile makes it ready again.
                    guard.clear_ready();
                    Poll::Ready(Event::Readable)
                }
            }
        })
        .await;
        let Some(ring) = find(number) else { return };
        match event {
            Event::Gone => return,
            Event::Kicked => ring.submit(),
            Event::Readable => {
                while ring.turn() > 0 {}
                if ring.has_work() {
                    ring.link.kick();
                }
            }
        }
    }
}

/// The task of a ring whose backend has no descriptor: a turn at a time, as long as something is in
/// flight. For a simulated disk each is a tick of its time, which may have a length.
pub(crate) async fn drive_polled(number: u64, pause: Duration) {
    loop {
        let gone = poll_fn(|cx| match find(number) {
            None => Poll::Ready(true),
            Some(ring) if ring.link.take_kick(cx) || ring.in_flight() > 0 => Poll::Ready(false),
            Some(_) => Poll::Pending,
        })
        .await;
        if gone {
            return;
        }
        if let Some(ring) = find(number) {
            ring.submit();
            ring.turn();
        }
        match pause.is_zero() {
            true => tokio::task::yield_now().await,
            false => tokio::time::sleep(pause).await,
        }
    }
}
