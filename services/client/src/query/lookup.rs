//! Lookup: batches of keys on a long-lived stream, many in flight.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use prost::Message;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use wire::query::lookup_batch::Keys;
use wire::query::lookup_reply::Rows;
use wire::query::lookup_response::Kind;
use wire::query::{
    LookupBatch, LookupOpen, LookupReply, LookupRequest, LookupResponse, LookupResult,
    LookupSchema, LookupWelcome,
};
use wire::{Fault, LOOKUP_BYTES_MAX, LOOKUP_PROJECTIONS_MAX, Reason, schema_from_bytes};

use super::call::{GottenRows, UnreadKeys, one_row_of_each_key};
use super::connect::{KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, QueryClient, ended, within};

/// Maximum number of waiting commands that share one message.
const COMMANDS_MAX: usize = 256;

/// The largest batch or message that is sent, in bytes. A node accepts 4 KiB more, which leaves room for the fields
/// around the batches.
const MESSAGE_BYTES_MAX: usize = LOOKUP_BYTES_MAX - (4 << 10);

/// The lowest revision of the protocol with which this client can talk to a node.
const REVISION_MIN: u32 = 1;

/// The revision from which on nodes return all rows of a key if they are asked to.
const REVISION_ALL_ROWS: u32 = 2;

/// The time by which an answer may be later than the timeout of its batch. The node counts the timeout from the batch's
/// arrival, and its answer may be long in coming over a slow connection. Without any answer for this long, the
/// connection is cut off.
const LATE: Duration = KEEP_ALIVE_INTERVAL.saturating_add(KEEP_ALIVE_TIMEOUT);

/// A Lookup stream to a query node. Cheap to clone; clones share the stream and its credits.
#[derive(Clone)]
pub struct LookupClient {
    shared: Arc<Shared>,
}

/// An open projection on a Lookup stream. It is closed when the last clone is dropped.
#[derive(Clone)]
pub struct Lookup {
    projection: Arc<Projection>,
}

/// A projection that the node has been asked to open. It is closed when this is dropped, even if it was never opened.
struct Projection {
    shared: Arc<Shared>,
    handle: u32,
    /// The message that opened it.
    open: LookupOpen,
    /// The timeout of each batch; `None` for the node's.
    timeout: Option<Duration>,
    /// The schema that the rows had when the projection was opened; `None` if it returns no rows in Arrow.
    schema: OnceLock<Option<SchemaRef>>,
}

/// The rows of a batch of keys.
#[derive(Clone, Debug)]
pub struct LookedUp {
    /// The rows of the keys that were found, in the order of the keys. `None` with `only_presence`.
    pub rows: Option<GottenRows>,
    /// With `all_rows`, the position of each row's key, ascending. Empty otherwise.
    pub row_keys: Vec<u32>,
    /// Positions, ascending, of keys that have no row.
    pub not_found: Vec<u32>,
    /// With `only_presence`, positions, ascending, of found keys that only the key index found. The row that the index
    /// names may have another key.
    pub unproven: Vec<u32>,
    /// The keys whose rows could not be read, if the projection is `partial`.
    pub unread: Option<UnreadKeys>,
    /// The version that was read.
    pub version: u64,
}

struct Shared {
    client: QueryClient,
    commands: mpsc::UnboundedSender<Command>,
    /// The revision of the node's protocol.
    revision: u32,
    /// Has a permit for each credit that is left. A batch takes about one credit per key; an open takes one.
    credits: Semaphore,
    credits_max: usize,
    next_id: AtomicU64,
    next_handle: AtomicU32,
    waiting: Mutex<Waiting>,
}

enum Command {
    Open(LookupOpen),
    Batch(LookupBatch),
    Close(u32),
}

type Answer<T> = oneshot::Sender<Result<T, Fault>>;

/// The callers that wait for messages from the node.
#[derive(Default)]
struct Waiting {
    opens: HashMap<u32, Answer<Option<SchemaRef>>>,
    batches: HashMap<u64, Outstanding>,
    /// The projections that are open, or have outstanding batches.
    projections: HashMap<u32, Answered>,
    /// The reason why the stream has ended.
    ended: Option<Fault>,
}

/// A batch that the node has not answered.
struct Outstanding {
    handle: u32,
    credits: usize,
    /// Leads to the caller that waits for it.
    answer: Answer<LookedUp>,
}

