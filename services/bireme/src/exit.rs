//! Exit codes, documented in `bireme --help`.

use std::process::ExitCode;

use wire::Reason;

/// How the process ends when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Nobody reads the output any more; not a failure.
    OutputClosed,
    /// A signal ended it before anything was committed.
    Interrupted,
    /// None of the others.
    Other,
    /// A bad argument, value or setting, or one that the table has no index for.
    Usage,
    /// No such table, version, row or key.
    NotFound,
    /// A node or a store can't be reached, or didn't answer in time.
    Unavailable,
    /// A queue is full.
    Overloaded,
    /// A store, folder, drive or port can't be had: no access, no room, or in use.
    Refused,
}

impl Exit {
    /// The number.
    pub const fn number(self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            // As shells see a process that SIGINT ended.
            Self::Interrupted => 130,
            Self::Other => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Unavailable => 4,
            Self::Overloaded => 5,
            Self::Refused => 6,
        }
    }

    /// As `main` returns it.
    pub fn code(self) -> ExitCode {
        ExitCode::from(self.number())
    }

    /// For a fault.
    pub const fn of(reason: Reason) -> Self {
        match reason {
            Reason::ColumnNotFound
            | Reason::BadVector
            | Reason::BadFilter
            | Reason::BadArgument
            // Another argument would do, or the index that the message names the command for.
            | Reason::NoIndex
            | Reason::TooLarge => Self::Usage,
            Reason::TableNotFound
            | Reason::VersionNotFound
            | Reason::RowNotFound
            | Reason::KeyNotFound => Self::NotFound,
            Reason::StoreUnreachable | Reason::DeadlineExceeded | Reason::NodeUnavailable => {
                Self::Unavailable
            }
            Reason::Overloaded => Self::Overloaded,
            Reason::StoreRefused | Reason::TableNotServed => Self::Refused,
            Reason::UnsupportedType
            | Reason::TableDamaged
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
            (Reason::NoIndex, 2),
            (Reason::Internal, 1),
        ] {
            assert_eq!(Exit::of(reason).number(), number, "{reason:?}");
        }
    }
}
