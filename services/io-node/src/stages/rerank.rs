//! Rerank: distances to the query, computed where the rows are.
//!
//! Sums are kept in sixteen lanes of f32, which the compiler turns into vector instructions, and
//! which lose less than one running sum would.

use arrow_array::{Array, FixedSizeListArray, make_array};
use arrow_data::ArrayData;
use half::{bf16, f16};
use pack::VectorElement;
use wire::fetch::Metric;

use super::decode::RerankBy;

const LANES: usize = 16;

/// A query vector, with what it is compared to.
#[derive(Clone, Debug)]
pub struct QueryVector {
    values: Vec<f32>,
    norm: f32,
    metric: Metric,
    element: VectorElement,
}

impl QueryVector {
    /// A query of finite values against vectors of `element`s.
    pub fn new(values: Vec<f32>, metric: Metric, element: VectorElement) -> Self {
        let norm = sum(&values, &values, |x| x, |q, _| q * q).sqrt();
        Self { values, norm, metric, element }
    }

    /// The distance to a vector, given as its little-endian elements.
    pub fn distance(&self, vector: &[u8]) -> f32 {
        match self.element {
            VectorElement::F32 => self.to(vector, |b: [u8; 4]| f32::from_le_bytes(b)),
            VectorElement::F64 => self.to(vector, |b: [u8; 8]| f64::from_le_bytes(b) as f32),
            VectorElement::F16 => self.to(vector, |b: [u8; 2]| f16::from_le_bytes(b).to_f32()),
            VectorElement::Bf16 => self.to(vector, |b: [u8; 2]| bf16::from_le_bytes(b).to_f32()),
            VectorElement::I8 => self.to(vector, |b: [u8; 1]| f32::from(b[0] as i8)),
            VectorElement::U8 => self.to(vector, |b: [u8; 1]| f32::from(b[0])),
        }
    }

    fn to<const N: usize>(&self, vector: &[u8], element: impl Fn([u8; N]) -> f32 + Copy) -> f32 {
        let (vector, _) = vector.as_chunks::<N>();
        let query = &self.values;
        match self.metric {
            Metric::L2 | Metric::Unspecified => {
                sum(query, vector, element, |q, x| (q - x) * (q - x))
            }
            Metric::Dot => 1.0 - sum(query, vector, element, |q, x| q * x),
            Metric::Cosine => {
                let dot = sum(query, vector, element, |q, x| q * x);
                let norm = sum(query, vector, element, |_, x| x * x).sqrt();
                1.0 - dot / (norm * self.norm)
            }
        }
    }
}

/// The sum of `term` over pairs of elements.
fn sum<T: Copy>(
    query: &[f32],
    vector: &[T],
    element: impl Fn(T) -> f32,
    term: impl Fn(f32, f32) -> f32,
) -> f32 {
    let (queries, query_rest) = query.as_chunks::<LANES>();
    let (vectors, vector_rest) = vector.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for (q, x) in queries.iter().zip(vectors) {
        for lane in 0..LANES {
            lanes[lane] += term(q[lane], element(x[lane]));
        }
    }
    let rest = query_rest.iter().zip(vector_rest).map(|(&q, &x)| term(q, element(x)));
    lanes.iter().sum::<f32>() + rest.sum::<f32>()
}

/// The distances of a batch's rows.
pub struct Scorer {
    query: QueryVector,
    k: usize,
    scored: Vec<(usize, f32)>,
}

impl Scorer {
    /// For up to `rows` rows.
    pub fn new(by: &RerankBy, rows: usize) -> Self {
        Self { query: by.query.clone(), k: by.k, scored: Vec::with_capacity(rows) }
    }

    /// Scores the row at `position`, given as its little-endian elements. Vectors without a
    /// distance (of zeros, by cosine; with NaN) are left out.
    pub fn score(&mut self, position: usize, vector: &[u8]) {
        let distance = self.query.distance(vector);
        if !distance.is_nan() {
            self.scored.push((position, distance));
        }
    }

