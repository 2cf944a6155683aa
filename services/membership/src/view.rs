//! What routing goes by: the members, each with its state.

use std::sync::Arc;

use client::Endpoint;

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has its whole share.
    Ready,
    /// It came lately, and its share grows.
    Joining,
    /// It is about to stop: it keeps its share, and is asked for nothing.
    Draining,
    /// The source has it no more, or not ready: it keeps its share for a while, and is asked only while
    /// its connection stands.
    Away,
}

/// A member with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Seat {
    /// The name that placement goes by.
    pub name: String,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Its weight, as the source has it.
    pub weight: f64,
    /// The weight that placement goes by now: less while it joins.
    pub share: f64,
    /// Where it stands; `None` if the source doesn't say.
    pub zone: Option<String>,
    /// How it stands.
    pub state: State,
}

/// The members at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Counts the views; 0 before the first list.
    pub generation: u64,
    /// By ascending name.
    pub seats: Arc<[Seat]>,
}
