//! A curve: what was measured, on which index, and with which questions.

use serde::{Deserialize, Serialize};
use wire::query::RecallSetting;

/// The recall of searches of one vector index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// A hash of the table's URI, which tells other tables' curves apart without naming the table.
    pub table: String,
    /// The vector column.
    pub column: String,
    /// The index.
    pub index: IndexBuild,
    /// The table's version.
    pub version: u64,
    /// The number of rows that the index covered.
    pub rows: u64,
    /// The time of the measurement, in seconds since 1970.
    pub measured_at: u64,
    /// The source of the questions.
    pub questions: Questions,
    /// The number of questions.
    pub question_count: u32,
    /// The curve of each measured k, ascending by k.
    pub of_k: Vec<CurveOfK>,
}

/// The source of the questions of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Questions {
    /// Rows of the table, each of which was left out of its own answers.
    Rows,
    /// Vectors that the caller gave.
    Given,
}

/// A build of a vector index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexBuild {
    /// The index's name.
    pub name: String,
    /// Lance's name of its kind.
    pub kind: String,
    /// The parameters that it was built with, as Lance describes them.
    pub parameters: String,
    /// The number of partitions of the segment that has the most.
    pub partitions: u32,
    /// The UUIDs of its segments.
    pub segments: Vec<String>,
}

/// The recall for one k.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurveOfK {
    /// The number of rows of each answer.
    pub k: u32,
    /// Settings that no other setting beats in cost, recall and lower bound together, ascending by cost.
    pub points: Vec<Point>,
    /// The setting that searches have by default.
    pub default: Point,
    /// The highest recall that the default refine factor reaches, with as many partitions as needed.
    pub default_refine_best: f64,
}

/// A measured setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The number of partitions that are searched in each segment.
    pub nprobes: u32,
    /// The number of candidates that are scored exactly.
    pub candidates: u32,
    /// The mean recall of the questions.
    pub recall: f64,
    /// The lower bound of the recall: with 95 % confidence, the mean recall of further questions of the same kind is
    /// above this bound.
    pub low: f64,
    /// The cost of a search, in rows scored exactly.
    pub cost: f64,
}

/// Whether a curve was measured on an index as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// All segments that were measured are still there, and the index covers at most twice as many rows as when they
    /// were measured.
    Same,
    /// The index was built again with the same parameters, Lance merged segments or partitions of it, its table was
    /// compacted, or the index covers more than twice as many rows as when it was measured.
    Earlier,
    /// It is another index.
    Other,
}

/// The factor by which the number of rows that an index covers may grow before its curve counts as one of an earlier
/// state.
const GROWTH_MAX: u64 = 2;

impl Curve {
    /// Returns how well the curve fits the index `build` on `column` of a table with the hash `table`. The index covers
    /// `rows` rows.
    pub fn fit(&self, table: &str, column: &str, build: &IndexBuild, rows: u64) -> Fit {
        if self.column != column {
            return Fit::Other;
        }
        let is_there = self.index.segments.iter().all(|it| build.segments.contains(it));
        let has_doubled = rows > self.rows.saturating_mul(GROWTH_MAX);
        let is_alike = (&self.index.name, &self.index.kind, &self.index.parameters)
            == (&build.name, &build.kind, &build.parameters)
            // Lance's `optimize_indices` joins small partitions; in a small table, that may be all of them. A search then
            // reads as many partitions as before, with more rows in each. This may find more of the nearest rows, or
            // fewer, because compressed vectors rank them, so the recall may be above or below the measured one.
            && (1..=self.index.partitions).contains(&build.partitions);
        match (is_there, has_doubled) {
            (true, false) => Fit::Same,
            (true, true) => Fit::Earlier,
            (false, _) if is_alike && self.table == table => Fit::Earlier,
            (false, _) => Fit::Other,
        }
    }

    /// Returns a warning if the default refine factor does not make up for the compression of the index: searches for
    /// `k` rows stay below a recall of 0.95 with any number of partitions. Returns none if `k` was not measured.
    pub fn refine_warning(&self, k: u32) -> Option<String> {
        let of_k = self.of_k.iter().find(|it| it.k == k)?;
        let best = of_k.default_refine_best;
        let default = of_k.default;
        (best < REPAIRED).then(|| {
            format!(
                "the vectors of index `{}` are compressed so much that searches without `recall` miss rows: \
                 recall@{k} is {:.3}, and at most {best:.3} with more partitions; search with `recall`, or build the index with \
                 less compression",
                self.index.name, default.recall,
            )
        })
    }
}

