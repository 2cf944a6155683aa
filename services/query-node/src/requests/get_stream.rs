//! GetStream: many Gets on one stream, answered in their order.
//!
//! Each Get is a task of its own. The connection polls the stream only when it can send, but a Get may hold permits,
//! and other requests may wait for it (`by_key/gather.rs`), whether its client reads or not. The memory of its answer
//! is held until the answer is handed to the connection.
//!
//! When the connection is about to end, no further Get is taken, and the stream ends once the others are answered.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use tokio::task::{JoinHandle, yield_now};
use tonic::{Status, Streaming};
use traffic::{Arriving, MessageBytes};
use wire::query::{GetRequest, GetResponse};
use wire::{Fault, Reason, query};

use crate::call::StreamCalls;
use crate::error::QueryError;
use crate::requests::get::{GetAnswer, get};
use crate::state::{HeldRows, ShardState};

/// An answer, and the memory of its rows; `None` if it has none.
type HeldAnswer = (GetResponse, Option<HeldRows>);

/// Returns the answers to a client's `requests`, whose bytes are counted in `arriving`. No further request is taken
/// once `retires` has completed.
pub fn get_stream(
    state: &Arc<ShardState>,
    calls: StreamCalls,
    arriving: Arriving,
    requests: Streaming<GetRequest>,
    retires: BoxFuture<'static, ()>,
) -> impl Stream<Item = Result<GetResponse, Status>> + Send + use<> {
    let (state, in_flight) = (Arc::clone(state), state.shared.config.gets_in_flight);
    let answers = requests.take_until(retires).map(move |request| {
        let begun = request.map(|request| {
            AbortOnDrop(state.runtime.spawn(answer(calls.clone(), request, arriving.take())))
        });
        async move {
            match (&mut begun?.0).await {
                Ok(answer) => answer,
                // The task panicked.
                Err(error) => Err(Fault::new(Reason::Internal, error.to_string()).into()),
            }
        }
    });
    answers.buffered(in_flight).map(|answer| answer.map(|(answer, _held)| answer))
}

/// Answers a Get, which arrived in `message`.
///
/// # Errors
/// The reason why the stream ends.
async fn answer(
    calls: StreamCalls,
    request: GetRequest,
    message: MessageBytes,
) -> Result<HeldAnswer, Status> {
    let answer = match calls.begin().await {
        Err(fault) if calls.are_refused() => return Err(fault.into()),
        Err(fault) => Err(fault),
        Ok(mut call) => {
            let mut answer = get(request, &mut call).await;
            // The call does not hold rows that were found for several requests.
            if let Ok(GetAnswer { response, .. }) = &answer {
                let bytes = response.rows.len();
                let mut holds = call.hold_rows(bytes);
                if let Err(QueryError::OutOfMemory | QueryError::GrantOutOfMemory { .. }) = holds {
                    // The other requests are ready, and drop the rows that were found together.
                    yield_now().await;
                    holds = call.hold_rows(bytes);
                }
                if let Err(error) = holds {
                    answer = Err(error);
                }
            }
            let answer = answer.map(|answer| answer.sent(&mut call));
            let held = call.take_ready();
            call.end(answer).map(|answer| (answer, Some(held)))
        }
    };
    drop(message);
    Ok(answer.unwrap_or_else(|fault| {
        let error = Some(query::Error::from(fault));
        (GetResponse { error, ..Default::default() }, None)
    }))
}

/// Aborts a task when it is dropped, as when the client has gone away.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
