//! Authorization: who calls, and what the policy lets the caller do.
//!
//! The caller is identified before its call begins ([`identify`]). The call is authorized for its table before the
//! table is opened ([`Authorization::of`]), so that a request for a table that the caller may not see costs as much,
//! and gets the same answer, as one for a table that does not exist. A stream is authorized again while it lasts
//! ([`Authorization::renew`]): its rights end when no grant of the current policy allows the call any more, or when the
//! caller's credentials are no longer accepted.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::{Access, Caller, Credentials, Denied, Grant, Permission, Running};
use connections::Connection;
use tonic::Request;

use crate::error::{AVAILABLE_MAX, QueryError, Result};
use crate::request_context::RequestContext;
use crate::tables::Catalog;

/// The maximum number of tables' names that are compared with grants for the error of an unknown table.
const NAMES_EXAMINED_MAX: usize = 1000;

/// The interval at which Warms, Tunes and prewarms are authorized again, and at which the policy's files are checked for
/// changes. Takes, and answers in pieces over plain HTTP, are authorized again with each piece, a GetStream with each
/// request, and a Lookup with each group of batches.
pub const RENEWED_EVERY: Duration = Duration::from_secs(5);

/// An identified caller.
#[derive(Clone, Debug)]
pub struct IdentifiedCaller {
    /// The caller, with its grants.
    pub caller: Arc<Caller>,
    /// The address that the caller's connection comes from.
    pub address: Option<SocketAddr>,
}

impl IdentifiedCaller {
    /// Returns the caller with the rights that it has now.
    ///
    /// # Errors
    /// [`Denied`] once the caller's token has expired, or its credentials are no longer accepted.
    pub fn renewed(&self, access: &Access) -> std::result::Result<Self, Denied> {
        Ok(Self { caller: access.renewed(&self.caller)?, ..*self })
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
    Ok(IdentifiedCaller { caller, address: address_of(request) })
}

/// Returns the address that a request's connection comes from. `None` in a simulation.
pub fn address_of<T>(request: &Request<T>) -> Option<SocketAddr> {
    request.extensions().get::<Arc<Connection>>()?.peer().address
}

/// The right of a call to use one table.
pub struct Authorization {
    permission: Permission,
    /// The grant that allows the call.
    pub grant: Arc<Grant>,
    /// Counts the call towards the grant's limit of concurrent calls, until it is dropped.
    _running: Running,
}

impl Authorization {
    /// Authorizes `caller` to use a table, within the limits of its grant.
    ///
    /// # Errors
    /// [`QueryError::TableUnknown`] if the caller may not see the table, or there is none of that name;
    /// [`QueryError::Forbidden`]; [`QueryError::LimitReached`].
    pub fn of(
        caller: &Caller,
        table: &str,
        permission: Permission,
        catalog: &Catalog,
    ) -> Result<Self> {
        let grant = granted(caller, table, permission, catalog)?;
        let running = grant.begin()?;
        Ok(Self { permission, grant, _running: running })
    }

    /// Returns whether the call was authorized for `permission`.
    pub fn is_for(&self, permission: Permission) -> bool {
        self.permission == permission
    }

    /// Returns `context` with the grant's flow, limited to the grant's timeout and priority.
    pub fn limit(&self, context: RequestContext) -> RequestContext {
        let mut context = context.in_flow(self.grant.flow());
        if let Some(timeout) = self.grant.timeout() {
            context = context.within(timeout);
        }
        if self.grant.batch_only() { context.as_batch() } else { context }
    }

    /// Checks that the caller's credentials are still accepted, and authorizes the call for its table again if the
    /// policy has changed. The call still counts as a running call of the grant under which it began, and stays in that
    /// grant's flow, even if another grant allows it now.
    ///
    /// # Errors
    /// [`QueryError::Denied`], [`QueryError::TableUnknown`] or [`QueryError::Forbidden`].
    pub fn renew(
        &mut self,
        access: &Access,
        caller: &mut Arc<Caller>,
        table: &str,
        catalog: &Catalog,
    ) -> Result<()> {
        let renewed = access.renewed(caller).map_err(QueryError::Denied)?;
        if !Arc::ptr_eq(&renewed, caller) {
            self.grant = granted(&renewed, table, self.permission, catalog)?;
            *caller = renewed;
        }
        Ok(())
    }
}

/// Returns the grant by which `caller` may use `table`.
fn granted(
    caller: &Caller,
    table: &str,
    permission: Permission,
    catalog: &Catalog,
) -> Result<Arc<Grant>> {
    // A request may name a table by a text of any length. Only a name that exists is compared with the patterns of
    // grants.
    if !catalog.has(table) || !caller.sees(table) {
        // Folders may have thousands of tables, and this runs before any limit of a grant.
        let left = Cell::new(NAMES_EXAMINED_MAX);
        let is_examined = || left.replace(left.get().saturating_sub(1)) > 0;
        let is_shown = |name: &str| is_examined() && caller.sees(name);
        let available = catalog.names(is_shown, "", AVAILABLE_MAX + 1);
        return Err(QueryError::TableUnknown { table: table.to_owned(), available });
    }
    let forbidden = || QueryError::Forbidden {
        permission: permission.as_str(),
        what: format!("table `{table}`"),
    };
    caller.grant(table, permission).map(Arc::clone).ok_or_else(forbidden)
}