/// The state with which the answers of a projection are read.
#[derive(Default)]
struct Answered {
    /// The schema that the node has sent last.
    schema: Option<SchemaRef>,
    outstanding: usize,
    is_closed: bool,
}

impl Waiting {
    /// Registers a projection.
    ///
    /// # Errors
    /// `BAD_ARGUMENT` if a node would end the stream because of too many open projections.
    fn open(&mut self, handle: u32, answer: Answer<Option<SchemaRef>>) -> Result<(), Fault> {
        let open = self.projections.values().filter(|it| !it.is_closed).count();
        if open >= LOOKUP_PROJECTIONS_MAX {
            let message = format!(
                "{open} projections are open on this stream, and a node accepts no more; drop one, \
                 or open another stream"
            );
            return Err(Fault::new(Reason::BadArgument, message));
        }
        self.opens.insert(handle, answer);
        self.projections.insert(handle, Answered::default());
        Ok(())
    }

    fn send(&mut self, id: u64, batch: Outstanding) {
        if let Some(projection) = self.projections.get_mut(&batch.handle) {
            projection.outstanding += 1;
        }
        self.batches.insert(id, batch);
    }

    fn answered(&mut self, id: u64) -> Option<Outstanding> {
        let batch = self.batches.remove(&id)?;
        if let Some(projection) = self.projections.get_mut(&batch.handle) {
            projection.outstanding -= 1;
        }
        self.forget(batch.handle);
        Some(batch)
    }

    fn close(&mut self, handle: u32) {
        if let Some(projection) = self.projections.get_mut(&handle) {
            projection.is_closed = true;
        }
        self.forget(handle);
    }

    /// Forgets a projection of which no more rows come.
    fn forget(&mut self, handle: u32) {
        let done = |it: &Answered| it.is_closed && it.outstanding == 0;
        if self.projections.get(&handle).is_some_and(done) {
            self.projections.remove(&handle);
        }
    }
}

impl QueryClient {
    /// Opens a stream for look-ups of keys. Must be called within a Tokio runtime, which then reads the answers.
    ///
    /// # Errors
    /// `NODE_UNAVAILABLE`, `DEADLINE_EXCEEDED` after the client's timeout, `INTERNAL` if the node's welcome is damaged,
    /// or the node's fault if it refuses the caller.
    pub async fn lookups(&self) -> Result<LookupClient, Fault> {
        let (commands, commanded) = mpsc::unbounded_channel();
        // The timeout is for each batch, not for the stream.
        let mut request = self.request(requests(commanded));
        request.metadata_mut().remove("grpc-timeout");
        let begin = async {
            let mut responses = self.answered(self.service().lookup(request)).await?;
            let first = responses.message().await.map_err(|status| self.fault_of(&status))?;
            Ok::<_, Fault>((responses, first))
        };
        let (responses, first) = within(self.timeout(), begin).await?;
        let Some(LookupResponse { kind: Some(Kind::Welcome(welcome)) }) = first else {
            return Err(damaged("it does not begin with its limits"));
        };
        let LookupWelcome { credit_keys, batch_keys_max, revision } = welcome;
        if revision < REVISION_MIN || credit_keys < batch_keys_max {
            return Err(damaged("its limits contradict each other"));
        }
        let shared = Arc::new(Shared {
            client: self.clone(),
            commands,
            revision,
            credits: Semaphore::new(credit_keys as usize),
            credits_max: credit_keys as usize,
            next_id: AtomicU64::new(1),
            next_handle: AtomicU32::new(1),
            waiting: Mutex::default(),
        });
        tokio::spawn(read(Arc::downgrade(&shared), responses));
        Ok(LookupClient { shared })
    }
}

