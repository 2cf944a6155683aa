//! What decides which requests are told of, and sends their spans.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor,
};
use rand::Rng;
use tokio::runtime::Handle;
use wire::ParentSpan;

use super::recording::{Attribute, AttributeValue, Recording, Span};
use crate::config::TelemetryConfig;
use crate::error::TelemetryError;
use crate::receiver::tls;
use crate::resource::Identity;

/// Where requests' spans go; nowhere, if no receiver is configured. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Inner>>);

struct Inner {
    /// Sends in batches from a thread of its own; what is over its queue is dropped.
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    ratio: f64,
    slow: Duration,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Tracer(on)" } else { "Tracer(off)" })
    }
}

impl Tracer {
    /// Spans are sent from `runtime`'s connections.
    ///
    /// # Errors
    /// A receiver that can't be spoken to, whether it is there or not.
    pub fn start(
        config: &TelemetryConfig,
        identity: &Identity,
        runtime: &Handle,
    ) -> Result<Self, TelemetryError> {
        let Some(endpoint) = config.receiver() else { return Ok(Self(None)) };
        let _entered = runtime.enter();
        let mut builder = SpanExporter::builder().with_tonic().with_endpoint(&endpoint);
        if let Some(tls) = tls(&endpoint) {
            builder = builder.with_tls_config(tls);
        }
        let exporter = builder
            .build()
            .map_err(|error| TelemetryError::Otlp { endpoint, problem: error.to_string() })?;
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        processor.set_resource(&identity.resource());
        let scope = InstrumentationScope::builder("bireme").with_version(identity.version).build();
        let (ratio, slow) = (config.trace_ratio, config.trace_slow);
        Ok(Self(Some(Arc::new(Inner { processor, scope, ratio, slow }))))
    }

    /// Whether spans go anywhere.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a request, within what `parent` says if somebody else began the trace; nothing if spans go nowhere.
    pub fn begin(&self, name: &'static str, parent: Option<ParentSpan>) -> Option<Recording> {
        let inner = self.0.as_ref()?;
        let mut random = rand::rng();
        let trace = parent.map_or_else(|| random.random::<NonZeroU128>().get(), |it| it.trace);
        let is_sampled = parent.map_or_else(|| random.random_bool(inner.ratio), |it| it.is_sampled);
        let own = ParentSpan { trace, span: new_span(), is_sampled };
        let parent = parent.map(|parent| parent.span);
        let (began, spans) = (Instant::now(), Vec::new());
        Some(Recording { name, own, parent, began, spans, left_out: 0 })
    }

    /// The same for a request that began before.
    pub fn begin_at(
        &self,
        name: &'static str,
        parent: ParentSpan,
        began: Instant,
    ) -> Option<Recording> {
        self.begin(name, Some(parent)).map(|recording| Recording { began, ..recording })
    }

    /// Whether a request that took `took` is told of.
    pub fn is_told(&self, is_sampled: bool, took: Duration, has_failed: bool) -> bool {
        let slow = |inner: &Arc<Inner>| took >= inner.slow;
        is_sampled || has_failed || self.0.as_ref().is_some_and(slow)
    }

    /// Sends what is left, within `limit`.
    pub fn flush(&self, limit: Duration) {
        if let Some(inner) = &self.0
            && let Err(error) = inner.processor.shutdown_with_timeout(limit)
        {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }

    pub(super) fn ended(
        &self,
        mut recording: Recording,
        ended: Instant,
        fault: Option<&str>,
        tell: impl FnOnce(&mut Recording) -> Vec<Attribute>,
    ) {
        let Some(inner) = &self.0 else { return };
        let (is_sampled, took) = (recording.own.is_sampled, ended - recording.began);
        if !self.is_told(is_sampled, took, fault.is_some()) {
            return;
        }
        let attributes = tell(&mut recording);
        let Recording { own, parent, name, began, spans, left_out } = recording;
        let clock = Clock { instant: ended, time: SystemTime::now() };
        let fault = fault.map(ToOwned::to_owned);
        let mut root = Span { attributes, fault, ..Span::new(name, began, ended) };
        if left_out > 0 {
            root.attributes.push(("bireme.spans.left_out", left_out.into()));
        }
        let parent = (parent.unwrap_or(0), parent.is_some());
        // First, as what is over the queue is dropped.
        inner.send(own.trace, own.span, parent, SpanKind::Server, root, clock);
        for span in spans {
            let kind = if span.is_call { SpanKind::Client } else { SpanKind::Internal };
            let id = span.id.unwrap_or_else(new_span);
            let within = span.within.unwrap_or(own.span);
            inner.send(own.trace, id, (within, false), kind, span, clock);
        }
    }
}

/// A new span within `parent`.
pub fn child_of(parent: ParentSpan) -> ParentSpan {
    ParentSpan { span: new_span(), ..parent }
}

/// A number for a span; not 0.
pub(super) fn new_span() -> u64 {
    rand::rng().random::<NonZeroU64>().get()
}

/// A moment by both clocks.
#[derive(Clone, Copy)]
struct Clock {
    instant: Instant,
    time: SystemTime,
}

impl Clock {
    fn time_of(self, instant: Instant) -> SystemTime {
        self.time - self.instant.saturating_duration_since(instant)
    }
}

impl Inner {
    fn send(
        &self,
        trace: u128,
        id: u64,
        (parent, is_remote): (u64, bool),
        kind: SpanKind,
        span: Span,
        clock: Clock,
    ) {
        let trace_id = TraceId::from_bytes(trace.to_be_bytes());
        let span_id = SpanId::from_bytes(id.to_be_bytes());
        let state = TraceState::default();
        let context = SpanContext::new(trace_id, span_id, TraceFlags::SAMPLED, false, state);
        let status = match span.fault {
            Some(fault) => Status::error(fault),
            None => Status::Unset,
        };
        let attribute = |(key, value): Attribute| {
            let value = match value {
                AttributeValue::Whole(count) => Value::I64(count),
                AttributeValue::Text(text) => Value::String(text),
            };
            KeyValue::new(key, value)
        };
        self.processor.on_end(SpanData {
            span_context: context,
            parent_span_id: SpanId::from_bytes(parent.to_be_bytes()),
            parent_span_is_remote: is_remote,
            span_kind: kind,
            name: span.name,
            start_time: clock.time_of(span.began),
            end_time: clock.time_of(span.ended),
            attributes: span.attributes.into_iter().map(attribute).collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.scope.clone(),
        });
    }
}
