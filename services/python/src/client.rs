//! A connection to a query node, with a method for each kind of call that the package makes.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use client::query::{
    Found, GetRequest, Gotten, GottenRows, LookupOpen, OnMissing, QueryClient, Stage, TakeRequest,
    UnreadKeys, WarmRequest,
};
use client::{ClientTlsConfig, Endpoint, Network};
use pyo3::prelude::*;
use pyo3::types::PyList;
use tokio::sync::Semaphore;
use wire::Fault;
use wire::fetch::RowRange;
use wire::query::{
    CountRequest, DescribeTableRequest, IndexFiles, ListTagsRequest, ListVersionsRequest,
};

use crate::background::{Background, background};
use crate::call::Call;
use crate::description::{described, listed, status, tag_tuples, version_tuples};
use crate::errors::{bad_argument, damaged, exception};
use crate::look_up::{exist, join};
use crate::request::{Search, Target};
use crate::row::first_row;
use crate::rows::{
    Rows, array_from_python, array_to_python, row_numbers_from_python, rows_from_python,
};
use crate::time_limit::{time_limit, within};
use crate::warm::Warm;

/// The maximum number of requests that are sent on a connection and not yet answered. Others wait, within their time
/// limits. A node's HTTP/2 (the crate `h2`) ends a connection on which too many small requests arrive before it reads
/// them. With the smallest of a node's windows, 128 are never too many, whatever their size (`small_requests_max` in
/// `services/traffic`).
const REQUESTS_MAX: usize = 128;

/// A connection.
#[pyclass(frozen)]
pub struct Client {
    query: QueryClient,
    background: &'static Background,
    /// Has a permit for each request that may be sent now.
    permits: Arc<Semaphore>,
    /// The process that connected. A fork can use neither its background thread nor its socket.
    process: u32,
}

/// Connects to a query node.
#[pyfunction]
#[pyo3(signature = (endpoint, token, tls_ca, tls_cert, tls_key, tls_name))]
pub fn connect(
    py: Python<'_>,
    endpoint: &str,
    token: Option<String>,
    tls_ca: Option<std::path::PathBuf>,
    tls_cert: Option<std::path::PathBuf>,
    tls_key: Option<std::path::PathBuf>,
    tls_name: Option<String>,
) -> PyResult<Call> {
    let endpoint: Endpoint = endpoint
        .parse()
        .map_err(|error: client::EndpointError| bad_argument(py, error.to_string()))?;
    let tls = ClientTlsConfig {
        ca: tls_ca,
        cert: tls_cert,
        key: tls_key,
        server_name: tls_name,
        crl: None,
    };
    let network = Network::of(&endpoint, &tls).map_err(|error| exception(py, error.into()))?;
    let background = background().map_err(|fault| exception(py, fault))?;
    let work = async move {
        let client = QueryClient::connect_over(&endpoint, &network).await?;
        match token {
            Some(token) => client.with_token(&token),
            None => Ok(client),
        }
    };
    Ok(Call::new(background, work, |py, query| {
        let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
        let client = Client { query, background, permits, process: std::process::id() };
        Ok(client.into_pyobject(py)?.into_any().unbind())
    }))
}

