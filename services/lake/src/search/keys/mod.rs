//! Looks up rows by key.

mod all_rows;
mod btree;
mod rows;
mod sole_segment;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use address::RowAddr;
use arrow::array::{ArrayRef, StringArray, new_empty_array};
use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::logical_expr::Expr;
use datafusion::scalar::ScalarValue;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use lance::dataset::scanner::Scanner;
use lance_table::format::Fragment;
use tokio::task::yield_now;

use super::beside::beside;
use super::hit::addresses;
use crate::diagnose::caught::caught;
use crate::error::{LakeError, Result};
use crate::key::parse_key;
use crate::table::Table;

pub(crate) use btree::KeyBtree;
pub(super) use btree::is_btree;
pub use rows::DIRECT_KEYS_MAX;

/// Maximum number of keys in one query of the scanner; longer lists become several queries.
pub(super) const KEYS_PER_QUERY_MAX: usize = 4096;

/// Each key's row, if it has one: the first one, if it has several.
type FirstRows = Vec<Option<RowAddr>>;

impl Table {
    /// Returns the address of each key's row, or `None` if no row has the key. If several rows have it, the row with
    /// the lowest address is returned. `keys` are of the column's type ([`key_values`](Self::key_values)); null is no
    /// row's key. Uses the column's BTREE index if there is one, otherwise scans the column.
    ///
    /// Errors: `ColumnNotFound`, and those of the store.
    pub async fn lookup(&self, column: &str, keys: &ArrayRef) -> Result<FirstRows> {
        if keys.len() <= DIRECT_KEYS_MAX {
            self.open_key_btree(self.column_position(column)?).await;
        }
        match self.direct_lookup(column, keys)? {
            Some(lookup) => lookup.await,
            None => self.planned_lookup(column, keys).await,
        }
    }

    /// Like [`lookup`](Self::lookup), but always through Lance's scanner, which plans each look-up anew and reads the
    /// keys of the rows that it finds.
    ///
    /// Errors: as `lookup`.
    pub async fn planned_lookup(&self, column: &str, keys: &ArrayRef) -> Result<FirstRows> {
        self.scanned_lookup(self.column_position(column)?, keys, None).await
    }

    /// Like [`lookup`](Self::lookup), but needs to find only rows of `fragments`: if the column's BTREE does not answer
    /// the look-up alone, no other fragment is scanned.
    ///
    /// Errors: as `lookup`, and `FragmentNotFound`.
    pub async fn lookup_within(
        &self,
        column: &str,
        keys: &ArrayRef,
        fragments: &[u32],
    ) -> Result<FirstRows> {
        let position = self.column_position(column)?;
        if keys.len() <= DIRECT_KEYS_MAX {
            self.open_key_btree(position).await;
        }
        match self.direct_lookup(column, keys)? {
            Some(lookup) => lookup.await,
            None => self.scanned_lookup(position, keys, Some(fragments)).await,
        }
    }

    async fn scanned_lookup(
        &self,
        position: usize,
        keys: &ArrayRef,
        within: Option<&[u32]>,
    ) -> Result<FirstRows> {
        let keys = self.scalars(keys)?;
        let values: Vec<ScalarValue> = keys.iter().filter(|key| !key.is_null()).cloned().collect();
        let within = within.map(|ids| self.fragments_of(ids)).transpose()?;
        let mut found = HashMap::with_capacity(values.len());
        for group in values.chunks(KEYS_PER_QUERY_MAX) {
            let name = self.stored_schema().field(position).name();
            self.caught(self.lookup_group(name, group, within.as_deref(), &mut found)).await?;
        }
        Ok(keys.iter().map(|key| found.get(key).copied()).collect())
    }

    /// Returns Lance's descriptions of fragments.
    pub(super) fn fragments_of(&self, ids: &[u32]) -> Result<Vec<Fragment>> {
        ids.iter().map(|id| Ok(self.file_fragment(*id)?.metadata().clone())).collect()
    }

    /// Returns `keys`, parsed as values of `column`, in an array of the column's type: text as it is, integers and
    /// decimals in decimal, dates and timestamps by ISO 8601, binary in hexadecimal, 16 bytes also as a UUID.
    ///
    /// Errors: `ColumnNotFound`, `BadKey`.
    pub fn key_values(&self, column: &str, keys: &[String]) -> Result<ArrayRef> {
        let position = self.column_position(column)?;
        let data_type = self.stored_schema().field(position).data_type();
        if *data_type == DataType::Utf8 {
            return Ok(Arc::new(StringArray::from_iter_values(keys)));
        }
        let values = self.parse_keys(position, keys)?;
        if values.is_empty() {
            return Ok(new_empty_array(data_type));
        }
        ScalarValue::iter_to_array(values).map_err(|error| self.blame(error.into()))
    }

