//! Filters in the form in which I/O nodes evaluate them.

use arrow::datatypes::{DataType, Schema};
use bytes::Bytes;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Operator, TryCast};
use predicate::{Evaluator, Predicate, Step, can_compare};

use crate::threads::deep_stack::on_deep_stack;

/// The maximum width in bytes of values of fixed width in a predicate's columns. Wider columns have packs of their own
/// (`WIDE_BYTES_MIN` in `services/pack/src/plan.rs`), and each would cost a read more for each row.
const WIDTH_MAX: i32 = 255;

/// Returns the predicate that is true for the same rows as `expr`, which Lance's planner has optimised. Returns `None`
/// if I/O nodes can't evaluate `expr`, for example because of a function, a cast, a comparison of two columns, a nested
/// column or a type without an order; if it uses a wide column ([`WIDTH_MAX`]), a blob column or a column of an
/// extension type; or if the predicate would exceed its bounds.
pub fn predicate_of(expr: &Expr, schema: &Schema) -> Option<Predicate> {
    let mut builder =
        PredicateBuilder { schema, columns: Vec::new(), types: Vec::new(), steps: Vec::new() };
    on_deep_stack(|| builder.push(expr))?;
    let PredicateBuilder { columns, types, steps, .. } = builder;
    Evaluator::new(&steps, &types).ok()?;
    Some(Predicate { columns, steps })
}

/// Collects the columns and steps of a predicate.
struct PredicateBuilder<'a> {
    schema: &'a Schema,
    columns: Vec<String>,
    /// The types of `columns`; for a dictionary, the type of its values, because I/O nodes store plain values.
    types: Vec<&'a DataType>,
    steps: Vec<Step>,
}

impl PredicateBuilder<'_> {
    /// Adds the steps that push the result of `expr` onto the evaluator's stack. Returns `None` if there are none.
    fn push(&mut self, expr: &Expr) -> Option<()> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                self.push(left)?;
                self.push(right)?;
                self.steps.push(Step::And);
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                self.push(left)?;
                self.push(right)?;
                self.steps.push(Step::Or);
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => self.compare(left, *op, right)?,
            Expr::Not(inner) => {
                self.push(inner)?;
                self.steps.push(Step::Not);
            }
            Expr::IsNull(inner) => {
                let column = self.column(inner)?;
                self.steps.push(Step::IsNull { column });
            }
            Expr::IsNotNull(inner) => {
                let column = self.column(inner)?;
                self.steps.extend([Step::IsNull { column }, Step::Not]);
            }
            Expr::InList(InList { expr, list, negated }) => {
                let column = self.column(expr)?;
                let values = list.iter().map(|value| self.value(column, value));
                let values = values.collect::<Option<Vec<_>>>()?;
                self.steps.push(Step::In { column, values });
                self.steps.extend(negated.then_some(Step::Not));
            }
            Expr::Column(_) => {
                let column = self.column(expr)?;
                let is_true = vec![Bytes::from_static(&[1])];
                (*self.types[column] == DataType::Boolean).then_some(())?;
                self.steps.push(Step::In { column, values: is_true });
            }
            _ => return None,
        }
        Some(())
    }

    fn compare(&mut self, left: &Expr, op: Operator, right: &Expr) -> Option<()> {
        let column = self.column(left)?;
        let value = self.value(column, right)?;
        let (step, is_negated) = match op {
            Operator::Eq => (Step::In { column, values: vec![value] }, false),
            Operator::NotEq => (Step::In { column, values: vec![value] }, true),
            Operator::Lt => (Step::Less { column, value }, false),
            Operator::GtEq => (Step::Less { column, value }, true),
            Operator::Gt => (Step::Greater { column, value }, false),
            Operator::LtEq => (Step::Greater { column, value }, true),
            _ => return None,
        };
        self.steps.push(step);
        self.steps.extend(is_negated.then_some(Step::Not));
        Some(())
    }

    /// Returns the position in `columns` of the column that `expr` is, and adds the column if it is new. Returns `None`
    /// if `expr` is no column that I/O nodes can compare.
    fn column(&mut self, expr: &Expr) -> Option<usize> {
        let (name, cast) = match expr {
            Expr::Column(column) => (&column.name, None),
            Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                match expr.as_ref() {
                    Expr::Column(column) => (&column.name, Some(field.data_type())),
                    _ => return None,
                }
            }
            _ => return None,
        };
        let (_, field) = self.schema.fields().find(name)?;
        let (of, is_dictionary) = match field.data_type() {
            DataType::Dictionary(_, values) => (values.as_ref(), true),
            other => (other, false),
        };
        // A cast may change the values that are compared, except the cast of a dictionary to the type of its values.
        let is_plain = cast.is_none_or(|cast| is_dictionary && cast == of);
        let is_narrow = !matches!(of, DataType::FixedSizeBinary(width) if *width > WIDTH_MAX);
        // Columns of extension types and blobs may be stored in another form.
        let is_itself = !field
            .metadata()
            .keys()
            .any(|key| key == "ARROW:extension:name" || key.starts_with("lance-encoding:blob"));
        (is_plain && is_narrow && is_itself && can_compare(of)).then_some(())?;
        if let Some(known) = self.columns.iter().position(|known| known == name) {
            return Some(known);
        }
        self.columns.push(name.clone());
        self.types.push(of);
        Some(self.columns.len() - 1)
    }

    /// Returns the bytes of the literal `expr`, which is compared with `column`.
    fn value(&self, column: usize, expr: &Expr) -> Option<Bytes> {
        let Expr::Literal(value, _) = expr else { return None };
        bytes_of(value, self.types[column])
    }
}

/// Returns the bytes of a literal as values of type `of` have them, or `None` if it is null or of another type.
fn bytes_of(value: &ScalarValue, of: &DataType) -> Option<Bytes> {
    use ScalarValue::{
        Binary, BinaryView, Boolean, Dictionary, FixedSizeBinary, LargeBinary, LargeUtf8, Utf8,
        Utf8View,
    };
    match (value, of) {
        (Dictionary(_, value), _) => bytes_of(value, of),
        (Utf8(text) | LargeUtf8(text) | Utf8View(text), DataType::Utf8 | DataType::LargeUtf8) => {
            Some(Bytes::copy_from_slice(text.as_ref()?.as_bytes()))
        }
        (
            Binary(bytes) | LargeBinary(bytes) | BinaryView(bytes),
            DataType::Binary | DataType::LargeBinary,
        ) => Some(Bytes::copy_from_slice(bytes.as_ref()?)),
        (FixedSizeBinary(_, bytes), DataType::FixedSizeBinary(_)) if value.data_type() == *of => {
            Some(Bytes::copy_from_slice(bytes.as_ref()?))
        }
        (Boolean(value), DataType::Boolean) => Some(Bytes::copy_from_slice(&[u8::from((*value)?)])),
        (value, of) if of.is_primitive() && value.data_type() == *of && !value.is_null() => {
            let array = value.to_array().ok()?;
            let (data, width) = (array.to_data(), of.primitive_width()?);
            let buffer = data.buffers().first()?.as_slice();
            let start = data.offset() * width;
            Some(Bytes::copy_from_slice(buffer.get(start..start + width)?))
        }
        _ => None,
    }
}
