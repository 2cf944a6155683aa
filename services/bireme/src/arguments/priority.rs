//! The priority of a request.

use clap::{Args, ValueEnum};
use wire::fetch::Priority;

/// The flag that sets a request's priority.
#[derive(Clone, Copy, Debug, Args)]
pub struct PriorityArgs {
    /// The request's priority; nodes of both tiers serve interactive requests before batch requests
    #[arg(long, value_enum, value_name = "PRIORITY", default_value = "interactive")]
    priority: PriorityName,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PriorityName {
    Interactive,
    Batch,
}

impl PriorityArgs {
    /// Returns the number that requests carry.
    pub fn number(self) -> i32 {
        let priority = match self.priority {
            PriorityName::Interactive => Priority::Interactive,
            PriorityName::Batch => Priority::Batch,
        };
        priority.into()
    }
}
