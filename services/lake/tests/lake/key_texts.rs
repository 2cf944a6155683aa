//! Look-ups of keys given as text.

use address::RowAddr;
use futures::future::BoxFuture;
use lake::{LakeError, Table};

type Found = Result<Vec<Option<RowAddr>>, LakeError>;

/// Looks up keys given as text, in a column or else in the table's own key column.
pub trait KeyTexts {
    async fn lookup_texts(&self, column: Option<&str>, keys: &[String]) -> Found;

    async fn planned_lookup_texts(&self, column: Option<&str>, keys: &[String]) -> Found;

    fn direct_lookup_texts(
        &self,
        column: Option<&str>,
        keys: &[String],
    ) -> Result<Option<BoxFuture<'static, Found>>, LakeError>;
}

fn column_of<'a>(table: &'a Table, column: Option<&'a str>) -> &'a str {
    column.or(table.key_column()).expect("the table has a key column")
}

impl KeyTexts for Table {
    async fn lookup_texts(&self, column: Option<&str>, keys: &[String]) -> Found {
        let column = column_of(self, column);
        self.lookup(column, &self.key_values(column, keys)?).await
    }

    async fn planned_lookup_texts(&self, column: Option<&str>, keys: &[String]) -> Found {
        let column = column_of(self, column);
        self.planned_lookup(column, &self.key_values(column, keys)?).await
    }

    fn direct_lookup_texts(
        &self,
        column: Option<&str>,
        keys: &[String],
    ) -> Result<Option<BoxFuture<'static, Found>>, LakeError> {
        let column = column_of(self, column);
        self.direct_lookup(column, &self.key_values(column, keys)?)
    }
}
