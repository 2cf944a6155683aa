//! Answers that are sent in pieces while they are made.

use futures::future::BoxFuture;
use tokio::sync::mpsc;
use wire::{Fault, Reason};

use crate::call::Call;
use crate::error::{QueryError, Result};

/// Maximum number of pieces that wait for the connection while the next one is made. More would only take memory, up to
/// 4 MiB each.
pub const PIECES_AHEAD_MAX: usize = 2;

/// The channel of pieces to the caller. If it is full, the sender waits for the caller to read.
pub type Pieces<T> = mpsc::Sender<std::result::Result<T, Fault>>;

/// Runs `send`, which makes the pieces of an answer and sends them, in a task of its own, and ends `call` after it. If
/// the caller goes away, or the whole request has a deadline and it passes, `send` is dropped, which cancels its reads.
/// The memory of the call's rows is held until the caller has taken all pieces. Returns the first piece and the receiver
/// of the others.
///
/// # Errors
/// The fault of the call, if there is no first piece: it becomes the status of the answer.
pub async fn in_pieces<T, S>(
    mut call: Call,
    send: S,
) -> std::result::Result<(T, mpsc::Receiver<std::result::Result<T, Fault>>), Fault>
where
    T: Send + 'static,
    S: for<'a> FnOnce(&'a Pieces<T>, &'a mut Call) -> BoxFuture<'a, Result<()>> + Send + 'static,
{
    let (pieces, mut received) = mpsc::channel(PIECES_AHEAD_MAX);
    tokio::spawn(async move {
        call.waits_for_reader();
        let context = call.context;
        let sent = tokio::select! {
            biased;
            // If the caller goes away, sending fails too, and `send` returns as if all were sent.
            () = pieces.closed() => return,
            // The reader may have stopped reading, and then no piece can be sent.
            () = context.ended() => Err(QueryError::DeadlinePassed { during: "send" }),
            sent = send(&pieces, &mut call) => sent,
        };
        // Pieces that wait for the caller may be parts of one large buffer.
        let _held = call.take_held();
        if let Err(fault) = call.end(sent) {
            let _ = pieces.send(Err(fault)).await;
        }
        // All of the channel's places are free once the caller has taken all pieces. If it goes away, that is an error.
        let _ = pieces.reserve_many(PIECES_AHEAD_MAX).await;
    });
    let unsent = || Fault::new(Reason::Internal, "the rows were not sent; this is a defect");
    let first = received.recv().await.unwrap_or_else(|| Err(unsent()))?;
    Ok((first, received))
}
