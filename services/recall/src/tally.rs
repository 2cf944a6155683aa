//! Adds up the recall of all measured settings over the questions.

use std::collections::HashMap;

use crate::curve::{CurveOfK, Point};
use crate::grid::{CANDIDATES_MAX, KS, factors};

/// The z value of a one-sided confidence of 95 %.
const Z: f64 = 1.645;

/// One question and its answers.
pub struct Trial<'a> {
    /// The exact answer, nearest first: ids of rows and their distances. It has as many rows as the largest measured k, or
    /// all that there are.
    pub exact: &'a [(u64, f32)],
    /// The index's candidates: from searches for one number of candidates, or for several in ascending order. A setting
    /// is judged by the largest search that asks for at most as many candidates as the setting, or by the first search
    /// if all ask for more.
    pub searches: &'a [SearchesFor],
}

/// The searches for some number of candidates.
pub struct SearchesFor {
    /// The number of candidates.
    pub candidates: usize,
    /// For each number of partitions of the [`Tally`]: the candidates, by the index's own distances, nearest first, and
    /// the number of rows that were compared.
    pub rungs: Vec<(Vec<u64>, u64)>,
}

/// The sums of the recall of all settings.
pub struct Tally {
    nprobes: Vec<usize>,
    /// For each k, the sums for each number of partitions and each refine factor.
    grids: Vec<Grid>,
    /// The number of compared rows, for each number of partitions.
    compared: Vec<u64>,
    compared_per_scored: f64,
    questions: u32,
}

struct Grid {
    k: u32,
    factors: Vec<u32>,
    /// The sums of the recall and of its square: for each factor with the first number of partitions, then with the
    /// next.
    sums: Vec<(f64, f64)>,
}

/// The default setting of searches, for [`Tally::finish`].
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The number of partitions that searches have by default.
    pub nprobes: usize,
    /// The refine factor that searches have by default.
    pub refine_factor: u32,
}

impl Tally {
    /// Creates an empty tally of the settings with each number of partitions in `nprobes`, which is ascending, for each
    /// k of [`KS`] up to `k_max`. `compared_per_scored` is the number of rows that an index compares in the time in
    /// which one row is scored exactly.
    pub fn new(nprobes: &[usize], k_max: usize, compared_per_scored: f64) -> Self {
        let k_max = u32::try_from(k_max).unwrap_or(u32::MAX);
        let grid = |k: u32| {
            let factors: Vec<_> = factors(k).collect();
            Grid { k, sums: vec![(0.0, 0.0); factors.len() * nprobes.len()], factors }
        };
        let grids = KS.into_iter().filter(|k| *k <= k_max).map(grid).collect();
        let compared = vec![0; nprobes.len()];
        Self { nprobes: nprobes.to_vec(), grids, compared, compared_per_scored, questions: 0 }
    }

    /// Adds a question.
    ///
    /// # Panics
    /// If the question has no searches, if they are not in ascending order of their candidates, or if one does not have
    /// a rung for each number of partitions.
    pub fn add(&mut self, trial: &Trial<'_>) {
        let searches = trial.searches;
        assert!(searches.is_sorted_by_key(|it| it.candidates), "searches for more and more rows");
        let all_rungs = searches.iter().all(|it| it.rungs.len() == self.nprobes.len());
        assert!(!searches.is_empty() && all_rungs, "a rung for each number of partitions");
        let rank_of: HashMap<u64, usize> =
            trial.exact.iter().enumerate().map(|(rank, (row, _))| (*row, rank)).collect();
        let wanted: Vec<_> =
            self.grids.iter().map(|grid| wanted(trial.exact, grid.k as usize)).collect();
        for at in 0..self.nprobes.len() {
            self.compared[at] += searches[0].rungs[at].1;
            let found: Vec<_> =
                searches.iter().map(|it| right_rows(&it.rungs[at].0, &rank_of)).collect();
            for (grid, (k, with_ties)) in self.grids.iter_mut().zip(&wanted) {
                let right = |found: &Vec<(usize, usize)>| -> Vec<usize> {
                    let right = found.iter().filter(|(_, rank)| rank < with_ties);
                    right.map(|(position, _)| *position).collect()
                };
                let right: Vec<_> = found.iter().map(right).collect();
                let sums = grid.sums[at * grid.factors.len()..].iter_mut();
                for (factor, sum) in grid.factors.iter().zip(sums) {
                    let scored = (factor * grid.k) as usize;
                    let search = searches.partition_point(|it| it.candidates <= scored);
                    let right = &right[search.saturating_sub(1)];
                    let hits = right.partition_point(|position| *position < scored).min(*k);
                    let recall = if *k == 0 { 1.0 } else { hits as f64 / *k as f64 };
                    sum.0 += recall;
                    sum.1 += recall * recall;
                }
            }
        }
        self.questions += 1;
    }

