//! Transfers: operations that own their buffer (writes, fsyncs and large reads). Each is a future.
//!
//! A transfer is queued when `Ring::write`, `Ring::fsync` or `Ring::read_owned` is called, not when the future is
//! first polled. Dropping the future cancels the transfer if it is still queued. A transfer in flight runs to its
//! end, and only then is its buffer freed.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use address::{ByteOffset, DriveNo};

use crate::error::Failure;
use crate::progress::{OpKind, Progress};
use crate::{AlignedBuf, ReadError, Returned, WriteError};

/// A write, fsync or owned read.
pub(crate) struct Transfer {
    pub kind: OpKind,
    pub drive: DriveNo,
    pub offset: ByteOffset,
    pub progress: Progress,
    pub reply: Rc<Reply>,
}

/// The state that a future shares with the ring: the outcome, once there is one, and the waker.
#[derive(Default)]
pub(crate) struct Reply {
    outcome: Cell<Option<(Result<(), Failure>, AlignedBuf)>>,
    waker: RefCell<Option<Waker>>,
}

impl Reply {
    /// Completes the transfer. This calls a waker, which may call the ring, so no state of the ring may be borrowed.
    pub fn finish(&self, outcome: Result<(), Failure>, buf: AlignedBuf) {
        self.outcome.set(Some((outcome, buf)));
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns whether the future still exists.
    pub fn is_wanted(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) > 1
    }
}

/// The common part of the three kinds of futures. Each kind converts the outcome to its own output type.
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
            // Remove the waker from the reply: the ring may keep the reply for a long time, and may drop it while the
            // ledger is borrowed. Dropping a waker can run foreign code, which may call the ring.
            let waker = reply.waker.borrow_mut().take();
            drop(waker);
        }
    }
}

macro_rules! transfer {
    ($(#[$doc:meta])* $name:ident, $error:ty, $output:ty, $map:expr) => {
        $(#[$doc])*
        #[must_use = "dropping the future cancels the transfer if it is still queued"]
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
    /// The future of a write. It gives the buffer back, whether the write succeeded or not.
    Write,
    WriteError,
    Result<AlignedBuf, Returned<WriteError>>,
    |outcome| outcome
);
transfer!(
    /// The future of a large read. It gives the buffer back, whether the read succeeded or not.
    ReadOwned,
    ReadError,
    Result<AlignedBuf, Returned<ReadError>>,
    |outcome| outcome
);
transfer!(
    /// The future of an fdatasync.
    Fsync,
    WriteError,
    Result<(), WriteError>,
    |outcome| outcome.map(drop).map_err(|returned| returned.error)
);
