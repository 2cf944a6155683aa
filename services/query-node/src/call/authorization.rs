//! Authorization: who calls, and what the policy lets the caller do.
//!
//! The caller is identified before its call begins ([`identify`]). The call is authorized for its table before the
//! table is opened (`access::Authorization`), so that a request for a table that the caller may not see costs as much,
//! and gets the same answer, as one for a table that does not exist. A call is authorized again while it lasts: Takes,
//! and answers in pieces over plain HTTP, with each piece; a GetStream with each request; a Lookup with each group of
//! batches; Warms, Tunes and prewarms at intervals (`access::RENEWED_EVERY`).

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;

use access::{Access, Caller, Credentials, Denied, NotAuthorized};
use connections::Connection;
use tonic::Request;
use traffic::Holder;
use wire::Reason;

use crate::error::{AVAILABLE_MAX, QueryError};
use crate::tables::Catalog;

/// The maximum number of tables' names that are compared with grants for the error of an unknown table.
const NAMES_EXAMINED_MAX: usize = 1000;

/// An identified caller.
#[derive(Clone, Debug)]
pub struct IdentifiedCaller {
    /// The caller, with its grants.
    pub caller: Arc<Caller>,
    /// The address that the caller's connection comes from.
    pub address: Option<SocketAddr>,
    /// The account of the connection's memory. `None` for a request without a connection.
    pub holder: Option<Arc<Holder>>,
}

impl IdentifiedCaller {
    /// Returns the caller with the rights that it has now.
    ///
    /// # Errors
    /// [`Denied`] once the caller's token has expired, or its credentials are no longer accepted.
    pub fn renewed(&self, access: &Access) -> std::result::Result<Self, Denied> {
        Ok(Self { caller: access.renewed(&self.caller)?, ..self.clone() })
    }
}

/// Identifies the caller of a request by its client certificate, its token or its API key.
///
/// # Errors
/// [`Denied`] if the credentials are not accepted, or missing where the policy has no grant for anyone.
pub async fn identify<T>(
    access: &Access,
    request: &Request<T>,
) -> std::result::Result<IdentifiedCaller, Denied> {
    let connection = request.extensions().get::<Arc<Connection>>();
    let peer = connection.map(|connection| connection.peer());
    let header = |name| request.metadata().get(name).map(|value| value.as_bytes());
    let credentials = Credentials {
        names: peer.map_or(&[], |peer| &peer.names),
        authorization: header("authorization"),
        api_key: header("x-api-key"),
    };
    let caller = access.caller(&credentials).await?;
    let holder = connection.map(|connection| Arc::clone(connection.holder()));
    Ok(IdentifiedCaller { caller, address: address_of(request), holder })
}

/// Returns the address that a request's connection comes from. `None` in a simulation.
pub fn address_of<T>(request: &Request<T>) -> Option<SocketAddr> {
    request.extensions().get::<Arc<Connection>>()?.peer().address
}

/// Returns the error for a call that may not use `table`.
pub fn refusal(reason: NotAuthorized, table: &str, catalog: &Catalog) -> QueryError {
    match reason {
        NotAuthorized::Denied(denied) => QueryError::Denied(denied),
        NotAuthorized::Unknown { caller } => {
            // Folders may have thousands of tables, and this runs before any limit of a grant.
            let left = Cell::new(NAMES_EXAMINED_MAX);
            let is_examined = || left.replace(left.get().saturating_sub(1)) > 0;
            let is_shown = |name: &str| is_examined() && caller.sees(name);
            let available = catalog.names(is_shown, "", AVAILABLE_MAX + 1);
            QueryError::TableUnknown { table: table.to_owned(), available }
        }
        NotAuthorized::Forbidden(permission) => QueryError::Forbidden {
            permission: permission.as_str(),
            what: format!("table `{table}`"),
        },
        NotAuthorized::LimitReached(reached) => reached.into(),
        NotAuthorized::PartChanged => QueryError::PartChanged { table: table.to_owned() },
    }
}

/// Returns whether the message of a fault may be shown to a caller who sees only a part of the table. A message about
/// the request is made from what the part shows. Messages about the table's files may name columns or values; so may
/// messages of a fault that was made without knowing the part (`is_unaware`).
pub fn may_be_shown(reason: Reason, is_unaware: bool) -> bool {
    use Reason::{
        BadArgument, BadFilter, BadProtocol, BadVector, Cancelled, ColumnNotFound,
        DeadlineExceeded, Forbidden, KeyNotFound, LimitReached, NoIndex, Overloaded, RecallUnknown,
        RowNotFound, TableNotFound, TooLarge, Unauthenticated, Unimplemented, UnsupportedType,
        VersionNotFound,
    };
    match reason {
        // None of these messages says what the files of a table contain.
        Forbidden | LimitReached | NoIndex | TableNotFound | Unauthenticated | VersionNotFound => {
            true
        }
        // A message of an I/O node that is busy may have the size of hidden rows.
        BadArgument | BadFilter | BadProtocol | BadVector | Cancelled | ColumnNotFound
        | DeadlineExceeded | KeyNotFound | Overloaded | RecallUnknown | RowNotFound | TooLarge
        | Unimplemented | UnsupportedType => !is_unaware,
        _ => false,
    }
}

/// Returns the error for a caller who sees only a part of `table`, in place of one whose message may not be shown.
pub fn hidden(reason: Reason, table: &str) -> QueryError {
    match reason {
        Reason::Overloaded | Reason::Cancelled | Reason::DeadlineExceeded => {
            QueryError::PartBusy { reason }
        }
        _ => QueryError::PartUnreadable { table: table.to_owned(), reason },
    }
}
