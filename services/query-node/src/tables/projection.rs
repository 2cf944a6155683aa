//! The columns that a request names, with what each request for them needs.

use std::sync::{Arc, OnceLock};

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use pack::wire_schema;

use crate::error::Result;
use crate::ipc::IpcHead;

/// What the numbers beside the addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Distances; smaller is nearer.
    Distance,
    /// Scores; larger is better.
    Score,
    /// There are none.
    Nothing,
}

const MEASURES: usize = 3;

/// A row of texts, in bytes. Memory is taken for so many before rows are fetched, and for what they have afterwards.
const ROW_BYTES_LIKELY: usize = 64;

/// Some columns of a table, in an order.
#[derive(Debug)]
pub struct Projection {
    /// Their names.
    pub columns: Vec<String>,
    /// Their schema, as the table has them.
    pub schema: SchemaRef,
    /// The same, as they travel.
    pub wire_schema: SchemaRef,
    /// Bytes of a row as it travels, where each has as many.
    pub row_bytes: Option<usize>,
    /// By measure; made when first needed.
    answers: [OnceLock<AnswerForm>; MEASURES],
}

/// How rows are answered: the columns, their addresses, and the numbers of a measure.
#[derive(Debug)]
pub struct AnswerForm {
    /// Of all of these.
    pub schema: SchemaRef,
    /// How a stream of them begins.
    pub head: IpcHead,
}

impl Projection {
    /// Of columns of this schema.
    pub fn new(columns: Vec<String>, schema: SchemaRef) -> Self {
        let wire_schema = Arc::new(wire_schema(&schema));
        let row_bytes = wire_schema.fields().iter().map(|field| bytes_of(field.data_type())).sum();
        Self { columns, schema, wire_schema, row_bytes, answers: Default::default() }
    }

    /// Bytes of so many rows as they travel; of columns of any size, the least that a row is likely to have.
    pub fn bytes_of(&self, rows: usize) -> usize {
        rows.saturating_mul(self.row_bytes.unwrap_or(ROW_BYTES_LIKELY))
    }

    /// How their rows are answered with `measure`.
    pub fn answer(&self, measure: Measure) -> Result<&AnswerForm> {
        let place = &self.answers[measure as usize];
        if let Some(form) = place.get() {
            return Ok(form);
        }
        let form = AnswerForm::new(&self.schema, measure)?;
        Ok(place.get_or_init(|| form))
    }
}

/// Bytes of a value, where each has as many; a bit counts as one.
fn bytes_of(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(bytes) => usize::try_from(*bytes).ok(),
        DataType::FixedSizeList(item, len) => {
            bytes_of(item.data_type())?.checked_mul(usize::try_from(*len).ok()?)
        }
        DataType::Struct(fields) => fields.iter().map(|field| bytes_of(field.data_type())).sum(),
        other => other.primitive_width(),
    }
}

impl AnswerForm {
    fn new(schema: &Schema, measure: Measure) -> Result<Self> {
        let number = |name| Field::new(name, DataType::Float32, false);
        let number = match measure {
            Measure::Distance => Some(number("_distance")),
            Measure::Score => Some(number("_score")),
            Measure::Nothing => None,
        };
        let added = [Some(Field::new("_rowaddr", DataType::UInt64, false)), number];
        let added = added.into_iter().flatten().map(Arc::new);
        let fields = schema.fields().iter().cloned().chain(added).collect::<Vec<_>>();
        let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
        Ok(Self { head: IpcHead::of(&schema)?, schema })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_bytes(types: &[DataType]) -> Option<usize> {
        let field = |data_type: &DataType| Field::new("x", data_type.clone(), true);
        let schema = Schema::new(types.iter().map(field).collect::<Vec<_>>());
        Projection::new(Vec::new(), Arc::new(schema)).row_bytes
    }

    #[test]
    fn rows_of_fixed_width_have_a_size_and_others_none() {
        let vector = DataType::new_fixed_size_list(DataType::Float32, 768, true);
        let pair = DataType::Struct(
            vec![Field::new("a", DataType::Int16, true), Field::new("b", DataType::Boolean, true)]
                .into(),
        );
        assert_eq!(row_bytes(&[DataType::Int32, vector.clone(), pair]), Some(4 + 3072 + 3));
        assert_eq!(row_bytes(&[DataType::FixedSizeBinary(5), DataType::Null]), None);
        assert_eq!(row_bytes(&[vector, DataType::Utf8]), None);
        assert_eq!(row_bytes(&[]), Some(0));
    }

    #[test]
    fn each_measure_has_its_columns() {
        let schema = Schema::new(vec![Field::new("x", DataType::Int32, true)]);
        let projection = Projection::new(vec!["x".into()], Arc::new(schema));
        let names = |measure| {
            let form = projection.answer(measure).unwrap();
            form.schema.fields().iter().map(|it| it.name().clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(Measure::Nothing), ["x", "_rowaddr"]);
        assert_eq!(names(Measure::Score), ["x", "_rowaddr", "_score"]);
        assert_eq!(names(Measure::Distance), ["x", "_rowaddr", "_distance"]);
    }
}
