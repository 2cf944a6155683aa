//! Encodes samples in Prometheus' formats: text, and protobuf with native histograms.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NativeHistogram,
    NativeHistogramBuckets, NoLabelSet, prometheus_protobuf, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::histogram::{Buckets, SCALE};
use super::samples::{Family, Metric, MetricKind, Samples, Value};
use crate::resource::Identity;

/// The number of histogram buckets that are merged into one in the text format, which spells out each bound. After
/// merging, there is one bucket for each doubling.
const TEXT_STEP: i32 = 1 << SCALE;

/// Encodes samples as OpenMetrics text.
///
/// Readers of Prometheus' older text format (0.0.4) understand it too: to them, the lines `# UNIT` and `# EOF` are
/// comments. They know all types that are used here, and the series have the same names.
///
/// # Errors
/// If a metric has a value that does not fit its kind, which is a defect.
pub fn to_text(samples: Arc<Samples>, identity: &Identity) -> Result<String, fmt::Error> {
    let mut out = String::new();
    text::encode(&mut out, &registry(samples, identity))?;
    Ok(out)
}

/// Encodes samples as length-delimited `io.prometheus.client.MetricFamily` messages, with native histograms.
///
/// # Errors
/// The errors of [`to_text`].
pub fn to_protobuf(samples: Arc<Samples>, identity: &Identity) -> Result<Vec<u8>, fmt::Error> {
    prometheus_protobuf::encode_to_vec(&registry(samples, identity)).map_err(|_| fmt::Error)
}

fn registry(samples: Arc<Samples>, identity: &Identity) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(SamplesCollector { samples, identity: identity.clone() }));
    registry
}

#[derive(Debug)]
struct SamplesCollector {
    samples: Arc<Samples>,
    identity: Identity,
}

impl Collector for SamplesCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        // Use a gauge, because the type `info` is unknown to readers of the older text format.
        let help = "Which node this is";
        let mut info = encoder.encode_descriptor("target_info", help, None, MetricType::Gauge)?;
        let labels: Vec<_> =
            self.identity.attributes().map(|(key, value)| (name_of(key), value)).collect();
        info.encode_family(&labels)?.encode_gauge(&1_u64)?;
        for Family { metric, points } in self.samples.families() {
            let unit = unit_of(metric);
            let name = name_of(metric.name);
            let kind = match metric.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
            };
            let mut encoder = encoder.encode_descriptor(&name, metric.help, unit.as_ref(), kind)?;
            for point in points {
                let labels = Labels { metric, values: &point.labels };
                let point_encoder = match metric.labels {
                    [] => encode_value(&mut encoder, metric, &point.value),
                    _ => encode_value(&mut encoder.encode_family(&labels)?, metric, &point.value),
                };
                point_encoder?;
            }
        }
        Ok(())
    }
}

fn encode_value(
    encoder: &mut MetricEncoder<'_>,
    metric: &Metric,
    value: &Value,
) -> Result<(), fmt::Error> {
    match (metric.kind, value) {
        (MetricKind::Counter, Value::Whole(count)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(count, None)
        }
        (MetricKind::Counter, Value::Real(count)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(count, None)
        }
        (MetricKind::Gauge, Value::Whole(value)) => encoder.encode_gauge(value),
        (MetricKind::Gauge, Value::Real(value)) => encoder.encode_gauge(value),
        (MetricKind::Histogram, Value::Buckets(buckets)) => encode_buckets(encoder, buckets),
        // The value does not fit the metric's kind.
        _ => Err(fmt::Error),
    }
}

fn encode_buckets(encoder: &mut MetricEncoder<'_>, buckets: &Buckets) -> Result<(), fmt::Error> {
    let (first, counts) = buckets.filled();
    // Counts are encoded as differences from the previous count.
    let mut before = 0;
    let deltas: Vec<i64> = counts
        .iter()
        .map(|&count| {
            let count = count as i64;
            count - std::mem::replace(&mut before, count)
        })
        .collect();
    // An empty histogram has an empty span too, which marks it as a native histogram.
    let spans = [(first, counts.len() as u32)];
    let native = NativeHistogram {
        schema: SCALE,
        // The zero bucket counts only values of exactly 0.
        zero_threshold: 0.0,
        zero_count: buckets.zeros,
        negative: NativeHistogramBuckets { spans: &[], deltas: &[] },
        positive: NativeHistogramBuckets { spans: &spans, deltas: &deltas },
        created: None,
    };
    encoder.encode_histogram_with_native::<NoLabelSet>(
        buckets.sum,
        buckets.count(),
        &text_buckets(buckets),
        None,
        native,
    )
}

/// Returns the bounds and counts of the text format. The bounds never change, even if their buckets are empty.
fn text_buckets(buckets: &Buckets) -> Vec<(f64, u64)> {
    let mut coarse = Vec::new();
    let mut count = buckets.zeros;
    for (index, more) in (buckets.first..).zip(&buckets.counts) {
        count += more;
        if index % TEXT_STEP == 0 {
            coarse.push((Buckets::bound(index), std::mem::take(&mut count)));
        }
    }
    coarse.push((f64::INFINITY, count));
    coarse
}

/// Returns the name of a metric in Prometheus.
pub fn prometheus_name(metric: &Metric) -> String {
    let unit = unit_of(metric).map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
    let total = if metric.kind == MetricKind::Counter { "_total" } else { "" };
    format!("{}{unit}{total}", name_of(metric.name))
}

/// Replaces dots, which Prometheus does not allow in names, with underscores.
fn name_of(name: &str) -> String {
    name.replace('.', "_")
}

/// Returns the unit for the name's suffix. Units in braces, such as `{row}`, are part of the metric's name already.
fn unit_of(metric: &Metric) -> Option<Unit> {
    match metric.unit {
        "s" => Some(Unit::Seconds),
        "By" => Some(Unit::Bytes),
        "1" => Some(Unit::Other("ratio".into())),
        _ => None,
    }
}

#[derive(Debug)]
struct Labels<'a> {
    metric: &'static Metric,
    values: &'a [String],
}

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        let labels: Vec<(String, &str)> = self
            .metric
            .labels
            .iter()
            .zip(self.values)
            .map(|(&key, value)| (name_of(key), value.as_str()))
            .collect();
        labels.encode(encoder)
    }
}
