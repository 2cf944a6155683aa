//! The configuration of the tables that a node serves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tables::{TableUri, Tables, UriPrefix, shown};

use super::IoConfig;
use crate::error::NodeError;
use crate::table::ServedTables;

/// The locations that one table may read in addition to its own folder.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlsoReadsConfig {
    /// The table.
    pub uri: String,
    /// Other tables, or prefixes that end in `/`: base paths of a shallow clone, external blobs.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub prefixes: Vec<UriPrefix>,
}

impl AlsoReadsConfig {
    /// Returns the table's URI.
    ///
    /// # Errors
    /// [`NodeError::Config`] if it names no table.
    pub fn table(&self) -> Result<TableUri, NodeError> {
        table_uri("also_reads", &self.uri)
    }
}

/// Parses the URI of an entry of the list `field`.
///
/// # Errors
/// [`NodeError::Config`] with what is wrong with the URI.
pub fn table_uri(field: &'static str, uri: &str) -> Result<TableUri, NodeError> {
    TableUri::of_config(uri).map_err(|error| {
        let problem = format!("names no table by `{}`: {error}", shown(uri));
        NodeError::Config { field, problem }
    })
}

/// Checks that the node serves at least one table, and every table that its other settings name.
///
/// # Errors
/// [`NodeError::Config`] with what to add to `serve`, or with a URI that names no table.
pub fn check(config: &IoConfig) -> Result<(), NodeError> {
    let bad = |problem| Err(NodeError::Config { field: "serve", problem });
    let mut named = Vec::new();
    for share in &config.shares {
        let uri = table_uri("shares", &share.uri)?;
        named.push(uri.table_of_files().unwrap_or(uri));
    }
    for warm in &config.warm_at_start {
        named.push(table_uri("warm_at_start", &warm.uri)?);
    }
    for also in &config.also_reads {
        named.push(also.table()?);
    }
    named.sort();
    named.dedup();
    if config.serve.is_empty() {
        let listed: Vec<_> = named.iter().map(|uri| format!("\"{uri}\"")).collect();
        let example = || "\"s3://bucket/tables/\"".to_owned();
        let listed = if listed.is_empty() { example() } else { listed.join(", ") };
        return bad(format!(
            "is empty, and a node serves no table that it does not list; add the line `serve = [{listed}]`, with the \
             URIs of the query nodes' tables or prefixes of them that end in `/`, or give --serve URI"
        ));
    }
    match named.iter().find(|uri| !config.serve.iter().any(|prefix| prefix.covers(uri))) {
        Some(uri) => bad(format!(
            "does not cover {uri}, which `shares`, `warm_at_start` or `also_reads` names; add it to the list"
        )),
        None => Ok(()),
    }
}

/// Replaces the URIs of the tables in `shares` and `warm_at_start` by their canonical form, without symbolic links, and
/// returns the served tables. A path that cannot be looked up now keeps its symbolic links.
pub async fn resolve(config: &mut IoConfig, tables: &dyn Tables) -> ServedTables {
    let served = ServedTables::resolved(&config.serve, tables).await;
    let uris = config.shares.iter_mut().map(|share| &mut share.uri);
    for uri in uris.chain(config.warm_at_start.iter_mut().map(|warm| &mut warm.uri)) {
        let Ok(named) = TableUri::of_config(uri) else { continue };
        let table = named.table_of_files();
        let resolved = tables.resolve(table.as_ref().unwrap_or(&named)).await;
        *uri = match resolved {
            Ok(resolved) if table.is_some() => resolved.files(),
            Ok(resolved) => resolved,
            Err(_) => named,
        }
        .to_string();
    }
    served
}
