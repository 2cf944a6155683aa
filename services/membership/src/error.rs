//! What can be wrong with a list of members, or with where it comes from.

use std::io;

use client::EndpointError;
use placement::MembersError;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, MembershipError>;

/// Why there is no list, or why a list is refused.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// Nobody, a name twice, or a weight that is none.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// An address that can't be connected to.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Two members have one address: one of them is not where the list says.
    #[error(
        "I/O nodes `{first}` and `{second}` are both at {endpoint}; give each its own endpoint"
    )]
    SameEndpoint {
        /// One of them.
        first: String,
        /// The other.
        second: String,
        /// Where both are said to be.
        endpoint: String,
    },
    /// A name that placement can't go by.
    #[error("an I/O node at {endpoint} has an empty name; name it, or leave the name out")]
    NoName {
        /// Whose.
        endpoint: String,
    },
    /// More than can be placed over.
    #[error("{count} I/O nodes are listed, and {max} can be used; list fewer")]
    TooMany {
        /// As listed.
        count: usize,
        /// The most.
        max: usize,
    },
    /// A member that is said to speak something else.
    #[error("I/O node `{name}` speaks `{protocol}`, and this node speaks {spoken}; {mend}")]
    Protocol {
        /// Whose.
        name: String,
        /// What it is said to speak.
        protocol: String,
        /// What is spoken here.
        spoken: &'static str,
        /// How to mend it.
        mend: &'static str,
    },
    /// The Service has no such port, or several and none was named.
    #[error("Service `{service}` {problem}; {mend}")]
    Port {
        /// Its name.
        service: String,
        /// What is wrong.
        problem: String,
        /// How to mend it.
        mend: String,
    },
    /// A Service's label says no weight.
    #[error(
        "label {label}={text} of Service `{service}` is no number above 0; write it like 2 or 0.5"
    )]
    Weight {
        /// The Service.
        service: String,
        /// The label's name.
        label: &'static str,
        /// What it says.
        text: String,
    },
    /// The file is no list of members.
    #[error("{path}:{line}: {problem}")]
    Syntax {
        /// The file.
        path: String,
        /// Where in it, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// The text says no source.
    #[error(
        "`{text}` says no source of I/O nodes: {problem}; write dns:HOST:PORT, file:PATH or \
             kubernetes:[NAMESPACE/]SERVICE[,SERVICE][:PORT]"
    )]
    Source {
        /// As written.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// What was wrong when a node started.
    #[error("{}", first(source_name, error))]
    First {
        /// Which source.
        source_name: String,
        /// What it was.
        error: std::sync::Arc<MembershipError>,
    },
    /// The file can't be read now. It is tried again.
    #[error("the I/O nodes can't be learnt from file:{path}: {problem}")]
    Unread {
        /// The file.
        path: String,
        /// What kind of fault it is.
        kind: io::ErrorKind,
        /// Why.
        problem: String,
    },
    /// The source can't be read now. It is tried again.
    #[error("the I/O nodes can't be learnt from {source_name}: {problem}")]
    Unreachable {
        /// Which source.
        source_name: String,
        /// Why.
        problem: String,
    },
}

impl MembershipError {
    /// Whether there was a list, and it is bad; else the source could not be read.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Unread { .. } | Self::Unreachable { .. } => false,
            Self::First { error, .. } => error.is_refusal(),
            _ => true,
        }
    }

    /// What kept the file from being read, if it was that.
    pub fn unread(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Unread { kind, .. } => Some(*kind),
            Self::First { error, .. } => error.unread(),
            _ => None,
        }
    }
}

/// With the source, unless it is named already.
fn first(source_name: &str, error: &MembershipError) -> String {
    match error {
        // Other sources are waited for.
        MembershipError::Unread { .. } | MembershipError::Unreachable { .. } => {
            format!("{error}; this node is not started: write the file, or name another")
        }
        MembershipError::Syntax { .. } => error.to_string(),
        _ => format!("{source_name}: {error}"),
    }
}
