//! One Lookup stream: takes the client's messages, forms groups of the batches that wait, and sends their answers.
//!
//! The connection polls the stream when it can send. So no further message is read from a client that does not read its
//! answers. Groups are tasks of their own, because they may hold permits and have deadlines, whether the client reads
//! or not; the memory of their rows is held until the answer is handed to the connection.
//!
//! When the connection is about to end, the messages that have arrived are taken, and no others. The stream ends once
//! their groups are answered.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow_schema::SchemaRef;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use tokio::task::JoinSet;
use tonic::{Status, Streaming};
use traffic::{Arriving, MessageBytes};
use wire::query::lookup_response::Kind;
use wire::query::{LookupOpen, LookupRequest, LookupResponse, LookupSchema, LookupWelcome};
use wire::{Fault, LOOKUP_PROJECTIONS_MAX, Reason, query};

use super::group::{Group, GroupAnswer, HeldReply};
use super::keys::key_count;
use super::projection::StreamProjection;
use crate::call::StreamCalls;
use crate::call_rules::{KEYS_MAX, LOOKUP_CREDIT_KEYS};
use crate::state::HeldRows;

/// The revision of the protocol. From 2 on, a projection may ask for all rows of each key.
const REVISION: u32 = 2;

/// Maximum number of keys of batches that are joined in a group; a batch may have more. An I/O node takes as many rows
/// at once (`batch_rows_max`). If one node has the rows of more keys, its fetch is split, and the parts' rows are copied
/// once more to join them. With several I/O nodes the limit is lower than necessary.
const JOINED_KEYS_MAX: usize = 4096;

/// One Lookup stream.
pub struct LookupStream {
    calls: StreamCalls,
    arriving: Arriving,
    /// The client's messages, until it has sent the last one or the connection is about to end.
    requests: Option<Streaming<LookupRequest>>,
    /// Completes when the connection is about to end. Not polled after that.
    retires: BoxFuture<'static, ()>,
    projections: BTreeMap<u32, Arc<StreamProjection>>,
    /// The schema that was sent last for each open projection.
    schemas: BTreeMap<u32, SchemaRef>,
    /// The credits of the groups under way.
    outstanding: usize,
    running: JoinSet<Ended>,
    responses: VecDeque<(LookupResponse, Option<HeldRows>)>,
}

/// A group that has been answered.
struct Ended {
    /// The answer, or the reason why the stream ends.
    answer: Result<GroupAnswer, Fault>,
    credits: usize,
}

/// A group that is being formed.
struct Forming {
    group: Group,
    credits: usize,
    /// The number of its keys. Keys in Arrow may be smaller than a credit's bytes.
    keys: usize,
    /// The messages that its batches came in.
    messages: Vec<Arc<MessageBytes>>,
}

impl Forming {
    fn new(group: Group, credits: usize, message: &Arc<MessageBytes>) -> Self {
        Self { group, credits, keys: 0, messages: vec![Arc::clone(message)] }
    }
}

impl LookupStream {
    /// Creates the stream of a client's `requests`, whose bytes are counted in `arriving`. The stream takes no further
    /// requests once `retires` has completed.
    pub fn new(
        calls: StreamCalls,
        arriving: Arriving,
        requests: Streaming<LookupRequest>,
        retires: BoxFuture<'static, ()>,
    ) -> Self {
        let welcome = LookupWelcome {
            credit_keys: LOOKUP_CREDIT_KEYS as u32,
            batch_keys_max: KEYS_MAX as u32,
            revision: REVISION,
        };
        Self {
            calls,
            arriving,
            requests: Some(requests),
            retires,
            projections: BTreeMap::new(),
            schemas: BTreeMap::new(),
            outstanding: 0,
            running: JoinSet::new(),
            responses: [(response(Kind::Welcome(welcome)), None)].into(),
        }
    }

    /// Takes all messages that have arrived, and starts their groups.
    fn take_requests(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        let mut forming = Vec::new();
        while let Some(requests) = &mut self.requests {
            match requests.poll_next_unpin(cx) {
                Poll::Ready(Some(request)) => self.take_request(request?, &mut forming)?,
                Poll::Ready(None) => self.requests = None,
                Poll::Pending if self.retires.poll_unpin(cx).is_ready() => self.requests = None,
                Poll::Pending => break,
            }
        }
        forming.into_iter().for_each(|forming| self.start(forming));
        Ok(())
    }

    fn take_request(
        &mut self,
        request: LookupRequest,
        forming: &mut Vec<Forming>,
    ) -> Result<(), Status> {
        let message = Arc::new(self.arriving.take());
        for open in request.open {
            self.charge(1)?;
            let projection = self.open(open)?;
            let group = Group { projection, batches: Vec::new() };
            forming.push(Forming::new(group, 1, &message));
        }
        for batch in request.batches {
            let (credits, keys) = (batch.credits(), key_count(batch.keys.as_ref()));
            self.charge(credits)?;
            let projection = self.projections.get(&batch.handle).ok_or_else(|| {
                violation(format!("handle {} is not open; open it first", batch.handle))
            })?;
            let may_join = |it: &Forming| {
                Arc::ptr_eq(&it.group.projection, projection)
                    && !it.group.batches.is_empty()
                    && it.credits + credits <= KEYS_MAX
                    && it.keys.saturating_add(keys) <= JOINED_KEYS_MAX
            };
            // Batches of one projection mostly follow each other.
            let at = forming.iter().rposition(may_join).unwrap_or(forming.len());
            if at == forming.len() {
                let projection = Arc::clone(projection);
                let group = Group { projection, batches: Vec::new() };
                forming.push(Forming::new(group, 0, &message));
            }
            let joined = &mut forming[at];
            joined.group.batches.push(batch);
            joined.credits += credits;
            joined.keys = joined.keys.saturating_add(keys);
            if !joined.messages.last().is_some_and(|last| Arc::ptr_eq(last, &message)) {
                joined.messages.push(Arc::clone(&message));
            }
        }
        for handle in request.close {
            self.projections.remove(&handle);
            self.schemas.remove(&handle);
        }
        Ok(())
    }

