//! A macro that defines a crate's metrics.

/// Defines a `static` for each metric, and a list of all of them:
///
/// ```
/// telemetry::metrics! {
///     pub static METRICS;
///     ROWS = Counter "shop.rows" "{row}" [] "Rows sold";
///     QUEUE = Gauge "shop.queue" "{customer}" ["till"] "Customers that wait";
/// }
/// assert_eq!((METRICS.len(), ROWS.name, QUEUE.labels), (2, "shop.rows", &["till"][..]));
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $visibility:vis static $all:ident;
        $($id:ident = $kind:ident $name:literal $unit:literal [$($label:literal),*] $help:literal;)*
    ) => {
        $(static $id: $crate::Metric = $crate::Metric {
            name: $name,
            unit: $unit,
            kind: $crate::MetricKind::$kind,
            help: $help,
            labels: &[$($label),*],
        };)*

        /// All metrics of this list.
        $visibility static $all: &[&$crate::Metric] = &[$(&$id),*];
    };
}
