//! Access control: identities of callers, the policy's grants, and their limits.
//!
//! [`Access`] identifies a caller by its client certificate, its token or its API key, and finds its grants. It follows
//! the policy's file and the issuers' keys. A node calls it once for each request. [`Authorization`] decides whether
//! the caller may use a table, and decides again while a long call lasts.
//!
//! Invariants:
//! - Without a grant nothing is allowed. The first grant that names the caller, the table and the permission applies,
//!   also if it shows only a part of the table: later grants add nothing to it.
//! - A call that began under one part of a table ends if the policy now shows another part.
//! - A caller whose credentials are not accepted is refused, even if a grant is for `anyone`.
//! - No credential is kept, logged or shown. Only its SHA-256 digest is kept.
//! - A faulty policy or key set never replaces a good one.
//!
//! The crate knows neither the kinds of requests nor the contents of tables.

mod access;
mod api_key;
mod authorization;
mod caller;
mod digest;
mod error;
mod grant;
mod identity;
mod key_set;
mod part;
mod pattern;
mod policy;
mod rate;
mod token;

pub use access::{Access, Credentials};
pub use api_key::digest_of_key;
pub use authorization::{Authorization, NotAuthorized, RENEWED_EVERY};
pub use caller::Caller;
pub use error::{AccessError, Denied};
pub use grant::{Grant, LimitReached, Permission, Running, Used};
pub use identity::Identity;
pub use part::Part;
pub use pattern::Pattern;
