//! Metrics and their values at one moment.

use std::fmt::Display;

use super::histogram::Buckets;

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only grows while the process runs.
    Counter,
    /// A value that can rise and fall.
    Gauge,
    /// A distribution of values.
    Histogram,
}

/// The definition of a metric. It follows OpenTelemetry's conventions.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name, such as `bireme.io.rows`.
    pub name: &'static str,
    /// The unit, such as `s`, `By`, `{row}`, or `1` for a ratio.
    pub unit: &'static str,
    /// The kind.
    pub kind: MetricKind,
    /// The description.
    pub help: &'static str,
    /// The names of the labels.
    pub labels: &'static [&'static str],
}

/// The value of a point.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Whole(u64),
    /// A floating-point number.
    Real(f64),
    /// The buckets of a histogram.
    Buckets(Buckets),
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Whole(count)
    }
}

impl From<f64> for Value {
    fn from(quantity: f64) -> Self {
        Self::Real(quantity)
    }
}

impl From<Buckets> for Value {
    fn from(buckets: Buckets) -> Self {
        Self::Buckets(buckets)
    }
}

/// A metric's value for one combination of label values.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The label values, in the order of the metric's labels.
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
}

/// A metric with its points.
#[derive(Debug)]
pub struct Family {
    /// The metric.
    pub metric: &'static Metric,
    /// The metric's points.
    pub points: Vec<Point>,
}

/// The metrics of a node at one moment.
#[derive(Debug, Default)]
pub struct Samples(Vec<Family>);

impl Samples {
    /// Adds a metric's value for the label values `labels`. There must be one for each of the metric's labels.
    pub fn add(
        &mut self,
        metric: &'static Metric,
        labels: &[&dyn Display],
        value: impl Into<Value>,
    ) {
        debug_assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
        let labels = labels.iter().map(ToString::to_string).collect();
        let point = Point { labels, value: value.into() };
        match self.0.iter_mut().find(|family| family.metric.name == metric.name) {
            Some(family) => family.points.push(point),
            None => self.0.push(Family { metric, points: vec![point] }),
        }
    }

    /// Returns the metrics in the order in which they were first added.
    pub fn families(&self) -> &[Family] {
        &self.0
    }
}
