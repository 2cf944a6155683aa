//! Calls that describe a table, list its versions, tags, branches and indexes, and count its rows.

use std::sync::Arc;
use std::time::SystemTime;

use humantime::format_rfc3339_micros;
use lake::{ID_DELIMITER, LakeError, Table, TagInfo, TypeNames, VersionInfo, schema_json};
use serde_json::{Map, Value, json};

use super::answer::{Answer, json as answer};
use super::page::Page;
use super::route::Dialect;
use crate::call::Call;
use crate::error::{QueryError, Result};
use crate::requests::{self, indexes_of, millis, of_table};
use crate::state::ShardState;
use crate::tables::OpenTable;

/// The number of rows below which LanceDB counts a fragment as small.
const SMALL_FRAGMENT_ROWS: u64 = 100_000;

/// Maximum number of versions in a page for Namespace clients, as over gRPC. The manifest of each version is read.
const VERSIONS_MAX: usize = 1000;

/// The approximate memory that a version takes in a list, in bytes: mostly its numbers, which have names.
const VERSION_BYTES: usize = 1 << 10;

/// The number of versions whose manifests are read with one permit, which takes a second over a far store.
const VERSIONS_AT_ONCE: usize = 256;

/// The kinds of indexes of vectors that clients know.
const VECTOR_KINDS: [&str; 7] =
    ["IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_PQ", "IVF_HNSW_SQ", "IVF_HNSW_FLAT"];

/// Describes a table. Clients of the Namespace specification get its statistics too, if the call shows all of it.
pub fn describe(open: &OpenTable, name: &str, dialect: Dialect, call: &Call) -> Result<Answer> {
    let names = match dialect {
        Dialect::LanceDb => TypeNames::Lance,
        Dialect::Namespace => TypeNames::Namespace,
    };
    let schema = schema_json(open.table.lance_schema()?.as_ref(), names);
    let schema = schema.map_err(QueryError::Server)?;
    // The location is left out: callers need not know where the operator keeps tables.
    let mut namespace: Vec<&str> = name.split(ID_DELIMITER).collect();
    let table = namespace.pop();
    let version = open.version();
    let mut described =
        json!({ "table": table, "namespace": namespace, "version": version, "schema": schema });
    if dialect == Dialect::Namespace && call.shows_whole() {
        described["stats"] = json!({
            "num_deleted_rows": deleted_rows(open),
            "num_fragments": open.table.fragments().len(),
        });
    }
    answer(described)
}

fn deleted_rows(open: &OpenTable) -> u64 {
    open.table.fragments().iter().map(|info| u64::from(info.deleted_rows)).sum()
}

/// Returns the size of a table in bytes, and the numbers of its rows, fragments and indexes.
pub async fn stats(open: &Arc<OpenTable>, call: &Call) -> Result<Answer> {
    let indexes = indexes_of(open, call.context).await?.len();
    let fragments = open.table.fragments();
    let mut lengths: Vec<u64> = fragments.iter().map(|info| info.live_rows()).collect();
    lengths.sort_unstable();
    let at = |share: f64| {
        let last = lengths.len().saturating_sub(1) as f64;
        lengths.get((last * share).round() as usize).copied().unwrap_or(0)
    };
    let rows = open.table.row_count();
    let small = lengths.iter().filter(|&&rows| rows < SMALL_FRAGMENT_ROWS).count();
    answer(json!({
        "total_bytes": open.table.data_bytes(),
        "num_rows": rows,
        "num_deleted_rows": deleted_rows(open),
        "num_indices": indexes,
        "fragment_stats": {
            "num_fragments": lengths.len(),
            "num_small_fragments": small,
            "lengths": {
                "min": at(0.0),
                "max": at(1.0),
                "mean": rows / (lengths.len().max(1) as u64),
                "p25": at(0.25),
                "p50": at(0.5),
                "p75": at(0.75),
                "p99": at(0.99),
            },
        },
    }))
}

/// Counts the rows that pass a predicate, or all rows without one.
pub async fn count_rows(
    state: &ShardState,
    open: &Arc<OpenTable>,
    predicate: Option<String>,
    call: &Call,
) -> Result<Answer> {
    let predicate = predicate.unwrap_or_default();
    answer(requests::count_rows(state, open, &predicate, call).await?)
}

