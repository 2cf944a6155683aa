//! The results, by the names of their queries.

use std::fmt::Debug;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::TryStreamExt;
use lancedb::Error;
use lancedb::arrow::arrow_array::RecordBatch;
use lancedb::arrow::arrow_ipc::writer::StreamWriter;
use lancedb::arrow::arrow_schema::Schema;
use lancedb::query::ExecutableQuery;
use serde::Serialize;
use serde_json::{Map, Value, json};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Default)]
pub struct Found(Map<String, Value>);

impl Found {
    /// Notes a value.
    pub fn value(&mut self, name: &str, value: impl Serialize) -> Result<()> {
        let former = self.0.insert(name.to_owned(), serde_json::to_value(value)?);
        assert!(former.is_none(), "{name} is found twice");
        Ok(())
    }

    /// Runs a query, and notes its rows.
    pub async fn rows(&mut self, name: &str, query: impl ExecutableQuery) -> Result<()> {
        let found = query.execute().await.map_err(|error| format!("{name}: {error}"))?;
        let schema = found.schema();
        let batches: Vec<_> =
            found.try_collect().await.map_err(|error| format!("{name}: {error}"))?;
        self.value(name, encoded(&schema, &batches)?)
    }

    /// Notes a schema, as that of a table without rows.
    pub fn schema(&mut self, name: &str, schema: &Schema) -> Result<()> {
        self.value(name, encoded(schema, &[])?)
    }

    /// Notes the kind of the error with which a call has to fail, its HTTP status if it has one, and its text.
    pub fn error<T: Debug>(&mut self, name: &str, outcome: lancedb::Result<T>) -> Result<()> {
        let error = match outcome {
            Ok(answer) => {
                return Err(format!("{name} did not fail, but answered {answer:?}").into());
            }
            Err(error) => error,
        };
        let (kind, status) = match &error {
            Error::Http { status_code, .. } => ("Http", *status_code),
            Error::Retry { status_code, .. } => ("Retry", *status_code),
            Error::TableNotFound { .. } => ("TableNotFound", None),
            Error::IndexNotFound { .. } => ("IndexNotFound", None),
            Error::InvalidInput { .. } => ("InvalidInput", None),
            Error::NotSupported { .. } => ("NotSupported", None),
            _ => ("another", None),
        };
        let status = status.map(|it| it.as_u16());
        self.value(name, json!({"kind": kind, "status": status, "text": error.to_string()}))
    }

    pub fn into_json(self) -> Value {
        Value::Object(self.0)
    }
}

/// Returns rows as an Arrow stream in base64. A stream, unlike a file, may replace the dictionary of a column.
fn encoded(schema: &Schema, batches: &[RecordBatch]) -> Result<String> {
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    for batch in batches {
        writer.write(batch)?;
    }
    Ok(BASE64_STANDARD.encode(writer.into_inner()?))
}