/// A setting that a description of a curve shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shown {
    /// The number of rows of each answer.
    pub k: u32,
    /// The recall for which the setting is chosen; `None` for the setting that searches have by default.
    pub wanted: Option<f64>,
    /// The setting.
    pub point: Point,
}

impl From<&Shown> for RecallSetting {
    fn from(Shown { k, wanted, point }: &Shown) -> Self {
        Self {
            k: *k,
            wanted: wanted.unwrap_or(0.0) as f32,
            nprobes: point.nprobes,
            refine_factor: point.candidates.div_ceil(*k),
            recall: point.recall as f32,
            recall_low: point.low as f32,
            cost: point.cost as f32,
        }
    }
}

/// The recalls for which a description shows the chosen settings.
const SHOWN: [f64; 6] = [0.8, 0.9, 0.95, 0.98, 0.99, 0.995];

impl Curve {
    /// Returns the default setting and the settings chosen for some recalls, for each measured k. Recalls that no
    /// setting reaches are left out.
    pub fn shown(&self) -> Vec<Shown> {
        let of_k = |of_k: &CurveOfK| {
            let k = of_k.k;
            let chosen = move |wanted: f64| {
                let point = self.choose(k, wanted).ok()?.point;
                Some(Shown { k, wanted: Some(wanted), point })
            };
            let default = Shown { k, wanted: None, point: of_k.default };
            std::iter::once(default).chain(SHOWN.into_iter().filter_map(chosen)).collect::<Vec<_>>()
        };
        self.of_k.iter().flat_map(of_k).collect()
    }
}

/// The recall that searches with the default refine factor must be able to reach. Otherwise the index has a warning.
const REPAIRED: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::tests::curve;

    #[test]
    fn a_curve_fits_its_index_its_rebuilds_and_no_other() {
        let curve = curve();
        let fit = |change: fn(&mut IndexBuild), table: &str, rows: u64| {
            let mut build = curve.index.clone();
            change(&mut build);
            curve.fit(table, "vector", &build, rows)
        };
        let rebuilt = |it: &mut IndexBuild| it.segments = vec!["other".into()];
        assert_eq!(fit(|_| (), "t", 1000), Fit::Same);
        // Appended rows have got a segment of their own.
        assert_eq!(fit(|it| it.segments.push("new".into()), "moved", 2000), Fit::Same);
        assert_eq!(fit(|_| (), "t", 2001), Fit::Earlier);
        assert_eq!(fit(rebuilt, "t", 1000), Fit::Earlier);
        // Some of the five partitions were joined.
        for (partitions, expected) in [(4, Fit::Earlier), (1, Fit::Earlier), (0, Fit::Other)] {
            let segments = vec!["merged".into()];
            let merged = IndexBuild { partitions, segments, ..curve.index.clone() };
            assert_eq!(curve.fit("t", "vector", &merged, 1000), expected, "{partitions}");
        }
        assert_eq!(fit(rebuilt, "another table", 1000), Fit::Other);
        for change in [
            (|it: &mut IndexBuild| it.partitions += 1) as fn(&mut IndexBuild),
            |it| it.kind = "IVF_PQ".into(),
            |it| it.parameters = "{\"bits\":4}".into(),
            |it| it.name = "x".into(),
        ] {
            let mut build = curve.index.clone();
            rebuilt(&mut build);
            change(&mut build);
            assert_eq!(curve.fit("t", "vector", &build, 1000), Fit::Other);
        }
        assert_eq!(curve.fit("t", "other", &curve.index, 1000), Fit::Other);
    }

    #[test]
    fn an_index_that_the_default_refine_factor_does_not_repair_has_a_warning() {
        let mut curve = curve();
        assert_eq!(curve.refine_warning(10), None);
        curve.of_k[0].default_refine_best = 0.75;
        curve.of_k[0].default.recall = 0.734;
        let warning = curve.refine_warning(10).unwrap();
        assert!(warning.contains("recall@10 is 0.734, and at most 0.750 with more"), "{warning}");
        assert_eq!(curve.refine_warning(7), None);
    }
}
