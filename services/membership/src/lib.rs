//! Follows the list of I/O nodes, the *members*, while a node runs.
//!
//! ```text
//! source (file, DNS, Kubernetes, or the configuration itself)
//!    └─ entries ─► MemberList (validated) ─► Roster (hold, slow start) ─► View ─► routing
//!                       └─ refused: counted and logged; the last View stays in use
//! ```
//!
//! Each source has its own file. Parsing, the checks of [`MemberList`] and the [`Roster`] are pure: callers
//! pass the time to the roster, which reads no clock.
//!
//! Invariants:
//! - No [`View`] is made from a refused list.
//! - A member is identified by its name. A new address does not move its chunks.
//! - A source that fails, or that reports no members, removes no member.
//!
//! Chunk ownership is in `placement`. Whether a member answers is known to `client` and to the ejection logic
//! of the query tier.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod config;
mod dns;
mod error;
mod file;
mod follow;
mod kubernetes;
mod list;
mod roster;
mod slices;
mod source;
mod view;

pub use config::IoNodeConfig;
pub use error::{MembershipError, Result};
pub use follow::{Membership, Report, Settings};
pub use list::{Entry, MEMBERS_MAX, MemberList, Presence};
pub use roster::{Policy, Roster};
pub use source::{Port, Source};
pub use view::{MemberState, View, ViewMember};
