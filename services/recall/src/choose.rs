//! Chooses the cheapest setting that reaches a recall.

use thiserror::Error;

use crate::curve::{Curve, Point};

/// The fraction of the tolerated misses (1 - recall) by which the lower bound may be below the wanted recall. The mean
/// itself must reach the wanted recall. For a wanted recall of 0.95, the chosen setting has a mean of at least 0.95
/// and a lower bound (with 95 % confidence) of at least 0.94. Without this tolerance, searches would read a fifth more
/// partitions, for certainty that few users need.
const TOLERANCE: f64 = 0.2;

/// A setting that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// The number of partitions to search in each segment.
    pub nprobes: u32,
    /// The number of candidates to score exactly for each requested row; at least 1.
    pub refine_factor: u32,
    /// The k of the curve from which the setting was chosen.
    pub k: u32,
    /// The point of that curve.
    pub point: Point,
}

/// The reason why a curve has no setting for a request.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum NoSetting {
    /// More rows are requested than were measured.
    #[error(
        "recall was measured for at most {max} rows; ask for fewer, or set `nprobes` and `refine_factor`"
    )]
    TooManyRows {
        /// The largest measured k.
        max: u32,
    },
    /// No measured setting reaches the recall.
    #[error(
        "no measured setting reaches it: the best recall@{k} is {:.3} (at least {:.3}), with nprobes {} and refine factor \
         {}; ask for less, or build the index with less compression",
        best.recall, best.low, best.nprobes, best.candidates.div_ceil(*k)
    )]
    Unreached {
        /// The k of the curve.
        k: u32,
        /// The setting with the highest recall.
        best: Point,
    },
}

impl Curve {
    /// Returns the cheapest setting with which a search for `k` rows reaches `recall`.
    ///
    /// The setting is one that was measured for the smallest measured k that is at least `k`, with at least as many
    /// candidates in total: what suffices to find the 20 nearest rows also suffices for the 15 nearest of these.
    ///
    /// # Errors
    /// [`NoSetting`].
    pub fn choose(&self, k: u32, recall: f64) -> Result<Setting, NoSetting> {
        let max = self.of_k.last().map_or(0, |it| it.k);
        let of_k = self.of_k.iter().find(|it| it.k >= k).ok_or(NoSetting::TooManyRows { max })?;
        let low = recall - TOLERANCE * (1.0 - recall);
        let reaches = |point: &&Point| point.recall >= recall && point.low >= low;
        let by_cost =
            |a: &&Point, b: &&Point| a.cost.total_cmp(&b.cost).then(b.recall.total_cmp(&a.recall));
        match of_k.points.iter().filter(reaches).min_by(by_cost) {
            Some(point) => Ok(Setting {
                nprobes: point.nprobes,
                refine_factor: point.candidates.div_ceil(k.max(1)).max(1),
                k: of_k.k,
                point: *point,
            }),
            None => {
                let by_recall = |a: &&Point, b: &&Point| a.recall.total_cmp(&b.recall);
                let best = of_k.points.iter().max_by(by_recall).copied().unwrap_or(of_k.default);
                Err(NoSetting::Unreached { k: of_k.k, best })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tally::tests::curve;

    fn point(nprobes: u32, candidates: u32, recall: f64, low: f64, cost: f64) -> Point {
        Point { nprobes, candidates, recall, low, cost }
    }

    fn with_points(points: Vec<Point>) -> Curve {
        let mut curve = curve();
        curve.of_k.truncate(1);
        curve.of_k[0].points = points;
        curve
    }

    #[test]
    fn the_cheapest_setting_whose_bound_is_near_enough_is_taken() {
        let curve = with_points(vec![
            point(1, 10, 0.5, 0.45, 10.0),
            point(5, 20, 0.9499, 0.949, 25.0),
            // It reaches 0.95, but with too little certainty.
            point(6, 20, 0.955, 0.9399, 26.0),
            point(7, 20, 0.951, 0.941, 27.0),
            point(9, 20, 0.98, 0.97, 30.0),
        ]);
        let chosen = |k, recall| curve.choose(k, recall).map(|it| (it.nprobes, it.refine_factor));
        assert_eq!(chosen(10, 0.95), Ok((7, 2)));
        assert_eq!(chosen(10, 0.6), Ok((5, 2)));
        assert_eq!(chosen(10, 0.5), Ok((1, 1)));
        // At least as many candidates as for 10 rows, which are 20.
        assert_eq!(chosen(3, 0.95), Ok((7, 7)));
        assert_eq!(chosen(1, 0.97), Ok((9, 20)));
        let error = curve.choose(10, 0.99).unwrap_err().to_string();
        assert!(error.contains("recall@10 is 0.980 (at least 0.970), with nprobes 9 and refine"));
        assert_eq!(chosen(11, 0.5), Err(NoSetting::TooManyRows { max: 10 }));
    }

    #[test]
    fn of_equally_cheap_settings_the_better_one_is_taken() {
        let points = vec![point(8, 20, 0.96, 0.95, 20.0), point(4, 40, 0.97, 0.96, 20.0)];
        assert_eq!(with_points(points).choose(10, 0.95).unwrap().nprobes, 4);
    }

    proptest! {
        #[test]
        fn a_higher_recall_never_costs_less_and_nothing_cheaper_reaches_it(
            points in proptest::collection::vec((1u32..500, 10u32..500, 0.0f64..=1.0, 0.0f64..0.05, 1.0f64..1e4), 1..60),
            wanted in 0.01f64..0.99,
            more in 0.0f64..0.5,
        ) {
            let points: Vec<_> = points
                .into_iter()
                .map(|(nprobes, candidates, recall, error, cost)| {
                    point(nprobes, candidates, recall, (recall - error).max(0.0), cost)
                })
                .collect();
            let curve = with_points(points.clone());
            let low = wanted - TOLERANCE * (1.0 - wanted);
            let reaches = |it: &&Point| it.recall >= wanted && it.low >= low;
            match curve.choose(10, wanted) {
                Ok(setting) => {
                    prop_assert!(reaches(&&setting.point));
                    prop_assert!(points.iter().filter(reaches).all(|it| it.cost >= setting.point.cost));
                    if let Ok(better) = curve.choose(10, (wanted + more).min(0.999)) {
                        prop_assert!(better.point.cost >= setting.point.cost);
                    }
                }
                Err(NoSetting::Unreached { best, .. }) => {
                    prop_assert!(!points.iter().any(|it| reaches(&it)));
                    prop_assert!(points.iter().all(|it| it.recall <= best.recall));
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
