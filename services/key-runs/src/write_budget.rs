//! The memory that writing runs may take, and the reasons why it fails.

use std::future::Future;

use bytesize::ByteSize;
use lake::LakeError;
use thiserror::Error;

/// The memory that writing runs may take, and the order in which builders of runs work.
pub trait WriteBudget: Sync {
    /// Reserved memory. It is returned when this is dropped.
    type Held: Send + 'static;

    /// Reserves memory; `None` if there is not enough.
    fn reserve(&self, bytes: u64) -> Option<Self::Held>;

    /// Waits until no other run is being built or merged. None is until the result is dropped.
    fn turn(&self) -> impl Future<Output = impl Send> + Send;
}

/// The budget of a process that does nothing else.
pub struct Unlimited;

impl WriteBudget for Unlimited {
    type Held = ();

    fn reserve(&self, _: u64) -> Option<()> {
        Some(())
    }

    fn turn(&self) -> impl Future<Output = impl Send> + Send {
        std::future::ready(())
    }
}

/// The reason why runs can't be written.
#[derive(Debug, Error)]
pub enum RunWriteError {
    /// The table can't be read, or the store refuses or does not answer.
    #[error(transparent)]
    Table(#[from] LakeError),
    /// The budget is too small.
    #[error("building or merging a run takes {}, which are not free", ByteSize::b(*.bytes))]
    Full {
        /// The memory that was not there.
        bytes: u64,
    },
}
