//! A projection that a client has opened on a stream.

use std::time::Duration;

use wire::query::{LookupOpen, RowFormat};

use crate::error::Result;
use crate::request_context::RequestContext;
use crate::stages::row_format;

/// A projection that a client has opened on a stream.
#[derive(Debug)]
pub struct OpenProjection {
    pub open: LookupOpen,
}

impl OpenProjection {
    /// Returns the format of rows.
    ///
    /// # Errors
    /// `BadRequest`.
    pub fn format(&self) -> Result<RowFormat> {
        row_format(self.open.format)
    }

    /// Returns `context`, which is for one group, with the projection's timeout. Its priority is checked later, when it
    /// can be refused.
    pub fn limit(&self, context: RequestContext) -> RequestContext {
        match self.open.timeout_us {
            0 => context,
            us => context.within(Duration::from_micros(us)),
        }
    }
}