impl Client {
    /// Makes a call that runs `work` with the client, for at most `timeout` seconds.
    fn call<T: Send + 'static, F>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        work: impl FnOnce(QueryClient) -> F,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Call>
    where
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let (query, limit) = self.limited(py, timeout)?;
        let permits = Arc::clone(&self.permits);
        let work = work(query);
        let work = async move {
            // The semaphore is never closed.
            let _permit = permits.acquire().await;
            work.await
        };
        Ok(Call::new(self.background, within(limit, work), convert))
    }

    /// Gets rows by key. `convert` turns them, and the keys that could not be read, into a Python object.
    fn get_as(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        request: GetRequest,
        convert: fn(Python<'_>, RecordBatch, Option<UnreadKeys>) -> PyResult<Py<PyAny>>,
    ) -> PyResult<Call> {
        self.call(
            py,
            timeout,
            |query| async move { query.get(request).await },
            move |py, gotten: Gotten| match gotten.rows {
                GottenRows::Arrow(rows) => convert(py, rows, gotten.unread),
                GottenRows::Json(_) => Err(exception(py, damaged("it is JSON, not Arrow"))),
            },
        )
    }

    /// Returns the client with a time limit for each request.
    fn limited(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
    ) -> PyResult<(QueryClient, Option<Duration>)> {
        if self.process != std::process::id() {
            let message = format!(
                "this connection was made by process {} and can't be used in its fork; connect again",
                self.process
            );
            return Err(bad_argument(py, message));
        }
        let limit = time_limit(py, timeout)?;
        let query = self.query.clone();
        let query = match limit {
            Some(limit) => query.with_timeout(limit),
            None => query,
        };
        Ok((query, limit))
    }
}

#[pymethods]
impl Client {
    /// The endpoint, such as `http://127.0.0.1:7070`.
    #[getter]
    fn endpoint(&self) -> String {
        self.query.endpoint().to_string()
    }

    /// Returns the rows that a search finds.
    fn search(&self, py: Python<'_>, search: Search<'_>) -> PyResult<Call> {
        let timeout = search.target.timeout;
        let request = search.request(false)?;
        self.call(
            py,
            timeout,
            |query| async move { query.search(request).await },
            |py, found: Found| Rows::from(found.rows).into_table(py),
        )
    }

    /// Searches, and returns the version, whether the search was exhaustive, the number of rows, and the stages.
    fn explain(&self, py: Python<'_>, search: Search<'_>) -> PyResult<Call> {
        let timeout = search.target.timeout;
        let request = search.request(true)?;
        self.call(
            py,
            timeout,
            |query| async move { query.search(request).await },
            |py, found: Found| {
                let stages = found.stages.into_iter().map(|stage| {
                    let Stage { name, time_us, detail, depth } = stage;
                    (name, time_us, detail, depth)
                });
                let stages = PyList::new(py, stages.collect::<Vec<_>>())?;
                let rows = found.rows.num_rows();
                let explained = (found.version, found.exhaustive, rows, stages);
                Ok(explained.into_pyobject(py)?.into_any().unbind())
            },
        )
    }

    /// Returns the rows that have `keys`, in the order of the keys: one for each key, or, with `all_rows`, all of them.
    fn get(
        &self,
        py: Python<'_>,
        target: Target,
        keys: Vec<String>,
        columns: Vec<String>,
        key_column: Option<String>,
        all_rows: bool,
    ) -> PyResult<Call> {
        let timeout = target.timeout;
        let request = GetRequest { all_rows, ..get_request(target, keys, columns, key_column) };
        self.get_as(py, timeout, request, |py, rows, _| Rows::from(rows).into_table(py))
    }

    /// Like [`get`](Self::get), but if some of the rows can't be read, the others are still returned. Returns the rows,
    /// the positions of the keys whose rows can't be read, and the exception for one of these, or None.
    fn get_partial(
        &self,
        py: Python<'_>,
        target: Target,
        keys: Vec<String>,
        columns: Vec<String>,
        key_column: Option<String>,
        all_rows: bool,
    ) -> PyResult<Call> {
        let timeout = target.timeout;
        let request = get_request(target, keys, columns, key_column);
        let request = GetRequest { all_rows, partial: true, ..request };
        self.get_as(py, timeout, request, |py, rows, unread| {
            let rows = Rows::from(rows).into_table(py)?;
            let (positions, error) = match unread {
                None => (Vec::new(), None),
                Some(UnreadKeys { positions, fault }) => {
                    (positions, Some(exception(py, fault).into_value(py)))
                }
            };
            Ok((rows, positions, error).into_pyobject(py)?.into_any().unbind())
        })
    }

