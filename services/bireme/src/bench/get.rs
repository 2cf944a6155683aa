//! `bench get`: look-ups by key on a query node.

use client::query::{GetRequest, GottenRows, QueryClient, RowFormat};
use rand::Rng;
use wire::Fault;

use super::target::Target;
use super::workload::{Done, Workload, random};
use crate::error::{CliError, Result};
use crate::output::key_text;

/// The maximum number of keys that are drawn from the table.
const KEYS: usize = 20_000;

/// The settings of a load of look-ups.
#[derive(Clone, Debug)]
pub struct GetPlan {
    /// The key column; the table's own if not given.
    pub column: Option<String>,
    /// The number of keys in each request.
    pub keys: usize,
    /// The columns to return; if empty, all but vectors and blobs.
    pub columns: Vec<String>,
    /// Whether rows come back as JSON.
    pub json_rows: bool,
    /// The seed with which keys are drawn.
    pub seed: u64,
}

/// A benchmark's load of look-ups.
pub struct GetLoad {
    clients: Vec<QueryClient>,
    keys: Vec<String>,
    request: GetRequest,
    plan: GetPlan,
}

impl GetLoad {
    /// Draws the keys.
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
        let mut keys = Vec::new();
        for batch in target.sample(&column, plan.seed, KEYS).await? {
            let Some(array) = batch.columns().first() else { continue };
            keys.extend((0..array.len()).filter_map(|row| key_text(array, row)));
        }
        if keys.is_empty() {
            return Err(CliError::usage(format!("no key was drawn from column `{column}`")));
        }
        let format = if plan.json_rows { RowFormat::Json } else { RowFormat::Arrow };
        let request = GetRequest {
            table: table.name.clone(),
            version: table.version,
            keys: Vec::new(),
            columns: plan.columns.clone(),
            key_column: column,
            format: format.into(),
            ..Default::default()
        };
        Ok(Self { clients, keys, request, plan })
    }
}

impl Workload for GetLoad {
    async fn request(&self, number: u64) -> std::result::Result<Done, Fault> {
        let mut random = random(self.plan.seed, number);
        let key = |_| self.keys[random.random_range(0..self.keys.len())].clone();
        let keys = (0..self.plan.keys).map(key).collect();
        let client = &self.clients[number as usize % self.clients.len()];
        let gotten = client.get(GetRequest { keys, ..self.request.clone() }).await?;
        let rows = match &gotten.rows {
            GottenRows::Arrow(rows) => rows.num_rows(),
            GottenRows::Json(lines) => lines.lines().count(),
        };
        Ok(Done { rows: rows as u64, missing: gotten.not_found.len() as u64 })
    }
}
