//! One test suite for all engines, because a ring's guarantees do not depend on its backend.

mod bed;
mod bounds;
mod drives;
mod drops;
mod model;
mod reads;
mod simulated;
mod writes;