    /// Returns, as a dictionary, the row that has `key`, or None if no row has it.
    fn get_row(
        &self,
        py: Python<'_>,
        target: Target,
        key: String,
        columns: Vec<String>,
        key_column: Option<String>,
    ) -> PyResult<Call> {
        let timeout = target.timeout;
        let request = get_request(target, vec![key], columns, key_column);
        self.get_as(py, timeout, request, |py, rows, _| first_row(py, &rows))
    }

    /// Returns the rows at `rows`, in their order: these are offsets if `are_offsets` is set, or else addresses. Those
    /// without a row are an error unless `skip` is set.
    fn take(
        &self,
        py: Python<'_>,
        target: Target,
        rows: &Bound<'_, PyAny>,
        are_offsets: bool,
        columns: Vec<String>,
        skip: bool,
    ) -> PyResult<Call> {
        let rows = row_numbers_from_python(rows)?;
        let (row_addrs, row_offsets) =
            if are_offsets { (Vec::new(), rows) } else { (rows, Vec::new()) };
        let on_missing = if skip { OnMissing::Skip } else { OnMissing::Error };
        let request = TakeRequest {
            priority: target.priority(),
            table: target.name,
            version: target.version,
            branch: target.branch,
            row_addrs,
            row_offsets,
            columns,
            on_missing: on_missing.into(),
        };
        let work = |query: QueryClient| async move {
            let mut stream = query.take(request).await?;
            let mut batches = Vec::new();
            while let Some(mut part) = stream.next().await? {
                batches.append(&mut part.batches);
            }
            let schema = stream.schema().ok_or_else(|| damaged("it has no schema"))?;
            Ok(Rows { schema, batches })
        };
        self.call(py, target.timeout, work, |py, rows: Rows| rows.into_table(py))
    }

    /// Returns `rows`, a `pyarrow.Table`, with columns of the target's table appended. Their values are those of the
    /// target's row whose key is in the column `on`. If `on` is `None`, the only column of `rows` has the keys, and is
    /// left out. With `all_rows`, a row is repeated for each row of the target that has its key, and the column of keys
    /// is kept.
    #[expect(clippy::too_many_arguments, reason = "the arguments of the Python method")]
    fn lookup(
        &self,
        py: Python<'_>,
        target: Target,
        rows: &Bound<'_, PyAny>,
        on: Option<String>,
        columns: Vec<String>,
        key_column: Option<String>,
        all_rows: bool,
    ) -> PyResult<Call> {
        let rows = rows_from_python(rows)?;
        let timeout = target.timeout;
        let open = LookupOpen { all_rows, ..open(target, columns, key_column) };
        let work = |query| async move { join(query, open, rows, on).await };
        self.call(py, timeout, work, |py, rows: Rows| rows.into_table(py))
    }

    /// Returns for each of `keys` whether a row has it. If `exact` is not set, a key counts as found if the key index
    /// finds it.
    fn exists(
        &self,
        py: Python<'_>,
        target: Target,
        keys: &Bound<'_, PyAny>,
        are_uuids: bool,
        key_column: Option<String>,
        exact: bool,
    ) -> PyResult<Call> {
        let keys = array_from_python(keys)?;
        let timeout = target.timeout;
        let open = open(target, Vec::new(), key_column);
        let work = move |query| async move { exist(query, open, keys, are_uuids, exact).await };
        self.call(py, timeout, work, |py, found| array_to_python(py, &found))
    }

