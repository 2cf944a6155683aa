//! A caller: its identity, and its grants under one version of the policy.

use std::sync::Arc;
use std::time::Duration;

use crate::digest::Digest;
use crate::grant::{Grant, Permission};
use crate::identity::Identity;
use crate::token::VerifiedToken;

/// The part of a caller's credentials that is needed to check later whether the caller is still accepted.
#[derive(Clone, Debug)]
pub(crate) enum Proof {
    /// No credentials, or a client certificate, which the connection checks.
    Connection,
    /// The digest of an API key.
    Key(Digest),
    /// A token.
    Token(VerifiedToken),
}

/// A caller, with its grants under one version of the policy.
#[derive(Clone, Debug)]
pub struct Caller {
    pub(crate) identity: Identity,
    pub(crate) proof: Proof,
    pub(crate) generation: u64,
    /// The grants that name the caller, in the order of the policy.
    pub(crate) grants: Vec<Arc<Grant>>,
}

impl Caller {
    /// Returns the caller's identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns whether any grant of the caller names the table.
    pub fn sees(&self, table: &str) -> bool {
        self.grants.iter().any(|grant| grant.names(table))
    }

    /// Returns whether the caller may see every table, whatever its name.
    pub fn sees_all(&self) -> bool {
        self.grants.iter().any(|grant| grant.names_all())
    }

    /// Returns the grant under which the caller may use the table: the first one of the policy that names the table and
    /// has the permission.
    pub fn grant(&self, table: &str, permission: Permission) -> Option<&Arc<Grant>> {
        self.grants.iter().find(|grant| grant.allows(permission) && grant.names(table))
    }

    /// Returns the grant under which the caller observes a node: the first one of the policy that has the permission.
    pub fn observing_grant(&self) -> Option<&Arc<Grant>> {
        self.grants.iter().find(|grant| grant.allows(Permission::Observe))
    }

    /// Returns the grant under which the caller lists the tables that it sees: the first one. `None` if no grant names
    /// the caller, which then sees no table.
    pub fn listing_grant(&self) -> Option<&Arc<Grant>> {
        self.grants.first()
    }

    /// Returns whether the caller's token is still valid at `now`, the time since 1970. Other credentials do not
    /// expire.
    pub(crate) fn is_valid_at(&self, now: Duration) -> bool {
        match &self.proof {
            Proof::Token(token) => !token.has_expired(now),
            Proof::Connection | Proof::Key(_) => true,
        }
    }
}
