//! Records the stages of a call until it has ended. Only then does the tracer decide whether the call is exported;
//! spans are made only for a call that is.
//!
//! For each call to an I/O node, only the values from which spans are made are kept: ids, names, timestamps, counts and
//! errors. The spans of its batches are made, formatted and numbered only at the export.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::fetch::{self, StageTimes, Trip, Trips, add_counts};
use telemetry::{Attribute, Recording, SPANS_MAX, Span};
use wire::BATCH_STAGES;

use crate::counters::Stage;

/// The stages of one call that have ended.
#[derive(Debug, Default)]
pub struct StageRecords {
    stages: Vec<StageRecord>,
    /// An upper bound of the number of spans that these stages become.
    spans: usize,
    /// The number of spans that were left out because the request has too many.
    left_out: usize,
}

#[derive(Debug)]
struct StageRecord {
    stage: Stage,
    began: Instant,
    ended: Instant,
    detail: String,
    work: StageWork,
}

// For a typical call (four stages, one I/O node), the stages and the call to the I/O node take less than 1 KiB each,
// which the allocator serves from its fast path.
const _: () = assert!(4 * size_of::<StageRecord>() < 1024 && size_of::<NodeCall>() < 1024);

/// The work done within a stage.
#[derive(Clone, Debug, Default)]
pub struct StageWork {
    /// The times at which the assignment of the rows to I/O nodes began and ended.
    pub planned: Option<(Instant, Instant)>,
    /// The calls to I/O nodes.
    pub calls: Vec<NodeCall>,
    /// The reads of the table by this node.
    pub reads: Vec<TableRead>,
}

/// A call to an I/O node.
#[derive(Clone, Debug)]
pub struct NodeCall {
    /// The id of the call's span, which was sent to the node.
    pub id: u64,
    /// The node's address.
    pub address: Arc<str>,
    /// The node's name.
    pub name: Arc<str>,
    /// Number of rows requested.
    pub rows: usize,
    /// When the call began.
    pub began: Instant,
    /// When the call was answered or failed.
    pub ended: Instant,
    /// The trips of the call's batches, or the error message.
    pub answer: Result<Trips, String>,
}

/// Rows that this node read from the table.
#[derive(Clone, Copy, Debug)]
pub struct TableRead {
    /// Number of rows requested.
    pub rows: usize,
    /// When the read was requested.
    pub began: Instant,
    /// When the rows had been read.
    pub ended: Instant,
}

impl StageRecords {
    /// Adds a stage, unless the call already has the maximum number of spans of one request.
    pub fn push(
        &mut self,
        stage: Stage,
        (began, ended): (Instant, Instant),
        detail: String,
        work: StageWork,
    ) {
        let spans = 1 + work.spans_max();
        if self.spans >= SPANS_MAX {
            self.left_out += spans;
            return;
        }
        self.spans += spans;
        self.stages.push(StageRecord { stage, began, ended, detail, work });
    }

    /// Adds the stages of a subcall.
    pub fn append(&mut self, subcall: Self) {
        for StageRecord { stage, began, ended, detail, work } in subcall.stages {
            self.push(stage, (began, ended), detail, work);
        }
        self.left_out += subcall.left_out;
    }

    /// Adds the stages' spans to `recording`.
    pub fn add_to(self, recording: &mut Recording) {
        for StageRecord { stage, began, ended, detail, work } in self.stages {
            let mut attributes = Vec::new();
            if !detail.is_empty() {
                attributes.push(("bireme.detail", detail.into()));
            }
            let span = Span { attributes, ..Span::new(stage.name(), began, ended) };
            recording.add(span, work.spans());
        }
        recording.leave_out(self.left_out);
    }
}

impl StageWork {
    fn spans_max(&self) -> usize {
        let calls = self.calls.iter().map(NodeCall::spans_max).sum::<usize>();
        usize::from(self.planned.is_some()) + calls + self.reads.len()
    }

    fn spans(self) -> Vec<Span> {
        let mut spans = Vec::with_capacity(self.spans_max());
        spans.extend(self.planned.map(|(began, ended)| Span::new("plan", began, ended)));
        self.calls.into_iter().for_each(|call| call.add_to(&mut spans));
        spans.extend(self.reads.iter().map(|read| Span {
            attributes: vec![("bireme.rows", read.rows.into())],
            ..Span::new("table", read.began, read.ended)
        }));
        spans
    }
}

impl NodeCall {
    fn spans_max(&self) -> usize {
        let trips = self.answer.as_ref().map_or(0, |trips| trips.as_slice().len());
        1 + trips * (3 + BATCH_STAGES.len())
    }

