//! An I/O node as it is written in TOML: in a query node's configuration, and in a file of members.

use serde::{Deserialize, Serialize};

use crate::error::{MembershipError, Result};
use crate::list::{Entry, Presence};

/// What an I/O node must speak.
const PROTOCOL: &str = "bireme.fetch.v1";

/// One I/O node.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IoNodeConfig {
    /// Where it listens, such as `http://10.0.0.7:7071`.
    pub endpoint: String,
    /// The name that placement goes by; the endpoint if left out.
    #[serde(default)]
    pub name: Option<String>,
    /// Its share of the chunks, in any unit that all nodes have in common.
    #[serde(default = "one")]
    pub weight: f64,
    /// Where it stands, such as an availability zone; shown, not gone by.
    #[serde(default)]
    pub zone: Option<String>,
    /// It keeps its chunks and is asked for none, as before it is restarted.
    #[serde(default)]
    pub draining: bool,
    /// What it speaks; `bireme.fetch.v1` if left out, and nothing else yet.
    #[serde(default)]
    pub protocol: Option<String>,
}

fn one() -> f64 {
    1.0
}

impl IoNodeConfig {
    /// A node that is named after its endpoint, and has weight 1.
    pub fn at(endpoint: impl Into<String>) -> Self {
        let endpoint = endpoint.into();
        Self { endpoint, name: None, weight: 1.0, zone: None, draining: false, protocol: None }
    }

    /// The same with a name.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// What it says.
    ///
    /// # Errors
    /// [`MembershipError::Endpoint`], [`MembershipError::Protocol`].
    pub fn entry(&self) -> Result<Entry> {
        let name = self.name.clone().unwrap_or_else(|| self.endpoint.clone());
        if let Some(protocol) = self.protocol.as_ref().filter(|spoken| *spoken != PROTOCOL) {
            return Err(MembershipError::Protocol {
                name,
                protocol: protocol.clone(),
                spoken: PROTOCOL,
                mend: "list nodes of one version of the protocol",
            });
        }
        Ok(Entry {
            name,
            endpoint: self.endpoint.parse()?,
            weight: self.weight,
            zone: self.zone.clone(),
            presence: if self.draining { Presence::Draining } else { Presence::Ready },
        })
    }
}
