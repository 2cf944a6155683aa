//! Names that were settings in earlier versions, so that the error for a configuration that still has one is helpful.

use io_node::IoConfig;
use query_node::QueryConfig;

/// A former setting: its name, and what has replaced it.
type Former = (&'static str, &'static str);

/// The configuration of a node, whose former settings are known.
pub trait Removed {
    /// The former settings that only this kind of node had, by their keys within sections.
    const REMOVED: &[Former];
}

impl Removed for IoConfig {
    const REMOVED: &[Former] = &[
        ("admission", "every miss fills its chunk"),
        ("background_threads", "its value is fixed (2 threads)"),
        ("batch_rows_max", "its value is fixed (4,096 rows)"),
        ("credit_rows", "its value is fixed (65,536 rows)"),
        ("fill_queue_max", "its value is fixed (4,096 fills)"),
        ("fills", "its value is fixed (2 fills)"),
        ("hit_ratio_at_start_max", "`start_max` is the maximum time of all waits at the start"),
        ("lake_cache", "it is an eighth of `memory`, at most 256MiB"),
        ("queue_rows_max", "its value is fixed (1,048,576 pieces of rows per core)"),
        ("read_max", "its value is fixed (32KiB)"),
        ("read_timeout", "its value is fixed (500ms)"),
        ("scrub_rate", "its value is fixed (8MiB per second)"),
        ("table_queue_max", "its value is fixed (1,024 reads)"),
        ("table_reads", "its value is fixed (4 reads)"),
        ("tables_max", "its value is fixed (64 versions, or 100,000 fragments)"),
        (
            "traffic_memory",
            "it is half of what the other parts leave of `memory`, from 32MiB to 512MiB per core",
        ),
        ("warm_at_start_max", "`start_max` is the maximum time of all waits at the start"),
    ];
}

impl Removed for QueryConfig {
    const REMOVED: &[Former] = &[
        ("candidates_max", "its value is fixed (100,000 candidates)"),
        ("ejection_failures", "its value is fixed (5 failures)"),
        ("ejection_time", "its value is fixed (5s)"),
        ("ejection_time_max", "its value is fixed (1m)"),
        ("fetch_queue_max", "its value is fixed (1,024 batches)"),
        ("gets_in_flight", "its value is fixed (16 Gets)"),
        ("k_max", "its value is fixed (10,000 rows)"),
        ("keys_max", "its value is fixed (10,000 keys)"),
        (
            "limits",
            "a Search returns at most 10,000 rows, a Get has at most 10,000 keys, and a Take at most 1,000,000 rows",
        ),
        ("member_refresh", "its value is fixed (5s)"),
        ("metadata_cache", "it is an eighth of `memory`, at most 256MiB"),
        ("nprobes", "a search covers 20 partitions, or as many as its request sets"),
        ("protocol", "all I/O nodes speak bireme.fetch.v1"),
        (
            "refine_factor",
            "10 candidates per returned row are scored exactly, or as many as the request sets",
        ),
        ("search_concurrency", "it is the number of `cores`"),
        ("search_queue_max", "its value is fixed (1,024 searches)"),
        ("streams_per_io_node", "its value is fixed (2 streams per core)"),
        ("take_rows_max", "its value is fixed (1,000,000 rows)"),
        ("versions_max", "its value is fixed (16 versions)"),
        ("zone", "placement ignored it; `kubernetes:` in `io_nodes_from` finds the zones"),
    ];
}

/// The text for each former setting that was a price.
const LIST_PRICES: &str =
    "the cost is that of S3's list prices; for others, multiply the counters of requests and bytes";

/// The former settings of both nodes.
const OF_BOTH: &[Former] = &[
    ("breaker_failures", "its value is fixed (8 failures)"),
    ("breaker_pause", "its value is fixed (1s)"),
    ("gigabyte_read", LIST_PRICES),
    ("hedge", "reads are always hedged"),
    ("million_reads", LIST_PRICES),
    ("million_writes", LIST_PRICES),
    ("otlp_endpoint", "the variable OTEL_EXPORTER_OTLP_ENDPOINT names the receiver"),
    ("otlp_interval", "it is 15s, or what OTEL_METRIC_EXPORT_INTERVAL says in milliseconds"),
    ("prices", LIST_PRICES),
    ("stall_max", "its value is fixed (10s)"),
    ("wait_max", "a request waits until its deadline, or until the circuit breaker opens"),
];

/// Returns the error message for a configuration with the key `name`, if that was once a setting of the node. In a
/// variable's name, the section's name comes before the key.
pub fn removed<T: Removed>(name: &str) -> Option<String> {
    let sections = ["store_prices_", "store_", "telemetry_", "limits_"];
    let key = sections.iter().find_map(|section| name.strip_prefix(section)).unwrap_or(name);
    let (_, now) = T::REMOVED.iter().chain(OF_BOTH).find(|(removed, _)| *removed == key)?;
    Some(format!("`{key}` is no longer a setting: {now}; remove it"))
}
