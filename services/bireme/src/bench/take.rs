//! `bench take`: rows by address, through both tiers.

use client::query::{OnMissing, QueryClient, TakeRequest};
use wire::Fault;

use super::live_rows::LiveRows;
use super::target::Target;
use super::workload::{Done, Workload};

/// The settings of a load of takes.
#[derive(Clone, Debug)]
pub struct TakePlan {
    /// The number of addresses in each request.
    pub rows: usize,
    /// The columns to return; if empty, all but vectors and blobs.
    pub columns: Vec<String>,
    /// The seed with which addresses are drawn.
    pub seed: u64,
}

/// A benchmark's load of takes.
pub struct TakeLoad {
    clients: Vec<QueryClient>,
    rows: LiveRows,
    request: TakeRequest,
    plan: TakePlan,
}

impl TakeLoad {
    /// Creates a load of takes from `target`.
    pub fn new(target: &Target, clients: Vec<QueryClient>, plan: TakePlan) -> Self {
        let request = TakeRequest {
            table: target.table.name.clone(),
            version: target.table.version,
            branch: target.branch.clone(),
            row_addrs: Vec::new(),
            columns: plan.columns.clone(),
            on_missing: OnMissing::Skip.into(),
            ..Default::default()
        };
        Self { clients, rows: target.rows.clone(), request, plan }
    }
}

impl Workload for TakeLoad {
    async fn request(&self, number: u64) -> Result<Done, Fault> {
        let count = self.plan.rows;
        let addrs = self.rows.draw(self.plan.seed, number * count as u64, count);
        let row_addrs = addrs.iter().map(|addr| addr.to_u64()).collect();
        let client = &self.clients[number as usize % self.clients.len()];
        let taken = client.take(TakeRequest { row_addrs, ..self.request.clone() }).await?;
        let taken = taken.collect().await?;
        let rows = taken.batches.iter().map(|batch| batch.num_rows() as u64).sum();
        Ok(Done { rows, missing: taken.missing.len() as u64 })
    }
}