    /// The k nearest, nearest first; the earlier of two at the same distance.
    pub fn nearest(mut self) -> Vec<(usize, f32)> {
        let order = |a: &(usize, f32), b: &(usize, f32)| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0));
        if self.k < self.scored.len() {
            self.scored.select_nth_unstable_by(self.k, order);
            self.scored.truncate(self.k);
        }
        self.scored.sort_unstable_by(order);
        self.scored
    }
}

/// The same for rows that were assembled: vectors with nulls within, or longer than a read. A null
/// vector, or one with a null element, has no distance.
pub fn score_columns(by: &RerankBy, columns: &[ArrayData]) -> Vec<(usize, f32)> {
    let Some(column) = columns.first() else { return Vec::new() };
    let array = make_array(column.clone());
    let Some(list) = array.as_any().downcast_ref::<FixedSizeListArray>() else { return Vec::new() };
    let values = list.values().to_data();
    let dimension = list.value_length() as usize;
    let bytes = values.buffers()[0].as_slice();
    let stride = bytes.len().checked_div(list.len()).unwrap_or(0);
    let mut scorer = Scorer::new(by, list.len());
    for row in (0..list.len()).filter(|&row| list.is_valid(row)) {
        let elements = row * dimension..(row + 1) * dimension;
        if values.nulls().is_none_or(|nulls| elements.clone().all(|at| nulls.is_valid(at))) {
            scorer.score(row, &bytes[row * stride..(row + 1) * stride]);
        }
    }
    scorer.nearest()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(metric: Metric, element: VectorElement) -> QueryVector {
        QueryVector::new((0..20).map(|i| i as f32).collect(), metric, element)
    }

    fn bytes<const N: usize>(element: impl Fn(f32) -> [u8; N]) -> Vec<u8> {
        (0..20).flat_map(|i| element((i % 3) as f32)).collect()
    }

    /// In f64, one term after another.
    fn plain(metric: Metric) -> f64 {
        let pairs = || (0..20).map(|i| (f64::from(i), f64::from(i % 3)));
        let dot: f64 = pairs().map(|(q, x)| q * x).sum();
        let norm = |squares: f64| squares.sqrt();
        match metric {
            Metric::L2 => pairs().map(|(q, x)| (q - x) * (q - x)).sum(),
            Metric::Dot => 1.0 - dot,
            _ => {
                let (q, x) = (pairs().map(|p| p.0 * p.0).sum(), pairs().map(|p| p.1 * p.1).sum());
                1.0 - dot / (norm(q) * norm(x))
            }
        }
    }

    #[test]
    fn every_element_type_gives_the_plain_distance() {
        for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
            let near = |element, vector: Vec<u8>| {
                let distance = f64::from(query(metric, element).distance(&vector));
                assert!((distance - plain(metric)).abs() < 1e-3, "{metric:?} {element:?}");
            };
            near(VectorElement::F32, bytes(f32::to_le_bytes));
            near(VectorElement::F64, bytes(|x| f64::from(x).to_le_bytes()));
            near(VectorElement::F16, bytes(|x| f16::from_f32(x).to_le_bytes()));
            near(VectorElement::Bf16, bytes(|x| bf16::from_f32(x).to_le_bytes()));
            near(VectorElement::I8, bytes(|x| [x as i8 as u8]));
            near(VectorElement::U8, bytes(|x| [x as u8]));
        }
    }

    #[test]
    fn the_nearest_come_first_and_ties_in_order() {
        let by =
            RerankBy { query: QueryVector::new(vec![0.0], Metric::L2, VectorElement::F32), k: 3 };
        let mut scorer = Scorer::new(&by, 5);
        for (position, x) in [3.0f32, 1.0, f32::NAN, -1.0, 0.5].into_iter().enumerate() {
            scorer.score(position, &x.to_le_bytes());
        }
        assert_eq!(scorer.nearest(), [(4, 0.25), (1, 1.0), (3, 1.0)]);
    }
}
