//! The calls to a query node, except Take and Lookup, which have files of their own.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, future, stream};
use tokio::sync::mpsc;
use wire::query::{
    CountRequest, CountResponse, DescribeTableRequest, DescribeTableResponse, Error, GetRequest,
    GetResponse, ListTablesRequest, ListTagsRequest, ListTagsResponse, ListVersionsRequest,
    ListVersionsResponse, PlacementRequest, PlacementResponse, RowFormat, SearchRequest,
    SearchResponse, Stage, StatusRequest, StatusResponse, TableSummary, TuneProgress, TuneRequest,
    WarmProgress, WarmRequest,
};
use wire::{Fault, Reason};

use super::connect::{QueryClient, Service, ended};
use super::rows::{read_rows, read_schema};

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Found {
    /// At most k rows, best first unless the search named another order, with `_rowaddr`, and with `_distance`,
    /// `_score` or `_relevance_score` unless the search had only a filter.
    pub rows: RecordBatch,
    /// The version that was searched.
    pub version: u64,
    /// The stages and their times, if `explain` was requested.
    pub stages: Vec<Stage>,
    /// Whether the vector was compared with every row that passes the filter, because there is no index, or the request
    /// wants none (`exact`, or another `metric` than the index's).
    pub exhaustive: bool,
}

/// The result of a Get.
#[derive(Clone, Debug)]
pub struct Gotten {
    /// The rows, in the order of the keys.
    pub rows: GottenRows,
    /// The version that was read.
    pub version: u64,
    /// Positions of keys that have no row.
    pub not_found: Vec<u32>,
    /// If all rows of each key were asked for, the position of each row's key, ascending. Empty otherwise.
    pub row_keys: Vec<u32>,
    /// The keys whose rows could not be read, if the request was `partial`.
    pub unread: Option<UnreadKeys>,
}

/// Keys whose rows could not be read, while those of other keys could, or are known not to exist. It is not known
/// whether these keys have a row.
#[derive(Clone, Debug)]
pub struct UnreadKeys {
    /// The positions of the keys, ascending.
    pub positions: Vec<u32>,
    /// The fault of one of the rows.
    pub fault: Fault,
}

impl UnreadKeys {
    /// Reads the keys from an answer.
    ///
    /// # Errors
    /// `error`, if it is the error of the whole request.
    pub(super) fn of(error: Option<Error>, positions: Vec<u32>) -> Result<Option<Self>, Fault> {
        match (error, positions.is_empty()) {
            (None, true) => Ok(None),
            (Some(error), true) => Err(error.into()),
            (Some(error), false) => Ok(Some(Self { positions, fault: error.into() })),
            (None, false) => {
                Err(Fault::new(Reason::Internal, "the answer names unread keys, but no error"))
            }
        }
    }
}

/// The request that an answer on a stream belongs to.
struct Asked {
    keys: usize,
    all_rows: bool,
}

impl Asked {
    fn of(request: &GetRequest) -> Self {
        Self { keys: request.keys.len(), all_rows: request.all_rows }
    }

    /// Decodes the answer to the request.
    fn gotten(&self, answer: GetResponse, format: RowFormat) -> Result<Gotten, Fault> {
        let gotten = gotten(answer, format)?;
        match self.all_rows && gotten.lacks_row_keys(self.keys) {
            true => Err(one_row_of_each_key()),
            false => Ok(gotten),
        }
    }
}

impl Gotten {
    /// Returns whether the keys of the rows are missing in the answer to a request for all rows of `keys` keys. A node
    /// that does not know such requests leaves them out, and returns one row of each key.
    fn lacks_row_keys(&self, keys: usize) -> bool {
        self.row_keys.is_empty() && self.not_found.len() < keys
    }
}

/// Rows in the requested format.
#[derive(Clone, Debug)]
pub enum GottenRows {
    /// The rows as a record batch.
    Arrow(RecordBatch),
    /// The rows as JSON, one line per row.
    Json(String),
}

/// The description of a table.
#[derive(Clone, Debug)]
pub struct TableDescription {
    /// The response.
    pub response: DescribeTableResponse,
    /// The response's schema, decoded.
    pub schema: SchemaRef,
}

