//! Begins the calls of GetStream and Lookup streams, and makes the contexts of the requests and fetches of all streams.

use std::sync::Arc;
use std::time::Duration;

use tonic::Request;
use wire::{Fault, asked_timeout};

use crate::authorization::IdentifiedCaller;
use crate::call::Call;
use crate::counters::Rpc;
use crate::request_context::RequestContext;
use crate::state::ShardState;
use crate::stranger::Stranger;

/// The context of a stream, from which each request or fetch of the stream gets its own. If the caller has set a
/// deadline, it applies to the whole stream; otherwise each request or fetch gets the default timeout.
#[derive(Clone, Copy)]
pub struct StreamContext {
    /// The context of the stream itself.
    pub base: RequestContext,
    is_bound: bool,
    timeout: Duration,
}

impl StreamContext {
    /// Reads the context of a stream from its request.
    pub fn of<T>(request: &Request<T>, timeout: Duration) -> Self {
        let base = RequestContext::from_metadata(request.metadata(), timeout);
        Self { base, is_bound: asked_timeout(request.metadata().as_ref()).is_some(), timeout }
    }

    /// Returns this context with a deadline for the whole stream, `timeout` from now at most.
    pub fn within(self, timeout: Duration) -> Self {
        Self { base: self.base.within(timeout), is_bound: true, ..self }
    }

    /// Returns the context of a request or fetch that begins now.
    pub fn for_piece(self) -> RequestContext {
        if self.is_bound { self.base } else { self.base.with_timeout(self.timeout) }
    }
}

/// Begins the calls of one stream.
#[derive(Clone)]
pub struct StreamCalls {
    state: Arc<ShardState>,
    rpc: Rpc,
    context: StreamContext,
    caller: IdentifiedCaller,
}

impl StreamCalls {
    pub fn new(
        state: Arc<ShardState>,
        rpc: Rpc,
        context: StreamContext,
        caller: IdentifiedCaller,
    ) -> Self {
        Self { state, rpc, context, caller }
    }

    /// Returns the state of the core that serves the stream.
    pub fn state(&self) -> &ShardState {
        &self.state
    }

    /// Returns the context of a call that begins now.
    pub fn context(&self) -> RequestContext {
        self.context.for_piece()
    }

    /// Begins a call in the context that [`context`](Self::context) returns now.
    ///
    /// # Errors
    /// The errors of [`begin_in`](Self::begin_in).
    pub async fn begin(&self) -> Result<Call, Fault> {
        self.begin_in(self.context()).await
    }

    /// Begins a call in `context`, with the rights that the caller has now.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` if the caller's credentials are no longer accepted, and the errors of [`Call::begin`].
    pub async fn begin_in(&self, context: RequestContext) -> Result<Call, Fault> {
        match self.caller.renewed(&self.state.shared.access) {
            Ok(caller) => Ok(Call::begin(&self.state, self.rpc, context, caller).await?),
            Err(denied) => {
                let identity = Some(self.caller.caller.identity().to_string());
                let stranger = Stranger { identity, address: self.caller.address, denied };
                Err(stranger.refuse(&self.state, self.rpc, Duration::ZERO).await)
            }
        }
    }
}
