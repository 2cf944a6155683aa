//! Get: returns rows by key, in the order of the keys. It only calls the stages.

use std::sync::Arc;

use address::without;
use futures::FutureExt;
use key_proof::FoundRows;
use spelling::counted;
use wire::query::{GetRequest, GetResponse, RowFormat};

use crate::call::Call;
use crate::counters::Stage;
use crate::error::Result;
use crate::requests::by_key::{ExtraRows, Gathered, find_all_rows, find_gathered};
use crate::stages::{Keys, finish, ipc_stream, json_lines, key_column, row_format, validate_keys};
use crate::tables::{AskedVersion, Measure};

/// An answer to a Get that has not been sent.
pub struct GetAnswer {
    pub response: GetResponse,
    /// The number of rows.
    rows: usize,
}

impl GetAnswer {
    /// Counts the answer's rows for the audit log and the grant's use, and returns the answer for the caller.
    pub fn sent(self, call: &mut Call) -> GetResponse {
        call.count_rows(self.rows, self.response.rows.len());
        self.response
    }
}

/// Answers a Get request.
pub async fn get(request: GetRequest, call: &mut Call) -> Result<GetAnswer> {
    call.context = call.context.with_priority(request.priority)?;
    validate_keys(&request)?;
    let format = row_format(request.format)?;
    let GetRequest { table, branch, version, .. } = &request;
    let asked = AskedVersion { table, branch, version: *version };
    let open = call.open_shown(asked).boxed().await?;
    call.take_rows(request.keys.len())?;
    let asked = open.project(&request.columns)?;
    let column = key_column(&open, &request.key_column)?;
    let keys = open.table.key_values(&column, &request.keys)?;
    call.stage(Stage::Validate, || counted(request.keys.len(), "key"));
    let keys = Keys { open: &open, column: &column, keys: &keys };
    let Gathered { found, unread, .. } = match request.all_rows {
        true => {
            let (state, extra) = (Arc::clone(call.shard()), &mut ExtraRows::default());
            let rows = find_all_rows(&state, keys, &asked, Stage::Fetch, extra, call);
            rows.boxed().await?.into()
        }
        false => find_gathered(keys, &asked, request.partial, call).await?,
    };
    let FoundRows { rows, keys: row_keys, addrs } = &found;
    let mut with_row = row_keys.clone();
    with_row.dedup();
    let without_row = without(0..request.keys.len() as u32, &with_row);
    let not_found = without(without_row, &unread.keys).collect();
    let addrs = addrs.iter().map(|addr| addr.to_u64()).collect();
    let rows = finish(rows, &asked, Measure::Nothing, addrs, Vec::new())?;
    call.stage(Stage::Assemble, || counted(rows.num_rows(), "row"));
    let rows = match format {
        RowFormat::Arrow => ipc_stream(&asked.answer(Measure::Nothing)?.head, &rows)?,
        RowFormat::Json => json_lines(&rows)?,
    };
    call.stage(Stage::Reply, || counted(rows.len(), "byte"));
    let count = row_keys.len();
    let row_keys = if request.all_rows { row_keys.clone() } else { Vec::new() };
    let version = open.version();
    let error = unread.error.map(|error| call.count_failure(error).into());
    let response = GetResponse { rows, version, not_found, error, row_keys, failed: unread.keys };
    Ok(GetAnswer { response, rows: count })
}
