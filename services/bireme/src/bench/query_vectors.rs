//! Query vectors: vectors of the table plus noise, so that they are distributed like the table's vectors, but no row is
//! at distance 0.

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_schema::DataType;
use rand::Rng;
use rand::rngs::StdRng;

use super::target::Target;
use crate::error::{CliError, Result};

/// The maximum number of vectors that are drawn from the table. A thousand suffice, because noise makes each query
/// vector a new one.
const VECTORS: usize = 1000;

/// The largest noise, as a fraction of the vector's root mean square.
const NOISE: f32 = 0.1;

/// Vectors from which queries are made.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryVectors(Vec<Vec<f32>>);

impl QueryVectors {
    /// Draws the vectors from a column.
    pub async fn draw(target: &Target, column: &str, seed: u64) -> Result<Self> {
        let batches = target.sample(column, seed, VECTORS).await?;
        let mut vectors = Vec::new();
        for array in batches.iter().filter_map(|batch| batch.columns().first()) {
            vectors.extend(vectors_in(array).ok_or_else(|| {
                CliError::usage(format!(
                    "column `{column}` holds no vectors; name one with --column"
                ))
            })?);
        }
        if vectors.is_empty() {
            return Err(CliError::usage(format!("no vector was drawn from column `{column}`")));
        }
        Ok(Self(vectors))
    }

    /// Returns a random vector with noise.
    pub fn next(&self, random: &mut StdRng) -> Vec<f32> {
        let vector = &self.0[random.random_range(0..self.0.len())];
        let noise = NOISE * root_mean_square(vector);
        vector.iter().map(|value| value + noise * random.random_range(-1.0..1.0f32)).collect()
    }
}

fn root_mean_square(vector: &[f32]) -> f32 {
    let squares: f32 = vector.iter().map(|value| value * value).sum();
    (squares / vector.len().max(1) as f32).sqrt()
}

/// Returns the vectors that are not null; `None` if the array's type is not a vector.
fn vectors_in(array: &ArrayRef) -> Option<Vec<Vec<f32>>> {
    let lists = array.as_fixed_size_list_opt()?;
    let rows = (0..lists.len()).filter(|&row| lists.is_valid(row));
    rows.map(|row| {
        let values = cast(&lists.value(row), &DataType::Float32).ok()?;
        Some(values.as_primitive::<Float32Type>().values().to_vec())
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Float64Type;
    use arrow_array::{FixedSizeListArray, Int32Array};

    use super::*;
    use crate::bench::workload::random;

    #[test]
    fn vectors_are_read_and_nulls_left_out() {
        let lists = FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(
            [Some(vec![Some(3.0), Some(4.0)]), None],
            2,
        );
        let array: ArrayRef = Arc::new(lists);
        assert_eq!(vectors_in(&array), Some(vec![vec![3.0, 4.0]]));
        let array: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        assert_eq!(vectors_in(&array), None);
    }

    #[test]
    fn noise_is_small_and_repeats_itself() {
        let vectors = QueryVectors(vec![vec![3.0, 4.0]]);
        let query = vectors.next(&mut random(1, 1));
        assert_eq!(query, vectors.next(&mut random(1, 1)));
        assert_ne!(query, vectors.next(&mut random(1, 2)));
        let bound = NOISE * 12.5f32.sqrt();
        assert!((query[0] - 3.0).abs() <= bound && (query[1] - 4.0).abs() <= bound, "{query:?}");
        assert_ne!(query, [3.0, 4.0]);
    }
}
