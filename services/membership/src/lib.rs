//! Who the I/O nodes are: a list of members that is followed while a node runs.
//!
//! ```text
//! source (file, dns, kubernetes, or the configuration itself)
//!    └─ what it says ─► MemberList: checked ─► Roster: held, ramped up ─► View ─► whoever routes
//!                            └─ refused: counted, told, and the last View stays
//! ```
//!
//! A file a source; what each makes of what it reads is pure, and so are the [`MemberList`]'s checks and
//! the [`Roster`], which has no clock of its own.
//!
//! Invariants: a [`View`] is never of a list that was refused; a member's place doesn't change with its
//! address; a source that fails, or says that nobody is there, takes no member away.
//!
//! Not here: who owns what (`placement`), and whether a member answers (`client`, and the query tier's
//! ejection).

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
pub use view::{Seat, State, View};