/// Lists a page of a table's versions. A page for a Namespace client has at most [`VERSIONS_MAX`]. LanceDB's clients
/// read one page and ask for no limit, so it has all versions. Also returns the latest version, on the page or not.
pub async fn versions(
    state: &ShardState,
    open: &Arc<OpenTable>,
    dialect: Dialect,
    page: Page,
    call: &mut Call,
) -> Result<(Answer, Option<u64>)> {
    let page = match dialect {
        Dialect::LanceDb => page,
        Dialect::Namespace => page.at_most(VERSIONS_MAX),
    };
    let list = |table: Table| async move { table.versions().await };
    let versions = of_table(state, open, call, list).await?;
    let latest = versions.iter().copied().max();
    let (versions, next) = page.of(versions, |it| *it)?;
    call.hold_rows(versions.len() * VERSION_BYTES)?;
    let mut described: Vec<Value> = Vec::with_capacity(versions.len());
    // Other requests may have the permit after each part, because a list of many versions takes minutes.
    for part in versions.chunks(VERSIONS_AT_ONCE) {
        let part = part.to_vec();
        let describe = |table: Table| async move { table.version_infos(part).await };
        let infos = of_table(state, open, call, describe).await?;
        described.extend(infos.into_iter().map(|it| version_json(it, dialect)));
    }
    let mut list = Map::new();
    list.insert("versions".into(), described.into());
    list.insert("page_token".into(), next.into());
    Ok((answer(Value::Object(list))?, latest))
}

/// Describes the version that the call names, or the latest one.
pub fn describe_version(open: &OpenTable, dialect: Dialect) -> Result<Answer> {
    let version = open.table.version_info()?;
    answer(json!({ "version": version_json(version, dialect) }))
}

fn version_json(it: VersionInfo, dialect: Dialect) -> Value {
    let mut version = json!({
        "version": it.version,
        "metadata": it.metadata,
        "manifest_path": it.manifest_path,
    });
    // Each kind of client knows one of the two names, and may refuse an answer with both.
    match dialect {
        Dialect::LanceDb => version["timestamp"] = rfc3339(it.time).into(),
        Dialect::Namespace => version["timestamp_millis"] = millis(it.time).into(),
    }
    version
}

/// Lists a table's tags; a page of them for a Namespace client. The answer to LanceDB's clients has no place for a page
/// token, and they ask for no pages.
pub async fn tags(
    state: &ShardState,
    open: &Arc<OpenTable>,
    dialect: Dialect,
    page: &Page,
    call: &Call,
) -> Result<Answer> {
    let list = |table: Table| async move { table.tags().await };
    let tags = of_table(state, open, call, list).await?;
    let tag = |(name, it): (String, TagInfo)| {
        let value = json!({
            "version": it.version,
            "manifestSize": it.manifest_bytes,
            "branch": it.branch,
            "metadata": {},
        });
        (name, value)
    };
    let named = |tags: Vec<_>| tags.into_iter().map(tag).collect::<serde_json::Map<_, _>>();
    let tags = tags.into_iter().collect();
    match dialect {
        Dialect::LanceDb => answer(named(tags)),
        Dialect::Namespace => {
            let (tags, next) = page.of(tags, |(name, _)| name.clone())?;
            answer(json!({ "tags": named(tags), "page_token": next }))
        }
    }
}

/// Returns the version that a tag names.
pub async fn tag_version(
    state: &ShardState,
    open: &OpenTable,
    tag: Option<String>,
    call: &Call,
) -> Result<Answer> {
    let problem = || "is missing; name a tag".to_owned();
    let tag = tag.ok_or_else(|| QueryError::BadRequest { field: "tag", problem: problem() })?;
    let found = find_tag(state, open, tag, call).await?;
    answer(json!({ "version": found.version, "branch": found.branch }))
}

/// Finds a tag of a table.
pub async fn find_tag(
    state: &ShardState,
    open: &OpenTable,
    tag: String,
    call: &Call,
) -> Result<TagInfo> {
    let name = tag.clone();
    let read = |table: Table| async move { table.tag(&name).await };
    let found = of_table(state, open, call, read).await?;
    found.ok_or_else(|| QueryError::TagUnknown { table: open.name.clone(), tag })
}

