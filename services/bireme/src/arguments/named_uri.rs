//! `NAME=URI`: a table to serve.

use std::collections::HashSet;
use std::str::FromStr;

use crate::error::{CliError, Result};

/// A table's name and URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedUri {
    /// The name that requests use.
    pub name: String,
    /// The table's URI.
    pub uri: String,
}

impl NamedUri {
    /// Refuses two tables with the same name.
    pub fn check_names_unique(tables: &[Self]) -> Result<()> {
        let mut names = HashSet::new();
        match tables.iter().find(|table| !names.insert(&table.name)) {
            Some(Self { name, .. }) => {
                Err(CliError::usage(format!("two tables are named `{name}`")))
            }
            None => Ok(()),
        }
    }
}

impl FromStr for NamedUri {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once('=') {
            Some((name, uri)) if !name.trim().is_empty() && !uri.trim().is_empty() => {
                Ok(Self { name: name.trim().to_owned(), uri: uri.trim().to_owned() })
            }
            _ => Err(
                "write it as NAME=URI, such as words=./words.lance; --tables takes a folder of \
                      tables"
                    .into(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_equals_sign_divides() {
        let table: NamedUri = "words=s3://b/t=1".parse().unwrap();
        assert_eq!((table.name.as_str(), table.uri.as_str()), ("words", "s3://b/t=1"));
        for bad in ["words", "=x", "words=", " = ", ""] {
            assert!(bad.parse::<NamedUri>().unwrap_err().contains("NAME=URI"), "{bad}");
        }
    }
}
