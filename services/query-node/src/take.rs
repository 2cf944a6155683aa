//! Take: rows by address, as one Arrow IPC stream in messages of bounded size.

use std::sync::Arc;

use address::RowAddr;
use arrow_array::RecordBatch;
use bytes::Bytes;
use futures::FutureExt;
use lake::LakeError;
use tokio::sync::mpsc;
use wire::Fault;
use wire::query::{OnMissing, TakeRequest, TakeResponse};

use crate::call::Call;
use crate::counted::counted;
use crate::error::{QueryError, Result};
use crate::metrics::Stage;
use crate::stages::{IpcWriter, fetch_rows, finish, validate_take, with_addresses};
use crate::state::State;
use crate::tables::OpenTable;
use crate::terms::Terms;

/// Bytes of rows in a message, at most.
const MESSAGE_ROWS_BYTES: usize = 4 << 20;

/// Rows of the first fetch, whose size tells how many to fetch next.
const ROWS_FIRST: usize = 256;

/// Rows of one fetch, at most.
const ROWS_MAX: usize = 16_384;

/// Where the messages go. A full one makes the work wait for its reader.
pub type Messages = mpsc::Sender<std::result::Result<TakeResponse, Fault>>;

/// A Take that was checked.
pub struct Take {
    open: Arc<OpenTable>,
    addrs: Vec<RowAddr>,
    columns: Vec<String>,
    skip: bool,
    priority: i32,
}

impl Take {
    /// Checks a request. Rows that are missing, if that is an error, are found out before anything
    /// is sent.
    pub async fn new(state: &State, request: TakeRequest, call: &mut Call) -> Result<Self> {
        call.terms = call.terms.with_priority(request.priority)?;
        let terms = call.terms;
        let addrs = validate_take(&request, &state.shared.config)?;
        let skip = match OnMissing::try_from(request.on_missing) {
            Ok(OnMissing::Error) => false,
            Ok(OnMissing::Skip) => true,
            Err(_) => {
                let problem = format!("is {}; give 0 (error) or 1 (skip)", request.on_missing);
                return Err(QueryError::BadRequest { field: "on_missing", problem });
            }
        };
        let open = state.shared.catalog.open(&request.table, request.version).boxed();
        let open = terms.bound("open", open).await?;
        let columns = open.columns(&request.columns)?;
        if !skip {
            let missing = async { Ok(open.table.missing(&addrs).await?) }.boxed();
            let missing = terms.bound("validate", missing).await?;
            refuse_missing(&open, missing.into_iter().map(|at| addrs[at]))?;
        }
        call.say_table(&open);
        call.stage(Stage::Validate, || counted(addrs.len(), "row"));
        Ok(Self { open, addrs, columns, skip, priority: request.priority })
    }

    /// Fetches and sends all rows. `terms_of` gives each fetch its deadline. Ends early when the
    /// reader has gone.
    pub async fn send(
        self,
        state: &State,
        messages: &Messages,
        call: &mut Call,
        terms_of: impl Fn(Terms) -> Terms,
    ) -> Result<()> {
        let schema = self.open.schema_of(&self.columns)?;
        let no_rows = with_addresses(&RecordBatch::new_empty(schema.clone()), std::iter::empty())?;
        let mut writer = IpcWriter::new(no_rows.schema_ref())?;
        let (mut from, mut rows_next) = (0, ROWS_FIRST);
        // The last rows leave together with the stream's end: one message where there is one fetch.
        let mut last = (Vec::new(), Vec::new());
        while from < self.addrs.len() {
            let addrs = &self.addrs[from..self.addrs.len().min(from + rows_next)];
            let terms = terms_of(call.terms).with_priority(self.priority)?;
            let fetched = fetch_rows(state, &self.open, addrs, &self.columns, terms).await?;
            call.io_stage(Stage::Fetch, addrs.len(), fetched.cost);
            if !self.skip {
                let missing = fetched.missing.iter().map(|&at| addrs[at as usize]);
                refuse_missing(&self.open, missing)?;
            }
            let is_there = |at: &usize| fetched.missing.binary_search(&(*at as u32)).is_err();
            let present = (0..addrs.len()).filter(is_there).map(|at| addrs[at]);
            writer.write(&with_addresses(&finish(&fetched.rows, &schema)?, present)?)?;
            let bytes = writer.take();
            call.stage(Stage::Assemble, || counted(bytes.len(), "byte"));
            let row_bytes = (bytes.len() / addrs.len()).max(1);
            rows_next = (MESSAGE_ROWS_BYTES / row_bytes).clamp(1, ROWS_MAX);
            let missing = fetched.missing.iter().map(|at| at + from as u32).collect();
            from += addrs.len();
            if from == self.addrs.len() {
                last = (bytes, missing);
            } else if self.send_bytes(messages, bytes, missing).await.is_err() {
                return Ok(());
            } else {
                call.stage(Stage::Reply, || "until the caller had room for it".into());
            }
        }
        let (mut bytes, missing) = last;
        bytes.extend(writer.finish()?);
        // A reader that has gone needs no end.
        let _ = self.send_bytes(messages, bytes, missing).await;
        Ok(())
    }

    async fn send_bytes(
        &self,
        messages: &Messages,
        bytes: Vec<u8>,
        mut missing: Vec<u32>,
    ) -> std::result::Result<(), Gone> {
        let bytes = Bytes::from(bytes);
        for start in (0..bytes.len()).step_by(MESSAGE_ROWS_BYTES) {
            let rows = bytes.slice(start..bytes.len().min(start + MESSAGE_ROWS_BYTES));
            let version = self.open.version();
            let missing = std::mem::take(&mut missing);
            let message = TakeResponse { rows, version, missing };
            messages.send(Ok(message)).await.map_err(|_| Gone)?;
        }
        Ok(())
    }
}

/// The reader doesn't listen any more.
struct Gone;

fn refuse_missing(open: &OpenTable, missing: impl Iterator<Item = RowAddr>) -> Result<()> {
    let addresses: Vec<RowAddr> = missing.collect();
    if addresses.is_empty() {
        return Ok(());
    }
    let (uri, version) = (open.table.uri().to_owned(), open.version());
    Err(LakeError::RowNotFound { uri, version, addresses }.into())
}
