//! Names that were settings in earlier versions, so that a configuration which still has one gets an answer that helps.

/// Each former setting with its value, which is fixed now.
const REMOVED: [(&str, &str); 20] = [
    ("background_threads", "2 threads"),
    ("batch_rows_max", "4,096 rows"),
    ("breaker_failures", "8 failures"),
    ("breaker_pause", "1s"),
    ("credit_rows", "65,536 rows"),
    ("ejection_failures", "5 failures"),
    ("ejection_time", "5s"),
    ("ejection_time_max", "1m"),
    ("fetch_queue_max", "1,024 batches"),
    ("fill_queue_max", "4,096 fills"),
    ("gets_in_flight", "16 Gets"),
    ("queue_rows_max", "1,048,576 rows per core"),
    ("read_max", "32KiB"),
    ("search_queue_max", "1,024 searches"),
    ("stall_max", "10s"),
    ("streams_per_io_node", "2 streams per core"),
    ("table_queue_max", "1,024 batches"),
    ("tables_max", "64 versions"),
    ("versions_max", "16 versions"),
    ("wait_max", "1m"),
];

/// Returns what is wrong with a configuration that has the key `name`, if that was a setting once. A variable of the
/// section `store` has the section's name before the key.
pub fn removed(name: &str) -> Option<String> {
    let key = name.strip_prefix("store_").unwrap_or(name);
    let (_, value) = REMOVED.iter().find(|(removed, _)| *removed == key)?;
    Some(format!("`{key}` is no longer a setting, its value is fixed ({value}); remove it"))
}
