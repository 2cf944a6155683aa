//! Plain HTTP, as LanceDB's clients and clients of the Lance Namespace specification speak it, on the same port as
//! gRPC. Calls that write a table are not served.
//!
//! ```text
//! path ─► route ─► caller, deadline ─► body ─► query: Search (by vectors, by words), or scan ─► Arrow IPC
//!                                         ├──► namespaces, tables: lists, descriptions ─────► JSON
//!                                         ├──► blobs: whole ones, or a range of one ─────────► Arrow IPC, bytes
//!                                         └──► prewarm: loads an index, fills drives
//! ```
//!
//! A search becomes the request that gRPC would carry, and takes the same path (`requests/search.rs`). Callers, grants,
//! deadlines, memory, metrics and the audit log are handled as for gRPC. A row's id, which clients see as `_rowid`, is
//! its address.

mod answer;
mod blobs;
mod browser;
mod columns;
mod error;
mod freshness;
mod json_body;
mod namespaces;
mod page;
mod prewarm;
mod query;
mod query_body;
mod route;
mod row_filter;
mod scan;
mod tables;
mod text_body;

use std::sync::Arc;
use std::time::Duration;

use access::Permission;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, RANGE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use axum::routing::{any, get};
use connections::{PlainCalls, read_rest};
use futures::FutureExt;
use lake::{ID_DELIMITER, LakeError, TagInfo};
use serde::Deserialize;
use tonic::metadata::MetadataMap;
use wire::{Fault, Reason};

use self::answer::{Answer, Reply, response};
use self::blobs::{BlobBytes, BlobsBody, Wanted};
use self::browser::PageRules;
use self::error::{HttpError, refuse};
use self::freshness::Freshness;
use self::json_body::parse;
use self::namespaces::Namespace;
use self::page::Page;
use self::query::query;
use self::query_body::QueryBody;
use self::route::{Dialect, NamespaceCall, Route, TableCall, parameter, route};
use crate::call::Call;
use crate::counters::Rpc;
use crate::error::{QueryError, Result};
use crate::service::Service;
use crate::state::ShardState;
use crate::tables::{AskedVersion, OpenTable};

/// The version of LanceDB's protocol, which tells its clients what they may send: several vectors in one query,
/// structured full-text queries, and reads of blobs.
const PROTOCOL_VERSION: &str = "0.5.0";

/// The description of all plain calls, for programs that generate clients and documentation from it.
const OPENAPI: &str = include_str!("openapi.json");

/// Returns the answers to calls that are refused before they reach their service.
pub fn plain_calls(state: Arc<ShardState>) -> PlainCalls {
    let refuse = move |fault: Fault, headers: &HeaderMap| {
        let origin = page_rules(&state).named_origin(headers);
        completed(refuse(&fault), None, origin, headers.get(REQUEST_ID).cloned())
            .map(tonic::body::Body::new)
    };
    PlainCalls { refuse: Arc::new(refuse) }
}

/// Adds the routes of all plain calls to those of gRPC.
pub fn with_plain_routes(grpc: Router, state: Arc<ShardState>) -> Router {
    let plain = Router::new()
        .route("/healthz", get(health))
        .route("/openapi.json", get(|| async { response(Body::from(OPENAPI), "application/json") }))
        .route("/v1/{*rest}", any(serve))
        .with_state(Arc::clone(&state));
    grpc.merge(plain).fallback(move |request: Request| other_path(Arc::clone(&state), request))
}

/// Answers a call whose path has no route. A path with several slashes at its start has that of a base URL that ends with
/// a slash.
async fn other_path(state: Arc<ShardState>, request: Request) -> Response<Body> {
    let media_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    match media_type.is_some_and(|it| it.starts_with(b"application/grpc")) {
        true => tonic::Status::unimplemented("").into_http(),
        false => serve(State(state), request).await,
    }
}

async fn health(State(state): State<Arc<ShardState>>) -> Response<Body> {
    let (status, said) = match state.shared.is_ready() {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    };
    let mut response = response(Body::from(said), "text/plain");
    *response.status_mut() = status;
    response
}

