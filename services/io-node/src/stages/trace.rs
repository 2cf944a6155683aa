//! A batch's spans, for the trace of the request that it is part of.

use telemetry::Span;
use tokio::time::Instant;
use wire::fetch::reply::Outcome;
use wire::{Fault, Reason};

use super::timed::Timed;
use crate::core::{Core, Request, STAGES};

/// A batch as OpenTelemetry names calls.
const NAME: &str = "bireme.fetch.v1.FetchService/Fetch";

/// Tells of a batch that was answered, if its caller traces it, or it was slow, or it failed.
pub fn answered(core: &Core, request: &Request, timed: &Timed, outcome: &Outcome) {
    let fault = match outcome {
        Outcome::Error(error) => Some(error.message.as_str()),
        Outcome::Rows(_) | Outcome::Neighbors(_) => None,
    };
    tell(core, request, timed, fault);
}

/// Tells of a batch that was not.
pub fn failed(core: &Core, request: &Request, fault: &Fault) {
    let now = Instant::now();
    // The caller's own doing is no failure of the node.
    let fault = (fault.reason != Reason::Cancelled).then_some(fault.message.as_str());
    tell(core, request, &Timed::new(&request.times, now, now), fault);
}

fn tell(core: &Core, request: &Request, timed: &Timed, fault: Option<&str>) {
    let Some(parent) = request.span else { return };
    let tracer = &core.shared.tracer;
    let took = timed.replied - timed.arrived;
    if !tracer.is_told(parent.is_sampled, took, fault.is_some()) {
        return;
    }
    let Some(mut recording) = tracer.begin_at(NAME, parent, timed.arrived.into_std()) else {
        return;
    };
    for (name, (began, ended)) in STAGES.into_iter().zip(timed.stages()) {
        recording.add(Span::new(name, began.into_std(), ended.into_std()), Vec::new());
    }
    let times = &request.times;
    let attributes = vec![
        ("rpc.system.name", "grpc".into()),
        ("bireme.core", core.number.into()),
        ("bireme.rows", request.addrs.len().into()),
        ("bireme.drive.reads", times.drive_reads.into()),
        ("bireme.drive.bytes", times.drive_bytes.into()),
        ("bireme.ram.hits", times.ram_hits.into()),
        ("bireme.table.rows", times.table_rows.into()),
    ];
    recording.end(tracer, fault, attributes);
}
