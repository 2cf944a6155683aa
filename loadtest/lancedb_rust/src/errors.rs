//! Calls that have to fail.

use lancedb::query::{ExecutableQuery, QueryBase, Select};
use lancedb::{Connection, Table};

use crate::found::{Found, Result};
use crate::question::Question;

pub async fn provoke(
    db: &Connection,
    items: &Table,
    question: &Question,
    found: &mut Found,
) -> Result<()> {
    let near = || items.query().nearest_to(question.vector.as_slice());
    let outcome = |it: lancedb::Result<_>| it.map(|_| "rows");

    found.error("no_table", db.open_table("none").execute().await)?;
    found.error("no_index", items.prewarm_index("none").await)?;
    found.error("no_column_in_filter", outcome(near()?.only_if("idd = 3").execute().await))?;
    found
        .error("no_filter", outcome(items.query().only_if("id = = 3").limit(1).execute().await))?;
    let selected = near()?.select(Select::columns(&["nothing"])).execute().await;
    found.error("no_column", outcome(selected))?;
    let short = items.query().nearest_to(&question.vector[..5])?.execute().await;
    found.error("wrong_dimension", outcome(short))?;
    found.error("too_many_rows", outcome(near()?.limit(20_000).execute().await))?;
    found.error("delete", items.delete("id = 1").await)?;
    found.error("drop_table", db.drop_table("items", &[]).await)?;
    found.error("uri", items.uri().await)
}
