//! Flows: whose work waits.

/// The maximum weight of a flow.
pub const WEIGHT_MAX: u32 = 1000;

/// A share of a queue: its id, and its weight compared with other flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    id: u64,
    weight: u32,
}

impl Flow {
    /// Creates a flow. A weight that is out of range, 1 to [`WEIGHT_MAX`], becomes the nearest one that is not. Flow 0
    /// is always the [default](Self::default).
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

/// The flow of work that belongs to nobody in particular: 0, of weight 1.
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