impl LookupClient {
    /// Opens a projection. The handle of `open` is chosen here. If `open` has no timeout, the client's applies to each
    /// batch.
    ///
    /// # Errors
    /// The node's fault for the table, the version or a column, `DEADLINE_EXCEEDED` after the client's timeout, or the
    /// reason why the stream has ended. `UNIMPLEMENTED` if `open` wants all rows of each key, and the node returns only
    /// one. `BAD_ARGUMENT` if the stream has as many open projections as a node accepts.
    pub async fn open(&self, mut open: LookupOpen) -> Result<Lookup, Fault> {
        let shared = &self.shared;
        if open.all_rows && shared.revision < REVISION_ALL_ROWS {
            return Err(one_row_of_each_key());
        }
        open.handle = shared.next_handle.fetch_add(1, Ordering::Relaxed);
        if let (0, Some(timeout)) = (open.timeout_us, shared.client.timeout()) {
            open.timeout_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        }
        let handle = open.handle;
        let schema = OnceLock::new();
        let timeout = (open.timeout_us > 0).then(|| Duration::from_micros(open.timeout_us));
        let projection =
            Projection { shared: Arc::clone(shared), handle, open: open.clone(), timeout, schema };
        let opened = async {
            let permit = shared.credits(1).await?;
            let (answer, answered) = oneshot::channel();
            shared.send(Command::Open(open), |waiting| waiting.open(handle, answer))?;
            permit.forget();
            answer_of(answered).await
        };
        let schema = within(shared.client.timeout(), opened).await?;
        let _ = projection.schema.set(schema);
        Ok(Lookup { projection: Arc::new(projection) })
    }
}

impl Lookup {
    /// Returns the rows of `keys`, once the stream has credits for them. Any number of batches may be under way.
    ///
    /// # Errors
    /// The fault of the batch, or the reason why the stream has ended. `DEADLINE_EXCEEDED` if there is no answer 20 s
    /// after the batch's timeout. `TOO_LARGE` if the batch needs more credits than the stream has, or is larger than a
    /// message.
    pub async fn get(&self, keys: Keys) -> Result<LookedUp, Fault> {
        let Projection { shared, handle, timeout, .. } = &*self.projection;
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        let batch = LookupBatch { id, handle: *handle, keys: Some(keys) };
        let (credits, bytes) = (batch.credits(), batch.encoded_len());
        if credits > shared.credits_max || bytes > MESSAGE_BYTES_MAX {
            let message = format!(
                "a batch takes {credits} credits and {bytes} bytes; the most are {} and \
                 {MESSAGE_BYTES_MAX}: give fewer keys",
                shared.credits_max
            );
            return Err(Fault::new(Reason::TooLarge, message));
        }
        let got = async {
            let permit = shared.credits(credits).await?;
            let (answer, answered) = oneshot::channel();
            let outstanding = Outstanding { handle: *handle, credits, answer };
            let wait = |waiting: &mut Waiting| {
                waiting.send(id, outstanding);
                Ok(())
            };
            shared.send(Command::Batch(batch), wait)?;
            permit.forget();
            answer_of(answered).await
        };
        within(timeout.map(|timeout| timeout.saturating_add(LATE)), got).await
    }

    /// Returns the timeout of each batch; `None` for the node's.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.projection.timeout
    }

    /// Returns the reason why the stream has ended, so that every further look-up fails. `None` while it is open.
    pub fn end(&self) -> Option<Fault> {
        self.projection.shared.waiting().ended.clone()
    }

    /// Opens the projection on another stream.
    ///
    /// # Errors
    /// The errors of [`QueryClient::lookups`] and [`LookupClient::open`].
    pub(super) async fn reopened(&self) -> Result<Self, Fault> {
        let Projection { shared, open, .. } = &*self.projection;
        shared.client.lookups().await?.open(open.clone()).await
    }

    /// Returns whether all rows of each key are returned.
    pub fn returns_all_rows(&self) -> bool {
        self.projection.open.all_rows
    }

    /// Returns the schema that rows had when the projection was opened; `None` if it returns no rows in Arrow.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.projection.schema.get().cloned().flatten()
    }
}

impl Drop for Projection {
    fn drop(&mut self) {
        // Under the lock, so that an open that takes this one's place is sent later.
        let mut waiting = self.shared.waiting();
        let _ = self.shared.commands.send(Command::Close(self.handle));
        waiting.close(self.handle);
    }
}

