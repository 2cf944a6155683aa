//! `--tables FOLDER`: folders of tables to serve.

use lake::{TableFolder, shown};

use crate::error::{CliError, Result};

/// Parses the values of --tables. clap does not parse them, because its errors would repeat a value and any secret in
/// it.
pub fn folders(texts: &[String]) -> Result<Vec<TableFolder>> {
    let parse = |text: &String| {
        let bad = |error| CliError::usage(format!("--tables: `{}`: {error}", shown(text)));
        TableFolder::of_config(text).map_err(bad)
    };
    texts.iter().map(parse).collect()
}
