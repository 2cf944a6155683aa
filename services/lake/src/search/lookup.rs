//! Rows by key.

use std::collections::HashMap;

use address::RowAddr;
use datafusion::common::Column;
use datafusion::logical_expr::Expr;
use datafusion::scalar::ScalarValue;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::hit::addresses;
use super::key::parse_key;
use super::keys::Keys;
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
        match self.direct_lookup(column, keys).await? {
            Some(lookup) => lookup.await,
            None => self.planned_lookup(column, keys).await,
        }
    }

    /// The same through Lance's scanner, whatever the index: it plans each look-up anew, and reads the
    /// keys of the rows that it finds.
    ///
    /// Errors: as `lookup`.
    pub async fn planned_lookup(&self, column: Option<&str>, keys: &[String]) -> Result<Rows> {
        let (column, values) = self.checked_keys(column, keys)?;
        let mut found = HashMap::with_capacity(values.len());
        for group in values.chunks(KEYS_PER_QUERY_MAX) {
            self.lookup_group(&column, group, &mut found)
                .await
                .map_err(|error| self.blame(error))?;
        }
        Ok(values.iter().map(|value| found.get(value).copied()).collect())
    }

    /// The same straight through the column's BTREE, without planning, to be awaited; `None` where a
    /// look-up needs more than it, or has so many keys that a plan for all of them is cheaper.
    ///
    /// It waits for nothing while the pages of the index that it needs are in Lance's cache, but lets
    /// others have a turn now and then. What it reads otherwise belongs to the runtime that opened the
    /// table.
    ///
    /// Errors: as `lookup`.
    pub async fn direct_lookup(
        &self,
        column: Option<&str>,
        keys: &[String],
    ) -> Result<Option<BoxFuture<'static, Result<Rows>>>> {
        let (column, values) = self.checked_keys(column, keys)?;
        let index = self.keys(&column).await?.filter(|index| values.len() <= index.keys_max());
        let Some(index) = index.cloned() else { return Ok(None) };
        let table = self.clone();
        let lookup = async move {
            let found = index.first_rows(&table, &values);
            table.within(found.boxed()).await
        };
        Ok(Some(lookup.boxed()))
    }

    /// The column, and the keys as it has them.
    fn checked_keys(
        &self,
        column: Option<&str>,
        keys: &[String],
    ) -> Result<(String, Vec<ScalarValue>)> {
        let column = match column.or_else(|| self.key_column()) {
            Some(column) => column.to_owned(),
            None => return Err(LakeError::KeyColumnUnknown { uri: self.uri().to_owned() }),
        };
        let data_type = self.schema().fields()[self.column_position(&column)?].data_type().clone();
        let parse = |key: &String| {
            parse_key(key, &data_type).map_err(|why| LakeError::BadKey {
                column: column.clone(),
                key: key.clone(),
                why,
            })
        };
        let values = keys.iter().map(parse).collect::<Result<_>>()?;
        Ok((column, values))
    }

    /// The BTREE on `column`, if it is all that a look-up needs; opened at the first call.
    async fn keys(&self, column: &str) -> Result<Option<&Keys>> {
        let position = self.column_position(column)?;
        // Boxed, since its state is large and every look-up would carry it.
        let open = async {
            let indexes = self.indexes().await?;
            match indexes.iter().find(|it| it.is_btree() && it.columns == [column]) {
                Some(index) => {
                    Keys::open(self, column, &index.name).await.map_err(|error| self.blame(error))
                }
                None => Ok(None),
            }
        };
        let cell = &self.direct_of(position).keys;
        let opened = cell.get_or_try_init(|| self.within(open.boxed())).await?;
        Ok(opened.as_ref())
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
