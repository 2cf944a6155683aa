//! A projection that a client has opened on a stream.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use arrow_schema::SchemaRef;
use wire::query::{LookupOpen, RowFormat};

use crate::error::Result;
use crate::request_context::RequestContext;
use crate::stages::row_format;

/// A projection that a client has opened on a stream.
#[derive(Debug)]
pub struct OpenProjection {
    pub open: LookupOpen,
    /// The schema of the rows that was sent last. All groups of a stream are on one thread, so the lock is never
    /// contended.
    sent: Mutex<Option<SchemaRef>>,
}

impl OpenProjection {
    pub fn new(open: LookupOpen) -> Self {
        Self { open, sent: Mutex::new(None) }
    }

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

    /// Records that rows of `schema` are sent next. Returns whether the client does not know the schema yet.
    pub fn is_new(&self, schema: &SchemaRef) -> bool {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = sent.as_ref().is_some_and(|sent| sent == schema);
        if !is_known {
            *sent = Some(SchemaRef::clone(schema));
        }
        !is_known
    }
}
