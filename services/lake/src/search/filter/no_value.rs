//! Recognises that a filter has no value for a row: its evaluation failed, as a division by zero does.
//!
//! Lance keeps only the text of such a failure, unless DataFusion evaluates the filter outside of Lance's reads.

use std::future::Future;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;

use crate::diagnose::one_line;
use crate::error::{LakeError, Result};
use crate::store::causes;
use crate::table::Table;
use crate::words::shortened;

/// The words with which Lance introduces the failure of a filter for a batch of rows that it has read.
const FILTER_FAILED: &str = "Error applying filter expression to batch: ";

impl Table {
    /// Awaits Lance's `work`, which evaluates `filter` if there is one. A condition on rows never fails
    /// (`part_of_table.rs`), nor does a filter beside it, so a failure under one is not the caller's.
    ///
    /// Errors: those of [`caught`](Self::caught), and `BadFilter` if the filter has no value for a row.
    pub(in crate::search) async fn caught_filter<T>(
        &self,
        filter: Option<&str>,
        work: impl Future<Output = lance::Result<T>>,
    ) -> Result<T> {
        let Some(filter) = filter.filter(|_| self.rule().is_none()) else {
            return self.caught(work).await;
        };
        let done = self.caught(async {
            match work.await {
                Ok(done) => Ok(Ok(done)),
                Err(error) => failure(&error).map(Err).ok_or(error),
            }
        });
        done.await?.map_err(|why| LakeError::BadFilter {
            filter: filter.to_owned(),
            why: shortened(&format!("it has no value for a row: {why}")),
        })
    }
}

/// Returns why a filter failed; `None` if `error` has another cause.
fn failure(error: &lance::Error) -> Option<String> {
    let text = error.to_string();
    let said = match text.split_once(FILTER_FAILED) {
        Some((_, said)) => said.to_owned(),
        None => causes(error).find_map(|cause| {
            let arrow = match cause.downcast_ref() {
                Some(DataFusionError::ArrowError(error, _)) => Some(error.as_ref()),
                _ => cause.downcast_ref::<ArrowError>(),
            };
            arrow.filter(|error| is_of_a_value(error)).map(ToString::to_string)
        })?,
    };
    let said = one_line(&said);
    let wrapped = ["Arrow error: ", "Execution error: ", "External error: "];
    Some(wrapped.iter().fold(said, |said, wrapping| said.replace(wrapping, "")))
}

/// Returns whether Arrow fails so only for the values of columns, and not because a file is damaged.
fn is_of_a_value(error: &ArrowError) -> bool {
    matches!(
        error,
        ArrowError::DivideByZero | ArrowError::CastError(_) | ArrowError::ArithmeticOverflow(_)
    )
}
