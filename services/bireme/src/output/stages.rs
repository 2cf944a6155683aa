//! The stages of a request, as a waterfall.

use client::query::Stage;
use serde_json::{Value, json};

use super::text_table::{Align, TextTable};
use crate::quantity::micros;

/// The width of the waterfall, in characters.
const WATERFALL: usize = 24;

/// Returns one line per stage, with its time, a bar that shows when it ran, and what it did. The last line is the
/// total.
pub fn stages_text(stages: &[Stage], width: usize) -> String {
    let total: u64 =
        stages.iter().filter(|stage| stage.depth == 0).map(|stage| stage.time_us).sum();
    let headers =
        [("stage", Align::Left), ("time", Align::Right), ("when", Align::Left), ("", Align::Left)];
    let mut table = TextTable::new(headers);
    for (stage, start) in stages.iter().zip(starts(stages)) {
        let name = format!("{}{}", "  ".repeat(stage.depth as usize), stage.name);
        let bar = bar(start, stage.time_us, total);
        table.row(vec![name, micros(stage.time_us as f64), bar, stage.detail.clone()]);
    }
    let total_row = ["total".into(), micros(total as f64), String::new(), String::new()];
    table.row(total_row.into());
    table.text(width)
}

/// Returns the stages as one JSON value.
pub fn stages_json(stages: &[Stage]) -> Value {
    let stage = |stage: &Stage| {
        json!({
            "name": stage.name,
            "time_us": stage.time_us,
            "depth": stage.depth,
            "detail": stage.detail,
        })
    };
    stages.iter().map(stage).collect()
}

/// Returns the start of each stage. Stages of one depth follow each other; the first inner stage begins when its outer
/// stage does.
fn starts(stages: &[Stage]) -> Vec<u64> {
    let (mut outer, mut inner) = (0, 0);
    let start = |(at, stage): (usize, &Stage)| {
        if stage.depth == 0 {
            inner = outer;
            outer += stage.time_us;
            return outer - stage.time_us;
        }
        if at == 0 {
            inner = 0;
        }
        inner += stage.time_us;
        inner - stage.time_us
    };
    stages.iter().enumerate().map(start).collect()
}

/// Returns the bar of a stage, of at least one character, so that every stage is visible.
fn bar(start: u64, time: u64, total: u64) -> String {
    let place = |at: u64| (at * WATERFALL as u64 / total.max(1)).min(WATERFALL as u64) as usize;
    let from = place(start).min(WATERFALL - 1);
    let to = place(start + time).max(from + 1);
    format!("{}{}", " ".repeat(from), "█".repeat(to - from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str, time_us: u64, depth: u32) -> Stage {
        Stage { name: name.into(), time_us, detail: String::new(), depth }
    }

    #[test]
    fn inner_stages_begin_with_their_outer_one() {
        let stages = [
            stage("search", 100, 0),
            stage("rerank", 50, 0),
            stage("locate", 10, 1),
            stage("read", 30, 1),
            stage("reply", 50, 0),
        ];
        assert_eq!(starts(&stages), [0, 100, 100, 110, 150]);
        let text = stages_text(&stages, 100);
        assert!(text.contains("\n  read    30.0 µs"), "{text}");
        assert!(text.contains("\ntotal      200 µs"), "{text}");
    }

    #[test]
    fn bars_have_their_place() {
        assert_eq!(bar(0, 24, 24), "█".repeat(24));
        assert_eq!(bar(12, 12, 24), format!("{}{}", " ".repeat(12), "█".repeat(12)));
        assert_eq!(bar(24, 0, 24), format!("{}█", " ".repeat(23)));
        assert_eq!(bar(0, 0, 0), "█");
    }
}
