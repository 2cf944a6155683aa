//! Decides which requests are exported, and sends their spans.

use std::fmt;
use std::num::NonZeroU128;
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

use super::allowance::Allowance;
use super::recording::Recording;
use super::span::{Attribute, AttributeValue, Span, new_span_id};
use crate::config::TelemetryConfig;
use crate::error::TelemetryError;
use crate::receiver::tls;
use crate::resource::Identity;

/// The maximum number of requests per second that are exported because their callers sampled them. It covers a gateway
/// that samples 1 % of 50,000 requests per second, and protects the receiver from one that samples everything.
const CALLERS_SAMPLED_PER_S: u32 = 500;

/// An exporter of requests' spans. It does nothing if no receiver is configured. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Inner>>);

struct Inner {
    /// Sends spans in batches from its own thread. It drops spans while its queue is full.
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    ratio: f64,
    slow: Duration,
    allowance: Allowance,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Tracer(on)" } else { "Tracer(off)" })
    }
}

impl Tracer {
    /// Creates a tracer for the receiver of `config`. Its connections belong to `runtime`.
    ///
    /// # Errors
    /// [`TelemetryError::Otlp`] if the client can't be created. This does not depend on whether the receiver is
    /// running.
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
        let allowance = Allowance::new(CALLERS_SAMPLED_PER_S);
        Ok(Self(Some(Arc::new(Inner { processor, scope, ratio, slow, allowance }))))
    }

    /// Returns whether a receiver is configured.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns `parent`. If callers sample more requests per second than the node exports for them, the node's own
    /// ratio decides whether the returned parent is sampled.
    pub fn admit(&self, parent: ParentSpan) -> ParentSpan {
        match &self.0 {
            Some(inner) if parent.is_sampled && !inner.allowance.take() => {
                ParentSpan { is_sampled: rand::rng().random_bool(inner.ratio), ..parent }
            }
            _ => parent,
        }
    }

    /// Begins the trace of a request, as a child of `parent` if the caller sent one. Returns `None` if no receiver is
    /// configured.
    pub fn begin(&self, name: &'static str, parent: Option<ParentSpan>) -> Option<Recording> {
        self.begin_within(name, parent.map(|parent| self.admit(parent)))
    }

    fn begin_within(&self, name: &'static str, parent: Option<ParentSpan>) -> Option<Recording> {
        let inner = self.0.as_ref()?;
        let mut random = rand::rng();
        let trace = parent.map_or_else(|| random.random::<NonZeroU128>().get(), |it| it.trace);
        let is_sampled = parent.map_or_else(|| random.random_bool(inner.ratio), |it| it.is_sampled);
        let own = ParentSpan { trace, span: new_span_id(), is_sampled };
        let parent = parent.map(|parent| parent.span);
        let (began, spans) = (Instant::now(), Vec::new());
        Some(Recording { name, own, parent, began, spans, left_out: 0 })
    }

    /// Like [`begin`](Self::begin), for a request that began at `began`. `parent` must come from
    /// [`admit`](Self::admit).
    pub fn begin_at(
        &self,
        name: &'static str,
        parent: ParentSpan,
        began: Instant,
    ) -> Option<Recording> {
        self.begin_within(name, Some(parent)).map(|recording| Recording { began, ..recording })
    }

    /// Returns whether a request that took `took` is exported, that is, whether it was sampled, slow or failed.
    pub fn is_exported(&self, is_sampled: bool, took: Duration, has_failed: bool) -> bool {
        let slow = |inner: &Arc<Inner>| took >= inner.slow;
        is_sampled || has_failed || self.0.as_ref().is_some_and(slow)
    }

    /// Sends the remaining spans and ends the export. Waits for at most `limit`.
    pub fn flush(&self, limit: Duration) {
        if let Some(inner) = &self.0
            && let Err(error) = inner.processor.shutdown_with_timeout(limit)
        {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }

    /// Ends a request that this tracer began, and exports its trace if it was sampled, slow or failed. `describe` adds
    /// spans and returns attributes of the request's span; it is called only if the trace is exported. `fault` is the
    /// error if the request failed through no fault of the caller.
    pub fn end(
        &self,
        mut recording: Recording,
        fault: Option<&str>,
        describe: impl FnOnce(&mut Recording) -> Vec<Attribute>,
    ) {
        let ended = Instant::now();
        let Some(inner) = &self.0 else { return };
        let (is_sampled, took) = (recording.own.is_sampled, ended - recording.began);
        if !self.is_exported(is_sampled, took, fault.is_some()) {
            return;
        }
        let attributes = describe(&mut recording);
        let Recording { own, parent, name, began, spans, left_out } = recording;
        let clocks = ClockPair { instant: ended, time: SystemTime::now() };
        let fault = fault.map(ToOwned::to_owned);
        let mut root = Span { attributes, fault, ..Span::new(name, began, ended) };
        if left_out > 0 {
            root.attributes.push(("bireme.spans.left_out", left_out.into()));
        }
        let parent = (parent.unwrap_or(0), parent.is_some());
        // Send the request's own span first, because the queue drops later spans when it is full.
        inner.send(own.trace, own.span, parent, SpanKind::Server, root, clocks);
        for span in spans {
            let kind = if span.is_call { SpanKind::Client } else { SpanKind::Internal };
            let id = span.id.unwrap_or_else(new_span_id);
            let within = span.within.unwrap_or(own.span);
            inner.send(own.trace, id, (within, false), kind, span, clocks);
        }
    }
}

/// One moment on both clocks, which converts earlier instants to system time.
#[derive(Clone, Copy)]
struct ClockPair {
    instant: Instant,
    time: SystemTime,
}

impl ClockPair {
    fn system_time(self, instant: Instant) -> SystemTime {
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
        clocks: ClockPair,
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
            start_time: clocks.system_time(span.began),
            end_time: clocks.system_time(span.ended),
            attributes: span.attributes.into_iter().map(attribute).collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.scope.clone(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn callers_who_sample_everything_are_followed_up_to_a_rate() {
        let endpoint = Some("http://127.0.0.1:9".to_owned());
        let config =
            TelemetryConfig { otlp_endpoint: endpoint, trace_ratio: 0.0, ..Default::default() };
        let identity = Identity { service: "test", node: "test".into(), version: "0" };
        let tracer = Tracer::start(&config, &identity, &Handle::current()).unwrap();
        let parent = ParentSpan { trace: 1, span: 2, is_sampled: true };
        let began = Instant::now();
        let sampled = |_: &u32| tracer.begin("rpc", Some(parent)).unwrap().is_sampled();
        let sampled = (0..20_000).filter(sampled).count() as u64;
        let seconds = began.elapsed().as_secs() + 2;
        assert!((1..=seconds * u64::from(CALLERS_SAMPLED_PER_S)).contains(&sampled), "{sampled}");
        // The id of the trace is kept in any case.
        assert_eq!(tracer.admit(parent).trace, 1);
        let unsampled = ParentSpan { is_sampled: false, ..parent };
        assert_eq!(tracer.admit(unsampled), unsampled);
        assert_eq!(Tracer::default().admit(parent), parent);
    }
}
