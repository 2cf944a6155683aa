//! Distances between vectors. I/O nodes compute them for the rows that they serve, mostly without copying the vectors.
//! Query nodes compute them for rows that no I/O node has scored. Both use this code.
//!
//! The definitions match Lance's `_distance`, so exact distances can be compared with those of an index. Each
//! sum is kept in 32 lanes of f32. That is more accurate than a single running sum, and the compiler turns it
//! into the widest vector instructions that the CPU has at run time (AVX-512, AVX2, NEON). Products are not
//! fused into the sums, so a distance is the same on every CPU. The crate is pure.

mod half_floats;

use fearless_simd::{Level, dispatch};

pub use half_floats::{bf16_to_f32, f16_to_f32};

/// The number of lanes of a sum. They fill two AVX-512 registers or four AVX2 registers. With several registers,
/// consecutive additions do not depend on each other.
const LANES: usize = 32;

/// A distance metric. With every metric, a smaller distance is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Squared Euclidean distance.
    L2,
    /// 1 - cosine similarity.
    Cosine,
    /// 1 - dot product.
    Dot,
}

/// A query vector, with precomputed values that do not depend on the rows.
#[derive(Clone, Debug)]
pub struct Query {
    values: Vec<f32>,
    norm: f32,
    metric: Metric,
    /// The SIMD instruction set of this CPU.
    level: Level,
}

impl Query {
    /// Makes a query from `values`, which must be finite.
    pub fn new(values: Vec<f32>, metric: Metric) -> Self {
        let norm = sum(&values, &values, |x| x, |q, _| q * q).sqrt();
        Self { values, norm, metric, level: Level::new() }
    }

    /// Returns the distance to `vector`, which must be as long as the query. `element` converts an element of the
    /// vector to f32. Returns `None` if the distance is not a number, for example if the vector contains a NaN, or if
    /// the metric is cosine and the vector or the query is zero.
    pub fn to<T: Copy>(&self, vector: &[T], element: impl Fn(T) -> f32 + Copy) -> Option<f32> {
        let distance = dispatch!(self.level, _simd => self.distance(vector, element));
        Some(distance).filter(|distance| !distance.is_nan())
    }

    /// Computes the distance. `dispatch!` compiles this function once for each instruction set, which only
    /// works if it is inlined into its caller.
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

/// Returns the sum of `term` over the pairs of elements at equal positions. Inlined for the same reason as
/// `Query::distance`.
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
    fn distances_match_lances() {
        let to = |metric, vector: [f32; 2]| Query::new(vec![1.0, 0.0], metric).to(&vector, |x| x);
        assert_eq!(to(Metric::L2, [3.0, 4.0]), Some(20.0));
        assert_eq!(to(Metric::Dot, [3.0, 4.0]), Some(-2.0));
        assert_eq!(to(Metric::Cosine, [3.0, 4.0]), Some(1.0 - 3.0 / 5.0));
        assert_eq!(to(Metric::Cosine, [0.0, 0.0]), None);
        assert_eq!(to(Metric::L2, [f32::NAN, 0.0]), None);
    }

    #[test]
    fn every_element_is_summed_at_every_length() {
        for len in 0..70 {
            let query = Query::new((0..len).map(|x| x as f32).collect(), Metric::Dot);
            let ones = vec![1u8; len];
            let expected = 1.0 - (len * len.saturating_sub(1) / 2) as f32;
            assert_eq!(query.to(&ones, f32::from), Some(expected), "{len} elements");
        }
    }
}
