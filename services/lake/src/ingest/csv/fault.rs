//! Converts Arrow's CSV errors to messages for users.

use std::path::Path;

use arrow::error::ArrowError;

use crate::error::LakeError;
use crate::ingest::file::bad_file;

/// Converts an error; `names` are the columns of the header.
pub(super) fn csv_fault(path: &Path, names: &[String], error: &ArrowError) -> LakeError {
    let message = match error {
        ArrowError::CsvError(message) | ArrowError::ParseError(message) => message.clone(),
        other => other.to_string(),
    };
    // "incorrect number of fields for line 3, expected 2 got 1", or, while inferring,
    // "Encountered unequal lengths between records on CSV file. Expected 2 records, found 1
    // records at line 3"
    if let Some(rest) = message.split("incorrect number of fields for line ").nth(1) {
        let (line, rest) = rest.split_once(", expected ").unwrap_or((rest, ""));
        let (expected, got) = rest.split_once(" got ").unwrap_or((rest, "other"));
        return bad_file(path, ragged(line, expected, got));
    }
    if let Some(rest) =
        message.split("Expected ").nth(1).filter(|_| message.contains("unequal lengths"))
    {
        let numbers: Vec<_> =
            rest.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty()).collect();
        if let [expected, got, line] = numbers[..] {
            return bad_file(path, ragged(line, expected, got));
        }
    }
    // "Error while parsing value 'x' as type 'Int64' for column 0 at line 7. Row data: '[...]'"
    if let Some(rest) = message.strip_prefix("Error while parsing value ") {
        let rest = rest.split(". Row data").next().unwrap_or(rest);
        let (what, line) = rest.rsplit_once(" at line ").unwrap_or((rest, "?"));
        // In this message Arrow does not count the header.
        let line =
            line.parse::<u64>().map_or_else(|_| line.to_owned(), |line| (line + 1).to_string());
        let (value, column) = what.rsplit_once(" for column ").unwrap_or((what, "?"));
        let name = column
            .parse::<usize>()
            .ok()
            .and_then(|at| names.get(at))
            .map_or(column, String::as_str);
        let hint = "the column's type comes from the table or from the first rows";
        return bad_file(
            path,
            format!("line {line}: column {name:?}: can't read {value} ({hint})"),
        );
    }
    bad_file(path, message)
}

fn ragged(line: &str, expected: &str, got: &str) -> String {
    let got = match got {
        "1" => "1 field".to_owned(),
        _ => format!("{got} fields"),
    };
    format!("line {line} has {got}, the header has {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_messages_are_converted() {
        let path = Path::new("a.csv");
        let names = ["id".to_owned(), "n".to_owned()];
        let message = |error| csv_fault(path, &names, &error).to_string();
        let error =
            ArrowError::CsvError("incorrect number of fields for line 3, expected 2 got 1".into());
        assert_eq!(message(error), "a.csv: line 3 has 1 field, the header has 2");
        let error = ArrowError::ParseError(
            "Error while parsing value 'x' as type 'Int64' for column 1 at line 7. Row data: '[a,x]'".into(),
        );
        assert!(
            message(error)
                .starts_with(r#"a.csv: line 8: column "n": can't read 'x' as type 'Int64' ("#)
        );
    }
}
