//! Rows without a search.

use lancedb::Table;
use lancedb::query::{ColumnOrdering, QueryBase, Select};

use crate::found::{Found, Result};
use crate::question::Question;

pub async fn read(items: &Table, question: &Question, found: &mut Found) -> Result<()> {
    found.rows("all", items.query()).await?;
    found.rows("no_rows", items.query().only_if("id < 0")).await?;
    let filter = "price IS NULL AND place.x = 2 AND \"topic\" <> 't5'";
    found.rows("by_filter", items.query().only_if(filter).only_if("id < 600")).await?;
    found
        .rows("offset", items.query().limit(5).offset(20).select(Select::columns(&["id"])))
        .await?;
    // The order is not that of the names, which this client keeps.
    let computed =
        [("words", "upper(text)"), ("key", "id"), ("cheap", "price < 20"), ("again", "id * 2 + 1")];
    found.rows("computed", items.query().limit(5).select(Select::dynamic(&computed))).await?;
    let nested = Select::columns(&["place.x", "id"]);
    found.rows("nested", items.query().limit(30).select(nested)).await?;
    let by = vec![
        ColumnOrdering::asc_nulls_last("place.x".into()),
        ColumnOrdering::desc_nulls_first("id".into()),
    ];
    found.rows("in_order", items.query().only_if("id < 500").limit(40).order_by(Some(by))).await?;

    found.rows("at_offsets", items.take_offsets(question.offsets.clone())).await?;
    let by_id = items.take_row_ids(question.row_ids.clone());
    found.rows("of_row_ids", by_id.select(Select::columns(&["id"])).with_row_id()).await
}
