//! Chooses the setting of a search that asks for a recall.

use std::fmt;
use std::time::Duration;

use recall::{Fit, NoSetting, Setting};

use crate::error::{QueryError, Result};
use crate::tables::OpenTable;

/// The interval at which curves are looked for while searches ask for a recall and no known curve fits. Each time costs
/// one listing.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// A setting that was chosen, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The setting.
    pub setting: Setting,
    /// The wanted recall.
    pub recall: f64,
    /// The version that was measured.
    pub version: u64,
    /// Whether the curve is of an earlier state of the index.
    pub is_earlier: bool,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting: Setting { nprobes, refine_factor, k, point }, .. } = self;
        write!(
            f,
            "nprobes {nprobes} and refine factor {refine_factor} for recall {}, by the curve of version {}, where \
             recall@{k} was {:.3} (at least {:.3})",
            self.recall, self.version, point.recall, point.low,
        )?;
        match self.is_earlier {
            true => f.write_str(", of an earlier state of the index"),
            false => Ok(()),
        }
    }
}

/// Returns the cheapest setting with which a search of `column` for `k` rows reaches `recall`; `None` if the column has no
/// index, so that every row is compared. Looks for new curves if none of the known ones fits.
///
/// # Errors
/// [`QueryError::RecallUnmeasured`], [`QueryError::RecallUnreached`], and errors of the store.
pub async fn choose_setting(
    open: &OpenTable,
    column: &str,
    k: usize,
    recall: f64,
) -> Result<Option<Chosen>> {
    if open.table.vector_index(column).await?.is_none() {
        return Ok(None);
    }
    let curves = &open.curves;
    let mut found = curves.of_column(&open.stored, column).await?;
    if found.is_none() {
        curves.of_table().look(&open.stored, LOOK_AGAIN).await;
        found = curves.of_column(&open.stored, column).await?;
    }
    let names = || (open.name.clone(), column.to_owned());
    let Some((curve, fit)) = found else {
        let is_stale = curves.of_table().known().iter().any(|curve| curve.column == column);
        let (table, column) = names();
        return Err(QueryError::RecallUnmeasured { table, column, is_stale });
    };
    let chosen = curve.choose(u32::try_from(k).unwrap_or(u32::MAX), recall);
    let setting = chosen.map_err(|reason| {
        let (table, column) = names();
        // The best recall was measured on all rows.
        let is_hidden = open.hides_rows() && matches!(reason, NoSetting::Unreached { .. });
        let reason = Some(reason).filter(|_| !is_hidden);
        QueryError::RecallUnreached { table, column, recall, reason }
    })?;
    let is_earlier = fit == Fit::Earlier;
    Ok(Some(Chosen { setting, recall, version: curve.version, is_earlier }))
}

#[cfg(test)]
mod tests {
    use recall::Point;

    use super::*;

    #[test]
    fn a_choice_says_what_was_measured() {
        let point = Point { nprobes: 12, candidates: 40, recall: 0.9534, low: 0.9451, cost: 50.0 };
        let setting = Setting { nprobes: 12, refine_factor: 8, k: 10, point };
        let chosen = |is_earlier| Chosen { setting, recall: 0.95, version: 7, is_earlier };
        assert_eq!(
            chosen(false).to_string(),
            "nprobes 12 and refine factor 8 for recall 0.95, by the curve of version 7, where recall@10 was 0.953 \
             (at least 0.945)"
        );
        assert!(chosen(true).to_string().ends_with("), of an earlier state of the index"));
    }
}