impl Shared {
    /// Waits for credits.
    async fn credits(&self, credits: usize) -> Result<SemaphorePermit<'_>, Fault> {
        let credits = u32::try_from(credits).unwrap_or(u32::MAX);
        self.credits.acquire_many(credits).await.map_err(|_| self.ended())
    }

    /// Sends a command, after `wait` has registered the caller that waits for its answer.
    fn send(
        &self,
        command: Command,
        wait: impl FnOnce(&mut Waiting) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut waiting = self.waiting();
        if let Some(fault) = &waiting.ended {
            return Err(fault.clone());
        }
        wait(&mut waiting)?;
        // The connection may have dropped the receiver; then the reader notes the end of the stream.
        let _ = self.commands.send(command);
        Ok(())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> Fault {
        self.waiting().ended.clone().unwrap_or_else(ended)
    }

    /// Ends the stream: everyone who waits gets `fault`.
    fn end(&self, fault: &Fault) {
        let mut waiting = self.waiting();
        waiting.ended = Some(fault.clone());
        self.credits.close();
        let opens = waiting.opens.drain().map(|(_, answer)| drop(answer.send(Err(fault.clone()))));
        opens.for_each(drop);
        let batches = waiting.batches.drain();
        batches.for_each(|(_, batch)| drop(batch.answer.send(Err(fault.clone()))));
        waiting.projections.clear();
    }

    /// Notes the schema of a projection's next rows, and passes it to the caller that opens the projection.
    fn opened(&self, handle: u32, outcome: Result<Option<SchemaRef>, Fault>) {
        let mut waiting = self.waiting();
        if let (Ok(Some(schema)), Some(projection)) =
            (&outcome, waiting.projections.get_mut(&handle))
        {
            projection.schema = Some(Arc::clone(schema));
        }
        if let Some(answer) = waiting.opens.remove(&handle) {
            self.credits.add_permits(1);
            let _ = answer.send(outcome);
        }
    }

    /// Passes the results of a reply to the callers that wait for them.
    fn replied(&self, reply: LookupReply) -> Result<(), Fault> {
        let LookupReply { handle, version, results, rows } = reply;
        let schema = self.waiting().projections.get(&handle).and_then(|it| it.schema.clone());
        let mut rows = Dealer::of(rows, schema.as_ref())?;
        let mut dealt = Vec::with_capacity(results.len());
        for result in results {
            let id = result.id;
            let outcome = match UnreadKeys::of(result.error, result.failed) {
                Err(fault) => Err(fault),
                Ok(unread) => {
                    let rows = rows.next(result.rows as usize)?;
                    let LookupResult { not_found, unproven, row_keys, .. } = result;
                    Ok(LookedUp { rows, row_keys, not_found, unproven, unread, version })
                }
            };
            dealt.push((id, outcome));
        }
        let mut returned = 0;
        let mut waiting = self.waiting();
        for (id, outcome) in dealt {
            let batch = waiting.answered(id).ok_or_else(|| damaged("it answers no batch"))?;
            returned += batch.credits;
            // A caller that has gone away does not take its answer.
            let _ = batch.answer.send(outcome);
        }
        self.credits.add_permits(returned);
        Ok(())
    }
}

/// Divides the rows of a reply among its results.
enum Dealer {
    Arrow { rows: RecordBatch, next: usize },
    Json { lines: Bytes },
    Nothing,
}

impl Dealer {
    fn of(rows: Option<Rows>, schema: Option<&SchemaRef>) -> Result<Self, Fault> {
        Ok(match rows {
            Some(Rows::Arrow(batch)) => {
                let schema = schema.ok_or_else(|| damaged("its schema is missing"))?;
                let rows = batch.to_record_batch(schema).map_err(|e| damaged(&e.to_string()))?;
                Self::Arrow { rows, next: 0 }
            }
            Some(Rows::Json(lines)) => Self::Json { lines },
            None => Self::Nothing,
        })
    }

    fn next(&mut self, count: usize) -> Result<Option<GottenRows>, Fault> {
        Ok(Some(match self {
            Self::Arrow { rows, next } => {
                if count > rows.num_rows() - *next {
                    return Err(damaged("it has fewer rows than its results say"));
                }
                let part = rows.slice(*next, count);
                *next += count;
                GottenRows::Arrow(part)
            }
            Self::Json { lines } => {
                let ends = lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
                let end = match count.checked_sub(1) {
                    None => Some(0),
                    Some(before) => ends.map(|(at, _)| at + 1).nth(before),
                };
                let end = end.ok_or_else(|| damaged("it has fewer lines than its results say"))?;
                let part = lines.split_to(end);
                let text = String::from_utf8(part.into());
                GottenRows::Json(text.map_err(|_| damaged("its JSON is not UTF-8"))?)
            }
            Self::Nothing => return Ok(None),
        }))
    }
}