impl QueryClient {
    /// Searches a table.
    pub async fn search(&self, request: SearchRequest) -> Result<Found, Fault> {
        let send = |mut service: Service, request| async move { service.search(request).await };
        let answer = self.call(request, send).await?;
        let rows = read_rows(&answer.rows)?;
        let SearchResponse { version, stages, exhaustive, .. } = answer;
        Ok(Found { rows, version, stages, exhaustive })
    }

    /// Returns rows by key.
    ///
    /// # Errors
    /// The node's fault. `UNIMPLEMENTED` if `request` wants all rows of each key, and the node returns only one.
    pub async fn get(&self, request: GetRequest) -> Result<Gotten, Fault> {
        let (format, asked) = (request.format(), Asked::of(&request));
        let send = |mut service: Service, request| async move { service.get(request).await };
        asked.gotten(self.call(request, send).await?, format)
    }

    /// Sends many Gets on one stream, all with the same `format`. The answers are in the order of the requests. A
    /// request that fails is answered by a fault of its own, and the stream goes on. A fault of the stream itself ends
    /// the stream: `NODE_UNAVAILABLE` if the node ends it before it has answered all `requests`. Unlike the other calls
    /// in this file, this one is not sent again if the connection ends before the request was sent.
    pub async fn get_stream(
        &self,
        requests: impl Stream<Item = GetRequest> + Send + 'static,
        format: RowFormat,
    ) -> Result<BoxStream<'static, Result<Gotten, Fault>>, Fault> {
        // The answers come in the order of the requests. `None` follows the last request.
        let (asked, mut unanswered) = mpsc::unbounded_channel::<Option<Asked>>();
        let requests = requests.map(Some).chain(stream::iter([None]));
        let requests = requests.filter_map(move |mut request: Option<GetRequest>| {
            request.iter_mut().for_each(|request| request.set_format(format));
            // Nobody needs it if the answers are no longer read.
            let _ = asked.send(request.as_ref().map(Asked::of));
            future::ready(request)
        });
        let answers = self.answered(self.service().get_stream(self.request(requests))).await?;
        let this = self.clone();
        let mut has_failed = false;
        let decode = move |answer: Option<Result<GetResponse, tonic::Status>>| {
            let gotten = match (answer, unanswered.try_recv()) {
                (Some(Ok(answer)), Ok(Some(asked))) => asked.gotten(answer, format),
                (Some(Ok(_)), _) => {
                    Err(Fault::new(Reason::Internal, "the node answers no request"))
                }
                (Some(Err(status)), _) => {
                    has_failed = true;
                    Err(this.fault_of(&status))
                }
                (None, Ok(None)) => return future::ready(None),
                (None, _) if has_failed => return future::ready(None),
                (None, _) => Err(ended()),
            };
            future::ready(Some(gotten))
        };
        // `None` follows the last answer.
        Ok(answers.map(Some).chain(stream::iter([None])).filter_map(decode).boxed())
    }

    /// Lists the tables that the node serves.
    pub async fn tables(&self) -> Result<Vec<TableSummary>, Fault> {
        let send =
            |mut service: Service, request| async move { service.list_tables(request).await };
        Ok(self.call(ListTablesRequest {}, send).await?.tables)
    }

    /// Describes a version of a table. `version` 0 is the version that the node serves by default: the pinned one, or
    /// else the latest.
    pub async fn describe(&self, table: &str, version: u64) -> Result<TableDescription, Fault> {
        let request = DescribeTableRequest { table: table.into(), version, ..Default::default() };
        self.describe_version(request).await
    }

    /// Describes a version of a table, or of a branch of one.
    pub async fn describe_version(
        &self,
        request: DescribeTableRequest,
    ) -> Result<TableDescription, Fault> {
        let send =
            |mut service: Service, request| async move { service.describe_table(request).await };
        let response = self.call(request, send).await?;
        let schema = read_schema(&response.schema)?;
        Ok(TableDescription { response, schema })
    }

    /// Lists a page of a table's versions.
    pub async fn list_versions(
        &self,
        request: ListVersionsRequest,
    ) -> Result<ListVersionsResponse, Fault> {
        let send =
            |mut service: Service, request| async move { service.list_versions(request).await };
        self.call(request, send).await
    }

    /// Lists a page of a table's tags.
    pub async fn list_tags(&self, request: ListTagsRequest) -> Result<ListTagsResponse, Fault> {
        let send = |mut service: Service, request| async move { service.list_tags(request).await };
        self.call(request, send).await
    }

    /// Counts rows.
    pub async fn count(&self, request: CountRequest) -> Result<CountResponse, Fault> {
        let send = |mut service: Service, request| async move { service.count(request).await };
        self.call(request, send).await
    }

    /// Measures the recall of a vector index. Returns a stream of progress reports. The last report has the curve.
    /// Dropping the stream cancels the Tune.
    pub async fn tune(
        &self,
        request: TuneRequest,
    ) -> Result<BoxStream<'static, Result<TuneProgress, Fault>>, Fault> {
        let send = |mut service: Service, request| async move { service.tune(request).await };
        let steps = self.call(request, send).await?;
        let this = self.clone();
        Ok(steps.map(move |step| step.map_err(|status| this.fault_of(&status))).boxed())
    }

    /// Fills a table's chunks, or blocks of its index files. Returns a stream of progress reports. Dropping the stream
    /// cancels the Warm.
    pub async fn warm(
        &self,
        request: WarmRequest,
    ) -> Result<BoxStream<'static, Result<WarmProgress, Fault>>, Fault> {
        let send = |mut service: Service, request| async move { service.warm(request).await };
        let steps = self.call(request, send).await?;
        let this = self.clone();
        Ok(steps.map(move |step| step.map_err(|status| this.fault_of(&status))).boxed())
    }

    /// Returns which I/O node owns which of a table's chunks.
    pub async fn placement(&self, request: PlacementRequest) -> Result<PlacementResponse, Fault> {
        let send = |mut service: Service, request| async move { service.placement(request).await };
        self.call(request, send).await
    }

    /// Describes the query node and its I/O nodes.
    pub async fn status(&self) -> Result<StatusResponse, Fault> {
        let send = |mut service: Service, request| async move { service.status(request).await };
        self.call(StatusRequest {}, send).await
    }
}

