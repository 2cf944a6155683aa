//! The life of a serving process: logs, readiness, signals, draining.

mod announced;
mod io_process;
mod log;
mod machine_check;
mod signals;
mod telemetry_help;

pub use announced::announced;
pub use io_process::{drain, start_io_node};
pub use log::{NODE_LOG_LEVEL, UP_LOG_LEVEL, log_is_json, start_log};
pub use machine_check::check_machine;
pub use signals::{Signals, exit_at_second_signal};
pub use telemetry_help::{log_help, telemetry_help};
