//! Rerank: computes the distances of rows to the query on the node that has the rows.

use arrow_array::{Array, FixedSizeListArray, make_array};
use arrow_data::ArrayData;
use distance::{Query, bf16_to_f32, f16_to_f32};
use pack::VectorElement;

/// A query vector, and the element type of the vectors that it is compared to.
#[derive(Clone, Debug)]
pub struct QueryVector {
    query: Query,
    element: VectorElement,
}

impl QueryVector {
    /// Creates a query for vectors whose elements have the type `element`.
    pub fn new(query: Query, element: VectorElement) -> Self {
        Self { query, element }
    }

    /// Returns the distance to a vector, given as little-endian elements, or `None` if the distance is undefined.
    pub fn distance(&self, vector: &[u8]) -> Option<f32> {
        match self.element {
            VectorElement::F32 => self.to(vector, |b: [u8; 4]| f32::from_le_bytes(b)),
            VectorElement::F64 => self.to(vector, |b: [u8; 8]| f64::from_le_bytes(b) as f32),
            VectorElement::F16 => self.to(vector, |b: [u8; 2]| f16_to_f32(u16::from_le_bytes(b))),
            VectorElement::Bf16 => self.to(vector, |b: [u8; 2]| bf16_to_f32(u16::from_le_bytes(b))),
            VectorElement::I8 => self.to(vector, |b: [u8; 1]| f32::from(b[0] as i8)),
            VectorElement::U8 => self.to(vector, |b: [u8; 1]| f32::from(b[0])),
        }
    }

    fn to<const N: usize>(
        &self,
        vector: &[u8],
        element: impl Fn([u8; N]) -> f32 + Copy,
    ) -> Option<f32> {
        let (elements, _) = vector.as_chunks::<N>();
        self.query.to(elements, element)
    }
}

/// The query to score rows by.
#[derive(Clone, Debug)]
pub struct RerankBy {
    /// The query vector, with the metric.
    pub query: QueryVector,
    /// The maximum number of rows to return.
    pub k: usize,
}

/// Collects the distances of a batch's rows.
pub struct Scorer {
    query: QueryVector,
    k: usize,
    scored: Vec<(usize, f32)>,
}

impl Scorer {
    /// Creates a scorer for up to `rows` rows.
    pub fn new(by: &RerankBy, rows: usize) -> Self {
        Self { query: by.query.clone(), k: by.k, scored: Vec::with_capacity(rows) }
    }

    /// Scores the row at `position`, given as little-endian elements. Vectors whose distance is undefined (a zero
    /// vector by cosine, or one with NaN) are left out.
    pub fn score(&mut self, position: usize, vector: &[u8]) {
        self.scored.extend(self.query.distance(vector).map(|distance| (position, distance)));
    }

    /// Returns the k nearest rows, nearest first. Of two rows at the same distance, the one with the lower position
    /// comes first.
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

/// Scores rows that were assembled first, because a chunk or image of the batch is not in
/// [`Form::Plain`](pack::Form::Plain) or a vector is longer than a read (`assemble.rs`). A null vector, or one with a
/// null element, is left out.
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
    use distance::Metric;
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn every_element_type_is_read_as_its_number() {
        let query = || Query::new((0..20).map(|x| x as f32).collect(), Metric::L2);
        let near = |element, bytes: fn(i8) -> Vec<u8>| {
            let vector: Vec<u8> = (0..20).flat_map(|x| bytes(x % 3)).collect();
            let expected: i32 = (0..20).map(|x| (x - x % 3) * (x - x % 3)).sum();
            let distance = QueryVector::new(query(), element).distance(&vector);
            assert_eq!(distance, Some(expected as f32), "{element:?}");
        };
        near(VectorElement::F32, |x| f32::from(x).to_le_bytes().into());
        near(VectorElement::F64, |x| f64::from(x).to_le_bytes().into());
        near(VectorElement::F16, |x| f16::from_f32(x.into()).to_le_bytes().into());
        near(VectorElement::Bf16, |x| bf16::from_f32(x.into()).to_le_bytes().into());
        near(VectorElement::I8, |x| vec![x as u8]);
        near(VectorElement::U8, |x| vec![x as u8]);
    }

    #[test]
    fn the_nearest_come_first_and_ties_in_order() {
        let query = QueryVector::new(Query::new(vec![0.0], Metric::L2), VectorElement::F32);
        let mut scorer = Scorer::new(&RerankBy { query, k: 3 }, 5);
        for (position, x) in [3.0f32, 1.0, f32::NAN, -1.0, 0.5].into_iter().enumerate() {
            scorer.score(position, &x.to_le_bytes());
        }
        assert_eq!(scorer.nearest(), [(4, 0.25), (1, 1.0), (3, 1.0)]);
    }
}
