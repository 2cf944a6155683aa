//! Versions, tags and branches. The test makes the tag `rust` of the table `items`, and the branch `draft` of `plain`.

use lancedb::Connection;
use serde_json::json;

use crate::found::{Found, Result};

pub async fn read(db: &Connection, found: &mut Found) -> Result<()> {
    let items = db.open_table("items").execute().await?;
    found.value("version", items.version().await?)?;
    let versions = items.list_versions().await?;
    found.value("versions", versions.into_iter().map(|it| it.version).collect::<Vec<_>>())?;
    let tags = items.tags().await?;
    let tag = tags.list().await?.remove("rust").ok_or("no tag")?.version;
    found.value("tag", json!([tag, tags.get_version("rust").await?]))?;

    items.checkout(5).await?;
    found.value("of_version", json!([items.version().await?, items.count_rows(None).await?]))?;
    items.checkout_tag("rust").await?;
    found.value("of_tag", json!([items.version().await?, items.count_rows(None).await?]))?;
    found.error("no_version", items.checkout(99).await)?;
    items.checkout_latest().await?;
    found.value("of_latest", json!([items.version().await?, items.count_rows(None).await?]))?;

    let plain = db.open_table("plain").execute().await?;
    found.value("branches", plain.list_branches().await?.into_keys().collect::<Vec<_>>())?;
    let draft = plain.checkout_branch("draft", None).await?;
    found.value("of_branch", json!([draft.current_branch(), draft.count_rows(None).await?]))
}
