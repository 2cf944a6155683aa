//! `bench search`: vector searches on a query node.

use client::query::{By, QueryClient, SearchRequest, Vector};
use wire::Fault;

use super::query_vectors::QueryVectors;
use super::target::Target;
use super::workload::{Done, Workload, random};
use crate::error::Result;

/// The settings of a load of searches.
#[derive(Clone, Debug)]
pub struct SearchPlan {
    /// The vector column, if given.
    pub column: Option<String>,
    /// The number of rows in each answer.
    pub k: u32,
    /// The number of index partitions to search; 0 for the node's default.
    pub nprobes: u32,
    /// Candidates to score exactly for each requested row; the node's default if not given.
    pub refine: Option<u32>,
    /// The predicate that rows must match; empty for none.
    pub filter: String,
    /// The columns to return; if empty, all but vectors and blobs.
    pub columns: Vec<String>,
    /// The seed with which query vectors are drawn.
    pub seed: u64,
}

/// A benchmark's load of searches.
pub struct SearchLoad {
    clients: Vec<QueryClient>,
    vectors: QueryVectors,
    request: SearchRequest,
    seed: u64,
}

impl SearchLoad {
    /// Draws the query vectors.
    pub async fn prepare(
        target: &Target,
        clients: Vec<QueryClient>,
        plan: SearchPlan,
    ) -> Result<Self> {
        let column = target.vector_column(plan.column.as_deref())?;
        let vectors = QueryVectors::draw(target, &column, plan.seed).await?;
        let request = SearchRequest {
            table: target.table.name.clone(),
            version: target.table.version,
            by: None,
            filter: plan.filter,
            k: plan.k,
            columns: plan.columns,
            vector_column: column,
            nprobes: plan.nprobes,
            refine_factor: plan.refine,
            explain: false,
            key_column: String::new(),
            ..Default::default()
        };
        Ok(Self { clients, vectors, request, seed: plan.seed })
    }
}

impl Workload for SearchLoad {
    async fn request(&self, number: u64) -> std::result::Result<Done, Fault> {
        let values = self.vectors.next(&mut random(self.seed, number));
        let request =
            SearchRequest { by: Some(By::Vector(Vector { values })), ..self.request.clone() };
        let client = &self.clients[number as usize % self.clients.len()];
        let found = client.search(request).await?;
        Ok(Done { rows: found.rows.num_rows() as u64, missing: 0 })
    }
}
