//! Tests that log lines about a request name its trace, on both tiers.

use std::fmt::Debug;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use wire::query::TakeRequest;
use wire::{ParentSpan, Reason};

use crate::cluster::{Cluster, folder};
use crate::members;

/// The log lines with a `trace_id`: their targets and trace ids.
static LINES: Mutex<Vec<(&'static str, String)>> = Mutex::new(Vec::new());

/// A subscriber that keeps log lines with a `trace_id`, at any level, and ignores all others.
struct Lines;

struct TraceId(Option<String>);

impl Visit for TraceId {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "trace_id" {
            self.0 = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for Lines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match metadata.is_event() && metadata.fields().field("trace_id").is_some() {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut found = TraceId(None);
        event.record(&mut found);
        if let Some(trace) = found.0 {
            LINES.lock().unwrap().push((event.metadata().target(), trace));
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns the crates that logged about a trace.
fn crates_that_logged(trace: &ParentSpan) -> Vec<&'static str> {
    let lines = LINES.lock().unwrap();
    let of_trace = lines.iter().filter(|(_, id)| *id == trace.trace_id());
    of_trace.map(|(target, _)| target.split("::").next().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_about_a_request_name_its_trace_on_both_tiers() {
    tracing::subscriber::set_global_default(Lines).unwrap();
    let folder = folder();
    let uri = folder.path().join("table");
    members::write(&uri).await;
    // No spans are exported, but the lines name the caller's trace nevertheless.
    let cluster = Cluster::start(1, &[("t", &uri)]).await;
    std::fs::remove_dir_all(uri.join("data")).unwrap();
    let asked = ParentSpan { trace: 0x109_5eed, span: 0xca11, is_sampled: false };
    let request = TakeRequest { table: "t".into(), row_addrs: vec![5, 7], ..Default::default() };
    let lost = match cluster.client.clone().with_parent_span(asked).take(request).await {
        Ok(taken) => taken.collect().await.unwrap_err(),
        Err(fault) => fault,
    };
    assert_eq!(lost.reason, Reason::TableDamaged, "{lost}");
    let said = crates_that_logged(&asked);
    assert!(said.contains(&"io_node") && said.contains(&"query_node"), "{said:?}");
    cluster.stop().await;
}
