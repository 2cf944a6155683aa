//! Exports a batch's spans to the trace of its caller's request, and logs failed batches with that trace's id.

use telemetry::Span;
use tokio::time::Instant;
use wire::{BATCH_STAGES, Fault, Reason};

use super::Core;
use super::requests::Request;
use super::timeline::BatchTimeline;

/// The name of a batch's span, by OpenTelemetry's convention for RPCs.
const NAME: &str = "bireme.fetch.v1.FetchService/Fetch";

/// Logs a batch's fault, and exports its spans if it was sampled, slow or failed. Returns whether it exported them.
pub fn answered(
    core: &Core,
    request: &Request,
    timeline: &BatchTimeline,
    fault: Option<&Fault>,
) -> bool {
    if let Some(fault) = fault {
        log(request, fault);
    }
    export_spans(core, request, timeline, fault).is_some()
}

/// Logs a batch that ended early with a fault, unless its caller cancelled it. Exports its spans under the same
/// conditions as [`answered`].
pub fn failed(core: &Core, request: &Request, fault: &Fault) {
    let now = Instant::now();
    // A cancellation by the caller is not a failure.
    let fault = Some(fault).filter(|fault| fault.reason != Reason::Cancelled);
    answered(core, request, &BatchTimeline::new(&request.times, now, now), fault);
}

/// Logs a fault. The caller gets the fault and logs it as well, so only internal faults of this node are logged as
/// errors.
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

fn export_spans(
    core: &Core,
    request: &Request,
    timeline: &BatchTimeline,
    fault: Option<&Fault>,
) -> Option<()> {
    let parent = request.span?;
    let tracer = &core.node.tracer;
    let took = timeline.replied - timeline.arrived;
    if !tracer.is_exported(parent.is_sampled, took, fault.is_some()) {
        return None;
    }
    let mut recording = tracer.begin_at(NAME, parent, timeline.arrived.into_std())?;
    for (name, (began, ended)) in BATCH_STAGES.into_iter().zip(timeline.stages()) {
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
    tracer.end(recording, fault.map(|fault| fault.message.as_str()), |_| attributes);
    Some(())
}
