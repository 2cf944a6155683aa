//! Fair, bounded queues: the order in which waiting work is served, and how many pieces of work may wait. Both tiers
//! use this crate.
//!
//! All work belongs to a [`Flow`], such as the requests of one grant. A [`FairQueue`] serves flows in proportion to
//! their weights, counted in rows, so that a flow that asks for more than its share delays its own work, and takes
//! nothing from the shares of others. Within a flow, work is served in the order of its arrival.
//!
//! There are two priority classes. While interactive work waits, batch work gets one pop of the queue in
//! [`BATCH_TURN`]. So neither class starves: a backfill takes at most an eighth of the pops while searches wait, and
//! still finishes.
//!
//! [`has_room`] divides the places of a bounded queue between flows, so that one flow cannot fill a long queue.
//! [`Permits`] combines a limit on concurrent work with a fair, bounded queue for a permit. Everything except `Permits`
//! is pure.

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
