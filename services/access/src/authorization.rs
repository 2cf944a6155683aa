//! Authorization: whether a caller may use a table, at the beginning of a call and for as long as the call lasts.
//!
//! A call is authorized before its table is opened ([`Authorization::of`]). Its right ends when no grant of the current
//! policy allows the call any more, or when the caller's credentials are no longer accepted. So a long call is
//! authorized again: with each part of its answer ([`Authorization::renew`]), or, if the call has no parts, from time
//! to time ([`Authorization::withdrawn`]).

use std::sync::Arc;
use std::time::Duration;

use crate::access::Access;
use crate::caller::Caller;
use crate::error::Denied;
use crate::grant::{Grant, LimitReached, Permission, Running};

/// The interval at which calls whose answers have no parts are authorized again, and at which a node checks the
/// policy's files for changes.
pub const RENEWED_EVERY: Duration = Duration::from_secs(5);

/// The reason why a call may not use a table.
#[derive(Debug)]
pub enum NotAuthorized {
    /// The caller's credentials are no longer accepted.
    Denied(Denied),
    /// The caller may not see the table, or the node serves no table of that name. The two are not distinguished, so
    /// that no answer reveals which tables exist.
    Unknown {
        /// The caller, with the grants under which the table is unknown.
        caller: Arc<Caller>,
    },
    /// The caller sees the table, but no grant has the permission.
    Forbidden(Permission),
    /// A limit of the grant is reached.
    LimitReached(LimitReached),
    /// The policy now shows another part of the table than the one under which the call began.
    PartChanged,
}

/// The right of a call to use one table, or to observe a node or list its tables.
pub struct Authorization {
    permission: Permission,
    grant: Arc<Grant>,
    /// Counts the call towards the grant's limit of concurrent calls, until it is dropped.
    _running: Running,
}

impl Authorization {
    /// Authorizes `caller` to use a table, within the limits of its grant. `is_served` returns whether the node serves
    /// a table of a name.
    ///
    /// # Errors
    /// [`NotAuthorized`], except `Denied` and `PartChanged`.
    pub fn of(
        caller: &Arc<Caller>,
        table: &str,
        permission: Permission,
        is_served: impl Fn(&str) -> bool,
    ) -> Result<Self, NotAuthorized> {
        let grant = granted(caller, table, permission, is_served)?;
        Self::under(&grant, permission).map_err(NotAuthorized::LimitReached)
    }

    /// Begins a call under `grant`, within its limits. A call that uses no table, such as a list of tables, begins with
    /// this alone, and is not authorized again.
    ///
    /// # Errors
    /// [`LimitReached`].
    pub fn under(grant: &Arc<Grant>, permission: Permission) -> Result<Self, LimitReached> {
        let running = grant.begin()?;
        Ok(Self { permission, grant: Arc::clone(grant), _running: running })
    }

    /// Returns the grant that allows the call.
    pub fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }

    /// Returns whether the call was authorized for `permission`.
    pub fn is_for(&self, permission: Permission) -> bool {
        self.permission == permission
    }

    /// Checks that the caller's credentials are still accepted, and authorizes the call for its table again if the
    /// policy has changed. The call still counts as a running call of the grant under which it began, even if another
    /// grant allows it now; but that grant must show the same part of the table.
    ///
    /// # Errors
    /// [`NotAuthorized`], except `LimitReached`.
    pub fn renew(
        &mut self,
        access: &Access,
        caller: &mut Arc<Caller>,
        table: &str,
        is_served: impl Fn(&str) -> bool,
    ) -> Result<(), NotAuthorized> {
        let renewed = access.renewed(caller).map_err(NotAuthorized::Denied)?;
        if !Arc::ptr_eq(&renewed, caller) {
            let grant = granted(&renewed, table, self.permission, is_served)?;
            if grant.part() != self.grant.part() {
                return Err(NotAuthorized::PartChanged);
            }
            self.grant = grant;
            *caller = renewed;
        }
        Ok(())
    }

    /// Authorizes the call again every [`RENEWED_EVERY`], until it is no longer authorized. Returns the reason.
    pub async fn withdrawn(
        &mut self,
        access: &Access,
        caller: &mut Arc<Caller>,
        table: &str,
        is_served: impl Fn(&str) -> bool,
    ) -> NotAuthorized {
        loop {
            tokio::time::sleep(RENEWED_EVERY).await;
            if let Err(reason) = self.renew(access, caller, table, &is_served) {
                return reason;
            }
        }
    }
}

/// Returns the grant by which `caller` may use `table`.
fn granted(
    caller: &Arc<Caller>,
    table: &str,
    permission: Permission,
    is_served: impl Fn(&str) -> bool,
) -> Result<Arc<Grant>, NotAuthorized> {
    // A request may name a table by a text of any length. Only a name that exists is compared with the patterns of
    // grants.
    if !is_served(table) || !caller.sees(table) {
        return Err(NotAuthorized::Unknown { caller: Arc::clone(caller) });
    }
    let grant = caller.grant(table, permission).map(Arc::clone);
    grant.ok_or(NotAuthorized::Forbidden(permission))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Credentials;

    /// Returns a policy whose grant for the tables `a*` shows the given part of them.
    fn policy(part: &str) -> String {
        let digest = crate::digest_of_key(b"the key");
        format!(
            "[keys.ci]\nsha256 = [\"{digest}\"]\n[[grants]]\nname = \"g\"\nwho = [\"key:ci\"]\n\
             tables = [\"a*\"]\nmay = [\"read\"]\n{part}\n"
        )
    }

    #[tokio::test]
    async fn a_call_ends_when_the_policy_shows_another_part_of_its_table() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.toml");
        let (one, other) = ("rows = \"x = 1\"", "rows = \"x = 2\"");
        let columns = "columns = [\"x\"]\nrows = \"x = 1\"";
        for (before, after, goes_on) in [
            (one, one, true),
            ("", "", true),
            (one, other, false),
            (one, columns, false),
            (one, "", false),
            ("", one, false),
        ] {
            std::fs::write(&file, policy(before)).unwrap();
            let access = Access::load(&file, false).await.unwrap();
            let credentials = Credentials { api_key: Some(b"the key"), ..Default::default() };
            let mut caller = access.caller(&credentials).await.unwrap();
            let mut right = Authorization::of(&caller, "a1", Permission::Read, |_| true).unwrap();
            assert_eq!(right.grant().part().is_some(), !before.is_empty());
            // The comment changes the file, so that it is read again.
            std::fs::write(&file, policy(&format!("{after}\n# new"))).unwrap();
            access.reload_if_changed().await;
            let renewed = right.renew(&access, &mut caller, "a1", |_| true);
            match goes_on {
                true => renewed.unwrap(),
                false => assert!(matches!(renewed, Err(NotAuthorized::PartChanged)), "{after}"),
            }
        }
    }
}
