//! Errors of both services: a gRPC code, a message, and an `ErrorInfo` reason.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use prost::Message;
use prost_types::Any;
use tonic::codegen::http::HeaderMap;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::{StatusExt, pb};

use crate::{fetch, query};

/// The domain of every `ErrorInfo`.
pub const ERROR_DOMAIN: &str = "bireme";

/// The delay before a retry (`RetryInfo`) that a node asks for if it is overloaded. Callers should add jitter. A full
/// queue takes about this long to drain.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The name of the metadata value that has the milliseconds after which to try again, if the fault's cause knows them.
pub const RETRY_AFTER_MS: &str = "retry_after_ms";

/// The number of bytes after which a message is cut, once its control characters are escaped. A message is sent twice
/// in headers, where one byte may take three, and clients accept 16 KiB of headers.
pub const MESSAGE_BYTES_SHOWN: usize = 2048;

/// The number of bytes after which a metadata value is cut, once its control characters are escaped. Most URIs are
/// shorter.
pub const METADATUM_BYTES_SHOWN: usize = 1024;

/// Returns `text` on one line. A text that is longer than `bytes_max` bytes is cut there and ends with `…`. If the text
/// contains control characters, each run of white space becomes one space, and all other control characters are
/// escaped.
fn shown(mut text: String, bytes_max: usize) -> String {
    if text.contains(char::is_control) {
        let escaped = |c: char| match c.is_control() {
            true => c.escape_default().to_string(),
            false => c.to_string(),
        };
        text = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().map(escaped).collect();
    }
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
    text
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $text:literal => $code:ident,)*) => {
        /// The reason why a request failed. Clients match on this, never on the text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $variant,)* }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the text of this reason in `ErrorInfo.reason`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Returns the gRPC code of errors with this reason.
            pub const fn code(self) -> Code {
                match self { $(Self::$variant => Code::$code,)* }
            }

            /// Parses `ErrorInfo.reason`. Returns `None` for a reason that this version does not know.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|r| r.as_str() == text)
            }
        }
    };
}

reasons! {
    /// There is no table with that name or at that URI.
    TableNotFound = "TABLE_NOT_FOUND" => NotFound,
    /// The node is not configured to serve the table, which may or may not exist.
    TableNotServed = "TABLE_NOT_SERVED" => PermissionDenied,
    /// The caller's credentials are missing or not accepted.
    Unauthenticated = "UNAUTHENTICATED" => Unauthenticated,
    /// The caller may see the table, but not do this.
    Forbidden = "FORBIDDEN" => PermissionDenied,
    /// The caller has reached a limit that the operator has set. The caller should retry later.
    LimitReached = "LIMIT_REACHED" => ResourceExhausted,
    /// The table has no such version.
    VersionNotFound = "VERSION_NOT_FOUND" => NotFound,
    /// The table has no such column.
    ColumnNotFound = "COLUMN_NOT_FOUND" => InvalidArgument,
    /// No row has that address in this version.
    RowNotFound = "ROW_NOT_FOUND" => NotFound,
    /// No row has that key.
    KeyNotFound = "KEY_NOT_FOUND" => NotFound,
    /// The query vector does not fit the column, or is not finite.
    BadVector = "BAD_VECTOR" => InvalidArgument,
    /// The filter is not a predicate over the table's columns.
    BadFilter = "BAD_FILTER" => InvalidArgument,
    /// A value is invalid or out of bounds, or the fields can't be combined.
    BadArgument = "BAD_ARGUMENT" => InvalidArgument,
    /// The request needs an index or a key that the table lacks.
    NoIndex = "NO_INDEX" => FailedPrecondition,
    /// The recall that the search asks for was not measured on the index, or no measured setting reaches it.
    RecallUnknown = "RECALL_UNKNOWN" => FailedPrecondition,
    /// The operation does not support the column's type.
    UnsupportedType = "UNSUPPORTED_TYPE" => FailedPrecondition,
    /// The object store does not answer.
    StoreUnreachable = "STORE_UNREACHABLE" => Unavailable,
    /// The object store refuses the request, for example because of its credentials, or the table names a file that it
    /// may not refer to.
    StoreRefused = "STORE_REFUSED" => PermissionDenied,
    /// Another writer changed the table at the same time, so the change was not committed. The caller should make
    /// it again.
    Conflict = "CONFLICT" => Aborted,
    /// The table's files are damaged or missing.
    TableDamaged = "TABLE_DAMAGED" => DataLoss,
    /// A message can't be decoded, or is not allowed at this point of a stream.
    BadProtocol = "BAD_PROTOCOL" => InvalidArgument,
    /// A queue or the memory for requests is full. The caller should retry later.
    Overloaded = "OVERLOADED" => ResourceExhausted,
    /// The response would exceed the maximum message size, or a plain HTTP request's body, a batch of keys or a table's
    /// file is too large.
    TooLarge = "TOO_LARGE" => ResourceExhausted,
    /// The deadline passed before the work was done.
    DeadlineExceeded = "DEADLINE_EXCEEDED" => DeadlineExceeded,
    /// The caller cancelled the request.
    Cancelled = "CANCELLED" => Cancelled,
    /// The node can't be reached or is shutting down, or a node behind it can't be reached.
    NodeUnavailable = "NODE_UNAVAILABLE" => Unavailable,
    /// Other servers of the protocol answer this request, but this one does not.
    Unimplemented = "UNIMPLEMENTED" => Unimplemented,
    /// A defect of Bireme or of a library that it uses.
    Internal = "INTERNAL" => Internal,
}