/// Lists a table's branches.
pub async fn branches(state: &ShardState, open: &Arc<OpenTable>, call: &Call) -> Result<Answer> {
    let list = |table: Table| async move { table.branches().await };
    let branches = of_table(state, open, call, list).await?;
    let branch = |(name, it): (String, lake::BranchInfo)| {
        let value = json!({
            "parentVersion": it.parent_version,
            "createAt": it.created,
            "manifestSize": it.manifest_bytes,
            "parentBranch": it.parent,
            "metadata": {},
        });
        (name, value)
    };
    let branches: serde_json::Map<_, _> = branches.into_iter().map(branch).collect();
    answer(json!({ "branches": branches }))
}

/// Lists a page of a table's indexes.
pub async fn indexes(
    state: &ShardState,
    open: &Arc<OpenTable>,
    page: &Page,
    call: &Call,
) -> Result<Answer> {
    let indexes = indexes_of(open, call.context).await?;
    let (indexes, next) = page.of(indexes.iter().collect(), |it| it.name.clone())?;
    let mut listed = Vec::with_capacity(indexes.len());
    for it in indexes {
        let mut details = it.details.clone();
        if it.is_text() {
            let name = it.name.clone();
            let read = |table: Table| async move { table.text_parameters(&name).await };
            match of_table(state, open, call, read).await {
                Ok(all) => details = all.or(details),
                // An index whose files are damaged is listed, so that it can be found and repaired.
                Err(QueryError::Lake(LakeError::Corrupt { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        listed.push(json!({
            "index_name": it.name,
            "index_uuid": it.segments.first(),
            "columns": it.columns.iter().map(|it| open.table.column_path(it)).collect::<Vec<_>>(),
            "index_type": kind(&it.kind),
            "status": "done",
            "num_indexed_rows": it.rows_covered,
            "num_unindexed_rows": it.rows_uncovered,
            "size_bytes": it.bytes,
            "num_segments": it.segments.len(),
            "index_version": it.format,
            "index_details": details,
            "created_at": it.created.map(rfc3339),
        }));
    }
    answer(json!({ "indexes": listed, "page_token": next }))
}

/// Returns the numbers of rows and segments, the kind and the metric of one index.
pub async fn index_stats(open: &Arc<OpenTable>, name: &str, call: &Call) -> Result<Answer> {
    let indexes = indexes_of(open, call.context).await?;
    let Some(index) = indexes.iter().find(|index| index.name == name) else {
        return Err(QueryError::IndexUnknown { table: open.name.clone(), index: name.to_owned() });
    };
    answer(json!({
        "num_indexed_rows": index.rows_covered,
        "num_unindexed_rows": index.rows_uncovered,
        "index_type": kind(&index.kind),
        "distance_type": index.metric.map(|metric| metric.to_string()),
        "num_indices": index.segments.len(),
    }))
}

/// Returns the name that clients have for the kind of an index. LanceDB's clients refuse a whole list that has a name
/// they do not know.
fn kind(of_lance: &str) -> &str {
    match of_lance {
        "BTree" => "BTREE",
        "Bitmap" => "BITMAP",
        "LabelList" => "LABEL_LIST",
        "Inverted" => "FTS",
        "NGram" => "NGRAM",
        "ZoneMap" => "ZONEMAP",
        "BloomFilter" => "BLOOM_FILTER",
        "RTree" => "RTREE",
        "Fm" => "FM",
        vector if VECTOR_KINDS.contains(&vector) => vector,
        _ => "Unknown",
    }
}

fn rfc3339(time: SystemTime) -> String {
    format_rfc3339_micros(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_clients_do_not_know_are_unknown() {
        for (of_lance, name) in [
            ("BTree", "BTREE"),
            ("IVF_HNSW_SQ", "IVF_HNSW_SQ"),
            ("Json", "Unknown"),
            ("MinHashLsh", "Unknown"),
            ("Vector", "Unknown"),
        ] {
            assert_eq!(kind(of_lance), name);
        }
    }
}
