//! At most so many lines a place in the code: a fault that every request meets must not fill a disk with itself.

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
    pub format: F,
    pub json: bool,
    places: Mutex<HashMap<Identifier, Place>>,
}

impl<F> Limited<F> {
    pub fn new(format: F, json: bool) -> Self {
        Self { format, json, places: Mutex::default() }
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
            let now = Instant::now();
            places.entry(event.metadata().callsite()).or_insert(Place::new(now)).admit(now)
        };
        let Some(left_out) = admitted else { return Ok(()) };
        self.format.format_event(context, writer.by_ref(), event)?;
        match (left_out, self.json) {
            (0, _) => Ok(()),
            (_, true) => writeln!(writer, r#"{{"left_out":{left_out}}}"#),
            (_, false) => writeln!(writer, "  and {left_out} lines like it before, left out"),
        }
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
    use super::*;

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
