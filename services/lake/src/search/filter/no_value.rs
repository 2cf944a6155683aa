//! Recognises that a filter has no value for a row: its evaluation failed, as a division by zero does.
//!
//! Lance evaluates a filter for each batch of rows that it reads, and keeps only the text of a failure.

use std::future::Future;

use crate::diagnose::one_line;
use crate::error::words::shortened;
use crate::error::{LakeError, Result};
use crate::table::Table;

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
        let Some(filter) = filter.filter(|_| self.condition().is_none()) else {
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
    let said = one_line(text.split_once(FILTER_FAILED)?.1);
    let wrapped = ["Arrow error: ", "Execution error: ", "External error: "];
    Some(wrapped.iter().fold(said, |said, wrapping| said.replace(wrapping, "")))
}
