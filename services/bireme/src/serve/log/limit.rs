//! Limits the log lines of each callsite, so that an error in every request can't fill a disk.
//!
//! The number of lines that were left out is a field of the callsite's next line, not a separate line, so that every
//! line has a time, a level and a target for programs that read the log.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The number of lines that a callsite may write at once.
const BURST: u32 = 20;

/// The interval after which a callsite may write one more line.
const REFILL: Duration = Duration::from_secs(1);

/// Formats events with another formatter, and leaves out those that come too often. The next line of the callsite says
/// how many were left out.
pub struct Limited<F> {
    format: F,
    json: bool,
    clock: fn() -> Instant,
    budgets: Mutex<HashMap<Identifier, LineBudget>>,
}

impl<F> Limited<F> {
    /// Limits `format`, which writes one line per event; with `json`, the line is an object.
    pub fn new(format: F, json: bool) -> Self {
        Self { format, json, clock: Instant::now, budgets: Mutex::default() }
    }
}

/// Writes `line` with the number of lines that were left out before it.
fn write_with(writer: &mut Writer<'_>, line: &str, left_out: u64, json: bool) -> fmt::Result {
    let line = line.trim_end();
    match line.strip_suffix('}').filter(|_| json) {
        Some(open) => writeln!(writer, r#"{open},"left_out":{left_out}}}"#),
        None => writeln!(writer, "{line} left_out={left_out}"),
    }
}

impl<S, N, F> FormatEvent<S, N> for Limited<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let admitted = {
            let mut budgets = self.budgets.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let now = (self.clock)();
            budgets.entry(event.metadata().callsite()).or_insert(LineBudget::new(now)).admit(now)
        };
        let Some(left_out) = admitted else { return Ok(()) };
        if left_out == 0 {
            return self.format.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        write_with(&mut writer, &line, left_out, self.json)
    }
}

/// The number of lines that a callsite may still write, and the number that it has left out.
#[derive(Debug)]
struct LineBudget {
    lines: u32,
    /// The time up to which refills are counted in `lines`.
    at: Instant,
    left_out: u64,
}

impl LineBudget {
    fn new(now: Instant) -> Self {
        Self { lines: BURST, at: now, left_out: 0 }
    }

    /// Takes one line from the budget and returns how many were left out before it; `None` if the budget is empty.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let refills = (now - self.at).as_nanos() / REFILL.as_nanos();
        let refills = u32::try_from(refills).unwrap_or(u32::MAX);
        self.lines = self.lines.saturating_add(refills).min(BURST);
        // While the budget is full, elapsed time does not count towards later refills.
        self.at = if self.lines == BURST { now } else { self.at + REFILL * refills };
        match self.lines.checked_sub(1) {
            Some(lines) => {
                self.lines = lines;
                Some(std::mem::take(&mut self.left_out))
            }
            None => {
                self.left_out += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write;
    use std::sync::Arc;

    use serde_json::Value;
    use tracing_subscriber::fmt::MakeWriter;
    use tracing_subscriber::fmt::format::{self, JsonFields};

    use super::*;
    use crate::serve::log::fields::EscapedFields;

    /// A writer into memory.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Written {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    impl Written {
        fn lines(&self) -> Vec<String> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            text.lines().map(str::to_owned).collect()
        }
    }

    thread_local! {
        static NOW: Cell<Instant> = Cell::new(Instant::now());
    }

    /// Returns a limiter whose clock stands still until the test moves it.
    fn limited<F>(format: F, json: bool) -> Limited<F> {
        Limited { clock: || NOW.get(), ..Limited::new(format, json) }
    }

    /// Logs the same event until a line is written after three that were left out.
    fn log_too_much() {
        let log = || tracing::warn!(trace_id = "5eed", "too much");
        (0..BURST + 3).for_each(|_| log());
        NOW.set(NOW.get() + REFILL);
        log();
    }

