//! The `access` setting.

use std::net::SocketAddr;
use std::path::PathBuf;

use connections::is_beyond_loopback;
use serde::{Deserialize, Serialize};

/// The access mode of a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub enum AccessConfig {
    /// Everybody who reaches the port may do everything.
    Open,
    /// Callers may do what the grants of this policy file allow.
    Policy(PathBuf),
}

impl From<String> for AccessConfig {
    fn from(text: String) -> Self {
        if text == "open" { Self::Open } else { Self::Policy(text.into()) }
    }
}

impl From<AccessConfig> for String {
    fn from(access: AccessConfig) -> Self {
        match access {
            AccessConfig::Open => "open".into(),
            AccessConfig::Policy(path) => path.display().to_string(),
        }
    }
}

impl AccessConfig {
    /// Returns the problem of a node that listens on `listen` without an access mode, if other machines can reach that
    /// address.
    pub fn fault(access: Option<&Self>, listen: SocketAddr) -> Option<String> {
        (access.is_none() && is_beyond_loopback(listen)).then(|| {
            format!(
                "is missing, and {listen} can be reached by others; name a policy file that says who may read which \
                 tables, or write access = \"open\" to let everybody read all tables"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_others_can_reach_needs_an_access_mode() {
        let fault = |access: Option<&str>, listen: &str| {
            let access = access.map(|text| AccessConfig::from(text.to_owned()));
            AccessConfig::fault(access.as_ref(), listen.parse().unwrap())
        };
        for (access, listen) in [
            (None, "127.0.0.1:7070"),
            (None, "[::1]:7070"),
            (None, "[::ffff:127.0.0.1]:7070"),
            (Some("open"), "0.0.0.0:7070"),
            (Some("/etc/bireme/access.toml"), "[::]:7070"),
        ] {
            assert_eq!(fault(access, listen), None, "{access:?} {listen}");
        }
        for listen in ["0.0.0.0:7070", "10.0.0.7:7070", "[::]:7070"] {
            let fault = fault(None, listen).unwrap();
            assert!(fault.contains(listen) && fault.contains("access = \"open\""), "{fault}");
        }
    }
}
