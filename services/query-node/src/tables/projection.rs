//! The columns that a request names, with their schemas and encoded stream heads.

use std::sync::{Arc, OnceLock};

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use pack::wire_schema;

use crate::error::Result;
use crate::ipc::IpcHead;

/// The name of the column with the rows' addresses, which an answer may have in addition to the table's columns.
pub const ROW_ADDRESS: &str = "_rowaddr";
/// The name of the column with [`Measure::Distance`].
pub const DISTANCE: &str = "_distance";
/// The name of the column with [`Measure::Score`].
pub const SCORE: &str = "_score";
/// The name of the column with [`Measure::Relevance`], as LanceDB calls it. If the table itself has a column of this
/// name, as stored results of LanceDB do, the name stands for that column. The names above always stand for added
/// columns.
pub const RELEVANCE: &str = "_relevance_score";

/// The meaning of the numbers that answers have beside row addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Distances; smaller is nearer.
    Distance,
    /// Scores; larger is better.
    Score,
    /// The relevance by two rankings; larger is better.
    Relevance,
    /// There are no numbers.
    Nothing,
}

impl Measure {
    /// Returns the name of the column that has the numbers.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Distance => Some(DISTANCE),
            Self::Score => Some(SCORE),
            Self::Relevance => Some(RELEVANCE),
            Self::Nothing => None,
        }
    }
}

/// The number of measures, of which `Nothing` is the last.
const MEASURES: usize = Measure::Nothing as usize + 1;

/// Assumed size in bytes of a row without a fixed size. Memory for it is reserved before rows are fetched; afterwards
/// their real size counts.
pub(super) const ROW_BYTES_LIKELY: usize = 64;

/// Some columns of a table, in a given order.
#[derive(Debug)]
pub struct Projection {
    /// The columns' names.
    pub columns: Vec<String>,
    /// The schema with the table's types.
    pub schema: SchemaRef,
    /// The schema with wire types: those in which I/O nodes send the columns, without dictionaries and views.
    pub wire_schema: SchemaRef,
    /// Size in bytes of a row with wire types, if all rows have the same size.
    pub row_bytes: Option<usize>,
    /// The forms of answers, by measure; made when first needed.
    answers: [OnceLock<AnswerForm>; MEASURES],
}

/// The form of an answer: the columns, row addresses, and the numbers of a measure.
#[derive(Debug)]
pub struct AnswerForm {
    /// The schema of the answer.
    pub schema: SchemaRef,
    /// The head of an IPC stream with this schema.
    pub head: IpcHead,
}

impl Projection {
    /// Creates the projection on `columns`, whose schema is `schema`.
    pub fn new(columns: Vec<String>, schema: SchemaRef) -> Self {
        let wire_schema = Arc::new(wire_schema(&schema));
        let row_bytes = row_bytes(&wire_schema);
        Self { columns, schema, wire_schema, row_bytes, answers: Default::default() }
    }

    /// Returns the size of `rows` rows with wire types, in bytes. For rows without a fixed size it is an estimate.
    pub fn bytes_of(&self, rows: usize) -> usize {
        bytes_of_rows(self.row_bytes, rows)
    }

    /// Returns the form of answers with `measure`.
    pub fn answer(&self, measure: Measure) -> Result<&AnswerForm> {
        let cell = &self.answers[measure as usize];
        if let Some(form) = cell.get() {
            return Ok(form);
        }
        let form = AnswerForm::new(&self.schema, measure)?;
        Ok(cell.get_or_init(|| form))
    }
}

/// Returns the size in bytes of `rows` rows of `row_bytes` bytes each; an estimate if rows have no fixed size.
pub fn bytes_of_rows(row_bytes: Option<usize>, rows: usize) -> usize {
    rows.saturating_mul(row_bytes.unwrap_or(ROW_BYTES_LIKELY))
}

/// Returns the size of a row with these wire types in bytes, if all rows have the same size.
pub fn row_bytes(wire_schema: &Schema) -> Option<usize> {
    wire_schema.fields().iter().map(|field| bytes_of(field.data_type())).sum()
}

/// Returns the size of a value in bytes if all values have the same size. A boolean counts as one byte.
pub(super) fn bytes_of(data_type: &DataType) -> Option<usize> {
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
        let number = measure.name().map(|name| Field::new(name, DataType::Float32, false));
        let added = [Some(Field::new(ROW_ADDRESS, DataType::UInt64, false)), number];
        let added = added.into_iter().flatten().map(Arc::new);
        let fields = schema.fields().iter().cloned().chain(added).collect::<Vec<_>>();
        let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
        Ok(Self { head: IpcHead::of(&schema)?, schema })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of_row(types: &[DataType]) -> Option<usize> {
        let field = |data_type: &DataType| Field::new("x", data_type.clone(), true);
        let schema = Schema::new(types.iter().map(field).collect::<Vec<_>>());
        Projection::new(Vec::new(), Arc::new(schema)).row_bytes
    }

    #[test]
    fn only_rows_of_fixed_width_have_a_size() {
        let vector = DataType::new_fixed_size_list(DataType::Float32, 768, true);
        let pair = DataType::Struct(
            vec![Field::new("a", DataType::Int16, true), Field::new("b", DataType::Boolean, true)]
                .into(),
        );
        assert_eq!(bytes_of_row(&[DataType::Int32, vector.clone(), pair]), Some(4 + 3072 + 3));
        assert_eq!(bytes_of_row(&[DataType::FixedSizeBinary(5), DataType::Null]), None);
        assert_eq!(bytes_of_row(&[vector, DataType::Utf8]), None);
        assert_eq!(bytes_of_row(&[]), Some(0));
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
        assert_eq!(names(Measure::Relevance), ["x", "_rowaddr", "_relevance_score"]);
        assert_eq!(names(Measure::Distance), ["x", "_rowaddr", "_distance"]);
    }
}
