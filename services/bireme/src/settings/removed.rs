//! Names that were settings in earlier versions, so that a configuration which still has one gets an answer that helps.

/// Each former setting with its value, which is fixed now.
const REMOVED: [(&str, &str); 16] = [
    ("background_threads", "2 threads"),
    ("batch_rows_max", "4,096 rows"),
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
    ("streams_per_io_node", "2 streams per core"),
    ("table_queue_max", "1,024 batches"),
    ("tables_max", "64 versions"),
    ("versions_max", "16 versions"),
];

/// Returns what is wrong with a configuration that has the key `name`, if that was a setting once.
pub fn removed(name: &str) -> Option<String> {
    let (_, value) = REMOVED.iter().find(|(removed, _)| *removed == name)?;
    Some(format!("`{name}` is no longer a setting, its value is fixed ({value}); remove it"))
}
