//! `bench get`: look-ups by key on a query node, by single Gets or on Lookup streams.

use arrow_array::{Array, ArrayRef};
use client::query::{
    GetRequest, GottenRows, Keys, Lookup, LookupOpen, QueryClient, RowFormat, keys_of,
};
use futures::future::try_join_all;
use wire::{Fault, Reason};

use super::keys::{BenchKeys, KeyDistribution};
use super::target::Target;
use super::workload::{Done, Workload};
use crate::error::{CliError, Result};
use crate::output::key_text;

/// The settings of a load of look-ups.
#[derive(Clone, Debug)]
pub struct GetPlan {
    /// The key column; the table's own if not given.
    pub column: Option<String>,
    /// The number of keys in each request.
    pub keys: usize,
    /// The distribution by which keys are chosen.
    pub distribution: KeyDistribution,
    /// The number of Lookup streams on each connection; 0 for single Gets.
    pub streams: usize,
    /// The columns to return; if empty, all but vectors and blobs.
    pub columns: Vec<String>,
    /// Whether rows come back as JSON.
    pub json_rows: bool,
    /// The seed with which keys are drawn.
    pub seed: u64,
}

/// A benchmark's load of look-ups.
pub struct GetLoad {
    keys: BenchKeys,
    keys_each: usize,
    by: By,
}

enum By {
    Gets { clients: Vec<QueryClient>, request: GetRequest },
    Streams(Vec<Lookup>),
}

impl GetLoad {
    /// Draws the keys, and opens the streams.
    pub async fn prepare(
        target: &Target,
        clients: Vec<QueryClient>,
        plan: GetPlan,
    ) -> Result<Self> {
        let table = &target.table;
        let column = plan.column.clone().unwrap_or_else(|| table.key_column.clone());
        if column.is_empty() {
            let message =
                format!("table `{}` records no key column; name one with --key-column", table.name);
            return Err(CliError::usage(message));
        }
        let keys = BenchKeys::draw(target, &column, plan.distribution, plan.seed).await?;
        let format = if plan.json_rows { RowFormat::Json } else { RowFormat::Arrow };
        let request = GetRequest {
            table: table.name.clone(),
            // Keys, unlike addresses, stay valid if the table changes, so the latest version is asked for as callers do.
            version: target.asked_version,
            branch: target.branch.clone(),
            keys: Vec::new(),
            columns: plan.columns,
            key_column: column,
            format: format.into(),
            ..Default::default()
        };
        let by = match plan.streams {
            0 => By::Gets { clients, request },
            streams => By::Streams(open_streams(&clients, streams, &request).await?),
        };
        Ok(Self { keys, keys_each: plan.keys, by })
    }

    async fn answer(
        &self,
        number: u64,
        keys: ArrayRef,
    ) -> std::result::Result<(GottenRows, usize), Fault> {
        match &self.by {
            By::Gets { clients, request } => {
                let keys = (0..keys.len()).filter_map(|row| key_text(&keys, row)).collect();
                let client = &clients[number as usize % clients.len()];
                let gotten = client.get(GetRequest { keys, ..request.clone() }).await?;
                Ok((gotten.rows, gotten.not_found.len()))
            }
            By::Streams(streams) => {
                let keys: Keys = keys_of(&keys)?;
                let answer = streams[number as usize % streams.len()].get(keys).await?;
                let rows = answer.rows.ok_or_else(|| {
                    Fault::new(Reason::Internal, "the answer has no rows, which were asked for")
                })?;
                Ok((rows, answer.not_found.len()))
            }
        }
    }
}

async fn open_streams(
    clients: &[QueryClient],
    streams: usize,
    request: &GetRequest,
) -> Result<Vec<Lookup>> {
    let open = || LookupOpen {
        table: request.table.clone(),
        version: request.version,
        branch: request.branch.clone(),
        key_column: request.key_column.clone(),
        columns: request.columns.clone(),
        format: request.format,
        ..Default::default()
    };
    // Order the streams so that consecutive requests go to different connections.
    let connections = (0..streams).flat_map(|_| clients);
    let opened = connections.map(|client| async { client.lookups().await?.open(open()).await });
    Ok(try_join_all(opened).await?)
}

impl Workload for GetLoad {
    async fn request(&self, number: u64) -> std::result::Result<Done, Fault> {
        let keys = self.keys.of_request(number, self.keys_each);
        let keys = keys.map_err(|error| Fault::new(Reason::Internal, error.to_string()))?;
        let (rows, missing) = self.answer(number, keys).await?;
        let rows = match &rows {
            GottenRows::Arrow(rows) => rows.num_rows(),
            GottenRows::Json(lines) => lines.lines().count(),
        };
        Ok(Done { rows: rows as u64, missing: missing as u64 })
    }
}