    /// Returns a future that looks up `keys` directly in the column's BTREE, without a plan. Returns `None` if the
    /// BTREE alone does not answer the look-up, if this table shows only some rows, if there are too many keys, or if
    /// the index is not open yet (`lookup` opens it).
    ///
    /// The future waits for no I/O if Lance's cache has the index's pages and the deletions of the fragments concerned
    /// are loaded; it only yields now and then. If it has to read, the tasks and connections of those reads belong to
    /// the runtime that opened the table.
    ///
    /// Errors: as `lookup`.
    pub fn direct_lookup(
        &self,
        column: &str,
        keys: &ArrayRef,
    ) -> Result<Option<BoxFuture<'static, Result<FirstRows>>>> {
        let position = self.column_position(column)?;
        if self.condition().is_some() {
            // The BTREE returns the first row of a key, which may be hidden while another one is shown.
            return Ok(None);
        }
        let index =
            self.direct_of(position).key_btree.get().filter(|_| keys.len() <= DIRECT_KEYS_MAX);
        let Some(index) = index.cloned().flatten() else { return Ok(None) };
        let values = self.scalars(keys)?;
        let table = self.clone();
        let lookup = async move {
            let found = caught(table.uri(), table.first_rows(&index, &values));
            table.on_own_runtime(found.boxed()).await
        };
        Ok(Some(lookup.boxed()))
    }

    pub(super) fn scalars(&self, keys: &ArrayRef) -> Result<Vec<ScalarValue>> {
        let scalar = |at| ScalarValue::try_from_array(keys, at);
        let scalars: datafusion::common::Result<_> = (0..keys.len()).map(scalar).collect();
        scalars.map_err(|error| self.blame(error.into()))
    }

    /// Parses `keys` as values of the column at `position`.
    fn parse_keys(&self, position: usize, keys: &[String]) -> Result<Vec<ScalarValue>> {
        let field = self.stored_schema().field(position);
        let parse = |key: &String| {
            parse_key(key, field.data_type()).map_err(|why| LakeError::BadKey {
                column: field.name().clone(),
                key: key.clone(),
                why,
            })
        };
        keys.iter().map(parse).collect()
    }

    /// Opens the column's BTREE if it alone answers look-ups and is not open yet. If that fails, the look-up goes
    /// through the scanner, which reports the fault, or succeeds because it does not need the part that is missing.
    async fn open_key_btree(&self, position: usize) {
        let direct = self.direct_of(position);
        // Boxed, since the state of this future is large and every look-up would carry it.
        let open = || {
            let open = async {
                direct.note_use();
                self.note_file_sizes().await?;
                let dataset = self.dataset();
                let Some(segment) = KeyBtree::find(dataset, position).await? else {
                    return Ok(None);
                };
                let open = KeyBtree::open(dataset, position, &segment);
                beside(open, self.read_file_ends(&segment)).await.map(Some)
            };
            self.on_own_runtime(self.caught(open).boxed())
        };
        if let Err(error) = direct.key_btree.get_or_try_init(open).await {
            let column = self.stored_schema().field(position).name();
            if !direct.key_btree_failed.swap(true, Ordering::Relaxed) {
                let (table, version) = (self.uri(), self.version());
                let note = "the index can't be opened; keys are looked up through the scanner";
                tracing::warn!(table, version, column, %error, "{note}");
            }
        }
    }

    async fn lookup_group(
        &self,
        column: &str,
        values: &[ScalarValue],
        within: Option<&[Fragment]>,
        found: &mut HashMap<ScalarValue, RowAddr>,
    ) -> lance::Result<()> {
        // All rows of a key that many rows have may not fit into memory, so only a few batches of them are kept at a
        // time: Lance reads one for each core ahead.
        let mut batches = self.key_scanner(column, values, within)?.try_into_stream().await?;
        while let Some(batch) = batches.try_next().await? {
            let keys = batch.column(0);
            for (at, addr) in addresses(&batch)?.enumerate() {
                let value = ScalarValue::try_from_array(keys, at)?;
                found.entry(value).and_modify(|first| *first = addr.min(*first)).or_insert(addr);
            }
            yield_now().await;
        }
        Ok(())
    }

    /// Returns a scan of the shown rows whose value in `column` is one of `values`, of which there is at least one. It
    /// returns these values and the rows' addresses. With `within`, only these fragments are scanned.
    pub(super) fn key_scanner(
        &self,
        column: &str,
        values: &[ScalarValue],
        within: Option<&[Fragment]>,
    ) -> lance::Result<Scanner> {
        let mut scanner = self.dataset().scan();
        if let Some(fragments) = within {
            scanner.with_fragments(fragments.to_vec());
        }
        let key = Expr::Column(Column::new_unqualified(column));
        let literals: Vec<_> =
            values.iter().map(|value| Expr::Literal(value.clone(), None)).collect();
        let has_key = match literals.as_slice() {
            [one] => key.eq(one.clone()),
            _ => key.in_list(literals, false),
        };
        scanner.filter_expr(match self.condition() {
            Some(condition) => condition.expr.clone().and(has_key),
            None => has_key,
        });
        let stored =
            self.dataset().schema().fields.iter().filter(|field| field.name == column).cloned();
        let stored = lance_core::datatypes::Schema {
            fields: stored.collect(),
            metadata: Default::default(),
        };
        scanner.project_with_schema(&stored)?.with_row_address();
        Ok(scanner)
    }
}