/// Answers a call.
async fn serve(State(state): State<Arc<ShardState>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let id = parts.headers.get(REQUEST_ID).cloned();
    let (mut version, mut body) = (None, Some(body));
    let (origin, answered) = match page_rules(&state).origin_of(&parts) {
        Err(refused) => (None, Err(refused)),
        Ok(Some(origin)) if parts.method == Method::OPTIONS => {
            (Some(origin), Ok(browser::preflight(&parts.headers)))
        }
        Ok(origin) => (origin, answer(&state, parts, &mut body, &mut version).await),
    };
    if let Some(unread) = body {
        // Over HTTP/1.1 the connection would be reset otherwise, and a client that still sends would not see the
        // answer.
        read_rest(unread, REFUSED_TIME_MAX, REFUSED_BYTES_MAX).await;
    }
    completed(answered.unwrap_or_else(|error| error.answer()), version, origin, id)
}

fn page_rules(state: &ShardState) -> PageRules<'_> {
    let config = &state.shared.config;
    PageRules {
        allowed: &config.browser_origins,
        has_policy: !state.shared.access.is_open(),
        has_tls: config.tls.is_some(),
    }
}

/// Maximum duration of a prewarm, and of a list of all versions, for which each version's manifest is read. LanceDB's
/// clients wait for at most 5 minutes, so they still get the answer that the time is over.
const LONG_TIME_MAX: Duration = Duration::from_secs(240);

/// The time for which the rest of a refused request is read, and the bytes after which reading stops. These bytes are
/// the most that a body may have without its filter and its vectors ([`json_body`]).
const REFUSED_TIME_MAX: Duration = Duration::from_secs(1);
const REFUSED_BYTES_MAX: usize = 1 << 20;

/// The header with a request's id. The answer repeats it, so that callers can match the two in their logs.
const REQUEST_ID: &str = "x-request-id";

/// Adds what all answers have: the version of the protocol, and those of the table's version, the origin of the page that
/// may read the answer and the request's id that there are.
fn completed(
    mut response: Response<Body>,
    version: Option<u64>,
    origin: Option<HeaderValue>,
    id: Option<HeaderValue>,
) -> Response<Body> {
    if let Some(origin) = origin {
        browser::share(&mut response, origin);
    }
    let headers = response.headers_mut();
    headers.insert("phalanx-version", HeaderValue::from_static(PROTOCOL_VERSION));
    if let Some(version) = version {
        headers.insert("x-lancedb-version", version.into());
    }
    if let Some(id) = id {
        headers.insert(REQUEST_ID, id);
    }
    response
}

async fn answer(
    state: &Arc<ShardState>,
    parts: Parts,
    body: &mut Option<Body>,
    version: &mut Option<u64>,
) -> std::result::Result<Response<Body>, HttpError> {
    let Parts { method, uri, headers, extensions, .. } = parts;
    let text = uri.query().unwrap_or_default();
    let route = route(&method, uri.path(), text)?;
    let timeout = asked_timeout(&headers);
    let freshness = Freshness::of(&headers)?;
    let range = headers.get(RANGE).map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
    let request = tonic::Request::from_parts(MetadataMap::from_headers(headers), extensions, ());
    let rpc = match &route {
        Route::Table {
            call:
                TableCall::Query
                | TableCall::ExplainPlan
                | TableCall::AnalyzePlan
                | TableCall::Blobs
                | TableCall::BlobBytes { .. },
            ..
        } => Rpc::HttpQuery,
        Route::Table { call: TableCall::CountRows, .. } => Rpc::HttpCountRows,
        Route::Table { call: TableCall::PrewarmIndex { .. } | TableCall::PrewarmRows, .. } => {
            Rpc::HttpWarm
        }
        _ => Rpc::HttpDescribe,
    };
    let mut call = Service(Arc::clone(state)).begin(rpc, &request).await?;
    let is_long = match &route {
        // A list for a Namespace client has pages.
        Route::Table { call: TableCall::Versions, dialect, .. } => *dialect == Dialect::LanceDb,
        _ => rpc == Rpc::HttpWarm,
    };
    if is_long {
        call.context = call.context.with_timeout(LONG_TIME_MAX);
    }
    if let Some(timeout) = timeout {
        call.context = call.context.asked(timeout);
    }
    let reply = match read(body.take().unwrap_or_default(), &call).await {
        Err(error) => Reply::Whole(Box::new(call), Err(error)),
        Ok(body) => match route {
            Route::Table { name, call: asked, dialect } => {
                let table =
                    TableRequest { name: &name, query: text, asked, dialect, freshness, range };
                table.answer(state, &body, call, version).await
            }
            Route::Namespace { namespace, call: asked } => {
                let listed = call.list();
                let named = listed.and_then(|()| parse(&body));
                let named = named.and_then(|body: IdBody| check_id(body.id, &namespace));
                let find = |()| Namespace::find(state, &call.caller().caller, &namespace);
                let answer = named.and_then(find).and_then(|found| match asked {
                    NamespaceCall::Tables => found.tables(text),
                    NamespaceCall::AllTables { delimiter } => found.all_tables(text, &delimiter),
                    NamespaceCall::Children => found.children(text),
                    NamespaceCall::Describe => found.describe(),
                    NamespaceCall::Exists => Ok(Answer::Nothing),
                });
                Reply::Whole(Box::new(call), answer)
            }
        },
    };
    match reply {
        Reply::Whole(call, answer) => Ok(call.end(answer)?.into_response()),
        Reply::Pieces(response) => Ok(response),
        Reply::Failed(fault) => Err(fault.into()),
    }
}