    /// Returns the number of questions.
    pub fn questions(&self) -> u32 {
        self.questions
    }

    /// Returns the curve of each k. `default` is the setting of searches that set none. If it was not measured, the
    /// most expensive point of the curve stands for it.
    pub fn finish(&self, default: Measured) -> Vec<CurveOfK> {
        self.grids.iter().map(|grid| self.curve_of(grid, default)).collect()
    }

    fn curve_of(&self, grid: &Grid, default: Measured) -> CurveOfK {
        let nprobes_default = default.nprobes.min(self.nprobes.last().copied().unwrap_or(1));
        let mut all = Vec::with_capacity(grid.sums.len());
        let mut of_default = None;
        let mut default_refine_best: f64 = 0.0;
        for (at, nprobes) in self.nprobes.iter().enumerate() {
            let compared = self.compared[at] as f64 / f64::from(self.questions.max(1));
            for (factor_at, factor) in grid.factors.iter().enumerate() {
                let sums = grid.sums[at * grid.factors.len() + factor_at];
                let point = self.point(*nprobes, factor * grid.k, sums, compared);
                if *factor == default.refine_factor {
                    default_refine_best = default_refine_best.max(point.recall);
                    if *nprobes == nprobes_default {
                        of_default = Some(point);
                    }
                }
                all.push(point);
            }
        }
        let points = undominated(all);
        let default = of_default.unwrap_or(points[points.len() - 1]);
        CurveOfK { k: grid.k, points, default, default_refine_best }
    }

    fn point(&self, nprobes: usize, candidates: u32, sums: (f64, f64), compared: f64) -> Point {
        let n = f64::from(self.questions.max(1));
        let recall = (sums.0 / n).min(1.0);
        let variance = (sums.1 / n - recall * recall).max(0.0);
        // Even if no question missed a row, the next ones may.
        let error = (variance / n + (0.5 / n).powi(2)).sqrt();
        Point {
            nprobes: u32::try_from(nprobes).unwrap_or(u32::MAX),
            candidates,
            recall: rounded(recall, 1e6),
            low: rounded((recall - Z * error).max(0.0), 1e6),
            cost: rounded(f64::from(candidates) + compared / self.compared_per_scored, 1e2),
        }
    }
}

/// Returns the number of rows of the right answer for `k` rows, and how many rows at the start of `exact` count as
/// right: those of the answer, and those that are as near as its last row.
fn wanted(exact: &[(u64, f32)], k: usize) -> (usize, usize) {
    let k = k.min(exact.len());
    let farthest = k.checked_sub(1).map(|last| exact[last].1);
    let tied = exact[k..].iter().take_while(|(_, it)| Some(*it) == farthest);
    (k, k + tied.count())
}

/// Returns, for the candidates that are in the exact answer, their positions among the candidates, ascending, and their
/// ranks in the exact answer.
fn right_rows(candidates: &[u64], rank_of: &HashMap<u64, usize>) -> Vec<(usize, usize)> {
    let candidates = candidates.iter().take(CANDIDATES_MAX as usize).enumerate();
    candidates.filter_map(|(position, row)| Some((position, *rank_of.get(row)?))).collect()
}

/// Rounds a number to a multiple of 1 / `parts`, so that a file with its decimals holds it exactly.
fn rounded(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}

