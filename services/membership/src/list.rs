//! What a source says at one moment, checked. Pure.

use std::collections::HashMap;

use client::Endpoint;
use placement::{Member, Members, MembersError};

use crate::config::IoNodeConfig;
use crate::error::{MembershipError, Result};

/// The most members: the owner of a chunk is found by looking at all of them.
pub const MEMBERS_MAX: usize = 1024;

/// Whether a source says that a member is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It serves.
    Ready,
    /// It still serves, and is about to stop.
    Draining,
    /// It is not ready, and listed all the same: it may answer already.
    Starting,
    /// It is known, and does not serve now.
    Absent,
}

/// One member, as a source has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The name that placement goes by; it stays when the address changes.
    pub name: String,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Its share, in any unit that all members have in common; above 0.
    pub weight: f64,
    /// Where it stands; `None` if the source doesn't say.
    pub zone: Option<String>,
    /// Whether it is there.
    pub presence: Presence,
}

/// A list that can be placed over, by ascending name. It may be empty: only some sources may say so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberList(Vec<Entry>);

impl MemberList {
    /// Checks a list.
    ///
    /// # Errors
    /// A name twice or empty, a weight that is not finite and above 0, two members that are there at one
    /// endpoint, more than [`MEMBERS_MAX`].
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
        // The address of a node that is gone may be another's by now.
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

    /// The list that somebody wrote down.
    ///
    /// # Errors
    /// As [`new`](Self::new), and a list of nobody, an endpoint that is none, another protocol.
    pub fn written(nodes: &[IoNodeConfig]) -> Result<Self> {
        if nodes.is_empty() {
            return Err(MembersError::Empty.into());
        }
        Self::new(nodes.iter().map(IoNodeConfig::entry).collect::<Result<_>>()?)
    }

    /// By ascending name.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(nodes: &[IoNodeConfig]) -> String {
        MemberList::written(nodes).unwrap_err().to_string()
    }

    #[test]
    fn bad_lists_are_refused_with_what_is_at_fault() {
        let node = |name: &str, port: u32| IoNodeConfig::at(format!("h:{port}")).named(name);
        let weighing = |weight| IoNodeConfig { weight, ..node("a", 1) };
        let speaking = |what: &str| IoNodeConfig { protocol: Some(what.into()), ..node("a", 1) };
        for (said, expected) in [
            (refused(&[]), "there is no I/O node"),
            (refused(&[node("a", 1), node("a", 2)]), "two I/O nodes are named `a`"),
            (refused(&[node("a", 1), node("b", 1)]), "`a` and `b` are both at http://h:1"),
            (refused(&[weighing(0.0)]), "`a` has weight 0"),
            (refused(&[weighing(-1.0)]), "`a` has weight -1"),
            (refused(&[weighing(f64::NAN)]), "`a` has weight NaN"),
            (refused(&[node("a", 0)]), "`h:0` is not an endpoint: it names no port"),
            (refused(&[node("a", 70_000)]), "`h:70000` is not an endpoint"),
            (refused(&[node(" ", 1)]), "has an empty name"),
            (refused(&[IoNodeConfig::at("ftp://h:1")]), "only `http` and `https`"),
            (refused(&[speaking("bireme.fetch.v2")]), "`a` speaks `bireme.fetch.v2`"),
        ] {
            assert!(said.contains(expected), "{said}");
        }
        assert!(MemberList::written(&[speaking("bireme.fetch.v1")]).is_ok());
        let many: Vec<_> = (1..=1025).map(|port| node(&port.to_string(), port)).collect();
        assert!(refused(&many).contains("1025 I/O nodes are listed, and 1024"));
        assert!(MemberList::written(&many[..1024]).is_ok());
    }

    #[test]
    fn the_order_is_by_name_and_an_absent_nodes_address_may_be_anothers() {
        let mut gone = IoNodeConfig::at("h:1").named("z").entry().unwrap();
        gone.presence = Presence::Absent;
        let here = IoNodeConfig::at("h:1").named("a").entry().unwrap();
        let list = MemberList::new(vec![gone, here]).unwrap();
        let names: Vec<_> = list.entries().iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "z"]);
    }
}
