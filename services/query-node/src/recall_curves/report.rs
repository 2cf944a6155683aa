//! The description of an index's recall.

use recall::{Curve, Fit, Questions};
use wire::query::{IndexRecall, RecallSetting};

use super::fitted::FittedCurve;
use super::table_curves::WARNED_K;

/// Returns the description of a curve.
pub fn index_recall((curve, fit): &FittedCurve) -> IndexRecall {
    IndexRecall {
        version: curve.version,
        rows: curve.rows,
        measured_at_s: curve.measured_at,
        questions: curve.question_count,
        questions_given: curve.questions == Questions::Given,
        settings: curve.shown().iter().map(RecallSetting::from).collect(),
        warnings: warnings(curve, *fit),
    }
}

fn warnings(curve: &Curve, fit: Fit) -> Vec<String> {
    let earlier = (fit == Fit::Earlier).then(|| {
        format!(
            "the recall was measured on an earlier state of the index, of version {}; measure it again with `bireme tune`",
            curve.version
        )
    });
    curve.refine_warning(WARNED_K).into_iter().chain(earlier).collect()
}
