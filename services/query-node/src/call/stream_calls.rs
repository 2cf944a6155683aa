//! Begins the calls of GetStream and Lookup streams.

use std::sync::Arc;
use std::time::Duration;

use wire::Fault;

use super::authorization::IdentifiedCaller;
use super::stranger::Stranger;
use crate::call::Call;
use crate::counters::Rpc;
use crate::request_context::RequestContext;
use crate::state::ShardState;

/// Begins the calls of one stream.
#[derive(Clone)]
pub struct StreamCalls {
    state: Arc<ShardState>,
    rpc: Rpc,
    /// The context of the whole stream.
    context: RequestContext,
    caller: IdentifiedCaller,
}

impl StreamCalls {
    pub fn new(
        state: Arc<ShardState>,
        rpc: Rpc,
        context: RequestContext,
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

    /// Returns whether the caller's credentials are no longer accepted, so that the stream has to end.
    pub fn are_refused(&self) -> bool {
        self.caller.renewed(&self.state.shared.access).is_err()
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
    /// If the caller's credentials are no longer accepted, the fault of [`Stranger::refuse`]; otherwise those of
    /// [`Call::begin`].
    pub async fn begin_in(&self, context: RequestContext) -> Result<Call, Fault> {
        match self.caller.renewed(&self.state.shared.access) {
            Ok(caller) => Call::begin(&self.state, self.rpc, context, caller).await,
            Err(denied) => {
                let identity = Some(self.caller.caller.identity().to_string());
                let stranger = Stranger { identity, address: self.caller.address, denied };
                Err(stranger.refuse(&self.state, self.rpc, Duration::ZERO, context).await)
            }
        }
    }
}
