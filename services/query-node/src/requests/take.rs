//! Take: returns rows by address or by position, as one Arrow IPC stream in messages of bounded size.

use std::sync::Arc;

use address::RowAddr;
use bytes::Bytes;
use futures::FutureExt;
use lake::LakeError;
use spelling::counted;
use wire::query::{OnMissing, TakeRequest, TakeResponse};
use wire::{Fault, Reason};

use crate::call::Call;
use crate::counters::Stage;
use crate::error::{QueryError, Result};
use crate::ipc::IpcWriter;
use crate::request_context::RequestContext;
use crate::requests::pieces::Pieces;
use crate::requests::row_reader::{Piece, RowReader};
use crate::stages::{TakenRows, validate_take};
use crate::state::{Ask, ShardState};
use crate::tables::{AskedVersion, Measure, OpenTable};

/// Maximum size of a message's rows, in bytes. A piece of rows (`row_reader.rs`) usually takes one or two messages. It
/// takes more if its rows are larger than the earlier rows, from which its number of rows was computed.
const MESSAGE_ROWS_BYTES: usize = 4 << 20;

/// An address that no row has: no table has this many fragments.
const NOWHERE: RowAddr = RowAddr::new(u32::MAX, 0);

/// A validated Take request, and its progress.
pub struct Take {
    reader: RowReader,
    skip: bool,
    writer: IpcWriter,
}

impl Take {
    /// Validates a request. If missing rows are an error, they are detected before anything is sent, unless the
    /// caller's grant hides rows: then they are detected piece by piece.
    pub async fn new(
        state: &ShardState,
        mut request: TakeRequest,
        call: &mut Call,
    ) -> Result<Self> {
        call.context = call.context.with_priority(request.priority)?;
        let wanted = validate_take(&mut request)?;
        let skip = match OnMissing::try_from(request.on_missing) {
            Ok(OnMissing::Error) => false,
            Ok(OnMissing::Skip) => true,
            Err(_) => {
                let problem = format!("is {}; give 0 (error) or 1 (skip)", request.on_missing);
                return Err(QueryError::BadRequest { field: "on_missing", problem });
            }
        };
        let TakeRequest { table, branch, version, .. } = &request;
        let asked = AskedVersion { table, branch, version: *version };
        let open = call.open_shown(asked).boxed().await?;
        let context = call.context;
        let projection = open.project(&request.columns)?;
        let addrs = match wanted {
            TakenRows::Offsets(offsets) => located(state, &open, offsets, skip, context).await?,
            // Whether a row is hidden is known only when it is fetched. If hidden rows were found later than rows that
            // do not exist, an answer would tell the two apart.
            TakenRows::Addresses(addrs) if skip || open.hides_rows() => addrs,
            TakenRows::Addresses(addrs) => {
                let missing = async { Ok(open.table.missing(&addrs).await?) }.boxed();
                let missing = context.bound("validate", missing).await?;
                refuse_missing(&open, missing.into_iter().map(|at| addrs[at]))?;
                addrs
            }
        };
        call.stage(Stage::Validate, || counted(addrs.len(), "row"));
        let writer = projection.answer(Measure::Nothing)?.head.writer();
        Ok(Self { reader: RowReader::new(open, addrs, projection), skip, writer })
    }

    /// Returns whether one fetch covers all remaining rows.
    pub fn is_one_fetch(&self) -> bool {
        self.reader.is_last()
    }

    /// Fetches and sends all rows. Returns early if the caller is gone.
    pub async fn send(
        mut self,
        state: &ShardState,
        messages: &Pieces<TakeResponse>,
        call: &mut Call,
    ) -> Result<()> {
        loop {
            let is_last = self.is_one_fetch();
            for message in self.next(state, call).await? {
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
    pub async fn next(&mut self, state: &ShardState, call: &mut Call) -> Result<Vec<TakeResponse>> {
        let is_last = self.reader.is_last();
        let context = call.context.for_piece();
        let Piece { rows, from, mut missing } = self.reader.next(state, call, context).await?;
        if !self.skip {
            let addrs = &self.reader.addrs[from..];
            refuse_missing(&self.reader.open, missing.iter().map(|&at| addrs[at as usize]))?;
        }
        self.writer.write(&rows)?;
        if is_last {
            self.writer.finish();
        }
        let bytes = Bytes::from(self.writer.take());
        call.count_rows(rows.num_rows(), bytes.len());
        call.stage(Stage::Assemble, || counted(bytes.len(), "byte"));
        missing.iter_mut().for_each(|at| *at += from as u32);
        Ok(self.messages(&bytes, missing))
    }

    fn messages(&self, bytes: &Bytes, mut missing: Vec<u32>) -> Vec<TakeResponse> {
        let starts = (0..bytes.len()).step_by(MESSAGE_ROWS_BYTES);
        let message = |start: usize| TakeResponse {
            rows: bytes.slice(start..bytes.len().min(start + MESSAGE_ROWS_BYTES)),
            version: self.reader.open.version(),
            missing: std::mem::take(&mut missing),
        };
        starts.map(message).collect()
    }
}

/// Returns the address of the row at each of `offsets`. An offset after the last row gets [`NOWHERE`] if `skip` is set.
///
/// # Errors
/// `RowNotFound` for offsets after the last row, unless `skip` is set; and those of the store.
async fn located(
    state: &ShardState,
    open: &Arc<OpenTable>,
    offsets: Vec<u64>,
    skip: bool,
    context: RequestContext,
) -> Result<Vec<RowAddr>> {
    let ask = Ask { during: "validate", rows: offsets.len(), context };
    let table = Arc::clone(open);
    let locate = async move {
        let found = table.table.live_rows_at(&offsets).await?;
        let absent = found.iter().position(Option::is_none).filter(|_| !skip);
        if let Some(at) = absent {
            let (offset, version) = (offsets[at], table.version());
            let rows = counted(table.table.row_count() as usize, "row");
            let message = format!(
                "version {version} of table `{}` has no row at the offset {offset}: it has {rows}",
                table.name
            );
            let fault = Fault::new(Reason::RowNotFound, message).with("row_offset", offset);
            return Err(QueryError::Fault(fault));
        }
        Ok(found.into_iter().map(|addr| addr.unwrap_or(NOWHERE)).collect())
    };
    state.shared.admission.run_in_background(ask, locate.boxed()).await
}

fn refuse_missing(open: &OpenTable, missing: impl Iterator<Item = RowAddr>) -> Result<()> {
    let addresses: Vec<RowAddr> = missing.collect();
    if addresses.is_empty() {
        return Ok(());
    }
    let (uri, version) = (open.table.uri().to_owned(), open.version());
    Err(LakeError::RowNotFound { uri, version, addresses }.into())
}