/// Returns the fault for a caller that wants all rows of a key from a node that returns only one.
pub(super) fn one_row_of_each_key() -> Fault {
    let message = "the query node is too old to return all rows of a key; upgrade it";
    Fault::new(Reason::Unimplemented, message)
}

fn gotten(answer: GetResponse, format: RowFormat) -> Result<Gotten, Fault> {
    let unread = UnreadKeys::of(answer.error, answer.failed)?;
    let rows = match format {
        RowFormat::Arrow => GottenRows::Arrow(read_rows(&answer.rows)?),
        RowFormat::Json => GottenRows::Json(
            String::from_utf8(answer.rows.into())
                .map_err(|_| Fault::new(Reason::Internal, "the JSON of the answer is not UTF-8"))?,
        ),
    };
    let GetResponse { version, not_found, row_keys, .. } = answer;
    Ok(Gotten { rows, version, not_found, row_keys, unread })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_nodes_that_return_one_row_of_each_key_are_recognised() {
        let gotten = |all_rows, not_found: &[u32], row_keys: &[u32]| {
            let (not_found, row_keys) = (not_found.to_vec(), row_keys.to_vec());
            let answer = GetResponse { not_found, row_keys, ..Default::default() };
            Asked { keys: 3, all_rows }.gotten(answer, RowFormat::Json)
        };
        assert!(gotten(false, &[], &[]).is_ok());
        let lacks = |not_found: &[u32], row_keys: &[u32]| match gotten(true, not_found, row_keys) {
            Ok(_) => false,
            Err(fault) => fault.reason == Reason::Unimplemented,
        };
        assert!(lacks(&[], &[]) && lacks(&[0, 2], &[]));
        assert!(!lacks(&[0, 1, 2], &[]) && !lacks(&[0, 2], &[1, 1]) && !lacks(&[], &[0, 1, 2]));
    }
}
