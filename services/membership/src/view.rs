//! The members and their states as routing uses them.

use std::sync::Arc;

use endpoint::Endpoint;

/// A member's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// The member has its full share.
    Ready,
    /// The member joined recently and its share still grows.
    Joining,
    /// The member is about to stop. It keeps its share but receives no requests.
    Draining,
    /// The source no longer lists the member, or lists it as not ready. It keeps its share for [`hold`], and receives
    /// requests only while it is connected.
    ///
    /// [`hold`]: crate::Policy::hold
    Away,
}

/// A member in a view.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewMember {
    /// The name that placement uses.
    pub name: String,
    /// The address on which the member listens.
    pub endpoint: Endpoint,
    /// The member's weight according to the source.
    pub weight: f64,
    /// The weight that placement uses now. Less than `weight` while the member joins.
    pub share: f64,
    /// The member's location, such as an availability zone, if the source gives one.
    pub zone: Option<String>,
    /// The member's state.
    pub state: MemberState,
}

/// A snapshot of all members.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// The number of views so far. 0 before the first list.
    pub generation: u64,
    /// The members, in ascending order of their names.
    pub members: Arc<[ViewMember]>,
}
