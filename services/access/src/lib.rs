//! Access control: identities of callers, the policy's grants, and their limits.
//!
//! [`Access`] identifies a caller by its client certificate, its token or its API key, and finds its grants. It follows
//! the policy's file and the issuers' keys. A node asks it once for each request, and again while a stream lasts.
//!
//! Invariants:
//! - Without a grant nothing is allowed. The first grant that names the caller, the table and the permission applies.
//! - Credentials that are sent and not accepted are refused, even if a grant is for everyone.
//! - No credential is kept, logged or shown. Only its SHA-256 digest is kept.
//! - A faulty policy or key set never replaces a good one.
//!
//! The crate does not know which requests there are, or what a table contains.

mod access;
mod api_key;
mod caller;
mod digest;
mod error;
mod grant;
mod identity;
mod key_set;
mod pattern;
mod policy;
mod rate;
mod token;

pub use access::{Access, Credentials};
pub use api_key::digest_of_key;
pub use caller::Caller;
pub use error::{AccessError, Denied};
pub use grant::{Grant, LimitReached, Permission, Running, Used};
pub use identity::Identity;
pub use pattern::Pattern;
