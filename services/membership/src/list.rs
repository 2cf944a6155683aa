//! A validated list of members. Pure.

use std::collections::HashMap;

use endpoint::Endpoint;
use placement::{Member, Members};

use crate::error::{MembershipError, Result};

/// The maximum number of members. Finding the owner of a chunk computes a score for each of them.
pub const MEMBERS_MAX: usize = 1024;

/// A member's availability according to the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The member serves.
    Ready,
    /// The member still serves but is about to stop.
    Draining,
    /// The member is listed but not ready. It may answer already.
    Starting,
    /// The member is known to the source but does not serve.
    Absent,
}

/// A member in a source's list.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The name that placement uses. It stays the same when the address changes.
    pub name: String,
    /// The address on which the member listens.
    pub endpoint: Endpoint,
    /// The member's share of the chunks, relative to the weights of the other members. Above 0.
    pub weight: f64,
    /// The member's location, such as an availability zone, if the source gives one.
    pub zone: Option<String>,
    /// The member's availability.
    pub presence: Presence,
}

/// A valid list of members, in ascending order of their names. It may be empty, because DNS and Kubernetes may have no
/// members for a while. Lists that people write may not be empty (see [`MemberList::written`]).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberList(Vec<Entry>);

impl MemberList {
    /// Validates and sorts `entries`.
    ///
    /// # Errors
    /// A name that is repeated or empty; a weight that is not finite and above 0; an endpoint that two members share,
    /// unless one of them is absent; or more than [`MEMBERS_MAX`] members.
    pub fn new(mut entries: Vec<Entry>) -> Result<Self> {
        if entries.len() > MEMBERS_MAX {
            return Err(MembershipError::TooMany { count: entries.len(), max: MEMBERS_MAX });
        }
        if let Some(unnamed) = entries.iter().find(|entry| entry.name.trim().is_empty()) {
            return Err(MembershipError::NoName { endpoint: unnamed.endpoint.to_string() });
        }
        let member = |entry: &Entry| Member {
            name: entry.name.clone(),
            endpoint: entry.endpoint.to_string(),
            weight: entry.weight,
        };
        if !entries.is_empty() {
            Members::new(entries.iter().map(member).collect())?;
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut at = HashMap::new();
        // The address of an absent node may belong to another node by now.
        for entry in entries.iter().filter(|entry| entry.presence != Presence::Absent) {
            if let Some(first) = at.insert(entry.endpoint.to_string(), &entry.name) {
                return Err(MembershipError::SameEndpoint {
                    first: first.clone(),
                    second: entry.name.clone(),
                    endpoint: entry.endpoint.to_string(),
                });
            }
        }
        Ok(Self(entries))
    }

    /// Returns the members in ascending order of their names.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::IoNodeConfig;

    fn refusal(nodes: &[IoNodeConfig]) -> String {
        MemberList::written(nodes).unwrap_err().to_string()
    }

    #[test]
    fn errors_of_invalid_lists_name_the_offending_value() {
        let node = |name: &str, port: u32| IoNodeConfig::at(format!("h:{port}")).named(name);
        let weighing = |weight| IoNodeConfig { weight, ..node("a", 1) };
        for (message, expected) in [
            (refusal(&[]), "there is no I/O node"),
            (refusal(&[node("a", 1), node("a", 2)]), "two I/O nodes are named `a`"),
            (refusal(&[node("a", 1), node("b", 1)]), "`a` and `b` are both at http://h:1"),
            (refusal(&[weighing(0.0)]), "`a` has weight 0"),
            (refusal(&[weighing(-1.0)]), "`a` has weight -1"),
            (refusal(&[weighing(f64::NAN)]), "`a` has weight NaN"),
            (refusal(&[node("a", 0)]), "`h:0` is not an endpoint: it names no port"),
            (refusal(&[node("a", 70_000)]), "`h:70000` is not an endpoint"),
            (refusal(&[node(" ", 1)]), "has an empty name"),
            (refusal(&[IoNodeConfig::at("ftp://h:1")]), "only `http` and `https`"),
        ] {
            assert!(message.contains(expected), "{message}");
        }
        let many: Vec<_> = (1..=1025).map(|port| node(&port.to_string(), port)).collect();
        assert!(refusal(&many).contains("1025 I/O nodes are listed, and 1024"));
        assert!(MemberList::written(&many[..1024]).is_ok());
    }

    #[test]
    fn entries_are_sorted_and_an_absent_member_may_share_an_endpoint() {
        let mut gone = IoNodeConfig::at("h:1").named("z").entry().unwrap();
        gone.presence = Presence::Absent;
        let here = IoNodeConfig::at("h:1").named("a").entry().unwrap();
        let list = MemberList::new(vec![gone, here]).unwrap();
        let names: Vec<_> = list.entries().iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "z"]);
    }
}
