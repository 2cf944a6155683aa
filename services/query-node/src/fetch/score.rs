//! Score: computes exact distances on this query node, for rows that their I/O node did not score. Pure.
//!
//! I/O nodes use the same code, so a row's distance does not depend on where it is computed.

use address::RowAddr;
use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, Float32Array, RecordBatch};
use arrow_cast::cast;
use arrow_schema::DataType;
use distance::Query;
use half::bf16;

use super::join::present;
use crate::error::{QueryError, Result};

/// The vectors of a column, as f32.
pub struct Vectors {
    column: ArrayRef,
    values: Float32Array,
    dimension: usize,
}

impl Vectors {
    /// Casts a column of vectors to f32.
    ///
    /// # Errors
    /// If the column is not a fixed-size list of numbers.
    pub fn of(column: &ArrayRef) -> Result<Self> {
        let Some(list) = column.as_fixed_size_list_opt() else {
            let problem = format!("can't be compared to a column of {}", column.data_type());
            return Err(QueryError::BadVector { problem });
        };
        let values = match list.values().data_type() {
            DataType::FixedSizeBinary(2) => list
                .values()
                .as_fixed_size_binary()
                .iter()
                .map(|item| item.map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()))
                .collect(),
            _ => cast(list.values(), &DataType::Float32)?.as_primitive::<Float32Type>().clone(),
        };
        let dimension = list.value_length() as usize;
        Ok(Self { column: column.clone(), values, dimension })
    }

    /// Returns the vector of a row; `None` if it is null or contains a null.
    pub fn get(&self, row: usize) -> Option<&[f32]> {
        let elements = row * self.dimension..(row + 1) * self.dimension;
        if self.column.is_null(row) {
            return None;
        }
        if self.values.null_count() > 0 && elements.clone().any(|at| self.values.is_null(at)) {
            return None;
        }
        self.values.values().get(elements)
    }

    /// Returns the vector of a row; `None` if it is null, or an element is null or not finite.
    pub fn finite(&self, row: usize) -> Option<&[f32]> {
        self.get(row).filter(|vector| vector.iter().all(|element| element.is_finite()))
    }

    /// Returns the distance of each row to `query`. Returns `None` for a row whose vector is null or has a null, or
    /// whose distance is not a number (as for a vector of zeros with the cosine metric).
    pub fn distances<'a>(&'a self, query: &'a Query) -> impl Iterator<Item = Option<f32>> + 'a {
        (0..self.column.len()).map(|row| query.to(self.get(row)?, |x| x))
    }
}

/// Scores fetched rows on this node.
pub fn score_here(
    addrs: &[RowAddr],
    missing: &[u32],
    rows: &RecordBatch,
    query: &Query,
) -> Result<Vec<(RowAddr, f32)>> {
    let vectors = Vectors::of(rows.column(0))?;
    let there = present(addrs.len(), missing).map(|at| addrs[at]);
    let pairs = there.zip(vectors.distances(query));
    Ok(pairs.filter_map(|(addr, distance)| Some((addr, distance?))).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Float64Type;
    use arrow_array::{FixedSizeListArray, Float64Array};
    use arrow_schema::Field;
    use distance::Metric;

    use super::*;

    fn column(rows: Vec<Option<Vec<Option<f64>>>>) -> ArrayRef {
        let list = FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(rows, 2);
        Arc::new(list)
    }

    #[test]
    fn vectors_without_a_distance_have_none() {
        let rows = vec![
            Some(vec![Some(3.0), Some(4.0)]),
            None,
            Some(vec![Some(1.0), None]),
            Some(vec![Some(0.0), Some(0.0)]),
        ];
        let vectors = Vectors::of(&column(rows)).unwrap();
        let query = |metric| Query::new(vec![1.0, 0.0], metric);
        let all = |metric| vectors.distances(&query(metric)).collect::<Vec<_>>();
        assert_eq!(all(Metric::L2), [Some(20.0), None, None, Some(1.0)]);
        assert_eq!(all(Metric::Dot), [Some(-2.0), None, None, Some(1.0)]);
        assert_eq!(all(Metric::Cosine), [Some(1.0 - 3.0 / 5.0), None, None, None]);
    }

    #[test]
    fn slices_and_other_types_are_supported() {
        let rows = (0..4).map(|i| Some(vec![Some(f64::from(i)), Some(0.5)])).collect();
        let vectors = Vectors::of(&column(rows).slice(2, 2)).unwrap();
        assert_eq!(vectors.get(1), Some([3.0, 0.5].as_slice()));
        let plain: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        assert!(Vectors::of(&plain).is_err());
        let item = Arc::new(Field::new("item", DataType::FixedSizeBinary(2), false));
        let halves: Vec<[u8; 2]> = [1.5f32, -2.0].map(|x| bf16::from_f32(x).to_le_bytes()).into();
        let halves = arrow_array::FixedSizeBinaryArray::try_from_iter(halves.iter()).unwrap();
        let list = FixedSizeListArray::new(item, 2, Arc::new(halves), None);
        let list: ArrayRef = Arc::new(list);
        assert_eq!(Vectors::of(&list).unwrap().get(0), Some([1.5, -2.0].as_slice()));
    }
}
