//! The memory that rows hold while they are assembled into an answer.

use std::sync::Arc;

use traffic::{HeldBytes, TrafficMemory};

use crate::error::{QueryError, Result};

/// The number of copies of the rows that exist while they are assembled into an answer.
const ROW_COPIES: u64 = 2;

/// The memory that the rows of one call, or of several that share a look-up, hold.
pub struct HeldRows {
    memory: Arc<TrafficMemory>,
    held: HeldBytes,
}

impl HeldRows {
    /// Creates an account that holds no memory yet.
    pub fn new(memory: &Arc<TrafficMemory>) -> Self {
        Self { memory: Arc::clone(memory), held: HeldBytes::default() }
    }

    /// Raises the memory that is held to what rows of `bytes` bytes in total need: [`ROW_COPIES`] times their size.
    ///
    /// # Errors
    /// [`QueryError::OutOfMemory`] if callers hold all traffic memory of the core.
    pub fn hold(&mut self, bytes: usize) -> Result<()> {
        let wanted = (bytes as u64).saturating_mul(ROW_COPIES);
        let own = self.held.bytes();
        let Some(more) = wanted.checked_sub(own).filter(|&more| more > 0) else { return Ok(()) };
        let held = self.memory.hold(more, own).ok_or(QueryError::OutOfMemory)?;
        self.held = std::mem::take(&mut self.held).and(held);
        Ok(())
    }
}
