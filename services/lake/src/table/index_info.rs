//! The indexes of a version of a table.

use std::sync::Arc;
use std::time::SystemTime;

use lance::Dataset;
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt, IndexDescription};
use lance_index::metrics::NoOpMetricsCollector;
use tables::FragmentInfo;

use crate::table::metric::Metric;

/// One index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexInfo {
    /// Its name, unique in the table.
    pub name: String,
    /// Its columns (nested ones as `a.b`); nearly always one.
    pub columns: Vec<String>,
    /// Lance's name of its kind: `IVF_RQ`, `IVF_PQ`, `IVF_HNSW_SQ`, `BTree`, `Inverted`, ...
    pub kind: String,
    /// The metric of a vector index.
    pub metric: Option<Metric>,
    /// Whether a full-text index stores the positions of words, without which phrases can't be searched. `None` for
    /// other indexes, and if it is not recorded.
    pub positions: Option<bool>,
    /// The approximate number of rows that the index covers (deleted ones may be counted).
    pub rows_covered: u64,
    /// Live rows in fragments that the index doesn't cover. These rows are searched one by one until the index covers
    /// them.
    pub rows_uncovered: u64,
    /// Size of its files in bytes, if recorded.
    pub bytes: Option<u64>,
    /// The parameters that a vector index was built with, as Lance describes them in JSON, without those that only
    /// affect how it is built. Empty for other indexes.
    pub parameters: String,
    /// The UUIDs of its segments.
    pub segments: Vec<String>,
    /// The format version of its first segment.
    pub format: Option<i32>,
    /// The parameters that the manifest records, as Lance describes them in JSON; `None` for a kind that Lance doesn't
    /// know. `Table::text_parameters` reads all parameters of a full-text index.
    pub details: Option<String>,
    /// When its oldest segment was built, if recorded.
    pub created: Option<SystemTime>,
}

impl IndexInfo {
    /// Returns whether this is a vector index.
    pub fn is_vector(&self) -> bool {
        self.kind.starts_with("IVF") || self.kind == "Vector"
    }

    /// Returns whether this is a full-text index.
    pub fn is_text(&self) -> bool {
        self.kind == "Inverted"
    }

    /// Returns the distance by which a vector index estimates an exact `distance`. For cosine, Lance compares normalised
    /// vectors by their squared l2 distance, which is twice the cosine distance, except in indexes that store the
    /// vectors themselves.
    pub fn estimate_of(&self, distance: f32) -> f32 {
        let is_doubled = self.metric == Some(Metric::Cosine) && !self.kind.ends_with("FLAT");
        if is_doubled { 2.0 * distance } else { distance }
    }

    /// Loads the indexes of `dataset`, whose fragments are `fragments`.
    pub(crate) async fn load_all(
        dataset: &Dataset,
        fragments: &[FragmentInfo],
    ) -> lance::Result<Arc<Vec<Self>>> {
        let mut all = Vec::new();
        for described in dataset.describe_indices(None).await? {
            // Lance's own bookkeeping (`__lance_frag_reuse` and the like) has no column.
            if !described.field_ids().is_empty() {
                all.push(Self::load(dataset, fragments, described.as_ref()).await?);
            }
        }
        Ok(Arc::new(all))
    }

    async fn load(
        dataset: &Dataset,
        fragments: &[FragmentInfo],
        described: &dyn IndexDescription,
    ) -> lance::Result<Self> {
        let schema = dataset.schema();
        let path = |id: &u32| match schema.fields.iter().find(|field| field.id == *id as i32) {
            // A path would have backticks around a name that is no identifier.
            Some(field) => field.name.clone(),
            None => schema.field_path(*id as i32).unwrap_or_else(|_| format!("field {id}")),
        };
        let columns: Vec<_> = described.field_ids().iter().map(path).collect();
        let covers = |id| {
            described
                .segments()
                .iter()
                .any(|s| s.fragment_bitmap.as_ref().is_some_and(|b| b.contains(id)))
        };
        let uncovered = fragments.iter().filter(|fragment| !covers(fragment.id));
        let mut info = Self {
            name: described.name().to_owned(),
            kind: described.index_type().to_owned(),
            metric: None,
            positions: None,
            rows_covered: described.rows_indexed(),
            rows_uncovered: uncovered.map(FragmentInfo::live_rows).sum(),
            bytes: described.total_size_bytes(),
            columns,
            parameters: String::new(),
            segments: described.segments().iter().map(|it| it.uuid.to_string()).collect(),
            format: described.segments().first().map(|it| it.index_version),
            details: described.details().ok(),
            created: described
                .segments()
                .iter()
                .filter_map(|it| it.created_at)
                .min()
                .map(Into::into),
        };
        if info.is_vector() {
            info.parameters = parameters(&described.details()?)?;
            info.metric = Some(metric(dataset, described, &info.columns).await?);
        }
        if info.is_text() {
            info.positions = positions(described);
        }
        Ok(info)
    }
}

/// Reads from the manifest whether a full-text index stores positions.
fn positions(described: &dyn IndexDescription) -> Option<bool> {
    let details: serde_json::Value = serde_json::from_str(&described.details().ok()?).ok()?;
    details.get("with_position")?.as_bool()
}

/// Returns the parameters among the `details` of a vector index that decide what it holds. Leaves out those of the
/// build itself (`runtime_hints`, such as the concurrency of the shuffle), so that two indexes that differ only in them
/// count as alike.
fn parameters(details: &str) -> lance::Result<String> {
    let mut details: serde_json::Value = serde_json::from_str(details)?;
    if let Some(details) = details.as_object_mut() {
        details.remove("runtime_hints");
    }
    Ok(details.to_string())
}

/// Reads the metric from the manifest. Indexes built by older versions of Lance have it only in their own files.
async fn metric(
    dataset: &Dataset,
    described: &dyn IndexDescription,
    columns: &[String],
) -> lance::Result<Metric> {
    let details: serde_json::Value = serde_json::from_str(&described.details()?)?;
    if let Some(metric) =
        details.get("metric_type").and_then(|it| it.as_str()).and_then(|it| it.parse().ok())
    {
        return Ok(metric);
    }
    let (Some(segment), Some(column)) = (described.segments().first(), columns.first()) else {
        return Ok(Metric::default());
    };
    let index = dataset.open_vector_index(column, &segment.uuid, &NoOpMetricsCollector).await?;
    Ok(Metric::from_lance(index.metric_type()))
}
