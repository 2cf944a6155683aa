//! The life of a serving process: logs, readiness, signals, draining.

mod cache_folder;
mod io_process;
mod log;
mod next_steps;
mod ready_file;
mod signals;
mod table_facts;

pub use cache_folder::{CacheFolder, Slab};
pub use io_process::drain;
pub use log::start_log;
pub use next_steps::{TableFacts, next_steps};
pub use ready_file::ReadyFile;
pub use signals::{Signals, exit_at_second_signal};
pub use table_facts::table_facts;