    fn add_to(self, spans: &mut Vec<Span>) {
        let mut attributes: Vec<Attribute> = vec![
            ("rpc.system.name", "grpc".into()),
            ("server.address", (&self.address).into()),
            ("bireme.io_node", (&self.name).into()),
            ("bireme.rows", self.rows.into()),
        ];
        let trips = self.answer.as_ref().map_or(&[][..], Trips::as_slice);
        if !trips.is_empty() {
            let mut counts = StageTimes::default();
            trips.iter().for_each(|trip| add_counts(&mut counts, &trip.times));
            attributes.extend([
                ("bireme.drive.reads", counts.drive_reads.into()),
                ("bireme.drive.bytes", counts.drive_bytes.into()),
                ("bireme.ram.hits", counts.ram_hits.into()),
                ("bireme.table.rows", counts.table_rows.into()),
            ]);
        }
        let batches = trips.iter().flat_map(|trip| batch_spans(self.id, trip)).collect::<Vec<_>>();
        spans.push(Span {
            id: Some(self.id),
            is_call: true,
            fault: self.answer.err(),
            attributes,
            ..Span::new("bireme.fetch.v1.FetchService/Fetch", self.began, self.ended)
        });
        spans.extend(batches);
    }
}

/// Returns the spans of one batch, children of the call's span `id`: its trip to the node and back, and the node's
/// stages unless the node exports them itself. A node does not export a batch that is neither sampled nor slow, but the
/// request may still turn out slow. The node reports durations by its own clock, so its stages are placed in the middle
/// of the time between sending the batch and its reply.
fn batch_spans(id: u64, trip: &Trip) -> Vec<Span> {
    let Trip { timeline, times } = trip;
    let mut spans = Vec::new();
    let mut add = |name, began: fetch::Instant, ended: fetch::Instant| {
        let span = Span::new(name, began.into_std(), ended.into_std());
        spans.push(Span { within: Some(id), ..span });
    };
    add("batch", timeline.asked, timeline.sent);
    if let Some((since, until)) = timeline.without_credit {
        add("credit", since, until);
    }
    add("stream", timeline.sent, timeline.answered);
    let queue_us = times.queue_us.min(times.read_us);
    let stages = [times.locate_us, queue_us, times.read_us - queue_us, times.assemble_us];
    let stages = stages.map(|us| Duration::from_micros(us.into()));
    if !times.exported {
        let took = stages.iter().sum();
        let away = timeline.answered - timeline.sent;
        let mut began = timeline.sent + away.saturating_sub(took) / 2;
        for (name, took) in BATCH_STAGES.into_iter().zip(stages) {
            add(name, began, began + took);
            began += took;
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use client::fetch::TripTimeline;

    use super::*;

    #[test]
    fn stages_that_the_io_node_does_not_export_are_made_from_its_reply() {
        let start = fetch::Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let without_credit = Some((at(2), at(7)));
        let timeline =
            TripTimeline { asked: at(0), without_credit, sent: at(10), answered: at(110) };
        let times = StageTimes {
            locate_us: 5,
            read_us: 60,
            queue_us: 20,
            assemble_us: 15,
            ..Default::default()
        };
        let mut trip = Trip { timeline, times };
        let exported = |trip: &Trip| {
            let us = |moment: Instant| (moment - start.into_std()).as_micros();
            let spans = batch_spans(7, trip);
            assert!(spans.iter().all(|span| span.within == Some(7)));
            let spans = spans.iter().map(|it| (it.name.to_string(), us(it.began), us(it.ended)));
            spans.collect::<Vec<_>>()
        };
        let span = |name: &str, began, ended| (name.to_owned(), began, ended);
        let trips = [span("batch", 0, 10), span("credit", 2, 7), span("stream", 10, 110)];
        let stages = [
            span("locate", 20, 25),
            span("queue", 25, 45),
            span("read", 45, 85),
            span("assemble", 85, 100),
        ];
        assert_eq!(exported(&trip), [&trips[..], &stages].concat());
        trip.times.exported = true;
        assert_eq!(exported(&trip), trips);
        // A node may report any times.
        trip.times = StageTimes { read_us: 500, queue_us: u32::MAX, ..times };
        trip.timeline.without_credit = None;
        let exported = exported(&trip);
        assert_eq!(exported[..2], [span("batch", 0, 10), span("stream", 10, 110)]);
        assert_eq!(exported[3..5], [span("queue", 15, 515), span("read", 515, 515)]);
    }

    #[test]
    fn stages_over_the_span_limit_are_counted_and_dropped() {
        let now = Instant::now();
        let read = TableRead { rows: 1, began: now, ended: now };
        let mut records = StageRecords::default();
        for _ in 0..SPANS_MAX {
            let work = StageWork { planned: Some((now, now)), calls: vec![], reads: vec![read; 2] };
            records.push(Stage::Fetch, (now, now), String::new(), work);
        }
        assert_eq!(records.stages.len(), SPANS_MAX / 4);
        assert_eq!(records.left_out, (SPANS_MAX - SPANS_MAX / 4) * 4);
    }
}