    /// Begins to fill the table's chunks, or, if `indexes` is given, the files of these indexes. An empty list of
    /// indexes stands for all. `rows` has half-open ranges of positions; an end of 0 is the table's end.
    fn warm(
        &self,
        py: Python<'_>,
        target: Target,
        columns: Vec<String>,
        rows: Vec<(u64, u64)>,
        indexes: Option<Vec<String>>,
        bytes_per_s: u64,
    ) -> PyResult<Call> {
        let request = WarmRequest {
            table: target.name,
            version: target.version,
            branch: target.branch,
            columns,
            bytes_per_s,
            rows: rows.into_iter().map(|(first, end)| RowRange { first, end }).collect(),
            indexes: indexes.map(|names| IndexFiles { names }),
        };
        let (query, limit) = self.limited(py, target.timeout)?;
        let background = self.background;
        Ok(Call::new(
            background,
            within(limit, async move { query.warm(request).await }),
            move |py, steps| {
                let warm = Warm::new(steps, background, limit);
                Ok(warm.into_pyobject(py)?.into_any().unbind())
            },
        ))
    }

    /// Returns the tables that the node serves: name, version, rows and error of each.
    fn tables(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Call> {
        self.call(py, timeout, |query| async move { query.tables().await }, listed)
    }

    /// Counts the rows that pass a filter, or all rows.
    fn count_rows(&self, py: Python<'_>, target: Target, filter: String) -> PyResult<Call> {
        let Target { name: table, version, branch, timeout, .. } = target;
        let request = CountRequest { table, version, branch, filter };
        let work = |query: QueryClient| async move { query.count(request).await };
        self.call(py, timeout, work, |py, counted| {
            Ok(counted.rows.into_pyobject(py)?.into_any().unbind())
        })
    }

    /// Describes a table.
    fn describe(&self, py: Python<'_>, target: Target) -> PyResult<Call> {
        let Target { name: table, version, branch, timeout, .. } = target;
        let request = DescribeTableRequest { table, version, branch };
        let work = |query: QueryClient| async move { query.describe_version(request).await };
        self.call(py, timeout, work, described)
    }

    /// Lists all versions of the target's branch, the latest first, as tuples.
    fn versions(&self, py: Python<'_>, target: Target) -> PyResult<Call> {
        let Target { name: table, branch, timeout, .. } = target;
        let work = |query: QueryClient| async move {
            let mut request = ListVersionsRequest { table, branch, ..Default::default() };
            let mut versions = Vec::new();
            loop {
                let page = query.list_versions(request.clone()).await?;
                versions.extend(page.versions);
                request.before = page.next_before;
                if request.before == 0 {
                    return Ok(versions);
                }
            }
        };
        self.call(py, timeout, work, version_tuples)
    }

    /// Lists all tags of the target's table, by their names, as tuples.
    fn tags(&self, py: Python<'_>, target: Target) -> PyResult<Call> {
        let Target { name: table, timeout, .. } = target;
        let work = |query: QueryClient| async move {
            let mut request = ListTagsRequest { table, ..Default::default() };
            let mut tags = Vec::new();
            loop {
                let page = query.list_tags(request.clone()).await?;
                tags.extend(page.tags);
                request.after = page.next_after;
                if request.after.is_empty() {
                    return Ok(tags);
                }
            }
        };
        self.call(py, timeout, work, tag_tuples)
    }

    /// Describes the query node and its I/O nodes.
    fn status(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Call> {
        self.call(py, timeout, |query| async move { query.status().await }, status)
    }
}

/// Returns the request for the rows of `target` that have `keys`.
fn get_request(
    target: Target,
    keys: Vec<String>,
    columns: Vec<String>,
    key_column: Option<String>,
) -> GetRequest {
    GetRequest {
        priority: target.priority(),
        table: target.name,
        version: target.version,
        branch: target.branch,
        keys,
        columns,
        key_column: key_column.unwrap_or_default(),
        ..Default::default()
    }
}

/// Returns the projection that look-ups of `target` open.
fn open(target: Target, columns: Vec<String>, key_column: Option<String>) -> LookupOpen {
    LookupOpen {
        priority: target.priority(),
        table: target.name,
        version: target.version,
        branch: target.branch,
        key_column: key_column.unwrap_or_default(),
        columns,
        ..Default::default()
    }
}
