//! The texts of the rows that a full-text index does not cover.
//!
//! The first search of a version that needs them reads them, and they are kept in the cache of indexes, within its
//! bound. Lance's scanner reads them for each search.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use futures::{FutureExt, TryStreamExt};
use lance::Dataset;
use lance_core::cache::CacheKey;
use lance_core::deepsize::{Context, DeepSizeOf};
use lance_core::{Error, ROW_ID};
use lance_io::stream::RecordBatchStream;
use lance_table::format::Fragment;

use crate::error::Result;
use crate::search::hit::BATCH_ROWS;
use crate::search::plan_reason::PlanReason;
use crate::table::Table;

/// The name of the column of texts in [`FreshText::Rows`], whatever its name in the table is.
pub(in crate::search) const TEXT: &str = "text";

/// Maximum number of rows that a full-text index leaves uncovered, for a search without a plan.
pub(in crate::search) const FRESH_TEXTS_MAX: u64 = 50_000;

/// Maximum size of the texts of these rows in bytes, for a search without a plan: 670 bytes for each of the most rows.
/// Each search splits all of the texts into words.
const FRESH_BYTES_MAX: usize = 32 << 20;

/// Approximate maximum size of the texts that are read at a time, in bytes. The scanner reads a few such batches ahead.
const BATCH_BYTES: u64 = 4 << 20;

/// The texts that an index does not cover.
pub(in crate::search) enum FreshText {
    /// The live rows that the index does not cover: the columns [`TEXT`] and `_rowid`.
    Rows(RecordBatch),
    /// They have more than [`FRESH_BYTES_MAX`] bytes.
    TooLarge,
}

impl DeepSizeOf for FreshText {
    fn deep_size_of_children(&self, _: &mut Context) -> usize {
        match self {
            Self::Rows(rows) => rows.get_array_memory_size(),
            Self::TooLarge => 0,
        }
    }
}

/// The key of the texts of a column, by the number of the open table (`Table::whole_id`) and the column's position.
struct Key {
    table: u64,
    column: usize,
}

impl CacheKey for Key {
    type ValueType = FreshText;

    fn key(&self) -> Cow<'_, str> {
        format!("{}/{}", self.table, self.column).into()
    }

    fn type_name() -> &'static str {
        "BiremeFreshText"
    }
}

impl Table {
    /// Returns the texts of `column` in the live rows of `fragments`, which its full-text index does not cover, or the
    /// reason if they are too large. Reads them if they are not kept.
    ///
    /// Errors: those of the store.
    pub(in crate::search) async fn fresh_text(
        &self,
        column: &str,
        fragments: &[u32],
    ) -> Result<std::result::Result<RecordBatch, PlanReason>> {
        let key = Key { table: self.whole_id(), column: self.column_position(column)? };
        let fragments = self.file_fragments(fragments.iter().copied());
        let read = || {
            let fragments = fragments.map(|fragment| fragment.metadata().clone()).collect();
            read(self.dataset(), self.column_path(column), fragments).boxed()
        };
        let get = self.index_cache().get_or_insert_with_key(key, read);
        let text = self.on_own_runtime(self.caught(get).boxed()).await?;
        Ok(match text.as_ref() {
            FreshText::Rows(rows) => Ok(rows.clone()),
            FreshText::TooLarge => Err(PlanReason::UncoveredText),
        })
    }
}

/// Reads the column at `path` of the live rows of `fragments`.
async fn read(
    dataset: &Dataset,
    path: String,
    fragments: Vec<Fragment>,
) -> lance_core::Result<FreshText> {
    let mut scanner = dataset.scan();
    scanner.with_fragments(fragments).project(&[&path])?.with_row_id();
    scanner.batch_size(BATCH_ROWS).batch_size_bytes(BATCH_BYTES);
    let mut stream = scanner.try_into_stream().await?;
    let (mut batches, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = stream.try_next().await? {
        bytes += batch.column(0).to_data().get_slice_memory_size()?;
        if bytes > FRESH_BYTES_MAX {
            return Ok(FreshText::TooLarge);
        }
        batches.push(batch);
    }
    let schema = stream.schema();
    let [text, id] = schema.fields().as_ref() else {
        return Err(Error::internal("a scan of texts did not return two columns"));
    };
    if id.name() != ROW_ID {
        return Err(Error::internal("a scan of texts returned no row ids"));
    }
    let all = concat_batches(&schema, &batches)?;
    let text = Arc::new(text.as_ref().clone().with_name(TEXT));
    let named = Arc::new(Schema::new(vec![text, Arc::clone(id)]));
    Ok(FreshText::Rows(RecordBatch::try_new(named, all.columns().to_vec())?))
}
