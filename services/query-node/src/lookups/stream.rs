//! One Lookup stream: takes the client's messages, forms groups of the batches that wait, and sends their answers.
//!
//! The stream is polled by its connection when that can send. So the groups of a client that does not read its answers
//! make no progress, and none of its further messages is read.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use tonic::{Status, Streaming};
use traffic::Arriving;
use wire::query::lookup_batch::Keys;
use wire::query::lookup_response::Kind;
use wire::query::{
    Integers, LookupBatch, LookupOpen, LookupRequest, LookupResponse, LookupWelcome, Strings,
};
use wire::{Fault, Reason};

use super::group::{Answer, Group};
use super::projection::OpenProjection;
use crate::call_rules::{KEYS_MAX, LOOKUP_CREDIT_KEYS};
use crate::stream_calls::StreamCalls;

/// The revision of the protocol.
const REVISION: u32 = 1;

/// Maximum number of open projections of a stream.
const PROJECTIONS_MAX: usize = 64;

/// The number of bytes of keys in Arrow that take one credit: how many keys they are is known only once they have been
/// decoded.
const ARROW_KEY_BYTES: usize = 16;

/// One Lookup stream.
pub struct LookupStream {
    calls: StreamCalls,
    arriving: Arriving,
    /// The client's messages, until it has sent the last one.
    requests: Option<Streaming<LookupRequest>>,
    projections: BTreeMap<u32, Arc<OpenProjection>>,
    /// The keys of the groups under way.
    outstanding: usize,
    running: FuturesUnordered<BoxFuture<'static, Ended>>,
    responses: VecDeque<LookupResponse>,
}

/// A group that has been answered.
struct Ended {
    answer: Answer,
    keys: usize,
}

/// Gives back the bytes of a message, once all of its batches have been answered.
struct Message(Arriving);

impl Drop for Message {
    fn drop(&mut self) {
        self.0.taken();
    }
}

/// A group that is being formed.
struct Forming {
    group: Group,
    keys: usize,
    messages: Vec<Arc<Message>>,
}

impl LookupStream {
    /// Creates the stream of a client's `requests`, whose bytes are counted in `arriving`.
    pub fn new(calls: StreamCalls, arriving: Arriving, requests: Streaming<LookupRequest>) -> Self {
        let welcome = LookupWelcome {
            credit_keys: LOOKUP_CREDIT_KEYS as u32,
            batch_keys_max: KEYS_MAX as u32,
            revision: REVISION,
        };
        Self {
            calls,
            arriving,
            requests: Some(requests),
            projections: BTreeMap::new(),
            outstanding: 0,
            running: FuturesUnordered::new(),
            responses: [response(Kind::Welcome(welcome))].into(),
        }
    }

    /// Takes all messages that have arrived, and starts their groups.
    fn take_requests(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        let mut forming = Vec::new();
        while let Some(requests) = &mut self.requests {
            match requests.poll_next_unpin(cx) {
                Poll::Ready(Some(request)) => self.take_request(request?, &mut forming)?,
                Poll::Ready(None) => self.requests = None,
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
        let message = Arc::new(Message(self.arriving.clone()));
        for open in request.open {
            let projection = self.open(open)?;
            let group = Group { projection, batches: Vec::new() };
            forming.push(Forming { group, keys: 0, messages: vec![Arc::clone(&message)] });
        }
        for batch in request.batches {
            let projection = self.projections.get(&batch.handle).ok_or_else(|| {
                violation(format!("handle {} is not open; open it first", batch.handle))
            })?;
            let keys = key_count(&batch);
            self.outstanding += keys;
            if self.outstanding > LOOKUP_CREDIT_KEYS {
                let problem = format!(
                    "{} keys are outstanding; the credits are {LOOKUP_CREDIT_KEYS}",
                    self.outstanding
                );
                return Err(violation(problem));
            }
            let may_join = |it: &Forming| {
                Arc::ptr_eq(&it.group.projection, projection)
                    && !it.group.batches.is_empty()
                    && it.keys + keys <= KEYS_MAX
            };
            let at = forming.iter().position(may_join).unwrap_or(forming.len());
            if at == forming.len() {
                let projection = Arc::clone(projection);
                let group = Group { projection, batches: Vec::new() };
                forming.push(Forming { group, keys: 0, messages: Vec::new() });
            }
            let joined = &mut forming[at];
            joined.group.batches.push(batch);
            joined.keys += keys;
            if !joined.messages.last().is_some_and(|last| Arc::ptr_eq(last, &message)) {
                joined.messages.push(Arc::clone(&message));
            }
        }
        for handle in request.close {
            self.projections.remove(&handle);
        }
        Ok(())
    }

    fn open(&mut self, open: LookupOpen) -> Result<Arc<OpenProjection>, Status> {
        let handle = open.handle;
        if self.projections.contains_key(&handle) {
            return Err(violation(format!("handle {handle} is open already; choose another")));
        }
        if self.projections.len() == PROJECTIONS_MAX {
            let problem = format!("{PROJECTIONS_MAX} projections are open; close one first");
            return Err(violation(problem));
        }
        let projection = Arc::new(OpenProjection::new(open));
        self.projections.insert(handle, Arc::clone(&projection));
        Ok(projection)
    }

    fn start(&mut self, forming: Forming) {
        let Forming { group, keys, messages } = forming;
        let calls = self.calls.clone();
        let context = group.projection.limit(calls.context());
        let answer = async move {
            let answer = match calls.begin_in(context).await {
                Ok(call) => group.answer(calls.state(), call).await,
                Err(fault) => group.refuse(&fault),
            };
            drop(messages);
            Ended { answer, keys }
        };
        self.running.push(answer.boxed());
    }

    /// Puts the answer of a group among the responses.
    fn end(&mut self, ended: Ended) {
        self.outstanding -= ended.keys;
        let Answer { schema, replies } = ended.answer;
        self.responses.extend(schema.map(Kind::Schema).map(response));
        self.responses.extend(replies.into_iter().map(Kind::Reply).map(response));
    }
}

impl Stream for LookupStream {
    type Item = Result<LookupResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(response) = this.responses.pop_front() {
                return Poll::Ready(Some(Ok(response)));
            }
            if let Err(status) = this.take_requests(cx) {
                // The stream ends: dropping the groups cancels them.
                this.requests = None;
                this.running.clear();
                return Poll::Ready(Some(Err(status)));
            }
            match this.running.poll_next_unpin(cx) {
                Poll::Ready(Some(ended)) => this.end(ended),
                Poll::Ready(None) if this.requests.is_none() => return Poll::Ready(None),
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

fn response(kind: Kind) -> LookupResponse {
    LookupResponse { kind: Some(kind) }
}

/// Returns the number of credits that a batch takes.
fn key_count(batch: &LookupBatch) -> usize {
    match &batch.keys {
        Some(Keys::Integers(Integers { values })) => values.len(),
        Some(Keys::Strings(Strings { lengths, .. })) => lengths.len(),
        Some(Keys::Arrow(stream)) => stream.len().div_ceil(ARROW_KEY_BYTES),
        None => 0,
    }
}

fn violation(problem: String) -> Status {
    Fault::new(Reason::BadProtocol, problem).into()
}