    #[test]
    fn a_line_says_how_many_were_left_out_and_is_otherwise_like_all_others() {
        let written = Written::default();
        let log = tracing_subscriber::fmt().with_writer(written.clone());
        let json = log
            .fmt_fields(JsonFields::new())
            .event_format(limited(format::format().json(), true))
            .finish();
        tracing::subscriber::with_default(json, log_too_much);
        let lines = written.lines();
        let objects: Vec<Value> =
            lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (last, others) = objects.split_last().unwrap();
        assert_eq!(others.len(), BURST as usize);
        assert!(others.iter().all(|line| line.get("left_out").is_none()), "{others:?}");
        assert_eq!(last["left_out"], 3);
        assert_eq!(last["level"], "WARN");
        assert_eq!(last["fields"]["trace_id"], "5eed");
        assert!(last["timestamp"].as_str() >= objects[0]["timestamp"].as_str());

        let written = Written::default();
        let log = tracing_subscriber::fmt().with_writer(written.clone()).with_ansi(false);
        let text = log
            .fmt_fields(EscapedFields::default())
            .event_format(limited(format::format(), false))
            .finish();
        tracing::subscriber::with_default(text, log_too_much);
        let lines = written.lines();
        let last = lines.last().unwrap();
        assert!(last.contains(" WARN ") && last.contains("too much"), "{last}");
        assert!(last.ends_with("left_out=3"), "{last}");
    }

    /// A table's name that an attacker may choose. It is logged in fields of a span and an event, and in a message.
    const FORGED: &str = "t\n2026-01-01T00:00:00Z  INFO forged: \u{1b}[2J\u{9b}0m\r\u{2028}";

    fn log_a_forged_name() {
        let _entered = tracing::info_span!("open", uri = FORGED).entered();
        let error = std::io::Error::other(FORGED);
        tracing::warn!(uri = %FORGED, ?error, "no table at {FORGED}");
    }

    #[test]
    fn an_event_is_one_line_whatever_it_contains() {
        for ansi in [false, true] {
            let written = Written::default();
            let text = tracing_subscriber::fmt()
                .with_writer(written.clone())
                .with_ansi(ansi)
                .fmt_fields(EscapedFields::default())
                .event_format(limited(format::format().with_ansi(false), false))
                .finish();
            tracing::subscriber::with_default(text, log_a_forged_name);
            let lines = written.lines();
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(!lines[0].chars().any(char::is_control), "{lines:?}");
            assert_eq!(lines[0].matches("INFO forged").count(), 4, "{lines:?}");
            assert!(lines[0].contains(r"no table at t\n2026-01-01T00:00:00Z"), "{lines:?}");
        }
        let written = Written::default();
        let json = tracing_subscriber::fmt()
            .with_writer(written.clone())
            .fmt_fields(JsonFields::new())
            .event_format(limited(format::format().json(), true))
            .finish();
        tracing::subscriber::with_default(json, log_a_forged_name);
        let [line] = &written.lines()[..] else { panic!("{:?}", written.lines()) };
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["fields"]["uri"], FORGED);
    }

    #[test]
    fn a_burst_is_written_then_one_line_a_second_and_others_are_counted() {
        let start = Instant::now();
        let mut budget = LineBudget::new(start);
        let burst: Vec<_> = (0..25).map(|_| budget.admit(start)).collect();
        assert_eq!(burst.iter().flatten().count(), BURST as usize);
        assert_eq!(budget.admit(start + REFILL), Some(5));
        assert_eq!(budget.admit(start + REFILL), None);
        assert_eq!(budget.admit(start + REFILL * 3), Some(1));
        assert_eq!(budget.admit(start + REFILL * 3), Some(0));
        // After a quiet hour the budget is one burst, and no more.
        let later = start + Duration::from_secs(3600);
        let burst: Vec<_> = (0..25).map(|_| budget.admit(later)).collect();
        assert_eq!(burst.iter().flatten().count(), BURST as usize);
    }
}
