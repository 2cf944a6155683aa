//! The curves that fit the indexes of one version of a table.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use lake::{IndexInfo, MeasurableIndex, Table};
use placement::TableHash;
use recall::{Curve, Fit, IndexBuild};

use super::table_curves::TableCurves;
use crate::error::Result;

/// A curve and how well it fits.
pub type FittedCurve = (Arc<Curve>, Fit);

/// The curves of a version's columns. They are chosen when first asked for, and again when the known curves change.
#[derive(Debug)]
pub struct FittedCurves {
    curves: Arc<TableCurves>,
    cached: ArcSwapOption<Cached>,
}

#[derive(Debug)]
struct Cached {
    known: Arc<Vec<Arc<Curve>>>,
    /// Columns with a vector index, each with its curve.
    columns: Vec<(String, Option<FittedCurve>)>,
}

impl FittedCurves {
    /// Creates the curves of a version, none of which is chosen yet.
    pub fn new(curves: Arc<TableCurves>) -> Self {
        Self { curves, cached: ArcSwapOption::empty() }
    }

    /// Returns all curves of the table.
    pub fn of_table(&self) -> &TableCurves {
        &self.curves
    }

    /// Returns whether the curve of `column` was chosen already. To choose it opens the column's vector index.
    pub fn is_chosen(&self, column: &str) -> bool {
        self.chosen(&self.curves.known(), column).is_some()
    }

    fn chosen(&self, known: &Arc<Vec<Arc<Curve>>>, column: &str) -> Option<Option<FittedCurve>> {
        let cached = self.cached.load();
        let cached = cached.as_ref().filter(|cached| Arc::ptr_eq(&cached.known, known))?;
        let (_, curve) = cached.columns.iter().find(|(name, _)| name == column)?;
        Some(curve.clone())
    }

    /// Returns the curve that fits the vector index of `column` best, if one does: one of the same index rather than of
    /// an earlier build, and the newest of these.
    ///
    /// # Errors
    /// Errors of the store, which is asked if the known curves are new or have changed.
    pub async fn of_column(&self, table: &Table, column: &str) -> Result<Option<FittedCurve>> {
        let known = self.curves.known();
        if known.is_empty() {
            return Ok(None);
        }
        if let Some(curve) = self.chosen(&known, column) {
            return Ok(curve);
        }
        let mut columns = Vec::new();
        for index in table.indexes().await?.iter().filter(|index| index.is_vector()) {
            if let [name] = index.columns.as_slice() {
                let curve = best(&known, table, name, index).await?;
                columns.push((name.clone(), curve));
            }
        }
        let found = columns.iter().find(|(name, _)| name == column);
        let found = found.and_then(|(_, curve)| curve.clone());
        self.cached.store(Some(Arc::new(Cached { known, columns })));
        Ok(found)
    }
}

async fn best(
    known: &[Arc<Curve>],
    table: &Table,
    column: &str,
    index: &IndexInfo,
) -> Result<Option<FittedCurve>> {
    if known.iter().all(|curve| curve.column != column) {
        return Ok(None);
    }
    let build = build_of(index, table.measurable_index(column).await?.as_ref().ok());
    let (hash, rows) = (hash_of(table), table.row_count().saturating_sub(index.rows_uncovered));
    let fitting = |fit: Fit| {
        let fits = |curve: &&Arc<Curve>| curve.fit(&hash, column, &build, rows) == fit;
        // The newest is the first.
        known.iter().find(fits).map(|curve| (Arc::clone(curve), fit))
    };
    Ok(fitting(Fit::Same).or_else(|| fitting(Fit::Earlier)))
}

/// Returns the hash by which curves recognise a table.
pub fn hash_of(table: &Table) -> String {
    format!("{:016x}", TableHash::of(table.uri()).get())
}

/// Returns the build of `index`. Without `measurable`, the number of its partitions is not known, and 0 stands for it.
pub fn build_of(index: &IndexInfo, measurable: Option<&MeasurableIndex>) -> IndexBuild {
    let partitions = measurable.map_or(0, |it| u32::try_from(it.partitions).unwrap_or(u32::MAX));
    IndexBuild {
        name: index.name.clone(),
        kind: index.kind.clone(),
        parameters: index.parameters.clone(),
        partitions,
        segments: index.segments.clone(),
    }
}
