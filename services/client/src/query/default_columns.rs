//! The columns that are appended if a caller names none.

use wire::query::DescribeTableResponse;
use wire::{Fault, Reason};

/// Returns the columns of a table that are appended if none are named: those that a request without columns returns,
/// except the column `key`, which the rows have already.
///
/// # Errors
/// `BAD_ARGUMENT` if there is none. An empty list would not mean that, but all columns that are returned by default.
pub fn columns_to_append(
    table: &DescribeTableResponse,
    name: &str,
    key: Option<&str>,
) -> Result<Vec<String>, Fault> {
    let shown = table.columns.iter().filter(|it| it.by_default && Some(it.name.as_str()) != key);
    let columns: Vec<_> = shown.map(|column| column.name.clone()).collect();
    match columns.is_empty() {
        false => Ok(columns),
        true => {
            let message = format!("`{name}` has no column to append by default; name some columns");
            Err(Fault::new(Reason::BadArgument, message).with("table", name))
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::query::Column;

    use super::*;

    #[test]
    fn the_key_and_vectors_are_left_out_and_something_must_be_left() {
        let column =
            |name: &str, by_default| Column { name: name.into(), by_default, ..Default::default() };
        let columns = vec![column("id", true), column("vector", false), column("text", true)];
        let mut table = DescribeTableResponse { columns, ..Default::default() };
        assert_eq!(columns_to_append(&table, "t", Some("id")).unwrap(), ["text"]);
        assert_eq!(columns_to_append(&table, "t", None).unwrap(), ["id", "text"]);
        table.columns.pop();
        let fault = columns_to_append(&table, "t", Some("id")).unwrap_err();
        assert!(fault.message.contains("`t` has no column to append"), "{fault}");
    }
}
