//! Operations that own their buffer: writes, syncs and large reads, each a future.
//!
//! A transfer is queued when it's called, not when it's first polled. Dropping the future discards
//! it if it still waits; if it's in flight it goes on to its end, and only then is the buffer freed.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::error::Failure;
use crate::{AlignedBuf, ReadError, Returned, WriteError};

/// What the future and the ring share: the outcome, once there is one, and whom to wake.
#[derive(Default)]
pub(crate) struct Reply {
    outcome: Cell<Option<(Result<(), Failure>, AlignedBuf)>>,
    waker: RefCell<Option<Waker>>,
}

impl Reply {
    /// Ends the transfer. Wakes, so nothing of the ring may be borrowed.
    pub fn finish(&self, outcome: Result<(), Failure>, buf: AlignedBuf) {
        self.outcome.set(Some((outcome, buf)));
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the future is still there.
    pub fn is_wanted(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) > 1
    }
}

/// The side of the future.
enum Pending<E> {
    Refused(Option<Returned<E>>),
    Accepted(Rc<Reply>),
}

impl<E: From<Failure>> Pending<E> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<AlignedBuf, Returned<E>>> {
        match self {
            Self::Refused(refusal) => {
                Poll::Ready(Err(refusal.take().expect("polled after completion")))
            }
            Self::Accepted(reply) => match reply.outcome.take() {
                Some((Ok(()), buf)) => Poll::Ready(Ok(buf)),
                Some((Err(failure), buf)) => {
                    Poll::Ready(Err(Returned { error: failure.into(), buf }))
                }
                None => {
                    let mut waker = reply.waker.borrow_mut();
                    match &mut *waker {
                        Some(waker) => waker.clone_from(cx.waker()),
                        None => *waker = Some(cx.waker().clone()),
                    }
                    Poll::Pending
                }
            },
        }
    }
}

impl<E> Drop for Pending<E> {
    fn drop(&mut self) {
        if let Self::Accepted(reply) = self {
            // The ring may hold the reply for long, and drops it with its tables borrowed: no
            // foreign code, such as a waker's drop, may hang on it.
            let waker = reply.waker.borrow_mut().take();
            drop(waker);
        }
    }
}

macro_rules! transfer {
    ($(#[$doc:meta])* $name:ident, $error:ty, $output:ty, $map:expr) => {
        $(#[$doc])*
        #[must_use = "dropping it gives the operation up"]
        pub struct $name(Pending<$error>);

        impl $name {
            pub(crate) fn refused(error: $error, buf: AlignedBuf) -> Self {
                Self(Pending::Refused(Some(Returned { error, buf })))
            }

            pub(crate) fn accepted(reply: Rc<Reply>) -> Self {
                Self(Pending::Accepted(reply))
            }
        }

        impl Future for $name {
            type Output = $output;

            fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                self.0.poll(cx).map($map)
            }
        }
    };
}

transfer!(
    /// A write under way; gives the buffer back, whatever happens.
    Write,
    WriteError,
    Result<AlignedBuf, Returned<WriteError>>,
    |outcome| outcome
);
transfer!(
    /// A large read under way; gives the buffer back, whatever happens.
    ReadOwned,
    ReadError,
    Result<AlignedBuf, Returned<ReadError>>,
    |outcome| outcome
);
transfer!(
    /// An fdatasync under way.
    Sync,
    WriteError,
    Result<(), WriteError>,
    |outcome| outcome.map(drop).map_err(|returned| returned.error)
);
