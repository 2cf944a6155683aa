use std::sync::Arc;

use arrow_array::Int64Array;
use bytes::Bytes;

use super::*;

fn seven(column: usize) -> Step {
    Step::In { column, values: vec![Bytes::copy_from_slice(&7_i64.to_le_bytes())] }
}

fn refused(steps: &[Step], of: &DataType) -> String {
    Evaluator::new(steps, &[of]).unwrap_err().to_string()
}

#[test]
fn what_is_no_condition_on_the_columns_is_refused() {
    let of = &DataType::Int64;
    assert_eq!(refused(&[], of), "the predicate's steps leave 0 results; they have to leave one");
    assert_eq!(
        refused(&[seven(0), seven(0)], of),
        "the predicate's steps leave 2 results; they have to leave one"
    );
    assert_eq!(
        refused(&[seven(0), Step::And], of),
        "step 1 of the predicate has too few results before it"
    );
    assert_eq!(
        refused(&[seven(1)], of),
        "step 0 of the predicate is about column 1; the number of columns is 1"
    );
    assert_eq!(
        refused(&[Step::In { column: 0, values: vec![] }], of),
        "step 0 of the predicate has 0 values to compare with"
    );
    let less = |value: &'static [u8]| Step::Less { column: 0, value: Bytes::from_static(value) };
    assert_eq!(
        refused(&[less(b"abc")], of),
        "a value of 3 bytes in step 0 of the predicate is not a valid Int64"
    );
    assert_eq!(
        refused(&[less(b"\xff")], &DataType::Utf8),
        "a value of 1 bytes in step 0 of the predicate is not a valid Utf8"
    );
    assert_eq!(
        refused(&[less(b"")], &DataType::Null),
        "step 0 of the predicate compares a column of Null, which can't be compared"
    );
}

#[test]
fn steps_and_values_are_bounded() {
    let of = &DataType::Binary;
    let mut nots = vec![Step::Not; STEPS_MAX - 1];
    nots.insert(0, Step::IsNull { column: 0 });
    assert!(Evaluator::new(&nots, &[of]).is_ok());
    nots.push(Step::Not);
    assert!(refused(&nots, of).starts_with("the predicate has 129 steps; at most 128"));
    let of_values = |number, bytes: usize| {
        [Step::In { column: 0, values: vec![Bytes::from(vec![1; bytes]); number] }]
    };
    assert!(Evaluator::new(&of_values(VALUES_MAX, 64), &[of]).is_ok());
    assert!(
        refused(&of_values(VALUES_MAX + 1, 1), of).starts_with("the predicate has 1025 values")
    );
    assert!(
        refused(&of_values(1, VALUE_BYTES_MAX + 1), of)
            .starts_with("the predicate's values have 65537 bytes")
    );
}

#[test]
fn a_column_of_another_type_is_an_error() {
    let evaluator = Evaluator::new(&[seven(0)], &[&DataType::Int64]).unwrap();
    let passing = evaluator.passing(&[Arc::new(Int64Array::from(vec![7, 8, 7]))]).unwrap();
    assert_eq!(passing, [0, 2]);
    let other: ArrayRef = Arc::new(arrow_array::Int32Array::from(vec![7]));
    assert!(evaluator.passing(&[other]).is_err());
}
