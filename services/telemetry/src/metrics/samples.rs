//! Metrics and what they are at one moment.

use std::fmt::Display;

use super::histogram::Buckets;

/// How a metric moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from the start of the process.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Values by size.
    Histogram,
}

/// A metric, by OpenTelemetry's conventions.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name: `bireme.io.rows`.
    pub name: &'static str,
    /// Its unit: `s`, `By`, `{row}`, `1` for a ratio.
    pub unit: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// What it says, in a sentence.
    pub help: &'static str,
    /// What its points differ by.
    pub labels: &'static [&'static str],
}

/// What a point of a metric is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count.
    Whole(u64),
    /// A quantity.
    Real(f64),
    /// A histogram's counts.
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

/// A metric's value for some labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The labels' values, in the order of the metric's labels.
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
}

/// A metric with its points.
#[derive(Debug)]
pub struct Family {
    /// The metric.
    pub metric: &'static Metric,
    /// Its points.
    pub points: Vec<Point>,
}

/// The metrics of a node at one moment.
#[derive(Debug, Default)]
pub struct Samples(Vec<Family>);

impl Samples {
    /// Adds a metric's value for `labels`, which are as many as the metric has.
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

    /// The metrics, in the order in which they were first added.
    pub fn families(&self) -> &[Family] {
        &self.0
    }
}
