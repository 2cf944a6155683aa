//! The order in which waiting work gets its turn, and the places in which it waits: the same on both tiers.
//!
//! Work belongs to a [`Flow`]: the requests of one grant. A [`FairQueue`] gives flows turns in proportion to their
//! weights, counted in rows, so that a caller that asks for more than its share delays itself and nobody else. Within a
//! flow, work leaves in the order of its arrival.
//!
//! There are two classes. While interactive work waits, batch work gets one turn in [`BATCH_TURN`], so that neither
//! starves: a backfill takes at most an eighth of the turns from searches, and still ends.
//!
//! [`has_room`] shares a bounded number of waiting places, so that no flow can fill them all. [`Permits`] are both
//! together: a number of permits, and a bounded queue for them. All but `Permits` is pure.

mod fair_queue;
mod flow;
mod flow_queue;
mod permits;
mod places;

pub use fair_queue::{BATCH_TURN, FairQueue, Priority};
pub use flow::{Cost, Flow, WEIGHT_MAX};
pub use flow_queue::FLOWS_MAX;
pub use permits::{Full, Permit, Permits, Waiting};
pub use places::{Places, has_room};
