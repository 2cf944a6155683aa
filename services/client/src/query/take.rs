//! Take: rows by address, as one Arrow IPC stream that is decoded as its bytes arrive.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use tonic::Streaming;
use wire::query::{TakeRequest, TakeResponse};
use wire::{Fault, RowStream};

use super::connect::{QueryClient, Service};
use super::rows::damaged;

/// A part of the rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// The next rows, in the order of their addresses.
    pub batches: Vec<RecordBatch>,
    /// Positions (within the request) of addresses that were left out.
    pub missing: Vec<u32>,
    /// The version that was read.
    pub version: u64,
}

/// The answer to a Take.
pub struct TakenStream {
    client: QueryClient,
    parts: Streaming<TakeResponse>,
    rows: RowStream,
    /// The schema, once the stream has ended.
    ended: Option<SchemaRef>,
}

impl QueryClient {
    /// Returns rows by address, in the order of the addresses.
    pub async fn take(&self, request: TakeRequest) -> Result<TakenStream, Fault> {
        let send = |mut service: Service, request| async move { service.take(request).await };
        let parts = self.call(request, send).await?;
        Ok(TakenStream { client: self.clone(), parts, rows: RowStream::default(), ended: None })
    }
}

impl TakenStream {
    /// Returns the next part, or `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<Taken>, Fault> {
        if self.ended.is_some() {
            return Ok(None);
        }
        let part = self.parts.message().await.map_err(|status| self.client.fault_of(&status))?;
        let Some(TakeResponse { rows, version, missing }) = part else {
            self.ended = Some(std::mem::take(&mut self.rows).finish().map_err(damaged)?);
            return Ok(None);
        };
        let batches = self.rows.push(rows).map_err(damaged)?;
        Ok(Some(Taken { batches, missing, version }))
    }

    /// Returns the schema of the rows, once the first part has arrived.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.ended.clone().or_else(|| self.rows.schema())
    }

    /// Returns all remaining rows as one part.
    pub async fn collect(mut self) -> Result<Taken, Fault> {
        let mut all = Taken { batches: Vec::new(), missing: Vec::new(), version: 0 };
        while let Some(mut part) = self.next().await? {
            all.batches.append(&mut part.batches);
            all.missing.append(&mut part.missing);
            all.version = part.version;
        }
        Ok(all)
    }
}
