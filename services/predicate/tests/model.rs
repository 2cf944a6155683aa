//! Compares evaluation with a plain model, for types of every kind that can be compared.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float16Type, Float32Type, Float64Type, Int8Type, Int64Type,
    TimestampMicrosecondType, UInt16Type,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, LargeStringArray, PrimitiveArray, StringArray,
};
use arrow_schema::DataType;
use bytes::Bytes;
use half::f16;
use predicate::{Evaluator, Step};
use proptest::prelude::*;
use proptest::sample::select;

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
}

impl Value {
    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            _ => unreachable!("values of one column have one type"),
        }
    }
}

/// The type of a column. Its methods make arrays and bytes of values.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Int8,
    UInt16,
    Int64,
    Date,
    Timestamp,
    Decimal,
    F16,
    F32,
    F64,
    Bool,
    Text,
    LargeText,
    Binary,
    Fixed,
}

const KINDS: [Kind; 14] = {
    use Kind::*;
    [
        Int8, UInt16, Int64, Date, Timestamp, Decimal, F16, F32, F64, Bool, Text, LargeText,
        Binary, Fixed,
    ]
};

impl Kind {
    fn value(self) -> BoxedStrategy<Value> {
        match self {
            Self::UInt16 => (0..5i64).prop_map(Value::Int).boxed(),
            Self::Int8 | Self::Int64 | Self::Date | Self::Timestamp | Self::Decimal => {
                (-3..4i64).prop_map(Value::Int).boxed()
            }
            Self::F16 | Self::F32 | Self::F64 => {
                let odd =
                    [0.0, -0.0, 1.5, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN];
                select(odd.to_vec()).prop_map(Value::Float).boxed()
            }
            Self::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
            Self::Text | Self::LargeText | Self::Binary => {
                select(vec!["", "a", "A", "ab", "b", "ä", "z\0", "\u{10ffff}"])
                    .prop_map(|text| Value::Text(text.into()))
                    .boxed()
            }
            Self::Fixed => {
                select(vec!["aa", "ab", "ba", "\0\0"]).prop_map(|it| Value::Text(it.into())).boxed()
            }
        }
    }

    fn bytes(self, value: &Value) -> Bytes {
        let bytes = match (self, value) {
            (Self::Int8, Value::Int(x)) => vec![*x as i8 as u8],
            (Self::UInt16, Value::Int(x)) => (*x as u16).to_le_bytes().to_vec(),
            (Self::Date, Value::Int(x)) => (*x as i32).to_le_bytes().to_vec(),
            (Self::Decimal, Value::Int(x)) => i128::from(*x).to_le_bytes().to_vec(),
            (_, Value::Int(x)) => x.to_le_bytes().to_vec(),
            (Self::F16, Value::Float(x)) => f16::from_f64(*x).to_le_bytes().to_vec(),
            (Self::F32, Value::Float(x)) => (*x as f32).to_le_bytes().to_vec(),
            (_, Value::Float(x)) => x.to_le_bytes().to_vec(),
            (_, Value::Bool(x)) => vec![u8::from(*x)],
            (_, Value::Text(x)) => x.as_bytes().to_vec(),
        };
        bytes.into()
    }

    fn array(self, values: &[Option<Value>]) -> ArrayRef {
        let ints = || {
            values.iter().map(|value| {
                value.as_ref().map(|it| match it {
                    Value::Int(x) => *x,
                    _ => unreachable!("an integer"),
                })
            })
        };
        let floats = || {
            values.iter().map(|value| {
                value.as_ref().map(|it| match it {
                    Value::Float(x) => *x,
                    _ => unreachable!("a float"),
                })
            })
        };
        let texts = || {
            values.iter().map(|value| {
                value.as_ref().map(|it| match it {
                    Value::Text(x) => x.as_str(),
                    _ => unreachable!("a text"),
                })
            })
        };
        match self {
            Self::Int8 => {
                Arc::new(PrimitiveArray::<Int8Type>::from_iter(ints().map(|x| x.map(|x| x as i8))))
            }
            Self::UInt16 => Arc::new(PrimitiveArray::<UInt16Type>::from_iter(
                ints().map(|x| x.map(|x| x as u16)),
            )),
            Self::Int64 => Arc::new(PrimitiveArray::<Int64Type>::from_iter(ints())),
            Self::Date => Arc::new(PrimitiveArray::<Date32Type>::from_iter(
                ints().map(|x| x.map(|x| x as i32)),
            )),
            Self::Timestamp => {
                let array = PrimitiveArray::<TimestampMicrosecondType>::from_iter(ints());
                Arc::new(array.with_timezone("+02:00"))
            }
            Self::Decimal => {
                let array =
                    PrimitiveArray::<Decimal128Type>::from_iter(ints().map(|x| x.map(i128::from)));
                Arc::new(array.with_precision_and_scale(10, 2).unwrap())
            }
            Self::F16 => Arc::new(PrimitiveArray::<Float16Type>::from_iter(
                floats().map(|x| x.map(f16::from_f64)),
            )),
            Self::F32 => Arc::new(PrimitiveArray::<Float32Type>::from_iter(
                floats().map(|x| x.map(|x| x as f32)),
            )),
            Self::F64 => Arc::new(PrimitiveArray::<Float64Type>::from_iter(floats())),
            Self::Bool => Arc::new(BooleanArray::from_iter(
                values.iter().map(|value| value.as_ref().map(|it| *it == Value::Bool(true))),
            )),
            Self::Text => Arc::new(StringArray::from_iter(texts())),
            Self::LargeText => Arc::new(LargeStringArray::from_iter(texts())),
            Self::Binary => Arc::new(BinaryArray::from_iter(texts().map(|x| x.map(str::as_bytes)))),
            Self::Fixed => {
                let mut builder = FixedSizeBinaryBuilder::new(2);
                for text in texts() {
                    match text {
                        Some(text) => builder.append_value(text).unwrap(),
                        None => builder.append_null(),
                    }
                }
                Arc::new(builder.finish())
            }
        }
    }
}

