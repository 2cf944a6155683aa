//! Lists of tables, and what is known of one.

use futures::TryStreamExt;
use lancedb::listing::ListingOptions;
use lancedb::query::{ExecutableQuery, QueryBase};
use lancedb::{Connection, Table};
use serde_json::json;

use crate::found::{Found, Result};

pub async fn read(db: &Connection, items: &Table, found: &mut Found) -> Result<()> {
    found.value("tables", db.table_names().execute().await?)?;
    found.value("first_table", db.table_names().limit(1).execute().await?)?;
    found.value("later_tables", db.table_names().start_after("pages").execute().await?)?;
    let pages = ListingOptions::default().page_limit(2);
    found.value("listed_tables", db.list_tables(&[], pages).try_collect::<Vec<_>>().await?)?;

    found.schema("schema", items.schema().await?.as_ref())?;
    found.value("rows", items.count_rows(None).await?)?;
    found.value("rows_counted", items.count_rows(Some("id < 100".into())).await?)?;
    let statistics = items.stats().await?;
    found.value("statistics", json!([statistics.num_rows, statistics.num_deleted_rows]))?;
    // The test adds rows to this table just before.
    found.value("plain_rows", db.open_table("plain").execute().await?.count_rows(None).await?)?;
    indexes(items, found).await?;
    items.prewarm_index("vector_idx").await?;
    items.prewarm_data(Some(vec!["id".into()])).await?;

    let filtered = || items.query().only_if("id < 5");
    found.value("plan", filtered().explain_plan(false).await?)?;
    found.value("analyzed", filtered().analyze_plan().await?)
}

async fn indexes(items: &Table, found: &mut Found) -> Result<()> {
    let indexes = items.list_indices().await?;
    let described =
        indexes.iter().map(|it| json!([it.name, it.index_type.to_string(), it.columns]));
    found.value("indexes", described.collect::<Vec<_>>())?;
    let of_vectors = items.index_stats("vector_idx").await?.ok_or("no statistics of the index")?;
    found.value(
        "index",
        json!({
            "type": of_vectors.index_type.to_string(),
            "distance_type": of_vectors.distance_type,
            "unindexed": of_vectors.num_unindexed_rows,
        }),
    )?;
    found.value("index_that_is_not_there", items.index_stats("none").await?.is_some())?;
    let tokens = items.tokenize_with_column("the oaks", "text").await?;
    found.value("tokens", tokens.into_iter().map(|it| it.text).collect::<Vec<_>>())
}
