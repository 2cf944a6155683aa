//! Reports the error of a command on stderr.

use tracing::Level;

use crate::error::CliError;
use crate::serve::log_is_json;

/// Prints `error` to stderr, or logs it if the log is JSON lines. With `json`, also prints it to stderr as a JSON
/// object.
pub fn report(error: &CliError, json: bool) {
    let (reason, message) = (error.reason(), error.message());
    match log_is_json() && tracing::enabled!(Level::ERROR) {
        true => tracing::error!(reason, exit = error.exit().number(), "{message}"),
        false => eprintln!("bireme: {message}"),
    }
    if json {
        eprintln!("{}", error.to_json());
    }
}
