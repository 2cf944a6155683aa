//! Whose turn it is.

use clap::{Args, ValueEnum};
use wire::fetch::Priority;

/// Before or after others.
#[derive(Clone, Copy, Debug, Args)]
pub struct PriorityArgs {
    /// Whether somebody waits for the answer; batch work goes after others, on query and I/O nodes
    #[arg(long, value_enum, value_name = "WHOSE", default_value = "interactive")]
    priority: Whose,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Whose {
    Interactive,
    Batch,
}

impl PriorityArgs {
    /// As requests have it.
    pub fn number(self) -> i32 {
        let priority = match self.priority {
            Whose::Interactive => Priority::Interactive,
            Whose::Batch => Priority::Batch,
        };
        priority.into()
    }
}
