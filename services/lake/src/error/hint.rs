//! The parts of error messages that say what to do.

use lance_core::{ROW_ADDR, is_system_column};
use spelling::nearest;

use crate::error::words::listed;

/// The hint for a column that isn't among those `available`.
pub(crate) fn column_hint(column: &str, available: &[String]) -> String {
    match column {
        "_distance" => "; it is returned with the rows of a search; `lower_bound` and `upper_bound` limit it \
             (LanceDB: `distance_range`)"
            .to_owned(),
        "_score" | "_relevance_score" => {
            "; it is returned with the rows of a search, and no filter can use it: compare it in these rows".to_owned()
        }
        ROW_ADDR => "; it is returned with every row".to_owned(),
        column if is_system_column(column) => "; Lance reserves this name".to_owned(),
        column if has_no_path(column) && available.iter().any(|it| it == column) => {
            "; a name that is empty or has a backquote can't be used here; rename the column".to_owned()
        }
        _ => match nearest(column, available.iter().map(String::as_str)) {
            Some(meant) => format!("; did you mean {meant:?}?"),
            None => String::new(),
        },
    }
}

/// Returns whether Lance can't find a column of this name where it reads names as paths of fields.
pub(crate) fn has_no_path(name: &str) -> bool {
    name.is_empty() || name.contains('`')
}

/// The hint for a filter that compares an unknown column `name` with something: the name may be meant as text.
pub(crate) fn text_hint(filter: &str, name: &str) -> Option<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let is_compared = filter.match_indices(name).any(|(at, _)| {
        let (before, after) = (&filter[..at], &filter[at + name.len()..]);
        !before.ends_with(is_word)
            && !after.starts_with(is_word)
            && (before.trim_end().ends_with(['=', '<', '>'])
                || after.trim_start().starts_with(['=', '<', '>', '!']))
    });
    is_compared.then(|| format!("; text needs single quotes: '{name}'"))
}

/// The hint for a search by words in the table at `uri`, which has no full-text index. `columns` are the columns that
/// could have one.
pub(crate) fn text_index_hint(uri: &str, columns: &[String]) -> String {
    let (columns_are, column) = match columns {
        [] => return "it has no column of text".to_owned(),
        [only] => ("column is", only.as_str()),
        _ => ("columns are", "COLUMN"),
    };
    format!("its text {columns_are} {}; {}", listed(columns), build_text_index(uri, column))
}

/// The hint that says how to build a full-text index on `column` of the table at `uri`.
pub(crate) fn build_text_index(uri: &str, column: &str) -> String {
    format!(
        "build one with `bireme index --table {uri} --text {column}` (overwriting a table drops its indexes), \
         or try again if that was just done: a query node looks for a new version about every 2 seconds"
    )
}

/// The hint for an option that doesn't exist.
pub(crate) fn option_hint(nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => "options have the object_store crate's names, such as aws_endpoint or allow_http"
            .to_owned(),
    }
}

/// The hint that says where the store of `uri` takes its credentials from.
pub(crate) fn credentials_hint(uri: &str) -> &'static str {
    match uri.split("://").next() {
        Some("s3" | "s3+ddb") => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give --storage \
             aws_access_key_id=... and --storage aws_secret_access_key=...; a public bucket needs \
             --storage aws_skip_signature=true"
        }
        Some("gs") => {
            "set GOOGLE_APPLICATION_CREDENTIALS or give --storage google_service_account=FILE; a \
             public bucket needs --storage google_skip_signature=true"
        }
        Some("az" | "abfss") => {
            "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or give --storage \
             azure_storage_account_name=... and --storage azure_storage_account_key=..."
        }
        _ => "give them with --storage NAME=VALUE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_fit_the_error() {
        let columns = ["a".to_owned(), "gloss".to_owned()];
        assert_eq!(column_hint("name", &columns), "");
        assert_eq!(column_hint("glos", &columns), r#"; did you mean "gloss"?"#);
        assert!(column_hint("_rowaddr", &columns).contains("returned"));
        assert!(column_hint("_distance", &columns).contains("`distance_range`"));
        assert!(column_hint("_score", &columns).contains("compare it in these rows"));
        assert!(column_hint("_rowid", &columns).contains("Lance"));
        let unusual = ["back`tick".to_owned(), String::new()];
        for name in &unusual {
            assert!(column_hint(name, &unusual).contains("can't be used here"), "{name}");
        }
        assert_eq!(column_hint("backtick", &unusual), r#"; did you mean "back`tick"?"#);
        let quotes = Some("; text needs single quotes: 'noun'".to_owned());
        for filter in
            ["pos = noun", "noun<>pos", "a > 1 and pos!=noun or b", "noun_a = 1 or noun = a"]
        {
            assert_eq!(text_hint(filter, "noun"), quotes, "{filter}");
        }
        for filter in ["noun", "noun is null", "lower(noun) = 'a'", "a = nouns", "a = pronoun"] {
            assert_eq!(text_hint(filter, "noun"), None, "{filter}");
        }
        assert_eq!(text_index_hint("t", &[]), "it has no column of text");
        let hint = text_index_hint("t", &columns);
        assert!(hint.starts_with(r#"its text columns are "a", "gloss"; "#), "{hint}");
        assert!(hint.contains("--table t --text COLUMN`"), "{hint}");
        let hint = text_index_hint("t", &columns[..1]);
        assert!(hint.starts_with(r#"its text column is "a"; "#), "{hint}");
        assert!(hint.contains("--table t --text a`"), "{hint}");
        assert!(credentials_hint("s3://b/t").contains("AWS_ACCESS_KEY_ID"));
        assert!(credentials_hint("gs://b/t").contains("GOOGLE_APPLICATION_CREDENTIALS"));
        assert!(credentials_hint("az://b/t").contains("AZURE_STORAGE_ACCOUNT_KEY"));
    }
}
