//! One I/O node, as one core uses it: its client, its state, and whether it should be asked.

use std::sync::Arc;

use client::fetch::FetchClient;
use membership::{MemberState, ViewMember};
use tokio::time::Instant;
use wire::query;

use super::nodes::NodeHealth;

/// One I/O node, as one core uses it.
pub struct Node {
    /// The node's entry in the list of members.
    pub member: ViewMember,
    /// The node's name for traces. Each core has its own copy, so that cores do not share a reference count.
    pub name: Arc<str>,
    /// The node's address for traces and `explain`, also this core's own copy.
    pub address: Arc<str>,
    /// This core's client of the node.
    pub client: FetchClient,
    /// The node's health, shared by all cores.
    pub health: Arc<NodeHealth>,
}

impl Node {
    /// Returns the node's state, as Status reports it.
    pub fn state(&self) -> query::MemberState {
        match self.member.state {
            MemberState::Draining => query::MemberState::Draining,
            MemberState::Away => query::MemberState::Away,
            MemberState::Ready | MemberState::Joining
                if self.health.ejection.is_ejected(Instant::now()) =>
            {
                query::MemberState::Ejected
            }
            MemberState::Ready => query::MemberState::Ready,
            MemberState::Joining => query::MemberState::Joining,
        }
    }

    /// Returns whether the node probably answers requests now. Unlike [`allow_request`](Self::allow_request), this does
    /// not use up the one request that a node is allowed when its ejection is over.
    pub fn is_available(&self) -> bool {
        self.check_reachable().is_ok() && !self.health.ejection.is_ejected(Instant::now())
    }

    /// Returns why the node can't be asked, whatever its ejection says.
    fn check_reachable(&self) -> std::result::Result<(), &'static str> {
        match self.member.state {
            MemberState::Draining => return Err("it is draining"),
            // The list may be wrong or late, but a node that is still connected can be asked.
            MemberState::Away if !self.client.is_connected() => return Err("it is away"),
            MemberState::Away | MemberState::Ready | MemberState::Joining => {}
        }
        match self.client.is_down() {
            true => Err("it can't be reached"),
            false => Ok(()),
        }
    }

    /// Returns whether a request may be sent to the node now, or else why not. When an ejection is over, only one
    /// caller is allowed a request. It must send this request: the outcome decides whether the node is ejected again.
    pub fn allow_request(&self) -> std::result::Result<(), &'static str> {
        self.check_reachable()?;
        match self.health.ejection.allow_request(Instant::now()) {
            true => Ok(()),
            false => Err("it failed lately"),
        }
    }
}