/// An error of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The reason, for programs.
    pub reason: Reason,
    /// A message for people: what is wrong and how to fix it, in one sentence.
    pub message: String,
    /// Values for programs: what the error is about, such as the table, the column or a row address, and for
    /// [`retry_after`](Self::retry_after) the time to wait.
    pub metadata: BTreeMap<String, String>,
}

impl Fault {
    /// Creates a fault without metadata. A message may repeat a part of a request, of any length and with any
    /// characters. It is therefore shortened to [`MESSAGE_BYTES_SHOWN`], and becomes one line without control
    /// characters.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message = shown(message.into(), MESSAGE_BYTES_SHOWN);
        Self { reason, message, metadata: BTreeMap::new() }
    }

    /// Adds an entry to the metadata, shortened to [`METADATUM_BYTES_SHOWN`].
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.metadata.insert(name.into(), shown(value.to_string(), METADATUM_BYTES_SHOWN));
        self
    }

    /// Returns the time after which the caller should try again, or `None` if a retry would fail again.
    pub fn retry_after(&self) -> Option<Duration> {
        // TOO_LARGE has the code RESOURCE_EXHAUSTED like these two, but a retry would fail again.
        matches!(self.reason, Reason::Overloaded | Reason::LimitReached).then(|| {
            let known = self.metadata.get(RETRY_AFTER_MS).and_then(|ms| ms.parse().ok());
            known.map_or(RETRY_AFTER, Duration::from_millis)
        })
    }

    /// Converts a gRPC status. A status of Bireme keeps its reason; any other status gets the nearest reason.
    pub fn from_status(status: &Status) -> Self {
        if let Some(info) = status.get_details_error_info()
            && info.domain == ERROR_DOMAIN
            && let Some(reason) = Reason::parse(&info.reason)
        {
            let metadata = info.metadata.into_iter().collect();
            return Self { reason, message: status.message().into(), metadata };
        }
        Self::new(nearest(status.code()), status.message())
    }

    fn from_parts(code: i32, message: String, reason: &str, metadata: Metadata) -> Self {
        let reason = Reason::parse(reason).unwrap_or_else(|| nearest(Code::from(code)));
        Self { reason, message, metadata: metadata.into_iter().collect() }
    }
}

type Metadata = std::collections::HashMap<String, String>;

fn nearest(code: Code) -> Reason {
    match code {
        Code::InvalidArgument | Code::OutOfRange => Reason::BadArgument,
        Code::NotFound => Reason::TableNotFound,
        Code::DeadlineExceeded => Reason::DeadlineExceeded,
        Code::Cancelled => Reason::Cancelled,
        Code::ResourceExhausted => Reason::Overloaded,
        Code::Unavailable => Reason::NodeUnavailable,
        Code::PermissionDenied => Reason::Forbidden,
        Code::Unauthenticated => Reason::Unauthenticated,
        Code::DataLoss => Reason::TableDamaged,
        Code::FailedPrecondition => Reason::NoIndex,
        Code::Ok
        | Code::Unknown
        | Code::AlreadyExists
        | Code::Aborted
        | Code::Unimplemented
        | Code::Internal => Reason::Internal,
    }
}

/// Returns the status in a call's headers or trailers, if there is one.
///
/// Details that are not valid base64 are ignored, because tonic panics on them.
pub fn status_of(headers: &HeaderMap) -> Option<Status> {
    let metadata = MetadataMap::from_headers(headers.clone());
    let are_readable = metadata.get_bin(DETAILS).is_none_or(|details| details.to_bytes().is_ok());
    if are_readable {
        return Status::from_header_map(headers);
    }
    let mut headers = headers.clone();
    headers.remove(DETAILS);
    Status::from_header_map(&headers)
}

