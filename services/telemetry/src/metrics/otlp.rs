//! Sends samples over OTLP. Histograms are sent as exponential histograms.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets as WireBuckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as WireValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::time::MissedTickBehavior;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tracing::{info, warn};

use super::histogram::{Buckets, SCALE};
use super::samples::{Family, MetricKind, Point, Samples, Value};
use super::source::Source;
use crate::receiver::Headers;
use crate::resource::Identity;

/// The timeout of connecting to the receiver and of each request. OpenTelemetry's exporters have the same one by
/// default.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Collects and sends the samples of `source` every `interval`, until dropped. Samples that can't be sent are not sent
/// again: counters and histograms are cumulative, so later samples include them. The first of several consecutive
/// failures is logged.
pub async fn push(
    mut client: MetricsServiceClient<InterceptedService<Channel, Headers>>,
    endpoint: String,
    interval: Duration,
    source: Arc<impl Source>,
    identity: Identity,
) {
    let began = SystemTime::now();
    let mut has_failed = false;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let samples = source.collect().await;
        let sent = client.export(request(&samples, &identity, began, SystemTime::now())).await;
        match sent {
            Ok(_) if std::mem::take(&mut has_failed) => {
                info!(%endpoint, "the OTLP receiver accepts metrics again");
            }
            Ok(_) => {}
            Err(status) if !std::mem::replace(&mut has_failed, true) => {
                let message = status.message();
                warn!(%endpoint, code = ?status.code(), "sending metrics to the OTLP receiver failed: {message}");
            }
            Err(_) => {}
        }
    }
}

/// Returns a request with all metrics.
fn request(
    samples: &Samples,
    identity: &Identity,
    began: SystemTime,
    now: SystemTime,
) -> ExportMetricsServiceRequest {
    let times = Times { began: nanos(began), now: nanos(now) };
    let resource = identity.resource();
    let attribute = |(key, value): (&opentelemetry::Key, &opentelemetry::Value)| {
        key_value(key.as_str(), value.to_string())
    };
    let resource =
        Resource { attributes: resource.iter().map(attribute).collect(), ..Default::default() };
    let scope = InstrumentationScope {
        name: "bireme".into(),
        version: identity.version.into(),
        ..Default::default()
    };
    let metrics = samples.families().iter().map(|family| metric(family, times)).collect();
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..Default::default() }];
    let resource_metrics =
        vec![ResourceMetrics { resource: Some(resource), scope_metrics, ..Default::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

/// The period of cumulative values, in nanoseconds since 1970.
#[derive(Clone, Copy)]
struct Times {
    began: u64,
    now: u64,
}

fn nanos(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn metric(family: &Family, times: Times) -> Metric {
    let Family { metric, points } = family;
    let cumulative = AggregationTemporality::Cumulative as i32;
    let numbers = || points.iter().map(|point| number(metric.labels, point, times)).collect();
    let data = match metric.kind {
        MetricKind::Counter => Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        MetricKind::Gauge => Data::Gauge(Gauge { data_points: numbers() }),
        MetricKind::Histogram => Data::ExponentialHistogram(ExponentialHistogram {
            data_points: points.iter().map(|it| histogram(metric.labels, it, times)).collect(),
            aggregation_temporality: cumulative,
        }),
    };
    Metric {
        name: metric.name.into(),
        description: metric.help.into(),
        unit: metric.unit.into(),
        data: Some(data),
        ..Default::default()
    }
}

fn number(labels: &[&str], point: &Point, times: Times) -> NumberDataPoint {
    let value = match point.value {
        Value::Whole(count) => Some(WireValue::AsInt(i64::try_from(count).unwrap_or(i64::MAX))),
        Value::Real(quantity) => Some(WireValue::AsDouble(quantity)),
        Value::Buckets(_) => None,
    };
    NumberDataPoint {
        attributes: attributes(labels, &point.labels),
        start_time_unix_nano: times.began,
        time_unix_nano: times.now,
        value,
        ..Default::default()
    }
}

fn histogram(labels: &[&str], point: &Point, times: Times) -> ExponentialHistogramDataPoint {
    let none = Buckets::default();
    let buckets = match &point.value {
        Value::Buckets(buckets) => buckets,
        Value::Whole(_) | Value::Real(_) => &none,
    };
    let (first, counts) = buckets.filled();
    ExponentialHistogramDataPoint {
        attributes: attributes(labels, &point.labels),
        start_time_unix_nano: times.began,
        time_unix_nano: times.now,
        count: buckets.count(),
        sum: Some(buckets.sum),
        scale: SCALE,
        zero_count: buckets.zeros,
        // OTLP indexes a bucket by its lower bound, which gives one less than the upper bound used here.
        positive: Some(WireBuckets { offset: first - 1, bucket_counts: counts.to_vec() }),
        ..Default::default()
    }
}

fn attributes(labels: &[&str], values: &[String]) -> Vec<KeyValue> {
    labels.iter().zip(values).map(|(key, value)| key_value(key, value.clone())).collect()
}

fn key_value(key: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
    KeyValue { key: key.into(), value, ..Default::default() }
}
