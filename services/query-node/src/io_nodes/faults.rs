//! Decides from an I/O node's fault whether the node is to blame, and whether the table may answer instead. Pure.

use std::time::Duration;

use client::fetch::{OPENING, UNANSWERED};
use wire::{Fault, Reason};

/// A missed deadline counts as the node's failure only if the node had at least this much time. A usual batch takes
/// milliseconds, so short deadlines of callers do not eject a healthy node.
const BLAMED_AFTER: Duration = Duration::from_millis(250);

/// Returns whether a failure, which took `took`, counts towards the node's ejection.
pub fn blames_node(fault: &Fault, took: Duration) -> bool {
    match fault.reason {
        // A node that reports a passed deadline itself has answered: it was waiting for its drives or the table. A node
        // that is opening a table reports nothing while it waits for the store, and serves other tables meanwhile.
        Reason::DeadlineExceeded => {
            let has = |key: &str| fault.metadata.contains_key(key);
            took >= BLAMED_AFTER && has(UNANSWERED) && !has(OPENING)
        }
        Reason::Internal | Reason::BadProtocol => true,
        // The node refuses this query node, and will keep refusing it until somebody changes a configuration.
        Reason::Unauthenticated | Reason::Forbidden => true,
        // The client refuses requests to an unconnected node at once, so an ejection would gain nothing.
        Reason::NodeUnavailable
        // The node is healthy, but cannot do what is asked.
        | Reason::Overloaded
        | Reason::LimitReached
        | Reason::TooLarge
        | Reason::Cancelled
        | Reason::Unimplemented
        // The table, the store or the request is at fault.
        | Reason::StoreUnreachable
        | Reason::StoreRefused
        | Reason::Conflict
        | Reason::TableDamaged
        | Reason::UnsupportedType
        | Reason::TableNotFound
        | Reason::TableNotServed
        | Reason::VersionNotFound
        | Reason::ColumnNotFound
        | Reason::RowNotFound
        | Reason::KeyNotFound
        | Reason::BadVector
        | Reason::BadFilter
        | Reason::BadArgument
        | Reason::NoIndex
        | Reason::RecallUnknown => false,
    }
}

/// Returns whether the node itself sent the fault.
pub fn has_answered(fault: &Fault) -> bool {
    fault.reason != Reason::NodeUnavailable && !fault.metadata.contains_key(UNANSWERED)
}

/// Returns whether the table is read instead when an I/O node fails for this reason.
pub fn table_may_answer(reason: Reason) -> bool {
    match reason {
        // More work would not help, or the answer would be the same.
        Reason::Overloaded | Reason::LimitReached | Reason::TooLarge | Reason::Cancelled => false,
        Reason::NodeUnavailable
        | Reason::Unauthenticated
        | Reason::Forbidden
        | Reason::DeadlineExceeded
        | Reason::StoreUnreachable
        | Reason::StoreRefused
        | Reason::Conflict
        | Reason::TableDamaged
        | Reason::Internal
        | Reason::BadProtocol
        | Reason::Unimplemented
        | Reason::UnsupportedType
        | Reason::TableNotFound
        | Reason::TableNotServed
        | Reason::VersionNotFound
        | Reason::ColumnNotFound
        | Reason::RowNotFound
        | Reason::KeyNotFound
        | Reason::BadVector
        | Reason::BadFilter
        | Reason::BadArgument
        | Reason::NoIndex
        | Reason::RecallUnknown => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_opening_a_table_is_not_to_blame() {
        let unanswered = Fault::new(Reason::DeadlineExceeded, "late").with(UNANSWERED, true);
        let opening = unanswered.clone().with(OPENING, true);
        assert!(blames_node(&unanswered, BLAMED_AFTER) && !has_answered(&unanswered));
        assert!(!blames_node(&opening, BLAMED_AFTER) && !has_answered(&opening));
    }
}
