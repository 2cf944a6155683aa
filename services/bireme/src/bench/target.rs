//! The table that load is applied to, as its query node describes it.

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use client::query::{OnMissing, QueryClient, TableDescription, TakeRequest};
use wire::query::{DescribeTableRequest, DescribeTableResponse};

use super::live_rows::LiveRows;
use crate::arguments::{Connection, TableArgs};
use crate::error::{CliError, Result};

/// A mask that is XORed into the seed for samples, so that samples and requests are drawn in different orders.
const SAMPLE: u64 = u64::MAX;

/// A table to apply load to.
pub struct Target {
    /// A client of the table's query node.
    pub client: QueryClient,
    /// The query node's description of the table.
    pub table: DescribeTableResponse,
    /// The version that was asked for; 0 for the latest.
    pub asked_version: u64,
    /// The table's branch; empty for the main one.
    pub branch: String,
    /// The table's schema.
    pub schema: SchemaRef,
    /// The table's rows.
    pub rows: LiveRows,
    /// The time limit of a request.
    pub timeout: std::time::Duration,
}

impl Target {
    /// Asks the query node for the description of a table.
    pub async fn find(connection: &Connection, table: &TableArgs) -> Result<Self> {
        let client = connection.open().await?;
        let TableArgs { table, table_version: version, table_branch: branch } = table.clone();
        let request = DescribeTableRequest { table, version, branch: branch.clone() };
        let TableDescription { response, schema } = client.describe_version(request).await?;
        let rows = LiveRows::new(&response.fragment_sizes).ok_or_else(|| {
            CliError::usage(format!(
                "table `{}` has no rows; there is nothing to measure",
                response.name
            ))
        })?;
        let timeout = connection.timeout();
        Ok(Self { client, table: response, asked_version: version, branch, schema, rows, timeout })
    }

    /// Returns the columns of a request that names none: all but vectors and blobs.
    pub fn narrow_columns(&self) -> Vec<String> {
        let narrow = self.table.columns.iter().filter(|column| column.by_default);
        narrow.map(|column| column.name.clone()).collect()
    }

    /// Returns the vector column: the requested one, else the one with an index, else the only one.
    pub fn vector_column(&self, asked: Option<&str>) -> Result<String> {
        if let Some(column) = asked {
            return Ok(column.to_owned());
        }
        let indexes = self.table.indexes.iter().filter(|index| !index.metric.is_empty());
        let mut columns: Vec<&String> = indexes.filter_map(|index| index.columns.first()).collect();
        columns.dedup();
        if columns.is_empty() {
            let vectors = self.schema.fields().iter().filter(|field| {
                matches!(field.data_type(), DataType::FixedSizeList(item, _) if item.data_type().is_floating())
            });
            columns = vectors.map(|field| field.name()).collect();
        }
        match columns.as_slice() {
            [column] => Ok((*column).clone()),
            [] => Err(CliError::usage(format!("table `{}` has no vector column", self.table.name))),
            _ => {
                Err(CliError::usage("the table has several vector columns; name one with --column"))
            }
        }
    }

    /// Returns the text column: the requested one, else the first with a full-text index.
    pub fn text_column(&self, asked: Option<&str>) -> Result<String> {
        let indexes = self.table.indexes.iter().filter(|index| index.kind == "Inverted");
        let indexed = indexes.filter_map(|index| index.columns.first()).next();
        asked.map(str::to_owned).or_else(|| indexed.cloned()).ok_or_else(|| {
            let name = &self.table.name;
            CliError::usage(format!("table `{name}` has no full-text index to search"))
        })
    }

    /// Returns one column of `rows` rows drawn with `seed`, as batches. Deleted rows are left out.
    pub async fn sample(&self, column: &str, seed: u64, rows: usize) -> Result<Vec<RecordBatch>> {
        let addrs = self.rows.draw(seed ^ SAMPLE, 0, rows);
        let request = TakeRequest {
            table: self.table.name.clone(),
            version: self.table.version,
            branch: self.branch.clone(),
            row_addrs: addrs.iter().map(|addr| addr.to_u64()).collect(),
            columns: vec![column.to_owned()],
            on_missing: OnMissing::Skip.into(),
            ..Default::default()
        };
        Ok(self.client.take(request).await?.collect().await?.batches)
    }

    /// Returns `count` clients of the query node, each with its own connection, because one connection's HTTP/2 uses at
    /// most one core.
    pub async fn connections(
        &self,
        connection: &Connection,
        count: usize,
    ) -> Result<Vec<QueryClient>> {
        let mut clients = vec![self.client.clone()];
        while clients.len() < count {
            clients.push(connection.open().await?);
        }
        Ok(clients)
    }
}
