//! Flows, which share a queue in proportion to their weights.

/// The maximum weight of a flow. At weights above 1,048, virtual time could be rounded by more than a thousandth
/// (`flow_queue.rs`).
pub const WEIGHT_MAX: u32 = 1000;

/// A party that shares a queue with others, such as a grant. Its weight is relative to those of other flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    id: u64,
    weight: u32,
}

impl Flow {
    /// Creates a flow. The weight is clamped to the range from 1 to [`WEIGHT_MAX`]. The flow with id 0 is always the
    /// [default](Self::default), whose weight is 1.
    pub fn new(id: u64, weight: u32) -> Self {
        match id {
            0 => Self::default(),
            id => Self { id, weight: weight.clamp(1, WEIGHT_MAX) },
        }
    }

    /// Returns the flow's id.
    pub fn id(self) -> u64 {
        self.id
    }

    /// Returns the flow's weight.
    pub fn weight(self) -> u32 {
        self.weight
    }
}

/// Returns the flow of work without a grant: id 0, weight 1.
impl Default for Flow {
    fn default() -> Self {
        Self { id: 0, weight: 1 }
    }
}

/// Work with a cost.
pub trait Cost {
    /// Returns the cost of the work in rows.
    fn cost(&self) -> u32;
}
