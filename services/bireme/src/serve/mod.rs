//! The life of a serving process: logs, readiness, signals, draining.

mod announced;
mod cache_folder;
mod cache_size;
mod io_process;
mod log;
mod machine_check;
mod next_steps;
mod ready_file;
mod signals;
mod table_facts;
mod telemetry_help;

pub use announced::announced;
pub use cache_folder::{CacheFolder, Slab, TemporaryCache};
pub use cache_size::{cache_size_for, cache_size_max};
pub use io_process::{drain, start_io_node};
pub use log::{NODE_LOG_LEVEL, UP_LOG_LEVEL, log_is_json, start_log};
pub use machine_check::check_machine;
pub use next_steps::{TableFacts, next_steps, program};
pub use ready_file::ReadyFile;
pub use signals::{Signals, exit_at_second_signal};
pub use table_facts::table_facts;
pub use telemetry_help::{log_help, telemetry_help};