/// Returns the points that no other point beats in cost, recall and lower bound together, ascending by cost.
fn undominated(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| {
        let by_cost = a.cost.total_cmp(&b.cost);
        by_cost.then(b.recall.total_cmp(&a.recall)).then(b.low.total_cmp(&a.low))
    });
    let mut kept: Vec<Point> = Vec::new();
    for point in points {
        if !kept.iter().any(|it| it.recall >= point.recall && it.low >= point.low) {
            kept.push(point);
        }
    }
    kept
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::curve::{Curve, IndexBuild, Questions};
    use crate::grid::nprobes_ladder;

    const DEFAULT: Measured = Measured { nprobes: 3, refine_factor: 10 };

    fn all(rungs: Vec<(Vec<u64>, u64)>) -> SearchesFor {
        SearchesFor { candidates: CANDIDATES_MAX as usize, rungs }
    }

    #[test]
    fn a_setting_is_judged_by_a_search_for_no_more_candidates() {
        let mut tally = Tally::new(&[1], 1, 70.0);
        // A graph's search for 8 candidates finds row 7, which is nearer than all that its searches for 1 and for 4 find.
        let searches = [(1, vec![8]), (4, vec![8, 9, 10, 11]), (8, vec![7, 8])]
            .map(|(candidates, rows)| SearchesFor { candidates, rungs: vec![(rows, 1)] });
        tally.add(&Trial { exact: &[(7, 0.0)], searches: &searches });
        let curve = &tally.finish(DEFAULT)[0];
        let last = curve.points.last().unwrap();
        assert_eq!((curve.points[0].recall, last.candidates, last.recall), (0.0, 8, 1.0));
    }

    /// A measured curve of an index with 5 partitions of 200 rows. Rows of partition p are found from p + 1 partitions on.
    pub(crate) fn curve() -> Curve {
        let nprobes = nprobes_ladder(5, DEFAULT.nprobes);
        let mut tally = Tally::new(&nprobes, 10, 70.0);
        for question in 0..100u64 {
            let exact: Vec<(u64, f32)> = (0..10).map(|it| (it, it as f32)).collect();
            let rung = |probes: &usize| {
                let rows = (0..10).filter(|row| (row + question) % 10 < 2 * *probes as u64);
                (rows.collect(), 200 * *probes as u64)
            };
            let rungs: Vec<_> = nprobes.iter().map(rung).collect();
            tally.add(&Trial { exact: &exact, searches: &[all(rungs)] });
        }
        Curve {
            table: "t".into(),
            column: "vector".into(),
            index: IndexBuild {
                name: "vector_idx".into(),
                kind: "IVF_RQ".into(),
                parameters: "{}".into(),
                partitions: 5,
                segments: vec!["a".into(), "b".into()],
            },
            version: 3,
            rows: 1000,
            measured_at: 1_790_000_000,
            questions: Questions::Rows,
            question_count: tally.questions(),
            of_k: tally.finish(DEFAULT).into_iter().filter(|it| it.k == 10).collect(),
        }
    }

    #[test]
    fn recall_counts_right_rows_among_the_scored_candidates() {
        let mut tally = Tally::new(&[1, 2], 10, 70.0);
        let exact: Vec<(u64, f32)> = (0..10).map(|it| (it, it as f32)).collect();
        // The first rung has 5 right rows among 10 candidates, and a 6th among 20; the second has all among 20.
        let first: Vec<u64> = (5..10).chain(100..105).chain([0]).chain(200..209).collect();
        let second: Vec<u64> = (100..110).chain(0..10).collect();
        let searches = [all(vec![(first, 700), (second, 1400)])];
        tally.add(&Trial { exact: &exact, searches: &searches });
        let curves = tally.finish(Measured { nprobes: 2, refine_factor: 1 });
        assert_eq!(curves.iter().map(|it| it.k).collect::<Vec<_>>(), [1, 10]);
        let points = &curves[1].points;
        let of = |it: &Point| (it.nprobes, it.candidates, it.recall, it.cost);
        assert_eq!(
            points.iter().map(of).collect::<Vec<_>>(),
            [(1, 10, 0.5, 20.0), (1, 20, 0.6, 30.0), (2, 20, 1.0, 40.0)]
        );
        // One question proves little.
        assert!((points[2].low - (1.0 - Z * 0.5)).abs() < 1e-6);
        assert_eq!((curves[1].default.recall, curves[1].default_refine_best), (0.0, 0.5));
    }

    #[test]
    fn rows_as_near_as_the_last_are_as_right() {
        let mut tally = Tally::new(&[1], 1, 70.0);
        let exact = [(7, 0.5), (8, 0.5), (9, 0.75)];
        for found in [7, 8, 9] {
            tally.add(&Trial { exact: &exact, searches: &[all(vec![(vec![found], 1)])] });
        }
        let recall = tally.finish(DEFAULT)[0].points[0].recall;
        assert_eq!(recall, 0.666_667);
    }

    #[test]
    fn a_table_of_fewer_rows_than_k_has_all_of_them_as_the_right_answer() {
        let mut tally = Tally::new(&[1], 10, 70.0);
        let searches = [all(vec![(vec![2, 1], 2)])];
        tally.add(&Trial { exact: &[(1, 0.0), (2, 1.0)], searches: &searches });
        assert_eq!(tally.finish(DEFAULT)[1].points[0].recall, 1.0);
    }

    proptest! {
        #[test]
        fn kept_points_ascend_and_every_other_point_is_beaten(
            points in proptest::collection::vec((0.0f64..=1.0, 0.0f64..0.1, 1u32..20), 1..80)
        ) {
            let points: Vec<_> = points
                .into_iter()
                .map(|(recall, error, cost)| Point {
                    nprobes: 1, candidates: 1, recall, low: recall - error, cost: f64::from(cost),
                })
                .collect();
            let kept = undominated(points.clone());
            prop_assert!(kept.windows(2).all(|it| it[0].cost <= it[1].cost));
            for point in &points {
                let beats = |it: &Point| {
                    it.cost <= point.cost && it.recall >= point.recall && it.low >= point.low
                };
                let is_beaten = kept.iter().any(beats);
                prop_assert!(is_beaten, "{:?} of {:?}", point, kept);
            }
            for (at, a) in kept.iter().enumerate() {
                prop_assert!(!kept[..at].iter().any(|b| b.recall >= a.recall && b.low >= a.low));
            }
        }
    }
}
