//! The TOML form of an I/O node, used in a query node's configuration and in a file of members.

use placement::MembersError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::list::{Entry, MemberList, Presence};

/// One I/O node.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IoNodeConfig {
    /// The address on which the node listens, such as `http://10.0.0.7:7071`.
    pub endpoint: String,
    /// The name that placement uses. Defaults to the endpoint.
    #[serde(default)]
    pub name: Option<String>,
    /// The node's share of the chunks, relative to the weights of the other nodes.
    #[serde(default = "one")]
    pub weight: f64,
    /// Set before a restart: the node keeps its chunks but receives no requests.
    #[serde(default)]
    pub draining: bool,
}

fn one() -> f64 {
    1.0
}

impl IoNodeConfig {
    /// Returns a node of weight 1 that is named after its endpoint.
    pub fn at(endpoint: impl Into<String>) -> Self {
        let endpoint = endpoint.into();
        Self { endpoint, name: None, weight: 1.0, draining: false }
    }

    /// Sets the name.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Converts this to a member list entry.
    ///
    /// # Errors
    /// [`MembershipError::Endpoint`](crate::MembershipError::Endpoint) if the endpoint is invalid.
    pub fn entry(&self) -> Result<Entry> {
        let name = self.name.clone().unwrap_or_else(|| self.endpoint.clone());
        Ok(Entry {
            name,
            endpoint: self.endpoint.parse()?,
            weight: self.weight,
            zone: None,
            presence: if self.draining { Presence::Draining } else { Presence::Ready },
        })
    }
}

impl MemberList {
    /// Converts and validates a list from a configuration or a file.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new), and errors for an empty list and for an invalid endpoint.
    pub fn written(nodes: &[IoNodeConfig]) -> Result<Self> {
        if nodes.is_empty() {
            return Err(MembersError::Empty.into());
        }
        Self::new(nodes.iter().map(IoNodeConfig::entry).collect::<Result<_>>()?)
    }
}
