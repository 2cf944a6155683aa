//! Take: returns rows by address, as one Arrow IPC stream in messages of bounded size.

use std::sync::Arc;

use access::Permission;
use address::RowAddr;
use bytes::Bytes;
use futures::FutureExt;
use lake::LakeError;
use spelling::counted;
use tokio::sync::mpsc;
use wire::Fault;
use wire::query::{OnMissing, TakeRequest, TakeResponse};

use crate::call::Call;
use crate::counters::Stage;
use crate::error::{QueryError, Result};
use crate::io_tier::{fetch_rows, present};
use crate::ipc::IpcWriter;
use crate::request_context::RequestContext;
use crate::stages::{finish, validate_take};
use crate::state::ShardState;
use crate::tables::{Measure, OpenTable, Projection};

/// Maximum size of a message's rows, in bytes.
const MESSAGE_ROWS_BYTES: usize = 4 << 20;

/// Number of rows in the first fetch if rows have no fixed size. Their size determines the next fetch.
const ROWS_FIRST: usize = 256;

/// Maximum number of rows in one fetch.
const ROWS_MAX: usize = 16_384;

/// The channel of messages to the caller. If it is full, the Take waits for the caller to read.
pub type Messages = mpsc::Sender<std::result::Result<TakeResponse, Fault>>;

/// A validated Take request, and its progress.
pub struct Take {
    open: Arc<OpenTable>,
    addrs: Vec<RowAddr>,
    projection: Arc<Projection>,
    skip: bool,
    writer: IpcWriter,
    /// Index in `addrs` of the first row that has not been fetched.
    from: usize,
    /// Number of rows in the next fetch.
    rows_next: usize,
}

impl Take {
    /// Validates a request. If missing rows are an error, they are detected before anything is sent.
    pub async fn new(request: TakeRequest, call: &mut Call) -> Result<Self> {
        call.context = call.context.with_priority(request.priority)?;
        let addrs = validate_take(&request)?;
        let skip = match OnMissing::try_from(request.on_missing) {
            Ok(OnMissing::Error) => false,
            Ok(OnMissing::Skip) => true,
            Err(_) => {
                let problem = format!("is {}; give 0 (error) or 1 (skip)", request.on_missing);
                return Err(QueryError::BadRequest { field: "on_missing", problem });
            }
        };
        let open = call.open(&request.table, request.version, Permission::Read).boxed().await?;
        let context = call.context;
        let projection = open.project(&request.columns)?;
        if !skip {
            let missing = async { Ok(open.table.missing(&addrs).await?) }.boxed();
            let missing = context.bound("validate", missing).await?;
            refuse_missing(&open, missing.into_iter().map(|at| addrs[at]))?;
        }
        call.stage(Stage::Validate, || counted(addrs.len(), "row"));
        let writer = projection.answer(Measure::Nothing)?.head.writer();
        let rows_next = projection.row_bytes.map_or(ROWS_FIRST, rows_of_fixed_width);
        Ok(Self { open, addrs, projection, skip, writer, from: 0, rows_next })
    }

    /// Returns whether one fetch covers all remaining rows.
    pub fn is_one_fetch(&self) -> bool {
        self.addrs.len() - self.from <= self.rows_next
    }

    /// Fetches and sends all rows. `context_of` makes each fetch's context from the call's. Returns early if the
    /// caller is gone.
    pub async fn send(
        mut self,
        state: &ShardState,
        messages: &Messages,
        call: &mut Call,
        context_of: impl Fn(RequestContext) -> RequestContext,
    ) -> Result<()> {
        loop {
            let is_last = self.is_one_fetch();
            let context = context_of(call.context);
            for message in self.next(state, call, context).await? {
                if messages.send(Ok(message)).await.is_err() {
                    return Ok(());
                }
            }
            if is_last {
                return Ok(());
            }
            call.stage(Stage::Reply, || "until the caller had room for it".into());
        }
    }

    /// Fetches the next rows and returns their messages. After the last rows, the messages also contain the end of the
    /// Arrow IPC stream.
    pub async fn next(
        &mut self,
        state: &ShardState,
        call: &mut Call,
        context: RequestContext,
    ) -> Result<Vec<TakeResponse>> {
        let end = self.addrs.len().min(self.from + self.rows_next);
        let addrs = &self.addrs[self.from..end];
        let mut missing = Vec::new();
        call.renew()?;
        if !addrs.is_empty() {
            call.await_rows(addrs.len(), context).await?;
            call.hold_rows(self.projection.bytes_of(addrs.len()))?;
            let fetched = fetch_rows(state, &self.open, addrs, &self.projection, context).await?;
            call.hold_rows(fetched.rows.get_array_memory_size())?;
            call.io_stage(Stage::Fetch, addrs.len(), fetched.cost);
            missing = fetched.missing;
            if !self.skip {
                refuse_missing(&self.open, missing.iter().map(|&at| addrs[at as usize]))?;
            }
            let mut there = Vec::with_capacity(addrs.len());
            there.extend(present(addrs.len(), &missing).map(|at| addrs[at].to_u64()));
            let rows =
                finish(&fetched.rows, &self.projection, Measure::Nothing, there, Vec::new())?;
            self.writer.write(&rows)?;
            missing.iter_mut().for_each(|at| *at += self.from as u32);
        }
        let rows = addrs.len();
        self.from = end;
        if end == self.addrs.len() {
            self.writer.finish();
        }
        let bytes = Bytes::from(self.writer.take());
        call.count_rows(rows - missing.len(), bytes.len());
        call.stage(Stage::Assemble, || counted(bytes.len(), "byte"));
        if self.projection.row_bytes.is_none() {
            self.rows_next = rows_of_message(bytes.len() / rows.max(1));
        }
        Ok(self.messages(&bytes, missing))
    }

    fn messages(&self, bytes: &Bytes, mut missing: Vec<u32>) -> Vec<TakeResponse> {
        let starts = (0..bytes.len()).step_by(MESSAGE_ROWS_BYTES);
        let message = |start: usize| TakeResponse {
            rows: bytes.slice(start..bytes.len().min(start + MESSAGE_ROWS_BYTES)),
            version: self.open.version(),
            missing: std::mem::take(&mut missing),
        };
        starts.map(message).collect()
    }
}

/// Returns the number of rows that fit a message if the columns of a row have `row_bytes` bytes. Each row also has an
/// address.
fn rows_of_fixed_width(row_bytes: usize) -> usize {
    rows_of_message(row_bytes.saturating_add(size_of::<u64>()))
}

/// Returns the number of rows of `row_bytes` bytes that fit a message: at least 1, at most [`ROWS_MAX`].
fn rows_of_message(row_bytes: usize) -> usize {
    (MESSAGE_ROWS_BYTES / row_bytes.max(1)).clamp(1, ROWS_MAX)
}

fn refuse_missing(open: &OpenTable, missing: impl Iterator<Item = RowAddr>) -> Result<()> {
    let addresses: Vec<RowAddr> = missing.collect();
    if addresses.is_empty() {
        return Ok(());
    }
    let (uri, version) = (open.table.uri().to_owned(), open.version());
    Err(LakeError::RowNotFound { uri, version, addresses }.into())
}
