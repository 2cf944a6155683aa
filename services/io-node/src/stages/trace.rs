//! A batch's spans, for the trace of the request that it is part of, and its line in the log, with that trace's name.

use telemetry::Span;
use tokio::time::Instant;
use wire::{BATCH_STAGES, Fault, Reason};

use super::timed::Timed;
use crate::core::{Core, Request};

/// A batch as OpenTelemetry names calls.
const NAME: &str = "bireme.fetch.v1.FetchService/Fetch";

/// Tells of a batch that was answered, if its caller traces it, or it was slow, or it failed; whether it was told of.
pub fn answered(core: &Core, request: &Request, timed: &Timed, fault: Option<&Fault>) -> bool {
    if let Some(fault) = fault {
        log(request, fault);
    }
    tell(core, request, timed, fault).is_some()
}

/// Tells of a batch that was not.
pub fn failed(core: &Core, request: &Request, fault: &Fault) {
    let now = Instant::now();
    // The caller's own doing is no failure of the node.
    let fault = Some(fault).filter(|fault| fault.reason != Reason::Cancelled);
    answered(core, request, &Timed::new(&request.times, now, now), fault);
}

/// Whoever asked is told, and says so in its own log: here it is worth a line where this node is to blame.
fn log(request: &Request, fault: &Fault) {
    let (rows, table) = (request.addrs.len(), request.projection.table.table().uri().as_str());
    let trace = || request.span.map(|span| span.trace_id());
    match fault.reason {
        Reason::Internal => {
            tracing::error!(trace_id = trace(), rows, table, "a batch failed: {fault}")
        }
        _ => tracing::debug!(trace_id = trace(), rows, table, "a batch failed: {fault}"),
    }
}

fn tell(core: &Core, request: &Request, timed: &Timed, fault: Option<&Fault>) -> Option<()> {
    let parent = request.span?;
    let tracer = &core.shared.tracer;
    let took = timed.replied - timed.arrived;
    if !tracer.is_exported(parent.is_sampled, took, fault.is_some()) {
        return None;
    }
    let mut recording = tracer.begin_at(NAME, parent, timed.arrived.into_std())?;
    for (name, (began, ended)) in BATCH_STAGES.into_iter().zip(timed.stages()) {
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
    recording.end(tracer, fault.map(|fault| fault.message.as_str()), |_| attributes);
    Some(())
}
