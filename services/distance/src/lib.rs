//! Distances between vectors, computed alike wherever a row is scored: on an I/O node in the ring's
//! buffer, or on a query node that answers for one.
//!
//! The definitions are those of Lance's `_distance`, so that exact distances can be held against an
//! index's. Sums are kept in 32 lanes of f32, which lose less than one running sum would and which
//! the compiler turns into the widest vector instructions that the CPU turns out to have (AVX-512, AVX2,
//! NEON). Products aren't fused into the sums, so that a distance is the same on every CPU. Pure.

mod half_floats;

use fearless_simd::{Level, dispatch};

pub use half_floats::{bf16_to_f32, f16_to_f32};

/// Lanes of a sum: two registers of AVX-512, four of AVX2, so that one addition need not wait for the last.
const LANES: usize = 32;

/// How the distance between vectors is measured; smaller is nearer for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Squared Euclidean distance.
    L2,
    /// 1 - cosine similarity.
    Cosine,
    /// 1 - dot product.
    Dot,
}

/// A query vector, with what is known of it before the first row.
#[derive(Clone, Debug)]
pub struct Query {
    values: Vec<f32>,
    norm: f32,
    metric: Metric,
    /// What the CPU can do.
    level: Level,
}

impl Query {
    /// A query of finite values.
    pub fn new(values: Vec<f32>, metric: Metric) -> Self {
        let norm = sum(&values, &values, |x| x, |q, _| q * q).sqrt();
        Self { values, norm, metric, level: Level::new() }
    }

    /// The distance to a vector of as many elements, each of which `element` makes an f32. `None`
    /// for a vector that has none: of zeros by cosine, or with NaN.
    pub fn to<T: Copy>(&self, vector: &[T], element: impl Fn(T) -> f32 + Copy) -> Option<f32> {
        let distance = dispatch!(self.level, _simd => self.distance(vector, element));
        Some(distance).filter(|distance| !distance.is_nan())
    }

    /// Compiled for each kind of CPU, for which it has to be inlined where it's called.
    #[inline(always)]
    fn distance<T: Copy>(&self, vector: &[T], element: impl Fn(T) -> f32 + Copy) -> f32 {
        let query = &self.values;
        match self.metric {
            Metric::L2 => sum(query, vector, element, |q, x| (q - x) * (q - x)),
            Metric::Dot => 1.0 - sum(query, vector, element, |q, x| q * x),
            Metric::Cosine => {
                let dot = sum(query, vector, element, |q, x| q * x);
                let norm = sum(query, vector, element, |_, x| x * x).sqrt();
                1.0 - dot / (norm * self.norm)
            }
        }
    }
}

/// The sum of `term` over pairs of elements; inlined for the same reason.
#[inline(always)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_lances() {
        let to = |metric, vector: [f32; 2]| Query::new(vec![1.0, 0.0], metric).to(&vector, |x| x);
        assert_eq!(to(Metric::L2, [3.0, 4.0]), Some(20.0));
        assert_eq!(to(Metric::Dot, [3.0, 4.0]), Some(-2.0));
        assert_eq!(to(Metric::Cosine, [3.0, 4.0]), Some(1.0 - 3.0 / 5.0));
        assert_eq!(to(Metric::Cosine, [0.0, 0.0]), None);
        assert_eq!(to(Metric::L2, [f32::NAN, 0.0]), None);
    }

    #[test]
    fn every_length_sums_all_its_elements() {
        for len in 0..70 {
            let query = Query::new((0..len).map(|x| x as f32).collect(), Metric::Dot);
            let ones = vec![1u8; len];
            let expected = 1.0 - (len * len.saturating_sub(1) / 2) as f32;
            assert_eq!(query.to(&ones, f32::from), Some(expected), "{len} elements");
        }
    }
}
