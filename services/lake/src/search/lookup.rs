//! Rows by key.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use address::RowAddr;
use datafusion::common::Column;
use datafusion::logical_expr::Expr;
use datafusion::scalar::ScalarValue;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::hit::addresses;
use super::key::parse_key;
use super::keys::{KEYS_MAX, Keys};
use crate::caught::caught;
use crate::error::{LakeError, Result};
use crate::table::Table;

/// Keys that one query asks for; longer lists become several queries.
const KEYS_PER_QUERY_MAX: usize = 4096;

/// The row of each key, if it has one.
type Rows = Vec<Option<RowAddr>>;

impl Table {
    /// For each key the address of its row (of the first, by address, if several rows have it), or
    /// `None` if no row has it. Keys are written as text and read by the column's type: strings,
    /// integers, binary in hexadecimal, 16 bytes also as a UUID. `column` defaults to
    /// [`key_column`](Self::key_column). A BTREE index on the column is used if there is one;
    /// otherwise the column is scanned.
    ///
    /// Errors: `KeyColumnUnknown`, `ColumnNotFound`, `BadKey`, and those of the store.
    pub async fn lookup(&self, column: Option<&str>, keys: &[String]) -> Result<Rows> {
        if keys.len() <= KEYS_MAX {
            self.open_keys(self.key_position(column)?).await;
        }
        match self.direct_lookup(column, keys)? {
            Some(lookup) => lookup.await,
            None => self.planned_lookup(column, keys).await,
        }
    }

    /// The same through Lance's scanner, whatever the index: it plans each look-up anew, and reads the
    /// keys of the rows that it finds.
    ///
    /// Errors: as `lookup`.
    pub async fn planned_lookup(&self, column: Option<&str>, keys: &[String]) -> Result<Rows> {
        let position = self.key_position(column)?;
        let values = self.parsed(position, keys)?;
        let mut found = HashMap::with_capacity(values.len());
        for group in values.chunks(KEYS_PER_QUERY_MAX) {
            let name = self.schema().field(position).name();
            self.caught(self.lookup_group(name, group, &mut found)).await?;
        }
        Ok(values.iter().map(|value| found.get(value).copied()).collect())
    }

    /// The same straight through the column's BTREE, without planning, to be awaited; `None` where a
    /// look-up needs more than it, has too many keys, or is the first in the column: `lookup` opens the index.
    ///
    /// It waits for nothing while the pages of the index that it needs are in Lance's cache and the deletions of the
    /// fragments concerned are loaded, but lets others have a turn now and then. What it reads otherwise belongs to the
    /// runtime that opened the table.
    ///
    /// Errors: as `lookup`.
    pub fn direct_lookup(
        &self,
        column: Option<&str>,
        keys: &[String],
    ) -> Result<Option<BoxFuture<'static, Result<Rows>>>> {
        let position = self.key_position(column)?;
        let index = self.direct_of(position).keys.get().filter(|_| keys.len() <= KEYS_MAX);
        let Some(index) = index.cloned().flatten() else { return Ok(None) };
        let values = self.parsed(position, keys)?;
        let table = self.clone();
        let lookup = async move {
            let found = caught(table.uri(), index.first_rows(&table, &values));
            table.on_own_runtime(found.boxed()).await
        };
        Ok(Some(lookup.boxed()))
    }

    /// Where the column of the keys stands in the schema.
    fn key_position(&self, column: Option<&str>) -> Result<usize> {
        match column.or_else(|| self.key_column()) {
            Some(column) => self.column_position(column),
            None => Err(LakeError::KeyColumnUnknown { uri: self.uri().to_owned() }),
        }
    }

    /// The keys, as the column has them.
    fn parsed(&self, position: usize, keys: &[String]) -> Result<Vec<ScalarValue>> {
        let field = self.schema().field(position);
        let parse = |key: &String| {
            parse_key(key, field.data_type()).map_err(|why| LakeError::BadKey {
                column: field.name().clone(),
                key: key.clone(),
                why,
            })
        };
        keys.iter().map(parse).collect()
    }

    /// Opens the column's BTREE, if it is all that a look-up needs and wasn't opened before. Where it can't be, the
    /// scanner is left to say what is wrong, which may get on without what was missed here.
    async fn open_keys(&self, position: usize) {
        let direct = self.direct_of(position);
        // Boxed, since its state is large and every look-up would carry it.
        let open = || self.on_own_runtime(self.caught(Keys::open(self, position)).boxed());
        if let Err(error) = direct.keys.get_or_try_init(open).await {
            let column = self.schema().field(position).name();
            if !direct.keys_failed.swap(true, Ordering::Relaxed) {
                let (table, version) = (self.uri(), self.version());
                let note = "the index can't be opened; keys are looked up the long way";
                tracing::warn!(table, version, column, %error, "{note}");
            }
        }
    }

    async fn lookup_group(
        &self,
        column: &str,
        values: &[ScalarValue],
        found: &mut HashMap<ScalarValue, RowAddr>,
    ) -> lance::Result<()> {
        let mut scanner = self.dataset().scan();
        let key = Expr::Column(Column::new_unqualified(column));
        let literals: Vec<_> =
            values.iter().map(|value| Expr::Literal(value.clone(), None)).collect();
        match literals.as_slice() {
            [] => return Ok(()),
            [one] => scanner.filter_expr(key.eq(one.clone())),
            _ => scanner.filter_expr(key.in_list(literals, false)),
        };
        let stored =
            self.dataset().schema().fields.iter().filter(|field| field.name == column).cloned();
        let stored = lance_core::datatypes::Schema {
            fields: stored.collect(),
            metadata: Default::default(),
        };
        scanner.project_with_schema(&stored)?.with_row_address();
        let batch = scanner.try_into_batch().await?;
        let keys = batch.column(0);
        for (at, addr) in addresses(&batch)?.enumerate() {
            let value = ScalarValue::try_from_array(keys, at)?;
            found.entry(value).and_modify(|first| *first = addr.min(*first)).or_insert(addr);
        }
        Ok(())
    }
}
