//! Errors of plain HTTP calls: a status, and a body that LanceDB's clients show and Namespace clients parse.

use axum::body::Body;
use axum::http::header::{ALLOW, RETRY_AFTER};
use axum::http::{HeaderValue, Method, Response, StatusCode};
use serde::Serialize;
use wire::{Fault, Reason};

use super::answer::response;

/// The reason why a plain HTTP call is refused or has failed.
#[derive(Debug)]
pub enum HttpError {
    /// No such path is served.
    NoSuchPath(String),
    /// The path is called with a method that it does not have.
    Method {
        /// The path.
        path: String,
        /// The method that the path has.
        wanted: Method,
    },
    /// The path begins with `/v1/`, as those of LanceDB's and Namespace clients do, but is not served.
    NotBuilt {
        /// The call that is not served, and the alternative.
        problem: String,
    },
    /// The request comes from a web page that may not call the node.
    WebPage,
    /// The request may come from a web page whose name leads to the node: this host, which is a public name.
    Host(String),
    /// The request failed.
    Fault(Fault),
}

/// The body of an error, as the Lance Namespace specification defines it.
#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
    code: u32,
}

/// The code of an error that the specification names `Unsupported`.
const UNSUPPORTED: u32 = 0;

/// The code of an error that the specification names `InvalidInput`.
const INVALID_INPUT: u32 = 13;

/// The code of an error that the specification names `PermissionDenied`.
const PERMISSION_DENIED: u32 = 15;

impl HttpError {
    /// Refuses a call under `/v1/` that Bireme does not serve.
    pub fn not_built(path: &str) -> Self {
        let problem = format!(
            "{path} is not served: a query node serves reads; to write, open the table at its location in object storage"
        );
        Self::NotBuilt { problem }
    }

    /// Returns the answer.
    pub fn answer(&self) -> Response<Body> {
        match self {
            Self::NoSuchPath(path) => {
                let said = format!(
                    "there is nothing at {path}; the calls of tables are at /v1/table/NAME/"
                );
                answer(StatusCode::NOT_FOUND, &said, INVALID_INPUT)
            }
            Self::Method { path, wanted } => {
                let said = format!("{path} is called with {wanted}");
                let mut answer = answer(StatusCode::METHOD_NOT_ALLOWED, &said, INVALID_INPUT);
                if let Ok(wanted) = HeaderValue::from_str(wanted.as_str()) {
                    answer.headers_mut().insert(ALLOW, wanted);
                }
                answer
            }
            Self::NotBuilt { problem } => answer(StatusCode::NOT_IMPLEMENTED, problem, UNSUPPORTED),
            Self::WebPage => {
                let said = "requests of this web page are refused: its origin is not in `browser_origins`; ask from a \
                            program";
                answer(StatusCode::FORBIDDEN, said, PERMISSION_DENIED)
            }
            Self::Host(host) => {
                let said = format!(
                    "requests to the host {} are refused, because a web page may have led this name to the node: call \
                     the node by its address or by a private name such as NAME.NAMESPACE.svc, add the origin \
                     http://HOST to `browser_origins`, or, if the node has an access policy, send a key or a token",
                    lake::quoted(host)
                );
                answer(StatusCode::FORBIDDEN, &said, PERMISSION_DENIED)
            }
            Self::Fault(fault) => refuse(fault),
        }
    }
}

/// Returns the answer to a request that failed with `fault`.
pub fn refuse(fault: &Fault) -> Response<Body> {
    let (status, code) = status_of(fault.reason);
    let missing = [("namespace", 1), ("index", 6), ("tag", 8), ("branch", 22)];
    let missing = missing.iter().find(|(name, _)| fault.metadata.contains_key(*name));
    let code = match missing {
        Some((_, of_name)) if status == StatusCode::NOT_FOUND => *of_name,
        _ => code,
    };
    let said = match fault.reason {
        // LanceDB itself reports a query that has timed out with these words, and programs look for them.
        Reason::DeadlineExceeded => format!("Query timeout: {}", fault.message),
        _ => fault.message.clone(),
    };
    let mut answer = answer(status, &said, code);
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        // The header has whole seconds.
        let seconds = fault.retry_after().map_or(1, |after| after.as_secs_f64().ceil() as u64);
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

fn answer(status: StatusCode, error: &str, code: u32) -> Response<Body> {
    // A body of a text and a number can always be written.
    let body = serde_json::to_vec(&ErrorBody { error, code }).unwrap_or_default();
    let mut answer = response(Body::from(body), "application/json");
    *answer.status_mut() = status;
    answer
}

/// Returns the status of a fault, and its code in the Lance Namespace specification.
///
/// LanceDB's clients repeat a call after 409, 429, 500, 502, 503 and 504, so only three kinds of failures have such a
/// status: those that may be temporary, damaged tables, and defects. These clients take every 404 for a missing table,
/// so missing columns, rows and keys have 400.
fn status_of(reason: Reason) -> (StatusCode, u32) {
    match reason {
        Reason::TableNotFound => (StatusCode::NOT_FOUND, 4),
        Reason::VersionNotFound => (StatusCode::NOT_FOUND, 11),
        Reason::Unauthenticated => (StatusCode::UNAUTHORIZED, 16),
        Reason::Forbidden | Reason::TableNotServed => (StatusCode::FORBIDDEN, PERMISSION_DENIED),
        Reason::LimitReached => (StatusCode::TOO_MANY_REQUESTS, 21),
        Reason::ColumnNotFound => (StatusCode::BAD_REQUEST, 12),
        Reason::NoIndex | Reason::RecallUnknown => (StatusCode::BAD_REQUEST, 6),
        Reason::RowNotFound
        | Reason::KeyNotFound
        | Reason::BadVector
        | Reason::BadFilter
        | Reason::BadArgument
        | Reason::BadProtocol
        | Reason::UnsupportedType => (StatusCode::BAD_REQUEST, INVALID_INPUT),
        Reason::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, INVALID_INPUT),
        Reason::Unimplemented => (StatusCode::NOT_IMPLEMENTED, UNSUPPORTED),
        Reason::DeadlineExceeded | Reason::Cancelled => (StatusCode::REQUEST_TIMEOUT, 17),
        Reason::Overloaded | Reason::StoreUnreachable | Reason::NodeUnavailable => {
            (StatusCode::SERVICE_UNAVAILABLE, 17)
        }
        Reason::Conflict => (StatusCode::CONFLICT, 14),
        Reason::StoreRefused => (StatusCode::FORBIDDEN, PERMISSION_DENIED),
        Reason::TableDamaged => (StatusCode::INTERNAL_SERVER_ERROR, 19),
        Reason::Internal => (StatusCode::INTERNAL_SERVER_ERROR, 18),
    }
}

impl From<Fault> for HttpError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
