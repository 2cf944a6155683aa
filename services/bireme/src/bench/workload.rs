//! The kinds of requests that a load consists of.

use std::future::Future;

use rand::SeedableRng;
use rand::rngs::StdRng;
use wire::Fault;

/// The rows of an answered request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows that came back, or were scored on the I/O node.
    pub rows: u64,
    /// Requested rows that do not exist.
    pub missing: u64,
}

/// A kind of request.
pub trait Workload: Send + Sync + 'static {
    /// Sends request `number`. For a given seed the request is the same, whichever thread sends it.
    fn request(&self, number: u64) -> impl Future<Output = Result<Done, Fault>> + Send;
}

/// Returns the random number generator of request `number`, which depends only on `seed` and `number`.
pub fn random(seed: u64, number: u64) -> StdRng {
    // Multiplying by a large odd constant gives consecutive requests seeds that are far apart.
    StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
