//! At most so many lines a place in the code: a fault that every request meets must not fill a disk with itself.
//!
//! What is left out is told within the next line of the same place that is written: whatever reads a log finds its time,
//! level and place where it finds those of others.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Lines of one place that may come at once.
const BURST: u32 = 20;

/// After so long there is room for one more.
const REFILL: Duration = Duration::from_secs(1);

/// Formats events as another does, but for those that come too often; the next one that is written says how many were
/// left out.
pub struct Limited<F> {
    format: F,
    json: bool,
    clock: fn() -> Instant,
    places: Mutex<HashMap<Identifier, Place>>,
}

impl<F> Limited<F> {
    /// `format` writes a line an event, which is an object with `json`.
    pub fn new(format: F, json: bool) -> Self {
        Self { format, json, clock: Instant::now, places: Mutex::default() }
    }
}

/// A line that says how many like it were left out before.
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
            let mut places = self.places.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let now = (self.clock)();
            places.entry(event.metadata().callsite()).or_insert(Place::new(now)).admit(now)
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

/// What a place in the code has said lately.
#[derive(Debug)]
struct Place {
    room: u32,
    /// When `room` was right.
    at: Instant,
    left_out: u64,
}

impl Place {
    fn new(now: Instant) -> Self {
        Self { room: BURST, at: now, left_out: 0 }
    }

    /// How many were left out since the last one, if there is room for one more.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let refills = (now - self.at).as_nanos() / REFILL.as_nanos();
        let refills = u32::try_from(refills).unwrap_or(u32::MAX);
        self.room = self.room.saturating_add(refills).min(BURST);
        // Full, it has no more time to its credit.
        self.at = if self.room == BURST { now } else { self.at + REFILL * refills };
        match self.room.checked_sub(1) {
            Some(room) => {
                self.room = room;
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

    /// What was written.
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

    /// By a clock that stands still unless it is moved.
    fn limited<F>(format: F, json: bool) -> Limited<F> {
        Limited { clock: || NOW.get(), ..Limited::new(format, json) }
    }

    /// Says the same until a line was written after three that were left out.
    fn say_too_much() {
        let say = || tracing::warn!(trace_id = "5eed", "too much");
        (0..BURST + 3).for_each(|_| say());
        NOW.set(NOW.get() + REFILL);
        say();
    }

    #[test]
    fn what_was_left_out_is_told_in_a_line_with_all_that_others_have() {
        let written = Written::default();
        let log = tracing_subscriber::fmt().with_writer(written.clone());
        let json = log
            .fmt_fields(JsonFields::new())
            .event_format(limited(format::format().json(), true))
            .finish();
        tracing::subscriber::with_default(json, say_too_much);
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
        tracing::subscriber::with_default(text, say_too_much);
        let lines = written.lines();
        let last = lines.last().unwrap();
        assert!(last.contains(" WARN ") && last.contains("too much"), "{last}");
        assert!(last.ends_with("left_out=3"), "{last}");
    }

    /// What somebody may have named a table, in a span's field, an event's, and its message.
    const FORGED: &str = "t\n2026-01-01T00:00:00Z  INFO forged: \u{1b}[2J\u{9b}0m\r\u{2028}";

    fn say_what_others_said() {
        let _within = tracing::info_span!("open", uri = FORGED).entered();
        let error = std::io::Error::other(FORGED);
        tracing::warn!(uri = %FORGED, ?error, "no table at {FORGED}");
    }

    #[test]
    fn an_event_is_a_line_whatever_is_in_it() {
        for ansi in [false, true] {
            let written = Written::default();
            let text = tracing_subscriber::fmt()
                .with_writer(written.clone())
                .with_ansi(ansi)
                .fmt_fields(EscapedFields::default())
                .event_format(limited(format::format().with_ansi(false), false))
                .finish();
            tracing::subscriber::with_default(text, say_what_others_said);
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
        tracing::subscriber::with_default(json, say_what_others_said);
        let [line] = &written.lines()[..] else { panic!("{:?}", written.lines()) };
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["fields"]["uri"], FORGED);
    }

    #[test]
    fn a_burst_is_written_then_one_a_second_and_the_rest_counted() {
        let start = Instant::now();
        let mut place = Place::new(start);
        let burst: Vec<_> = (0..25).map(|_| place.admit(start)).collect();
        assert_eq!(burst.iter().flatten().count(), BURST as usize);
        assert_eq!(place.admit(start + REFILL), Some(5));
        assert_eq!(place.admit(start + REFILL), None);
        assert_eq!(place.admit(start + REFILL * 3), Some(1));
        assert_eq!(place.admit(start + REFILL * 3), Some(0));
        // Quiet for an hour: room for a burst again, and no more.
        let later = start + Duration::from_secs(3600);
        let burst: Vec<_> = (0..25).map(|_| place.admit(later)).collect();
        assert_eq!(burst.iter().flatten().count(), BURST as usize);
    }
}
