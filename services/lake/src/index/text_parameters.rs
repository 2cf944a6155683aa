//! Reads the parameters of full-text indexes from their files, because the manifest lacks some.

use lance::index::DatasetIndexExt;
use lance::index::scalar::load_segment_params;

use crate::error::Result;
use crate::table::Table;

impl Table {
    /// Reads from the files of a full-text index the parameters that it was built with, in JSON. They include custom
    /// stop words, which the manifest lacks. Returns `None` if there is no such index. Errors: those of the store.
    pub async fn text_parameters(&self, index: &str) -> Result<Option<String>> {
        let load = async {
            let segments = self.dataset().load_indices_by_name(index).await?;
            let Some(segment) = segments.first() else { return Ok(None) };
            let parameters = load_segment_params(self.dataset(), segment).await?;
            Ok(Some(serde_json::to_string(&parameters)?))
        };
        self.caught(load).await
    }
}