/// Returns the timeout that a caller gives.
fn asked_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("x-request-timeout-ms")?.to_str().ok()?;
    text.parse().ok().map(Duration::from_millis)
}

/// Reads the whole body, whose size the rule of the call bounds (`call_rules.rs`).
async fn read(body: Body, call: &Call) -> Result<Bytes> {
    let reading = async {
        match to_bytes(body, usize::MAX).await {
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(QueryError::Fault(unread(&error))),
        }
    };
    call.context.bound("read", Box::pin(reading)).await
}

/// Returns the reason why a body could not be read: the status with which it was refused, or else that its client has
/// gone.
fn unread(error: &axum::Error) -> Fault {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(status) = error.downcast_ref::<tonic::Status>() {
            return Fault::from_status(status);
        }
        cause = error.source();
    }
    Fault::new(Reason::Cancelled, "the request ended before its body")
}

/// Refuses a call whose body names another table or namespace than its path. Some clients send an empty list if they
/// don't name any.
fn check_id(of_body: Option<Vec<String>>, of_path: &[impl AsRef<str>]) -> Result<()> {
    let of_body = of_body.unwrap_or_default();
    let is_same = of_body.iter().eq(of_path.iter().map(AsRef::as_ref));
    match of_body.is_empty() || is_same {
        true => Ok(()),
        false => Err(QueryError::BadRequest {
            field: "id",
            problem: format!(
                "is {}, and the path names another; send the same one, or none",
                lake::quoted(&of_body.join(ID_DELIMITER))
            ),
        }),
    }
}

/// The id in the body of a call of a namespace.
#[derive(Deserialize)]
struct IdBody {
    id: Option<Vec<String>>,
}

/// The table, the version and the branch that a call names in its body.
#[derive(Default)]
struct NamedVersion {
    id: Option<Vec<String>>,
    version: Option<u64>,
    branch: Option<String>,
}

impl NamedVersion {
    fn by(query: &QueryBody) -> Self {
        Self { id: query.id.clone(), version: query.version, branch: query.branch.clone() }
    }
}

/// The body of a call without a query.
#[derive(Default, Deserialize)]
struct TableBody {
    id: Option<Vec<String>>,
    version: Option<u64>,
    branch: Option<String>,
    predicate: Option<String>,
    /// The predicate, by the name that Namespace clients give it.
    filter: Option<String>,
    tag: Option<String>,
    columns: Option<Vec<String>>,
    // Not by `flatten`, with which all unknown fields would be kept in memory while the body is read.
    limit: Option<usize>,
    page_token: Option<String>,
    descending: Option<bool>,
}

impl TableBody {
    /// Takes the page that the body asks for.
    fn page(&mut self) -> Page {
        let (limit, page_token) = (self.limit, self.page_token.take());
        Page { limit, page_token, descending: self.descending }
    }
}

/// The body of a call that explains a query.
#[derive(Deserialize)]
struct ExplainBody {
    id: Option<Vec<String>>,
    branch: Option<String>,
    query: QueryBody,
}

/// A call of one table.
struct TableRequest<'a> {
    name: &'a str,
    /// The query string, in which calls without a body name the branch and the version.
    query: &'a str,
    asked: TableCall,
    dialect: Dialect,
    freshness: Freshness,
    /// The header `range`, which says which bytes of a blob are asked for.
    range: Option<String>,
}

