//! The spans of a request in progress.

use std::time::Instant;

use wire::ParentSpan;

use super::span::{Span, new_span_id};

/// The maximum number of spans of one request: half of the export queue. A Take of a million rows has at least 62
/// fetches, of up to 16,384 rows each. With one I/O node, each fetch has about ten spans.
pub const SPANS_MAX: usize = 1024;

/// The trace of a request in progress.
#[derive(Debug)]
pub struct Recording {
    pub(super) name: &'static str,
    /// The request's own span, and whether the trace is sampled.
    pub(super) own: ParentSpan,
    /// The id of the caller's span.
    pub(super) parent: Option<u64>,
    pub(super) began: Instant,
    pub(super) spans: Vec<Span>,
    /// The number of spans that were dropped.
    pub(super) left_out: usize,
}

impl Recording {
    /// Returns the request's own span, as the parent of spans on other nodes.
    pub fn span(&self) -> ParentSpan {
        self.own
    }

    /// Returns whether the trace is sampled, so that it is exported in any case. Details that are useful only for
    /// sampled requests need not be recorded for other requests.
    pub fn is_sampled(&self) -> bool {
        self.own.is_sampled
    }

    /// Adds a span and its descendants. A descendant without a parent id becomes a child of `span`.
    pub fn add(&mut self, mut span: Span, descendants: Vec<Span>) {
        // A span without children gets its id when it is exported.
        if !descendants.is_empty() {
            span.id.get_or_insert_with(new_span_id);
        }
        let id = span.id;
        self.push(span);
        for span in descendants {
            self.push(Span { within: span.within.or(id), ..span });
        }
    }

    fn push(&mut self, span: Span) {
        match self.spans.len() < SPANS_MAX {
            true => self.spans.push(span),
            false => self.left_out += 1,
        }
    }

    /// Records that `spans` spans were dropped.
    pub fn leave_out(&mut self, spans: usize) {
        self.left_out += spans;
    }
}
