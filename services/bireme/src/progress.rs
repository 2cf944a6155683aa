//! Progress bars on stderr, if it is a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The interval at which a spinner turns.
const TURN: Duration = Duration::from_millis(100);

/// The unit of a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of a known total.
    Bytes,
    /// Items of a known total.
    Count,
    /// Steps whose number is not known.
    Steps,
}

/// Returns a bar, which is hidden with `--json` and if stderr is not a terminal.
pub fn bar(json: bool, unit: Unit, what: &str) -> ProgressBar {
    let shown = !json && std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let template = match unit {
        Unit::Bytes => {
            "{prefix} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {msg} eta {eta}"
        }
        Unit::Count => "{prefix} {wide_bar} {human_pos}/{human_len} {msg} eta {eta}",
        Unit::Steps => "{prefix} {spinner} {wide_msg} {elapsed}",
    };
    // A template that indicatif refuses is a defect; the plain bar is good enough then.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_prefix(what.to_owned());
    if shown && unit == Unit::Steps {
        bar.enable_steady_tick(TURN);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_with_json() {
        for unit in [Unit::Bytes, Unit::Count, Unit::Steps] {
            assert!(bar(true, unit, "x").is_hidden());
        }
    }
}