    /// Takes credits for a batch, or for opening a projection.
    fn charge(&mut self, credits: usize) -> Result<(), Status> {
        self.outstanding = self.outstanding.saturating_add(credits);
        if self.outstanding > LOOKUP_CREDIT_KEYS {
            let problem = format!(
                "{} keys are outstanding; the credits are {LOOKUP_CREDIT_KEYS}",
                self.outstanding
            );
            return Err(violation(problem));
        }
        Ok(())
    }

    fn open(&mut self, open: LookupOpen) -> Result<Arc<StreamProjection>, Status> {
        let handle = open.handle;
        if self.projections.contains_key(&handle) {
            return Err(violation(format!("handle {handle} is open already; choose another")));
        }
        if self.projections.len() == LOOKUP_PROJECTIONS_MAX {
            let problem = format!("{LOOKUP_PROJECTIONS_MAX} projections are open; close one first");
            return Err(violation(problem));
        }
        let state = self.calls.state();
        let projection = StreamProjection::new(open, &state.projection_memory);
        let projection = Arc::new(projection.inspect_err(|fault| {
            if fault.reason == Reason::Overloaded {
                state.memory.count_refused();
            }
        })?);
        self.projections.insert(handle, Arc::clone(&projection));
        Ok(projection)
    }

    fn start(&mut self, forming: Forming) {
        let Forming { group, credits, messages, .. } = forming;
        let calls = self.calls.clone();
        let context = match group.projection.open.timeout_us {
            0 => calls.context(),
            us => calls.context().asked(Duration::from_micros(us)),
        };
        let runtime = self.calls.state().runtime.clone();
        let answer = async move {
            let answer = match calls.begin_in(context).await {
                Ok(call) => Ok(group.answer(calls.state(), call).await),
                Err(fault) if calls.are_refused() => Err(fault),
                Err(fault) => Ok(group.refuse(&fault)),
            };
            drop(messages);
            Ended { answer, credits }
        };
        self.running.spawn_on(answer, &runtime);
    }

    /// Adds the answer of a group to the responses. A schema that the client does not know goes first.
    fn end(&mut self, ended: Ended) -> Result<(), Status> {
        self.outstanding -= ended.credits;
        let GroupAnswer { projection, opened, replies } = ended.answer?;
        let handle = projection.open.handle;
        let of_handle = self.projections.get(&handle);
        let is_open = of_handle.is_some_and(|it| Arc::ptr_eq(it, &projection));
        let is_replaced = of_handle.is_some() && !is_open;
        let schema = match opened {
            Ok(None) => None,
            // The client would take the answer for that of the projection that has the handle now.
            _ if is_replaced && replies.is_empty() => None,
            Ok(Some(opened)) => {
                let is_known = is_open && self.schemas.get(&handle) == Some(&opened.schema);
                match is_open {
                    true => self.schemas.insert(handle, Arc::clone(&opened.schema)),
                    // A projection that has the handle now needs its own schema again.
                    false => self.schemas.remove(&handle),
                };
                (!is_known).then(|| opened.to_wire(handle)).transpose()?
            }
            Err(fault) => Some(LookupSchema {
                handle,
                error: Some(query::Error::from(fault)),
                ..Default::default()
            }),
        };
        let schema = schema.map(|schema| (response(Kind::Schema(schema)), None));
        let reply = |HeldReply { reply, held }| (response(Kind::Reply(reply)), held);
        self.responses.extend(schema.into_iter().chain(replies.into_iter().map(reply)));
        Ok(())
    }
}

impl Stream for LookupStream {
    type Item = Result<LookupResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let ended = loop {
            if let Some((response, _)) = this.responses.pop_front() {
                return Poll::Ready(Some(Ok(response)));
            }
            if let Err(status) = this.take_requests(cx) {
                break status;
            }
            match this.running.poll_join_next(cx) {
                Poll::Ready(Some(Ok(ended))) => {
                    if let Err(status) = this.end(ended) {
                        break status;
                    }
                }
                // The task of a group panicked.
                Poll::Ready(Some(Err(error))) => {
                    break Fault::new(Reason::Internal, error.to_string()).into();
                }
                Poll::Ready(None) if this.requests.is_none() => return Poll::Ready(None),
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        };
        // The stream ends, and its groups with it.
        this.requests = None;
        this.running.abort_all();
        this.running.detach_all();
        Poll::Ready(Some(Err(ended)))
    }
}

fn response(kind: Kind) -> LookupResponse {
    LookupResponse { kind: Some(kind) }
}

fn violation(problem: String) -> Status {
    Fault::new(Reason::BadProtocol, problem).into()
}
