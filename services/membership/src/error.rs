//! Errors of member lists and of their sources.

use std::io;

use endpoint::EndpointError;
use placement::MembersError;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, MembershipError>;

/// The reason why a source could not be read, or why its list was refused.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// The list is empty, repeats a name or has an invalid weight.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// An endpoint is not a valid address.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Two members have the same endpoint.
    #[error(
        "I/O nodes `{first}` and `{second}` are both at {endpoint}; give each its own endpoint"
    )]
    SameEndpoint {
        /// The first member's name.
        first: String,
        /// The second member's name.
        second: String,
        /// The endpoint of both.
        endpoint: String,
    },
    /// A member's name is empty.
    #[error("an I/O node at {endpoint} has an empty name; name it, or leave the name out")]
    NoName {
        /// The member's endpoint.
        endpoint: String,
    },
    /// The list has more than [`MEMBERS_MAX`](crate::MEMBERS_MAX) members.
    #[error("{count} I/O nodes are listed, and {max} can be used; list fewer")]
    TooMany {
        /// The number of members in the list.
        count: usize,
        /// The maximum.
        max: usize,
    },
    /// A member is listed with an unsupported protocol.
    #[error("I/O node `{name}` speaks `{protocol}`, and this node speaks {supported}; {advice}")]
    Protocol {
        /// The member's name.
        name: String,
        /// The protocol in the list.
        protocol: String,
        /// The supported protocol.
        supported: &'static str,
        /// Advice on how to fix it.
        advice: &'static str,
    },
    /// The Service has no usable port, or has several and the source names none.
    #[error("Service `{service}` {problem}; {advice}")]
    Port {
        /// The Service's name.
        service: String,
        /// A description of the problem.
        problem: String,
        /// Advice on how to fix it.
        advice: String,
    },
    /// A Service's weight label is not a valid weight.
    #[error(
        "label {label}={text} of Service `{service}` is not a number above 0; write it like 2 or 0.5"
    )]
    Weight {
        /// The Service's name.
        service: String,
        /// The label's name.
        label: &'static str,
        /// The label's value.
        text: String,
    },
    /// The file does not parse as a list of members.
    #[error("{path}:{line}: {problem}")]
    Syntax {
        /// The file's path.
        path: String,
        /// The line of the error. The first line is 1.
        line: usize,
        /// A description of the problem.
        problem: String,
    },
    /// The text does not parse as a [`Source`](crate::Source).
    #[error(
        "`{text}` is not a source of I/O nodes: {problem}; write dns:HOST:PORT, file:PATH or \
             kubernetes:[NAMESPACE/]SERVICE[,SERVICE][:PORT]"
    )]
    Source {
        /// The text.
        text: String,
        /// A description of the problem.
        problem: &'static str,
    },
    /// When the node started, the source could not be read, or its list was refused.
    #[error("{}", startup_message(source_name, error))]
    Startup {
        /// The source, as configured.
        source_name: String,
        /// The underlying error.
        error: std::sync::Arc<MembershipError>,
    },
    /// The file could not be read. The read is retried while the node runs.
    #[error("the list of I/O nodes can't be read from file:{path}: {problem}")]
    FileUnreadable {
        /// The file's path.
        path: String,
        /// The kind of I/O error.
        kind: io::ErrorKind,
        /// The text of the I/O error.
        problem: String,
    },
    /// DNS or the Kubernetes API could not be read. The read is retried.
    #[error("the list of I/O nodes can't be read from {source_name}: {problem}")]
    Unreachable {
        /// The source, as configured.
        source_name: String,
        /// A description of the problem.
        problem: String,
    },
}

impl MembershipError {
    /// Returns whether the source returned an invalid list. If not, the source could not be read.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::FileUnreadable { .. } | Self::Unreachable { .. } => false,
            Self::Startup { error, .. } => error.is_refusal(),
            _ => true,
        }
    }

    /// Returns the kind of I/O error if the file could not be read.
    pub fn file_error_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::FileUnreadable { kind, .. } => Some(*kind),
            Self::Startup { error, .. } => error.file_error_kind(),
            _ => None,
        }
    }
}

/// Returns the message of a failed start: the error, with its source unless the error names it, and with advice if the
/// source could not be read.
fn startup_message(source_name: &str, error: &MembershipError) -> String {
    match error {
        // In practice the source is a file: a start does not fail on a DNS or Kubernetes source that is out of reach.
        MembershipError::FileUnreadable { .. } | MembershipError::Unreachable { .. } => {
            format!("{error}; this node does not start: write the file, or name another")
        }
        MembershipError::Syntax { .. } => error.to_string(),
        _ => format!("{source_name}: {error}"),
    }
}
