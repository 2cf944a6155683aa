//! Lists the versions and the tags of tables.

use access::Permission;
use futures::FutureExt;
use lake::{Table, VersionInfo};
use wire::query::{
    ListTagsRequest, ListTagsResponse, ListVersionsRequest, ListVersionsResponse, Tag,
    VersionSummary,
};

use crate::call::Call;
use crate::error::{QueryError, Result};
use crate::requests::describe::{millis, of_table};
use crate::state::ShardState;
use crate::tables::AskedVersion;

/// Maximum number of entries of one list, and their number unless a request names one. A version with its numbers takes
/// less than 1 KiB, and so do most tags.
const ENTRIES_MAX: u32 = 1000;

/// Answers a ListVersions.
///
/// # Errors
/// The table can't be opened or the caller may not read it, the limit is too high, and errors of the store.
pub async fn list_versions(
    state: &ShardState,
    request: ListVersionsRequest,
    call: &mut Call,
) -> Result<ListVersionsResponse> {
    let ListVersionsRequest { table, branch, limit, before } = &request;
    let limit = limit_of(*limit)?;
    let asked = AskedVersion { table, branch, version: 0 };
    let open = call.open(asked, Permission::Read).boxed().await?;
    let before = if *before == 0 { u64::MAX } else { *before };
    let read = move |table: Table| async move {
        let mut versions = table.versions().await?;
        versions.retain(|version| *version < before);
        versions.reverse();
        let has_more = versions.len() > limit;
        versions.truncate(limit);
        let next_before = versions.last().copied().filter(|_| has_more).unwrap_or(0);
        Ok((table.version_infos(versions).await?, next_before))
    };
    let (infos, next_before) = of_table(state, &open, call, read).await?;
    let summary = |it: VersionInfo| VersionSummary {
        version: it.version,
        created_at_ms: millis(it.time),
        metadata: it.metadata.into_iter().collect(),
    };
    Ok(ListVersionsResponse { versions: infos.into_iter().map(summary).collect(), next_before })
}

/// Answers a ListTags.
///
/// # Errors
/// The table can't be opened or the caller may not read it, the limit is too high, and errors of the store.
pub async fn list_tags(
    state: &ShardState,
    request: ListTagsRequest,
    call: &mut Call,
) -> Result<ListTagsResponse> {
    let ListTagsRequest { table, limit, after } = &request;
    let limit = limit_of(*limit)?;
    let asked = AskedVersion { table, branch: "", version: 0 };
    let open = call.open(asked, Permission::Read).boxed().await?;
    let read = |table: Table| async move { table.tags().await };
    let tags = of_table(state, &open, call, read).await?;
    let mut behind = tags.into_iter().filter(|(name, _)| name > after).map(|(name, it)| Tag {
        name,
        branch: it.branch.unwrap_or_default(),
        version: it.version,
    });
    let tags: Vec<Tag> = behind.by_ref().take(limit).collect();
    let last = tags.last().filter(|_| behind.next().is_some());
    let next_after = last.map(|tag| tag.name.clone()).unwrap_or_default();
    Ok(ListTagsResponse { tags, next_after })
}

/// Returns the number of entries to list.
fn limit_of(limit: u32) -> Result<usize> {
    match limit {
        0 => Ok(ENTRIES_MAX as usize),
        1..=ENTRIES_MAX => Ok(limit as usize),
        _ => Err(QueryError::BadRequest {
            field: "limit",
            problem: format!("is {limit}; list {ENTRIES_MAX} entries at most with one call"),
        }),
    }
}
