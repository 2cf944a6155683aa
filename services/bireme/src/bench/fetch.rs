//! `bench fetch`: random rows from one I/O node, over the streams that query nodes use.

use std::sync::Arc;
use std::time::Duration;

use client::fetch::{FetchClient, FetchOptions, Instant, Metric, Projection, Rerank, TableVersion};
use client::{Endpoint, Network};
use peers::Prover;
use wire::Fault;
use wire::fetch::DescribeResponse;

use super::live_rows::LiveRows;
use super::query_vectors::QueryVectors;
use super::target::Target;
use super::workload::{Done, Workload, random};
use crate::error::{CliError, Result};

/// The time that the node has to describe itself.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of a load of fetches.
#[derive(Clone, Debug)]
pub struct FetchPlan {
    /// The number of addresses in a batch.
    pub batch_rows: usize,
    /// The table's URI, as the I/O node serves it.
    pub uri: String,
    /// The columns to fetch; if empty, all but vectors and blobs, or with `rerank` the vector column.
    pub columns: Vec<String>,
    /// If given, the I/O node scores the rows and returns only this many, the nearest ones.
    pub rerank: Option<u32>,
    /// The number of streams; if not given, one for each core of the node.
    pub streams: Option<usize>,
    /// The seed with which addresses are drawn.
    pub seed: u64,
    /// The maximum number of batches at the same time.
    pub concurrency: usize,
    /// The network over which to connect to the I/O node.
    pub network: Network,
    /// Proves that this side knows the I/O node's secret. `None` if the node has none.
    pub prover: Option<Arc<Prover>>,
}

/// A benchmark's load of fetches.
pub struct FetchLoad {
    client: FetchClient,
    projection: Projection,
    rows: LiveRows,
    vectors: Option<QueryVectors>,
    metric: Metric,
    plan: FetchPlan,
    timeout: Duration,
}

impl FetchLoad {
    /// Connects and opens the projection.
    pub async fn prepare(target: &Target, endpoint: Endpoint, plan: FetchPlan) -> Result<Self> {
        let deadline = Instant::now() + target.timeout;
        let (network, prover) = (plan.network.clone(), plan.prover.clone());
        let common = FetchOptions { network, prover, ..Default::default() };
        let one = FetchOptions { streams: 1, ..common.clone() };
        let first = FetchClient::new(endpoint.clone(), one)?;
        first.ready(deadline).await?;
        let node = first.describe(DESCRIBE_TIMEOUT).await?;
        let options = FetchOptions {
            streams: plan.streams.unwrap_or(node.cores.len()).max(1),
            queue_batches_max: plan.concurrency.max(1024),
            ..common
        };
        let client = FetchClient::new(endpoint, options)?;
        let (columns, vectors) = match plan.rerank {
            None if plan.columns.is_empty() => (target.narrow_columns(), None),
            None => (plan.columns.clone(), None),
            Some(_) => {
                let asked = match plan.columns.as_slice() {
                    [] => None,
                    [column] => Some(column.as_str()),
                    _ => {
                        return Err(CliError::usage(
                            "--rerank takes one vector column in --columns",
                        ));
                    }
                };
                let column = target.vector_column(asked)?;
                let vectors = QueryVectors::draw(target, &column, plan.seed).await?;
                (vec![column], Some(vectors))
            }
        };
        let version = TableVersion {
            uri: &plan.uri,
            branch: &target.branch,
            version: target.table.version,
            identity: "",
        };
        let projection = client.open(version, &columns, deadline).await?;
        Ok(Self {
            client,
            projection,
            rows: target.rows.clone(),
            vectors,
            metric: metric(target, &columns),
            plan,
            timeout: target.timeout,
        })
    }

    /// Returns the node's description of itself.
    pub async fn describe(client: &FetchClient) -> Result<DescribeResponse> {
        Ok(client.describe(DESCRIBE_TIMEOUT).await?)
    }

    /// Returns the columns that are fetched.
    pub fn columns(&self) -> Vec<String> {
        self.projection.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Returns a client of the node.
    pub fn client(&self) -> FetchClient {
        self.client.clone()
    }
}

/// Returns the metric of the column's index, or L2 without an index.
fn metric(target: &Target, columns: &[String]) -> Metric {
    let of_column =
        |index: &&wire::query::Index| index.columns == columns && !index.metric.is_empty();
    match target.table.indexes.iter().find(of_column).map(|index| index.metric.as_str()) {
        Some("cosine") => Metric::Cosine,
        Some("dot") => Metric::Dot,
        _ => Metric::L2,
    }
}

impl Workload for FetchLoad {
    async fn request(&self, number: u64) -> std::result::Result<Done, Fault> {
        let count = self.plan.batch_rows;
        let addrs = self.rows.draw(self.plan.seed, number * count as u64, count);
        let mut random = random(self.plan.seed, number);
        let rerank = self.vectors.as_ref().zip(self.plan.rerank);
        let rerank =
            rerank.map(|(vectors, k)| Rerank::new(&vectors.next(&mut random), self.metric, k));
        let asked = addrs.len() as u64;
        let deadline = Instant::now() + self.timeout;
        let reply = self.client.fetch(&self.projection, addrs, rerank, deadline).await?;
        let missing = reply.missing.len() as u64;
        Ok(Done { rows: asked - missing, missing })
    }
}
