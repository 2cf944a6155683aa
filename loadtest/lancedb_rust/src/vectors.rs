//! Searches by vector.

use lancedb::query::{ColumnOrdering, QueryBase, Select, VectorQuery};
use lancedb::{Connection, DistanceType, Table};

use crate::found::{Found, Result};
use crate::question::Question;

/// The number of the index's partitions: with so many probes, a search finds the nearest rows.
const PARTITIONS: usize = 8;

pub async fn search(
    db: &Connection,
    items: &Table,
    question: &Question,
    found: &mut Found,
) -> Result<()> {
    let near = |vector: &[f32]| items.query().nearest_to(vector);
    let exact = || near(&question.vector).map(VectorQuery::bypass_vector_index);
    let by_index = || near(&question.vector)?.nprobes(PARTITIONS);
    let ids = || Select::columns(&["id"]);

    for metric in [DistanceType::L2, DistanceType::Cosine, DistanceType::Dot] {
        let search =
            exact()?.distance_type(metric).select(Select::columns(&["id", "text"])).limit(17);
        found.rows(&format!("exact_{metric}"), search).await?;
    }
    found.rows("by_index", by_index()?.limit(10)).await?;
    found.rows("page", by_index()?.limit(4).offset(6).select(ids())).await?;
    found.rows("refined", by_index()?.refine_factor(20).limit(10).select(ids())).await?;
    let bounded = near(&question.vector)?.minimum_nprobes(PARTITIONS)?.maximum_nprobes(None)?;
    found.rows("by_minimum", bounded.limit(10).select(ids())).await?;

    let filter = "id < 900 AND price > 3";
    found.rows("filtered", exact()?.only_if(filter).limit(40).select(ids())).await?;
    found
        .rows("filtered_after", exact()?.only_if(filter).postfilter().limit(40).select(ids()))
        .await?;
    for (name, search) in [("range", exact()?), ("range_by_index", by_index()?.refine_factor(50))] {
        let search = search.distance_range(Some(question.lower), Some(question.upper));
        found.rows(name, search.with_row_id().limit(50).select(ids())).await?;
    }

    let several = by_index()?.add_query_vector(question.other.as_slice())?;
    found.rows("several", several.limit(3).select(ids())).await?;
    found.rows("other", near(&question.other)?.nprobes(PARTITIONS)?.limit(3).select(ids())).await?;
    let unindexed = || near(&question.unindexed).map(|it| it.limit(1).select(ids()));
    found.rows("unindexed", unindexed()?).await?;
    found.rows("only_indexed", unindexed()?.fast_search()).await?;

    let by = vec![
        ColumnOrdering::desc_nulls_first("price".into()),
        ColumnOrdering::asc_nulls_last("id".into()),
    ];
    found.rows("ordered", exact()?.limit(40).offset(7).order_by(Some(by)).select(ids())).await?;

    let pages = db.open_table("pages").execute().await?;
    let late = pages.query().nearest_to(question.vector.as_slice())?;
    let late =
        late.add_query_vector(question.other.as_slice())?.column("vectors").bypass_vector_index();
    found.rows("late_interaction", late.distance_type(DistanceType::Cosine).limit(12)).await
}
