//! The settings that decide which callers are answered: named peers, or anyone.

use connections::is_beyond_loopback;
use peers::Names;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::IoConfig;
use crate::error::NodeError;

/// The callers that are answered besides the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IoAccess {
    /// Anyone who reaches the node.
    Open,
}

impl IoConfig {
    /// Returns whether anyone who reaches the node is answered.
    pub fn is_open(&self) -> bool {
        self.access.is_some() || (self.peers.is_empty() && self.peer_secret.is_none())
    }

    /// Returns whether other machines reach the node, and anyone on them is answered.
    pub fn is_open_beyond_loopback(&self) -> bool {
        self.is_open() && is_beyond_loopback(self.listen)
    }
}

/// Checks that the configuration says which callers are answered.
///
/// # Errors
/// [`NodeError::Config`] with what to add.
pub fn check(config: &IoConfig) -> Result<(), NodeError> {
    let bad = |field, problem| Err(NodeError::Config { field, problem });
    if let Err(problem) = Names::new(&config.peers) {
        return bad("peers", problem);
    }
    let has_authority = config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    if !config.peers.is_empty() && !has_authority {
        let problem = "needs `tls.client_ca`, the authority of the peers' certificates: without it nobody shows a \
                       name; add it";
        return bad("peers", problem.into());
    }
    if config.access.is_none() && config.is_open_beyond_loopback() {
        let problem = format!(
            "is not set, and other machines reach {}; add the line `peers = [\"query.example\"]` with the names in the \
             query nodes' certificates, or `peer_secret = \"/etc/bireme/peer-secret\"` with the file of a secret that \
             both tiers share, or, to answer anyone, `access = \"open\"`",
            config.listen
        );
        return bad("access", problem);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use connections::tls::ServerTlsConfig;

    use super::*;

    fn problem(change: impl FnOnce(&mut IoConfig)) -> Option<String> {
        let mut config = IoConfig::default();
        change(&mut config);
        check(&config).err().map(|error| error.to_string())
    }

    #[test]
    fn a_node_that_other_machines_reach_says_whom_it_answers() {
        let beyond = |config: &mut IoConfig| config.listen = "0.0.0.0:7071".parse().unwrap();
        let tls = |client_ca: Option<&str>| ServerTlsConfig {
            cert: "/cert".into(),
            key: "/key".into(),
            client_ca: client_ca.map(Into::into),
            crl: None,
        };
        let named = |config: &mut IoConfig| config.peers = vec!["query.example".into()];
        assert_eq!(problem(|_| {}), None);
        assert_eq!(problem(|c| c.listen = "[::ffff:127.0.0.1]:1".parse().unwrap()), None);
        for (listen, shown) in [("0.0.0.0:7071", "0.0.0.0:7071"), ("[::]:1", "[::]:1")] {
            let said = problem(|c| c.listen = listen.parse().unwrap()).unwrap();
            assert!(said.contains("`access` is not set"), "{said}");
            assert!(said.contains(shown) && said.contains("peers = ["), "{said}");
            assert!(
                said.contains("peer_secret = ") && said.contains("`access = \"open\"`"),
                "{said}"
            );
        }
        assert_eq!(problem(|c| (beyond(c), c.peer_secret = Some("/secret".into())).1), None);
        let opened = |config: &mut IoConfig| {
            beyond(config);
            config.access = Some(IoAccess::Open);
        };
        assert_eq!(problem(opened), None);
        for authority in [None, Some(tls(None))] {
            let said = problem(|c| (named(c), c.tls = authority).1).unwrap();
            assert!(said.contains("`peers` needs `tls.client_ca`"), "{said}");
        }
        assert_eq!(problem(|c| (beyond(c), named(c), c.tls = Some(tls(Some("/ca")))).2), None);
        let blank = problem(|c| (c.peers = vec![" ".into()], c.tls = Some(tls(Some("/ca")))).1);
        assert!(blank.unwrap().contains("`peers` names ` `"));
    }

    #[test]
    fn a_node_is_open_where_it_names_no_peers_and_has_no_secret() {
        let mut config = IoConfig::default();
        assert!(config.is_open() && !config.is_open_beyond_loopback());
        config.listen = "10.0.0.1:7071".parse().unwrap();
        assert!(config.is_open_beyond_loopback());
        config.peers = vec!["query.example".into()];
        assert!(!config.is_open());
        config.peer_secret = Some("/secret".into());
        assert!(!config.is_open());
        config.peers.clear();
        assert!(!config.is_open());
        config.access = Some(IoAccess::Open);
        assert!(config.is_open_beyond_loopback());
    }
}