impl TableRequest<'_> {
    /// Answers the call. Sets `version` to the version of the table that the call uses, or to a later one that the
    /// answer names.
    async fn answer(
        self,
        state: &Arc<ShardState>,
        body: &[u8],
        mut call: Call,
        version: &mut Option<u64>,
    ) -> Reply {
        match self.asked {
            TableCall::Query => {
                let opened = async {
                    let query: QueryBody = parse(body)?;
                    Ok((
                        self.open(state, NamedVersion::by(&query), &mut call, version).await?,
                        query,
                    ))
                };
                match opened.await {
                    Ok((open, body)) => query(state, &open, body, call).await,
                    Err(error) => Reply::Whole(Box::new(call), Err(error)),
                }
            }
            TableCall::BlobBytes { ref column, ref row, is_size_only } => {
                let opened = async {
                    let asked = self.blob_bytes(column, row, is_size_only)?;
                    let version_named = parameter(self.query, "version").map(number_of);
                    let version_named = version_named.transpose()?;
                    let named = NamedVersion { version: version_named, ..Default::default() };
                    Ok((self.open(state, named, &mut call, version).await?, asked))
                };
                match opened.boxed().await {
                    Ok((open, asked)) => blobs::blob_bytes(state, &open, asked, call).await,
                    Err(error) => Reply::Whole(Box::new(call), Err(error)),
                }
            }
            TableCall::Blobs => {
                let answer = async {
                    let body: BlobsBody = parse(body)?;
                    let (id, branch) = (body.id.clone(), body.branch.clone());
                    let named = NamedVersion { id, version: body.version, branch };
                    let open = self.open(state, named, &mut call, version).await?;
                    blobs::whole_blobs(state, &open, body, &mut call).await
                };
                let answer = answer.boxed().await;
                Reply::Whole(Box::new(call), answer)
            }
            _ => {
                let answer = self.described(state, body, &mut call, version).await;
                Reply::Whole(Box::new(call), answer)
            }
        }
    }

    /// Returns which bytes of which blob the call asks for.
    fn blob_bytes(&self, column: &str, row: &str, is_size_only: bool) -> Result<BlobBytes> {
        if parameter(self.query, "source_uri").is_some() {
            let problem = "blobs that SQL queries name are not served".into();
            return Err(QueryError::NotBuilt { problem });
        }
        let wanted = Wanted::of(self.range.as_deref())?;
        let row_id = number_of(row.to_owned())?;
        Ok(BlobBytes { column: column.to_owned(), row_id, wanted, is_size_only })
    }

    async fn described(
        self,
        state: &Arc<ShardState>,
        body: &[u8],
        call: &mut Call,
        version: &mut Option<u64>,
    ) -> Result<Answer> {
        let explained = match self.asked {
            TableCall::ExplainPlan => {
                let ExplainBody { id, branch, query } = parse(body)?;
                Some(QueryBody { id: id.or(query.id), branch: branch.or(query.branch), ..query })
            }
            TableCall::AnalyzePlan => Some(parse::<QueryBody>(body)?),
            _ => None,
        };
        if let Some(query) = explained {
            let open = self.open(state, NamedVersion::by(&query), call, version).await?;
            return query::explain(state, &open, query, call).await;
        }
        let mut body: TableBody = parse(body)?;
        let page = body.page();
        let mut named = NamedVersion { id: body.id, version: body.version, branch: body.branch };
        if self.asked == TableCall::Describe
            && let Some(tag) = body.tag.take()
        {
            named = self.version_of_tag(state, named, tag, call, version).boxed().await?;
        }
        let open = self.open(state, named, call, version).await?;
        match self.asked {
            TableCall::PrewarmIndex { index } => prewarm::index(state, &open, index, call).await,
            TableCall::PrewarmRows => {
                prewarm::rows(state, &open, body.columns.unwrap_or_default(), call).await
            }
            TableCall::Exists => Ok(Answer::Nothing),
            TableCall::CountRows => {
                let predicate = body.predicate.or(body.filter);
                tables::count_rows(state, &open, predicate, call).await
            }
            TableCall::Stats => tables::stats(&open, call).await,
            TableCall::Versions => {
                let page = page.or_by(self.query)?;
                let (answer, latest) =
                    tables::versions(state, &open, self.dialect, page, call).await?;
                // The list is read from the store, and may have a version that this node has not looked for yet. The
                // client has then seen it, and must not be answered from an older one.
                *version = (*version).max(latest);
                Ok(answer)
            }
            TableCall::Version => tables::describe_version(&open, self.dialect),
            TableCall::Tags => {
                let page = page.or_by(self.query)?;
                tables::tags(state, &open, self.dialect, &page, call).await
            }
            TableCall::TagVersion => tables::tag_version(state, &open, body.tag, call).await,
            TableCall::Branches => tables::branches(state, &open, call).await,
            TableCall::Indexes => {
                let page = page.or_by(self.query)?;
                tables::indexes(state, &open, &page, call).await
            }
            TableCall::IndexStats { index } => tables::index_stats(&open, &index, call).await,
            TableCall::Describe
            | TableCall::Query
            | TableCall::ExplainPlan
            | TableCall::AnalyzePlan
            | TableCall::Blobs
            | TableCall::BlobBytes { .. } => tables::describe(&open, self.name, self.dialect, call),
        }
    }

    /// Returns the version that a tag names. `named` has what the call names beside it.
    async fn version_of_tag(
        &self,
        state: &ShardState,
        named: NamedVersion,
        tag: String,
        call: &mut Call,
        version: &mut Option<u64>,
    ) -> Result<NamedVersion> {
        let NamedVersion { id, version: beside, branch } = named;
        if beside.is_some() || branch.is_some() || parameter(self.query, "branch").is_some() {
            let problem = "is given beside `version` or `branch`; give one of them".into();
            return Err(QueryError::BadRequest { field: "tag", problem });
        }
        let latest = NamedVersion { id: id.clone(), ..Default::default() };
        let open = self.open(state, latest, call, version).await?;
        call.check_shown_whole("`tag`")?;
        let TagInfo { version, branch, .. } = tables::find_tag(state, &open, tag, call).await?;
        Ok(NamedVersion { id, version: Some(version), branch })
    }

    /// Opens the table at the version that the call names, or else at one that is as new as the caller requires.
    async fn open(
        &self,
        state: &ShardState,
        named: NamedVersion,
        call: &mut Call,
        version: &mut Option<u64>,
    ) -> Result<Arc<OpenTable>> {
        let branch = named.branch.or_else(|| parameter(self.query, "branch")).unwrap_or_default();
        let branch = branch.as_str();
        let of_path: Vec<&str> = self.name.split(ID_DELIMITER).collect();
        check_id(named.id, &of_path)?;
        let wanted = named.version.unwrap_or(0);
        let asked = AskedVersion { table: self.name, branch, version: wanted };
        let catalog = &state.shared.catalog;
        let looked_at = catalog.looked_at(asked).await;
        let mut open = self.authorized(asked, call).await?;
        if named.version == Some(0) {
            // Versions begin with 1; within this crate, 0 stands for the latest one.
            let (uri, latest) = (open.table.uri().to_owned(), open.version());
            return Err(LakeError::VersionNotFound { uri, version: 0, latest }.into());
        }
        if wanted == 0 && self.freshness.is_behind(open.version(), looked_at) {
            let caught_up = async { Ok(catalog.catch_up(&open).await?) };
            call.context.bound("open", Box::pin(caught_up)).await?;
            open = self.authorized(asked, call).await?;
        }
        *version = Some(open.version());
        Ok(open)
    }

    /// Authorizes the call, and opens the table. Only the calls that are named here work under a grant that shows a
    /// part of the table.
    async fn authorized(&self, asked: AskedVersion<'_>, call: &mut Call) -> Result<Arc<OpenTable>> {
        match self.asked {
            TableCall::Query | TableCall::CountRows | TableCall::Describe | TableCall::Exists => {
                call.open_shown(asked).await
            }
            TableCall::PrewarmIndex { .. } | TableCall::PrewarmRows => {
                call.open(asked, Permission::Warm).await
            }
            _ => call.open(asked, Permission::Read).await,
        }
    }
}

/// Parses a number in a path or a query string.
fn number_of(text: String) -> Result<u64> {
    text.parse().map_err(|_| QueryError::BadRequest {
        field: "path",
        problem: format!("has {}; give a number there", lake::quoted(&text)),
    })
}
