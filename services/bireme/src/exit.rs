//! Exit codes, documented in `bireme --help`.

use std::process::ExitCode;

use wire::Reason;

/// The ways in which a process ends, other than by success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Nobody reads the output any more; not a failure.
    OutputClosed,
    /// SIGINT ended the command, or either signal ended an `ingest` or `index`. Unfinished work was not committed.
    Interrupted,
    /// SIGTERM ended the command. Unfinished work was not committed.
    Terminated,
    /// Any other failure.
    Other,
    /// A bad argument, value or setting, or a search that needs an index that the table does not have.
    Usage,
    /// No such table, version, row, key or file.
    NotFound,
    /// A node or a store can't be reached, did not answer in time, or is another kind of server.
    Unavailable,
    /// A queue is full, or a limit of the caller's grant is reached.
    Overloaded,
    /// A node, store, folder, drive or port can't be used: no access, no room, or in use.
    Refused,
    /// Another writer changed the table at the same time.
    Conflict,
}

impl Exit {
    /// Returns the exit code.
    pub const fn number(self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            // The codes that shells report for processes that SIGINT and SIGTERM ended.
            Self::Interrupted => 130,
            Self::Terminated => 143,
            Self::Other => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Unavailable => 4,
            Self::Overloaded => 5,
            Self::Refused => 6,
            Self::Conflict => 7,
        }
    }

    /// Returns the exit code for `main`.
    pub fn code(self) -> ExitCode {
        ExitCode::from(self.number())
    }

    /// Returns the exit of a command that fails with this reason.
    pub const fn for_reason(reason: Reason) -> Self {
        match reason {
            Reason::ColumnNotFound
            | Reason::BadVector
            | Reason::BadFilter
            | Reason::BadArgument
            // The user can give another argument, or build the index: the message names the command for that.
            | Reason::NoIndex
            | Reason::RecallUnknown
            // The user named the column: another column, or another use of this one, may work.
            | Reason::UnsupportedType
            | Reason::TooLarge
            | Reason::Unimplemented => Self::Usage,
            Reason::TableNotFound
            | Reason::VersionNotFound
            | Reason::RowNotFound
            | Reason::KeyNotFound => Self::NotFound,
            Reason::StoreUnreachable | Reason::DeadlineExceeded | Reason::NodeUnavailable => {
                Self::Unavailable
            }
            Reason::Overloaded | Reason::LimitReached => Self::Overloaded,
            Reason::StoreRefused
            | Reason::TableNotServed
            | Reason::Unauthenticated
            | Reason::Forbidden => Self::Refused,
            Reason::Conflict => Self::Conflict,
            Reason::TableDamaged
            | Reason::BadProtocol
            | Reason::Cancelled
            | Reason::Internal => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_map_to_the_documented_numbers() {
        for (reason, number) in [
            (Reason::BadFilter, 2),
            (Reason::ColumnNotFound, 2),
            (Reason::TableNotFound, 3),
            (Reason::KeyNotFound, 3),
            (Reason::NodeUnavailable, 4),
            (Reason::DeadlineExceeded, 4),
            (Reason::Overloaded, 5),
            (Reason::StoreRefused, 6),
            (Reason::Unauthenticated, 6),
            (Reason::LimitReached, 5),
            (Reason::Forbidden, 6),
            (Reason::Conflict, 7),
            (Reason::NoIndex, 2),
            (Reason::UnsupportedType, 2),
            (Reason::Internal, 1),
        ] {
            assert_eq!(Exit::for_reason(reason).number(), number, "{reason:?}");
        }
    }
}