/// Reads the node's messages until the stream ends, or nobody uses it.
async fn read(shared: std::sync::Weak<Shared>, mut responses: Streaming<LookupResponse>) {
    loop {
        let response = responses.message().await;
        let Some(shared) = shared.upgrade() else { return };
        let outcome = match response {
            Err(status) => Err(shared.client.fault_of(&status)),
            Ok(None) => Err(ended()),
            Ok(Some(LookupResponse { kind: Some(Kind::Schema(schema)) })) => {
                let LookupSchema { handle, schema, error, .. } = schema;
                let outcome = match error {
                    Some(error) => Err(error.into()),
                    None if schema.is_empty() => Ok(None),
                    None => schema_from_bytes(&schema)
                        .map(|schema| Some(Arc::new(schema)))
                        .map_err(|error| damaged(&error.to_string())),
                };
                shared.opened(handle, outcome);
                Ok(())
            }
            Ok(Some(LookupResponse { kind: Some(Kind::Reply(reply)) })) => shared.replied(reply),
            Ok(Some(_)) => Err(damaged("it has an unknown message")),
        };
        if let Err(fault) = outcome {
            shared.end(&fault);
            return;
        }
    }
}

/// Combines commands into messages. Waiting commands share a message, up to half of its maximum size. A node executes
/// the opens of a message first, then the batches, then the closes. So an open that follows a close, and may need its
/// place among the open projections, begins a message. Other commands of one message do not depend on this order: a
/// projection is opened before its batches are sent, and closed after them.
fn requests(
    commands: mpsc::UnboundedReceiver<Command>,
) -> impl Stream<Item = LookupRequest> + Send + 'static {
    let commands = UnboundedReceiverStream::new(commands).ready_chunks(COMMANDS_MAX);
    commands.flat_map(|commands| stream::iter(messages_of(commands)))
}

fn messages_of(commands: Vec<Command>) -> Vec<LookupRequest> {
    let (mut messages, mut last, mut bytes) = (Vec::new(), LookupRequest::default(), 0);
    for command in commands {
        let more = match &command {
            Command::Open(open) => open.encoded_len(),
            Command::Batch(batch) => batch.encoded_len(),
            Command::Close(_) => size_of::<u32>(),
        };
        let is_full = bytes > 0 && bytes + more > MESSAGE_BYTES_MAX / 2;
        if is_full || matches!(command, Command::Open(_)) && !last.close.is_empty() {
            messages.push(std::mem::take(&mut last));
            bytes = 0;
        }
        bytes += more;
        match command {
            Command::Open(open) => last.open.push(open),
            Command::Batch(batch) => last.batches.push(batch),
            Command::Close(handle) => last.close.push(handle),
        }
    }
    messages.push(last);
    messages
}

async fn answer_of<T>(answered: oneshot::Receiver<Result<T, Fault>>) -> Result<T, Fault> {
    answered.await.unwrap_or_else(|_| Err(ended()))
}

pub(super) fn damaged(why: &str) -> Fault {
    Fault::new(Reason::Internal, format!("the query node's answer is damaged: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_is_never_in_the_message_of_an_earlier_close() {
        let open = |handle| Command::Open(LookupOpen { handle, ..Default::default() });
        let batch = |handle| Command::Batch(LookupBatch { handle, ..Default::default() });
        let commands = vec![open(1), batch(1), Command::Close(1), batch(2), open(3), open(4)];
        let messages = messages_of(commands).into_iter().map(|it| {
            let opened: Vec<_> = it.open.iter().map(|open| open.handle).collect();
            let asked: Vec<_> = it.batches.iter().map(|batch| batch.handle).collect();
            (opened, asked, it.close)
        });
        let expected = [(vec![1], vec![1, 2], vec![1]), (vec![3, 4], vec![], vec![])];
        assert_eq!(messages.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_projection_is_forgotten_once_it_is_closed_and_answered() {
        let mut waiting = Waiting::default();
        for handle in 0..LOOKUP_PROJECTIONS_MAX as u32 {
            waiting.open(handle, oneshot::channel().0).unwrap();
        }
        let fault = waiting.open(99, oneshot::channel().0).unwrap_err();
        assert!(fault.message.contains("64 projections are open"), "{fault}");
        let answer = oneshot::channel().0;
        waiting.send(1, Outstanding { handle: 7, credits: 1, answer });
        waiting.close(7);
        assert!(waiting.projections.contains_key(&7), "its batch needs the schema");
        waiting.open(99, oneshot::channel().0).unwrap();
        waiting.answered(1).unwrap();
        assert!(!waiting.projections.contains_key(&7));
        waiting.close(8);
        assert_eq!(waiting.projections.len(), LOOKUP_PROJECTIONS_MAX - 1);
    }
}