/// The header with the details of a status.
const DETAILS: &str = "grpc-status-details-bin";

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let mut details = Vec::with_capacity(2);
        if let Some(retry_after) = fault.retry_after() {
            let retry = pb::RetryInfo { retry_delay: retry_after.try_into().ok() };
            details.push(any(tonic_types::RetryInfo::TYPE_URL, &retry));
        }
        let Fault { reason, message, metadata } = fault;
        let (text, domain) = (reason.as_str().into(), ERROR_DOMAIN.into());
        let info = ErrorInfo { reason: text, domain, metadata };
        details.push(any(tonic_types::ErrorInfo::TYPE_URL, &info));
        let status = pb::Status { code: reason.code() as i32, message: message.clone(), details };
        Status::with_details(reason.code(), message, status.encode_to_vec().into())
    }
}

/// `google.rpc.ErrorInfo` with sorted metadata. The type of `tonic_types` has a hash map, whose order differs from run
/// to run. Then the header's bytes and their compressed length would differ too, and a simulation would not be
/// reproducible.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

fn any(type_url: &str, message: &impl Message) -> Any {
    Any { type_url: type_url.into(), value: message.encode_to_vec() }
}

impl From<Fault> for fetch::Error {
    fn from(fault: Fault) -> Self {
        Self {
            code: fault.reason.code() as i32,
            message: fault.message,
            reason: fault.reason.as_str().into(),
            metadata: fault.metadata.into_iter().collect(),
        }
    }
}

impl From<fetch::Error> for Fault {
    fn from(e: fetch::Error) -> Self {
        Self::from_parts(e.code, e.message, &e.reason, e.metadata)
    }
}

impl From<Fault> for query::Error {
    fn from(fault: Fault) -> Self {
        let fetch::Error { code, message, reason, metadata } = fault.into();
        Self { code, message, reason, metadata }
    }
}

impl From<query::Error> for Fault {
    fn from(e: query::Error) -> Self {
        Self::from_parts(e.code, e.message, &e.reason, e.metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_survives_each_conversion() {
        for &reason in Reason::ALL {
            let fault = Fault::new(reason, "no column `x`").with("column", "x");
            let status = Status::from(fault.clone());
            assert_eq!(status.code(), reason.code());
            assert_eq!(Fault::from_status(&status), fault);
            let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
            let is_temporary = matches!(reason, Reason::Overloaded | Reason::LimitReached);
            assert_eq!(retry.is_some(), is_temporary, "{reason:?}");
            assert_eq!(Fault::from(fetch::Error::from(fault.clone())), fault);
            assert_eq!(Fault::from(query::Error::from(fault.clone())), fault);
        }
    }

    #[test]
    fn a_status_says_when_to_try_again() {
        let delay = |fault: Fault| {
            let retry = Status::from(fault).get_details_retry_info()?;
            retry.retry_delay
        };
        assert_eq!(delay(Fault::new(Reason::Overloaded, "the queue is full")), Some(RETRY_AFTER));
        let limited = Fault::new(Reason::LimitReached, "too many rows").with(RETRY_AFTER_MS, 2500);
        assert_eq!(delay(limited), Some(Duration::from_millis(2500)));
        assert_eq!(delay(Fault::new(Reason::TooLarge, "too large")), None);
    }

    #[test]
    fn the_details_of_a_status_are_the_same_bytes_each_time() {
        let details = || {
            let fault = Fault::new(Reason::VersionNotFound, "no version 7 of `t`");
            let fault = (0..8).fold(fault, |fault, at| fault.with(&format!("name {at}"), at));
            Status::from(fault).details().to_vec()
        };
        assert_eq!(details(), details());
    }

    #[test]
    fn what_a_request_sent_is_shortened_and_on_one_line() {
        let fault = Fault::new(Reason::BadFilter, "x\n\u{1b}[31m".to_owned() + &"é".repeat(5000))
            .with("key", "k".repeat(5000));
        assert!(fault.message.starts_with("x \\u{1b}[31mé"), "{fault}");
        assert!(fault.message.len() <= MESSAGE_BYTES_SHOWN + 16 && fault.message.ends_with('…'));
        assert_eq!(fault.metadata["key"].len(), METADATUM_BYTES_SHOWN + '…'.len_utf8());
    }

    #[test]
    fn a_status_without_error_info_gets_the_nearest_reason() {
        let fault = Fault::from_status(&Status::unavailable("connection refused"));
        assert_eq!(fault.reason, Reason::NodeUnavailable);
        assert_eq!(fault.message, "connection refused");
    }
}
