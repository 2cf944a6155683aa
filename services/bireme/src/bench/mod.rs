//! Load on a running endpoint, and its measurements.
//!
//! ```text
//! load.rs          how much load    ─► closed_loop.rs or fixed_rate.rs ─► tally.rs
//! fetch.rs take.rs search.rs get.rs empty.rs  what one request is (workload.rs)
//! live_rows.rs query_vectors.rs query_words.rs keys.rs  what requests are drawn from, by seed
//! counters.rs queues.rs machine.rs  the nodes' counters and queues, and the load's machine ─► report.rs
//! ```

mod closed_loop;
mod counters;
mod empty;
mod fetch;
mod fixed_rate;
mod get;
mod keys;
mod live_rows;
mod load;
mod machine;
mod permutation;
mod query_vectors;
mod query_words;
mod queues;
mod report;
mod report_text;
mod search;
mod take;
mod tally;
mod target;
mod workload;

pub use counters::Counters;
pub use empty::EmptyLoad;
pub use fetch::{FetchLoad, FetchPlan};
pub use get::{GetLoad, GetPlan};
pub use keys::KeyDistribution;
pub use load::{LoadArgs, Measured, apply_load, at_least_1, positive};
pub use queues::Watch;
pub use report::{Report, Subject};
pub use report_text::report_text;
pub use search::{SearchBy, SearchLoad, SearchPlan};
pub use take::{TakeLoad, TakePlan};
pub use target::Target;
pub use workload::{Workload, random};
