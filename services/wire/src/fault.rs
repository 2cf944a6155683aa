//! Errors as both services speak them: a gRPC code, a sentence, and an `ErrorInfo` reason.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tonic::codegen::http::HeaderMap;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::{fetch, query};

/// The domain of every `ErrorInfo`.
pub const ERROR_DOMAIN: &str = "bireme";

/// What an overloaded node tells callers to wait (`RetryInfo`), to which they add some jitter: a full queue
/// takes about as long to be worked off.
pub const RETRY_AFTER: Duration = Duration::from_millis(100);

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $text:literal => $code:ident,)*) => {
        /// Why a request failed. Clients decide by matching on this, never on text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $variant,)* }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// As it stands in `ErrorInfo.reason`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The gRPC code that goes with it.
            pub const fn code(self) -> Code {
                match self { $(Self::$variant => Code::$code,)* }
            }

            /// From `ErrorInfo.reason`; `None` for one that this version does not know.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|r| r.as_str() == text)
            }
        }
    };
}

reasons! {
    /// No table has that name or lies at that URI.
    TableNotFound = "TABLE_NOT_FOUND" => NotFound,
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
    /// A number or a combination of fields is out of its bounds.
    BadArgument = "BAD_ARGUMENT" => InvalidArgument,
    /// What was asked for needs an index or a key that the table lacks.
    NoIndex = "NO_INDEX" => FailedPrecondition,
    /// A column's type is not one that this can be done with.
    UnsupportedType = "UNSUPPORTED_TYPE" => FailedPrecondition,
    /// The object store does not answer.
    StoreUnreachable = "STORE_UNREACHABLE" => Unavailable,
    /// The object store refuses the credentials.
    StoreRefused = "STORE_REFUSED" => PermissionDenied,
    /// The table's files are damaged, or gone.
    TableDamaged = "TABLE_DAMAGED" => DataLoss,
    /// The stream's protocol was broken.
    BadProtocol = "BAD_PROTOCOL" => InvalidArgument,
    /// A queue is full; try again a little later.
    Overloaded = "OVERLOADED" => ResourceExhausted,
    /// The answer would be larger than a message may be.
    TooLarge = "TOO_LARGE" => ResourceExhausted,
    /// The deadline had passed before the work was done.
    DeadlineExceeded = "DEADLINE_EXCEEDED" => DeadlineExceeded,
    /// The caller no longer wants the answer.
    Cancelled = "CANCELLED" => Cancelled,
    /// The node is shutting down, or a node behind it can't be reached.
    NodeUnavailable = "NODE_UNAVAILABLE" => Unavailable,
    /// A defect of Bireme or of a library below it.
    Internal = "INTERNAL" => Internal,
}

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Why, for programs.
    pub reason: Reason,
    /// What is at fault and how to mend it, in one sentence.
    pub message: String,
    /// What is at fault, for programs: names of tables, columns, addresses.
    pub metadata: BTreeMap<String, String>,
}

impl Fault {
    /// A fault without metadata.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), metadata: BTreeMap::new() }
    }

    /// The same with one more metadatum.
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.metadata.insert(name.into(), value.to_string());
        self
    }

    /// From a gRPC status: one of Bireme's own keeps its reason, any other gets the nearest.
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
        Code::PermissionDenied | Code::Unauthenticated => Reason::StoreRefused,
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

/// The status that a call's headers or trailers say; `None` if they say none.
///
/// tonic panics on details that are not base64, so that those are left out.
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

/// Where a status has its details.
const DETAILS: &str = "grpc-status-details-bin";

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let mut details = ErrorDetails::with_error_info(
            fault.reason.as_str(),
            ERROR_DOMAIN,
            fault.metadata.into_iter().collect::<Metadata>(),
        );
        // What is too large ends in RESOURCE_EXHAUSTED too, and is so the next time: only this says when to
        // try again.
        if fault.reason == Reason::Overloaded {
            details.set_retry_info(Some(RETRY_AFTER));
        }
        Status::with_error_details(fault.reason.code(), fault.message, details)
    }
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
    fn a_fault_survives_every_form_it_travels_in() {
        for &reason in Reason::ALL {
            let fault = Fault::new(reason, "no column `x`").with("column", "x");
            let status = Status::from(fault.clone());
            assert_eq!(status.code(), reason.code());
            assert_eq!(Fault::from_status(&status), fault);
            let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
            assert_eq!(retry.is_some(), reason == Reason::Overloaded, "{reason:?}");
            assert_eq!(Fault::from(fetch::Error::from(fault.clone())), fault);
            assert_eq!(Fault::from(query::Error::from(fault.clone())), fault);
        }
    }

    #[test]
    fn a_foreign_status_gets_the_nearest_reason() {
        let fault = Fault::from_status(&Status::unavailable("connection refused"));
        assert_eq!(fault.reason, Reason::NodeUnavailable);
        assert_eq!(fault.message, "connection refused");
    }
}
