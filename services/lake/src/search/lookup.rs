//! Rows by key.

use std::collections::HashMap;

use address::RowAddr;
use datafusion::common::Column;
use datafusion::logical_expr::Expr;
use datafusion::scalar::ScalarValue;

use super::hit::addresses;
use super::key::parse_key;
use crate::error::{LakeError, Result};
use crate::table::Table;

/// Keys that one query asks for; longer lists become several queries.
const KEYS_PER_QUERY_MAX: usize = 4096;

impl Table {
    /// For each key the address of its row (of the first, by address, if several rows have it), or
    /// `None` if no row has it. Keys are written as text and read by the column's type: strings,
    /// integers, binary in hexadecimal, 16 bytes also as a UUID. `column` defaults to
    /// [`key_column`](Self::key_column). A BTREE index on the column is used if there is one;
    /// otherwise the column is scanned.
    ///
    /// Errors: `KeyColumnUnknown`, `ColumnNotFound`, `BadKey`, and those of the store.
    pub async fn lookup(
        &self,
        column: Option<&str>,
        keys: &[String],
    ) -> Result<Vec<Option<RowAddr>>> {
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
        let values = keys.iter().map(parse).collect::<Result<Vec<_>>>()?;
        let mut found = HashMap::with_capacity(values.len());
        for group in values.chunks(KEYS_PER_QUERY_MAX) {
            self.lookup_group(&column, group, &mut found)
                .await
                .map_err(|error| self.blame(error))?;
        }
        Ok(values.iter().map(|value| found.get(value).copied()).collect())
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
