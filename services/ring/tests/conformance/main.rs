//! One suite for io_uring, the pread pool and the simulated disk: what a ring promises doesn't
//! depend on what carries it out.

mod bed;
mod bounds;
mod drives;
mod drops;
mod model;
mod reads;
mod simulated;
mod writes;
