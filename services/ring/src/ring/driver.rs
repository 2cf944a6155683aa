//! The task that drives a ring: it submits queued operations, and collects completions when the kernel
//! signals them.
//!
//! The first operation queued after a submission wakes the task, which then goes to the back of the runtime's
//! run queue. All tasks that are ready run before it and queue their operations too, and then the task submits all
//! queued operations at once. So batches form without a timer, and an idle ring submits immediately. The task does
//! not hold the ring itself (a ring is not `Send`, but a spawned task must be): it looks the ring up by
//! number in a thread-local list.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::unix::AsyncFd;

use super::Inner;

thread_local! {
    static RINGS: RefCell<Vec<(u64, Weak<Inner>)>> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// Submits the queued operations of every ring on the calling thread. Pass this function to
/// [`on_thread_park`](tokio::runtime::Builder::on_thread_park), so that operations that were queued outside of any task
/// are submitted too. It costs almost nothing if nothing is queued.
pub fn submit_all() {
    let ring_at = |index: usize| RINGS.try_with(|rings| rings.borrow().get(index)?.1.upgrade());
    let mut index = 0;
    while let Ok(Some(ring)) = ring_at(index) {
        ring.submit();
        index += 1;
    }
}

/// A request from a ring to its task to submit the queued operations.
#[derive(Default)]
pub(crate) struct SubmitRequest {
    is_raised: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl SubmitRequest {
    /// Wakes the task so that it submits soon. A waker may call the ring, so the ledger must not be borrowed.
    pub fn raise(&self) {
        if !self.is_raised.replace(true) {
            let waker = self.waker.borrow().clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn take(&self, cx: &Context<'_>) -> bool {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        self.is_raised.take()
    }
}

/// Adds a ring to its thread's list. Returns the ring's number.
pub(crate) fn register(ring: &Rc<Inner>) -> u64 {
    let number = NEXT.replace(NEXT.get() + 1);
    RINGS.with_borrow_mut(|rings| rings.push((number, Rc::downgrade(ring))));
    number
}

/// Removes a ring from its thread's list. May be called while the thread exits.
pub(crate) fn unregister(number: u64) {
    let _ = RINGS.try_with(|rings| rings.borrow_mut().retain(|(other, _)| *other != number));
}

fn find_ring(number: u64) -> Option<Rc<Inner>> {
    RINGS.with_borrow(|rings| {
        rings.iter().find(|(other, _)| *other == number).and_then(|(_, ring)| ring.upgrade())
    })
}

enum Event {
    SubmitRequested,
    Readable,
    Stopped,
}

/// The task of a ring whose backend has a file descriptor that signals completions.
pub(crate) async fn drive(number: u64, readiness: AsyncFd<OwnedFd>) {
    loop {
        let event = poll_fn(|cx| {
            let Some(ring) = find_ring(number) else { return Poll::Ready(Event::Stopped) };
            if ring.submit_request.take(cx) {
                return Poll::Ready(Event::SubmitRequested);
            }
            match readiness.poll_read_ready(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(_)) => Poll::Ready(Event::Stopped),
                Poll::Ready(Ok(mut guard)) => {
                    // Clear the readiness before collecting completions, so that a completion that arrives in between
                    // makes the descriptor ready again.
                    guard.clear_ready();
                    Poll::Ready(Event::Readable)
                }
            }
        })
        .await;
        let was_refused = {
            let Some(ring) = find_ring(number) else { return };
            match event {
                Event::Stopped => return,
                Event::SubmitRequested => {
                    let was_refused = !ring.submit();
                    if was_refused {
                        // Completions that are collected give the kernel room.
                        while ring.process_completions() > 0 {}
                    }
                    was_refused
                }
                Event::Readable => {
                    while ring.process_completions() > 0 {}
                    if ring.has_work() {
                        ring.submit_request.raise();
                    }
                    false
                }
            }
        };
        if was_refused {
            // The request to submit is still raised. Other tasks run before the next attempt.
            tokio::task::yield_now().await;
        }
    }
}

/// The task of a ring whose backend has no file descriptor that signals completions. When a submission is requested,
/// and as long as operations are in flight, the task submits operations and collects completions again and again. On a
/// simulated disk, each repetition is one tick of the ring's time, which lasts `pause`.
pub(crate) async fn drive_polled(number: u64, pause: Duration) {
    loop {
        let is_stopped = poll_fn(|cx| match find_ring(number) {
            None => Poll::Ready(true),
            Some(ring) if ring.submit_request.take(cx) || ring.in_flight() > 0 => {
                Poll::Ready(false)
            }
            Some(_) => Poll::Pending,
        })
        .await;
        if is_stopped {
            return;
        }
        if let Some(ring) = find_ring(number) {
            ring.submit();
            ring.process_completions();
        }
        match pause.is_zero() {
            true => tokio::task::yield_now().await,
            false => tokio::time::sleep(pause).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, RawFd};
    use std::sync::mpsc;

    use address::{ByteOffset, DriveNo};

    use super::*;
    use crate::backend::AnyBackend;
    use crate::{AlignedBuf, Direct, Engine, OpenOptions, Ring, RingConfig, SlabFile, probe};

    /// Has the kernel refuse what a ring submits: until this is dropped, the ring's descriptor is that of another file.
    struct Refusal {
        ring: RawFd,
        saved: RawFd,
    }

    impl Refusal {
        fn begin(ring: &Ring) -> Self {
            let ledger = ring.0.ledger.borrow();
            let AnyBackend::Uring(uring) = ledger.backend() else { panic!("no io_uring") };
            let (ring, other) = (uring.raw_fd(), File::open("/dev/null").unwrap());
            // SAFETY: the calls change descriptors only, and this one is open.
            let saved = unsafe { libc::dup(ring) };
            // SAFETY: as above.
            let replaced = unsafe { libc::dup2(other.as_raw_fd(), ring) };
            assert!(saved >= 0 && replaced == ring);
            Self { ring, saved }
        }
    }

    impl Drop for Refusal {
        fn drop(&mut self) {
            // SAFETY: the calls change descriptors only, and nobody else closes `saved`.
            unsafe {
                libc::dup2(self.saved, self.ring);
                libc::close(self.saved);
            }
        }
    }

    async fn read_after_refusals() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let options =
            OpenOptions { size: Some(1 << 16), direct: Direct::Prefer, ..Default::default() };
        let slab = SlabFile::open(folder.path().join("slab"), options).unwrap();
        let config = RingConfig { slots: 16, engine: Engine::IoUring, ..Default::default() };
        let ring = Ring::start(&config, &[slab]).unwrap();
        let refusal = Refusal::begin(&ring);
        let read = ring.read_owned(DriveNo(0), ByteOffset(0), AlignedBuf::for_sectors(1));
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        assert!(ring.stats().submits_deferred > 0);
        drop(refusal);
        assert_eq!(read.await.unwrap().len(), 4096);
    }

    #[test]
    fn other_tasks_run_while_the_kernel_refuses_submissions() {
        if let Err(why) = probe() {
            eprintln!("skipped: no io_uring here: {why}");
            return;
        }
        let (done, ended) = mpsc::channel();
        // A task that never yields blocks its thread for ever.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(read_after_refusals());
            done.send(()).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(20)).expect("the thread ends, without a panic");
    }
}
