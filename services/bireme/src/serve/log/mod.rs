//! Logs to stderr. Every event is one line: JSON, or text whose fields `fields.rs` escapes.

mod fields;
mod limit;

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format;

use self::fields::EscapedFields;
use self::limit::Limited;
use crate::error::{CliError, Result};

/// The variable that sets the level, such as `debug` or `info,io_node=trace`.
const VARIABLE: &str = "BIREME_LOG";

/// The default level of a node.
pub const NODE_LOG_LEVEL: &str = "info";

/// The default level of `bireme up`, which prints the important messages itself.
pub const UP_LOG_LEVEL: &str = "warn";

/// The maximum number of characters of a panic's message that are logged.
const PANIC_MAX: usize = 500;

/// Whether the log was started as JSON lines.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Returns whether stderr gets JSON lines.
pub fn log_is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Directives for libraries that log too much at the default level.
const QUIETER: [&str; 10] = [
    "lance=warn",
    "lance::object_store=error",
    "datafusion=warn",
    "h2=warn",
    "hyper=warn",
    "tower=warn",
    "object_store=warn",
    // The code that calls these libraries logs the errors that it gets from them.
    "kube_client=error",
    "kube_runtime=error",
    "aws_config=error",
];

/// Refuses a word that is not a level. The filter would take it for the name of a module, and if it is the only word,
/// no line of Bireme would be logged.
fn check_levels(wanted: &str) -> Result<()> {
    let mut words = wanted.split(',').map(str::trim).filter(|word| !word.contains(['=', '[']));
    match words.find(|word| word.parse::<LevelFilter>().is_err()) {
        Some(word) => Err(CliError::usage(format!(
            "{VARIABLE}: `{word}` is not a level; write it like info, or info,io_node=debug"
        ))),
        None => Ok(()),
    }
}

/// Starts logging at `level`, unless `BIREME_LOG` sets another level. With `json`, the log is JSON lines.
pub fn start_log(level: &str, json: bool) -> Result<()> {
    let wanted = std::env::var(VARIABLE).ok().filter(|wanted| !wanted.trim().is_empty());
    let wanted = wanted.as_deref().unwrap_or(level);
    check_levels(wanted)?;
    // A level that the user sets for one of these libraries comes later, and has precedence.
    let filter = EnvFilter::try_new(format!("{},{wanted}", QUIETER.join(",")))
        .map_err(|error| CliError::usage(format!("{VARIABLE}: {error}; write it like info")))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match json {
        true => log
            .fmt_fields(format::JsonFields::new())
            .event_format(Limited::new(format::format().json(), true))
            .try_init(),
        false => log
            .with_ansi(std::io::stderr().is_terminal())
            .fmt_fields(EscapedFields::default())
            .event_format(Limited::new(format::format(), false))
            .try_init(),
    };
    IS_JSON.store(json, Ordering::Relaxed);
    // Starting fails only if a subscriber is already set; that one is then used.
    drop(started);
    log_panics();
    Ok(())
}

/// Logs panics as events, so that each is one line and their number is limited: a damaged table may cause a panic at
/// each read, with text that the table's writer chose. If RUST_BACKTRACE asks for backtraces, panics are printed as
/// usual.
fn log_panics() {
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|wanted| wanted != "0") {
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string);
        let what = panic.payload();
        let text = what.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| what.downcast_ref::<&str>().copied()).unwrap_or("no message");
        let text: String = text.chars().take(PANIC_MAX).collect();
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or_default();
        tracing::error!(at, thread, "panicked: {text}");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_not_a_level_is_refused() {
        for good in ["info", "debug,io_node=trace", "OFF", "warn, lake=debug", "[span]=info"] {
            assert!(check_levels(good).is_ok(), "{good}");
        }
        for bad in ["loud", "info,io_node"] {
            assert!(check_levels(bad).unwrap_err().message().contains("not a level"), "{bad}");
        }
    }
}