/// A condition as a tree.
#[derive(Clone, Debug)]
enum Tree {
    In(usize, Vec<Value>),
    Less(usize, Value),
    Greater(usize, Value),
    IsNull(usize),
    Not(Box<Tree>),
    And(Box<Tree>, Box<Tree>),
    Or(Box<Tree>, Box<Tree>),
}

impl Tree {
    fn any(kinds: [Kind; 2]) -> impl Strategy<Value = Self> {
        let leaf = (0..2usize).prop_flat_map(move |column| {
            let value = kinds[column].value();
            prop_oneof![
                prop::collection::vec(value.clone(), 1..5).prop_map(move |it| Self::In(column, it)),
                value.clone().prop_map(move |it| Self::Less(column, it)),
                value.prop_map(move |it| Self::Greater(column, it)),
                Just(Self::IsNull(column)),
            ]
        });
        leaf.prop_recursive(4, 12, 2, |inner| {
            let two = (inner.clone().prop_map(Box::new), inner.clone().prop_map(Box::new));
            prop_oneof![
                inner.prop_map(|it| Self::Not(it.into())),
                two.clone().prop_map(|(a, b)| Self::And(a, b)),
                two.prop_map(|(a, b)| Self::Or(a, b)),
            ]
        })
    }

    fn steps(&self, kinds: [Kind; 2], steps: &mut Vec<Step>) {
        let bytes = |column: usize, value: &Value| kinds[column].bytes(value);
        let step = match self {
            Self::In(column, values) => {
                let values = values.iter().map(|value| bytes(*column, value)).collect();
                Step::In { column: *column, values }
            }
            Self::Less(column, value) => {
                Step::Less { column: *column, value: bytes(*column, value) }
            }
            Self::Greater(column, value) => {
                Step::Greater { column: *column, value: bytes(*column, value) }
            }
            Self::IsNull(column) => Step::IsNull { column: *column },
            Self::Not(inner) => {
                inner.steps(kinds, steps);
                Step::Not
            }
            Self::And(a, b) | Self::Or(a, b) => {
                a.steps(kinds, steps);
                b.steps(kinds, steps);
                if matches!(self, Self::And(..)) { Step::And } else { Step::Or }
            }
        };
        steps.push(step);
    }

    /// Returns the condition's result for a row; `None` for null.
    fn of(&self, row: &[Option<Value>; 2]) -> Option<bool> {
        match self {
            Self::In(column, values) => {
                let own = row[*column].as_ref()?;
                Some(values.iter().any(|value| own.order(value).is_eq()))
            }
            Self::Less(column, value) => Some(row[*column].as_ref()?.order(value).is_lt()),
            Self::Greater(column, value) => Some(row[*column].as_ref()?.order(value).is_gt()),
            Self::IsNull(column) => Some(row[*column].is_none()),
            Self::Not(inner) => inner.of(row).map(|it| !it),
            Self::And(a, b) => match (a.of(row), b.of(row)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Self::Or(a, b) => match (a.of(row), b.of(row)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
        }
    }
}

type Rows = Vec<[Option<Value>; 2]>;

fn case() -> impl Strategy<Value = ([Kind; 2], Tree, Rows)> {
    [select(KINDS.to_vec()), select(KINDS.to_vec())].prop_flat_map(|kinds| {
        let value = |kind: Kind| prop::option::weighted(0.8, kind.value());
        let rows = prop::collection::vec([value(kinds[0]), value(kinds[1])], 0..20);
        (Just(kinds), Tree::any(kinds), rows)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn rows_pass_as_in_the_model((kinds, tree, rows) in case()) {
        let column = |at: usize| {
            kinds[at].array(&rows.iter().map(|row| row[at].clone()).collect::<Vec<_>>())
        };
        let columns = [column(0), column(1)];
        let types: Vec<&DataType> = columns.iter().map(|it| it.data_type()).collect();
        let mut steps = Vec::new();
        tree.steps(kinds, &mut steps);
        let evaluator = Evaluator::new(&steps, &types).unwrap();
        let expected: Vec<u32> =
            (0..).zip(&rows).filter(|(_, row)| tree.of(row) == Some(true)).map(|(at, _)| at).collect();
        prop_assert_eq!(evaluator.passing(&columns).unwrap(), expected);
    }

    /// Arbitrary steps are refused or evaluated, whatever the columns are.
    #[test]
    fn no_steps_panic(
        steps in prop::collection::vec((0..7u8, 0..3usize, prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..3)), 0..8),
        kinds in [select(KINDS.to_vec()), select(KINDS.to_vec())],
    ) {
        let steps: Vec<Step> = steps.into_iter().map(|(op, column, values)| {
            let values: Vec<Bytes> = values.into_iter().map(Bytes::from).collect();
            let value = values.first().cloned().unwrap_or_default();
            match op {
                0 => Step::In { column, values },
                1 => Step::Less { column, value },
                2 => Step::Greater { column, value },
                3 => Step::IsNull { column },
                4 => Step::Not,
                5 => Step::And,
                _ => Step::Or,
            }
        }).collect();
        let columns = kinds.map(|kind| kind.array(&[None, None]));
        let types: Vec<&DataType> = columns.iter().map(|it| it.data_type()).collect();
        match Evaluator::new(&steps, &types) {
            Ok(evaluator) => prop_assert!(evaluator.passing(&columns).unwrap().len() <= 2),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
