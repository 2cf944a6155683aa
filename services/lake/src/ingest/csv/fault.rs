//! Arrow's CSV errors, in words for a user.

use std::path::Path;

use arrow::error::ArrowError;

use crate::error::LakeError;
use crate::ingest::source::bad_file;

/// `names` are the header's.
pub(super) fn csv_fault(path: &Path, names: &[String], error: &ArrowError) -> LakeError {
    let said = match error {
        ArrowError::CsvError(said) | ArrowError::ParseError(said) => said.clone(),
        other => other.to_string(),
    };
    // "incorrect number of fields for line 3, expected 2 got 1", or, while inferring,
    // "Encountered unequal lengths between records on CSV file. Expected 2 records, found 1
    // records at line 3"
    if let Some(rest) = said.split("incorrect number of fields for line ").nth(1) {
        let (line, rest) = rest.split_once(", expected ").unwrap_or((rest, ""));
        let (expected, got) = rest.split_once(" got ").unwrap_or((rest, "other"));
        return bad_file(path, ragged(line, expected, got));
    }
    if let Some(rest) = said.split("Expected ").nth(1).filter(|_| said.contains("unequal lengths"))
    {
        let numbers: Vec<_> =
            rest.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty()).collect();
        if let [expected, got, line] = numbers[..] {
            return bad_file(path, ragged(line, expected, got));
        }
    }
    // "Error while parsing value 'x' as type 'Int64' for column 0 at line 7. Row data: '[...]'"
    if let Some(rest) = said.strip_prefix("Error while parsing value ") {
        let rest = rest.split(". Row data").next().unwrap_or(rest);
        let (what, line) = rest.rsplit_once(" at line ").unwrap_or((rest, "?"));
        // Here Arrow counts without the header.
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
    bad_file(path, said)
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
    fn arrows_words_become_ours() {
        let path = Path::new("a.csv");
        let names = ["id".to_owned(), "n".to_owned()];
        let said = |error| csv_fault(path, &names, &error).to_string();
        let error =
            ArrowError::CsvError("incorrect number of fields for line 3, expected 2 got 1".into());
        assert_eq!(said(error), "a.csv: line 3 has 1 field, the header has 2");
        let error = ArrowError::ParseError(
            "Error while parsing value 'x' as type 'Int64' for column 1 at line 7. Row data: '[a,x]'".into(),
        );
        assert!(
            said(error)
                .starts_with(r#"a.csv: line 8: column "n": can't read 'x' as type 'Int64' ("#)
        );
    }
}
