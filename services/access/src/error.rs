//! Errors of policies, and the reasons why callers are not accepted.

use std::io;
use std::path::PathBuf;

/// The error for a policy that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A file can't be read.
    #[error("{} can't be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is not valid TOML, has an unknown or missing key, or has a value of the wrong type.
    #[error("{}: {problem}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The problem, with its line.
        problem: String,
    },
    /// A value is invalid, or contradicts another.
    #[error("{}: `{at}` {problem}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The place in the file, such as `grants.search.who`.
        at: String,
        /// The problem, and how to fix it.
        problem: String,
    },
}

macro_rules! causes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// The reason why a caller is not accepted. Its message is the same for all reasons, so that callers learn
        /// nothing from it; logs and metrics have [`as_str`](Self::as_str).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
        #[error("the credentials are missing or not accepted; send a valid token, API key or client certificate")]
        pub enum Denied { $($(#[$doc])* $variant,)* }

        impl Denied {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the reason, for logs and metrics.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

causes! {
    /// The request has no credentials, and no grant is for `anyone`.
    NoCredentials = "no_credentials",
    /// A header or the token in it has an invalid form, or two headers have different credentials.
    Malformed = "malformed",
    /// The token's issuer is not in the policy.
    UnknownIssuer = "unknown_issuer",
    /// The token is for another audience.
    Audience = "audience",
    /// The token's algorithm is unknown, `none`, or not allowed.
    Algorithm = "algorithm",
    /// The issuer does not have exactly one key that fits the token's `kid` and algorithm.
    UnknownKey = "unknown_key",
    /// The issuer's keys could not be read or fetched.
    Unavailable = "unavailable",
    /// The token was not signed by the issuer's key.
    BadSignature = "bad_signature",
    /// The token has expired.
    Expired = "expired",
    /// The token is not valid yet.
    NotYetValid = "not_yet_valid",
    /// The credential is neither a token nor an API key of the policy.
    UnknownApiKey = "unknown_api_key",
    /// The policy no longer accepts the credentials of an open stream.
    Withdrawn = "withdrawn",
}
